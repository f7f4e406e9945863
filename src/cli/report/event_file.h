/* Event files for TensorBoard: records framed as TFRecord (length, masked CRC-32C of it, bytes,
 * masked CRC-32C of them), each an Event of tensorflow/core/util/event.proto. The few fields
 * that scalars need are encoded here by hand. */
#ifndef RPI_CLI_REPORT_EVENT_FILE_H
#define RPI_CLI_REPORT_EVENT_FILE_H

#include <stdint.h>
#include <stdio.h>

typedef struct rpi_scalar {
    const char *tag; /* "train/loss" */
    double value;
} rpi_scalar;

enum { RPI_EVENT_SCALARS = 16 }; /* at most, in one event; tags of at most 60 bytes */

/* The first record of a file: its version. */
void rpi_event_version(FILE *stream, double wall_time);
/* One event with all these scalars, as 32-bit floats, as TensorBoard keeps them. */
void rpi_event_scalars(FILE *stream, double wall_time, int64_t step, const rpi_scalar *scalars,
                       int count);

#endif
