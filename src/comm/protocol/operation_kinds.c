#include "comm/protocol/operation_kinds.h"

#include <stdio.h>

const rpi_operation_kind *const rpi_operation_kinds[RPI_NUMBER_KINDS] = {
    &rpi_operation_collective,
    &rpi_operation_exchange,
    &rpi_operation_pair,
    &rpi_operation_pair,
};

void rpi_sequence_text(uint64_t sequence, char *text, size_t bytes) {
    const rpi_operation_kind *kind = rpi_operation_kinds[sequence >> RPI_NUMBER_KIND_SHIFT];
    if (kind->noun)
        snprintf(text, bytes, "%s %llu", kind->noun,
                 (unsigned long long)(sequence - kind->first));
    else
        snprintf(text, bytes, "a send or receive");
}
