/* Images and labels as MNIST has them. The first two bytes say where the labels begin. */
#include "fuzz_input.h"

#include "base/memory.h"
#include "train/data/idx_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char images_path[64], labels_path[64];
    int images_fd, labels_fd;
    rpi_images images = {0};
    if (bytes < 2) return 0;
    size_t split = (size_t)(data[0] | data[1] << 8);
    data += 2;
    bytes -= 2;
    if (split > bytes) split = bytes;
    fuzz_file(data, split, images_path, &images_fd);
    fuzz_file(data + split, bytes - split, labels_path, &labels_fd);
    if (rpi_idx_read(images_path, labels_path, &images) == RP_OK) {
        rpi_free(images.pixels);
        rpi_free(images.labels);
    }
    close(images_fd), close(labels_fd);
    return 0;
}
