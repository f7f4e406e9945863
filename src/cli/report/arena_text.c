#include "cli/report/arena_text.h"

#include "base/status.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

rp_status rpi_arena_copy(rpi_arena *arena, const char *text, const char **out_copy) {
    size_t bytes = strlen(text) + 1;
    char *copy = NULL;
    RP_TRY(rpi_arena_alloc(arena, bytes, &copy));
    memcpy(copy, text, bytes);
    *out_copy = copy;
    return RP_OK;
}

rp_status rpi_arena_printf(rpi_arena *arena, const char **out_text, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = NULL;
    rp_status status = length < 0 ? RP_FAIL(INTERNAL, "a text cannot be formatted")
                                  : rpi_arena_alloc(arena, (size_t)length + 1, &text);
    if (status == RP_OK) {
        vsnprintf(text, (size_t)length + 1, format, again);
        *out_text = text;
    }
    va_end(again);
    return status;
}

rp_status rpi_arena_array(rpi_arena *arena, size_t count, size_t element_bytes,
                          void *out_pointer) {
    if (count > SIZE_MAX / 2 / element_bytes)
        return RP_FAIL(NOMEM, "no memory for %zu elements", count);
    return rpi_arena_alloc(arena, count * element_bytes, out_pointer);
}
