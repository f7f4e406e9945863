#include "train/pictures/picture.h"

#include "base/status.h"

rp_status rpi_picture_format_check(const rpi_picture_format *format) {
    if (format->decode) return RP_OK;
    return RP_FAIL(UNSUPPORTED,
                   "this build of redpoll reads no %s: install %s (Debian and Ubuntu: apt-get "
                   "install %s) and build it again",
                   format->name, format->package, format->package);
}

rp_status rpi_picture_check_size(uint64_t width, uint64_t height) {
    if (width < 1 || height < 1)
        return RP_FAIL(CORRUPT, "its header says %llux%llu pixels", (unsigned long long)width,
                       (unsigned long long)height);
    if (width > RPI_PICTURE_MOST_SIDE || height > RPI_PICTURE_MOST_SIDE ||
        width * height > RPI_PICTURE_MOST_PIXELS)
        return RP_FAIL(CORRUPT,
                       "its header says %llux%llu pixels; %d a side and %d in all are the most",
                       (unsigned long long)width, (unsigned long long)height,
                       RPI_PICTURE_MOST_SIDE, RPI_PICTURE_MOST_PIXELS);
    return RP_OK;
}
