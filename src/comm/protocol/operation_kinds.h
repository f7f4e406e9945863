/* The kinds of operations, and numbers as text. */
#ifndef RPI_COMM_OPERATION_KINDS_H
#define RPI_COMM_OPERATION_KINDS_H

#include "comm/core/operation_kind.h"

extern const rpi_operation_kind rpi_operation_collective;
extern const rpi_operation_kind rpi_operation_exchange;
extern const rpi_operation_kind rpi_operation_pair;

/* By the top two bits of a number. */
extern const rpi_operation_kind *const rpi_operation_kinds[RPI_NUMBER_KINDS];

/* "operation 5", for what others report in their heartbeats. */
void rpi_sequence_text(uint64_t sequence, char *text, size_t bytes);

#endif
