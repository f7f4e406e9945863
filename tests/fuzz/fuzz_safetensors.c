/* A checkpoint file. */
#include "fuzz_input.h"

#include "train/checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char path[64];
    int fd;
    rpi_safetensors *file = NULL;
    fuzz_file(data, bytes, path, &fd);
    if (rpi_safetensors_open(path, &file) == RP_OK) {
        for (int i = 0; i < rpi_safetensors_count(file); i++)
            (void)rpi_safetensors_find(file, rpi_safetensors_at(file, i)->name);
        (void)rpi_safetensors_metadata(file, "format");
        rpi_safetensors_close(file);
    }
    close(fd);
    return 0;
}
