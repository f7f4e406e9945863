/* The last step of a run as its ranks recorded it, read from metrics.jsonl (docs/json.md). */
#ifndef RPI_CLI_REPORT_STEP_SPANS_H
#define RPI_CLI_REPORT_STEP_SPANS_H

#include "base/memory.h"

#include <cjson/cJSON.h>
#include <stdint.h>

/* Passes, and then waits of ranks. */
typedef enum rpi_span_kind {
    RPI_SPAN_FORWARD,
    RPI_SPAN_BACKWARD,
    RPI_SPAN_INPUTS,
    RPI_SPAN_WEIGHTS,
    RPI_SPAN_STAGES,
    RPI_SPAN_LAYERS,
    RPI_SPAN_REPLICAS,
    RPI_SPAN_KINDS
} rpi_span_kind;

/* "forward", ... "replicas": words of the file. */
extern const char *const rpi_span_names[RPI_SPAN_KINDS];

typedef struct rpi_report_span {
    rpi_span_kind kind;
    int64_t chunk, micro_batch; /* micro_batch -1: of none */
    double start_s, end_s;      /* from the step's beginning on rank 0 */
} rpi_report_span;

typedef struct rpi_picture_row {
    int64_t rank, stage, context, tensor;
    double start_s, end_s; /* of the step */
    rpi_report_span *spans;
    int span_count;
    double seconds[RPI_SPAN_KINDS]; /* of each kind */
} rpi_picture_row;

typedef struct rpi_report_picture {
    int64_t step;
    rpi_picture_row *rows;
    int row_count;
} rpi_report_picture;

/* Entries that are not ranks or spans are ignored. All of it is in the arena. */
rp_status rpi_report_picture_read(const cJSON *object, rpi_arena *arena,
                                  const rpi_report_picture **out_picture);

#endif
