#include "base/sized_options.h"

#include <string.h>

/* Nobody adds so much: what is larger is no size, but a pointer, say, of a caller that knows
 * the struct as it was before it had one. */
enum { ADDED_MOST = 1024 };

static rp_status check_unknown(const rpi_sized *sized, const unsigned char *given,
                               size_t bytes) {
    for (size_t i = sized->known; i < bytes; i++)
        if (given[i])
            return RP_FAIL(
                UNSUPPORTED,
                "%s of %zu bytes sets a field that this library does not know, whose "
                "own has %zu: leave it out, or use the library that the caller was "
                "compiled for",
                sized->name, bytes, sized->known);
    return RP_OK;
}

static rp_status check_size(const rpi_sized *sized, size_t bytes) {
    if (bytes >= sized->least && bytes <= sized->known + ADDED_MOST) return RP_OK;
    return RP_FAIL(INVALID,
                   "%s.size is %zu, and %zu is what it is here: begin with %s(), which sets it",
                   sized->name, bytes, sized->known, sized->initializer);
}

rp_status rpi_sized_read(const rpi_sized *sized, const void *given, void *out_own) {
    size_t bytes = sized->known;
    if (given) memcpy(&bytes, given, sizeof bytes);
    RP_TRY(check_size(sized, bytes));
    if (given) RP_TRY(check_unknown(sized, given, bytes));
    memset(out_own, 0, sized->known);
    if (given) memcpy(out_own, given, bytes < sized->known ? bytes : sized->known);
    memcpy(out_own, &sized->known, sizeof sized->known);
    return RP_OK;
}

rp_status rpi_sized_write(const rpi_sized *sized, const void *own, void *out_given) {
    size_t bytes = 0;
    memcpy(&bytes, out_given, sizeof bytes);
    RP_TRY(check_size(sized, bytes));
    memset(out_given, 0, bytes);
    memcpy(out_given, own, bytes < sized->known ? bytes : sized->known);
    memcpy(out_given, &bytes, sizeof bytes);
    return RP_OK;
}
