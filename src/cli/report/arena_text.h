/* Texts that live as long as an arena. */
#ifndef RPI_CLI_REPORT_ARENA_TEXT_H
#define RPI_CLI_REPORT_ARENA_TEXT_H

#include "base/memory.h"

rp_status rpi_arena_copy(rpi_arena *arena, const char *text, const char **out_copy);
rp_status rpi_arena_printf(rpi_arena *arena, const char **out_text, const char *format, ...)
    RP_PRINTF(3, 4);
/* `count` zeroed elements; 0 gives a valid pointer. */
rp_status rpi_arena_array(rpi_arena *arena, size_t count, size_t element_bytes,
                          void *out_pointer);

#endif
