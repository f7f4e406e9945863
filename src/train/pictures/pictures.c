#include "train/pictures/picture.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

extern const rpi_picture_format rpi_picture_jpeg;
extern const rpi_picture_format rpi_picture_png;

static const rpi_picture_format *const formats[] = {
    &rpi_picture_jpeg,
    &rpi_picture_png,
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

const rpi_picture_format *rpi_picture_format_at(int index) {
    return index >= 0 && index < FORMATS ? formats[index] : NULL;
}

const rpi_picture_format *rpi_picture_format_of_name(const char *name) {
    size_t length = strlen(name);
    for (int f = 0; f < FORMATS; f++)
        for (const char *const *s = formats[f]->suffixes; *s; s++) {
            size_t end = strlen(*s);
            /* strcasecmp() of other locales still takes A to Z for a to z. */
            if (length > end && strcasecmp(name + length - end, *s) == 0) return formats[f];
        }
    return NULL;
}

/* "JPEG or PNG" */
static const char *names(char text[64]) {
    int used = 0;
    for (int f = 0; f < FORMATS; f++)
        used +=
            snprintf(text + used, 64 - (size_t)used, "%s%s", f ? " or " : "", formats[f]->name);
    return text;
}

rp_status rpi_picture_decode(const uint8_t *bytes, size_t count, const rpi_picture_sink *sink) {
    char text[64];
    for (int f = 0; f < FORMATS; f++) {
        size_t magic = (size_t)formats[f]->magic_bytes;
        if (count < magic || memcmp(bytes, formats[f]->magic, magic) != 0) continue;
        RP_TRY(rpi_picture_format_check(formats[f]));
        return formats[f]->decode(bytes, count, sink);
    }
    if (count < 4) return RP_FAIL(CORRUPT, "%zu bytes are no %s", count, names(text));
    return RP_FAIL(CORRUPT, "it is no %s: it begins with %02x %02x %02x %02x", names(text),
                   bytes[0], bytes[1], bytes[2], bytes[3]);
}
