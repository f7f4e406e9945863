/* A file of texts, packed or not, read as documents. The first byte says how. */
#include "fuzz_input.h"

#include "train/data/text_source.h"

static volatile size_t read_bytes;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    enum { MOST_DOCUMENTS = 4096 };
    char path[64];
    const char *paths[] = {path};
    int fd = -1;
    rpi_text_source *source = NULL;
    if (bytes < 1) return 0;
    fuzz_file(data + 1, bytes - 1, path, &fd);
    rpi_text_source_options options = {.paths = paths,
                                       .path_count = 1,
                                       .split_lines = data[0] & 1,
                                       .skip_broken = data[0] & 2,
                                       .format = (data[0] >> 2) % RPI_FORMATS};
    if (rpi_text_source_open(&options, &source) == RP_OK) {
        rpi_document document;
        bool done = false;
        for (int i = 0; i < MOST_DOCUMENTS && !done; i++) {
            if (rpi_text_source_next(source, &done, &document) != RP_OK) break;
            if (!done) read_bytes += document.bytes;
        }
    }
    rpi_text_source_close(source);
    close(fd);
    return 0;
}
