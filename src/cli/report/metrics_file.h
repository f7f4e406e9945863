/* Reads the output of `redpoll train` and `redpoll bench --json` (docs/json.md).
 *
 * A metrics.jsonl may have several headers (a resumed run appends), steps that are repeated
 * after one, an incomplete line if the writer died, and a last line that is being written now.
 * The result is one row for each step, in order; of repeated steps the last counts. */
#ifndef RPI_CLI_REPORT_METRICS_FILE_H
#define RPI_CLI_REPORT_METRICS_FILE_H

#include "base/memory.h"
#include "cli/report/step_spans.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum rpi_step_value {
    RPI_STEP_LOSS,
    RPI_STEP_LR,
    RPI_STEP_RATE, /* images_s, or tokens_s */
    RPI_STEP_S,
    RPI_STEP_COMPUTE_S,
    RPI_STEP_COMM_S,
    RPI_STEP_ENCODE_S,
    RPI_STEP_DECODE_S,
    RPI_STEP_EXPOSED_S,
    RPI_STEP_SKEW_S,
    RPI_STEP_WIRE_BYTES,
    RPI_STEP_VALUES
} rpi_step_value;

/* The key of a value in the file. */
extern const char *const rpi_step_keys[RPI_STEP_VALUES];

typedef struct rpi_step_row {
    int64_t step;
    double values[RPI_STEP_VALUES]; /* NaN: null or absent */
} rpi_step_row;

typedef struct rpi_evaluation_row {
    int64_t step;
    double accuracy, loss, perplexity; /* NaN: null or absent */
    double images;                     /* or tokens */
    double consensus; /* distance of ranks from their mean; NaN: all have one */
} rpi_evaluation_row;

/* One line of a benchmark or a plan. Texts are of the arena, "" where absent; numbers NaN. */
typedef struct rpi_report_bench_row {
    const char *op, *codec, *algorithm, *transport, *dtype, *isa;
    double ranks, count, bytes, time_s, time_min_s, time_max_s, algbw, busbw, wire_bytes, error;
    double encode_bytes_s, decode_add_bytes_s, memcpy_bytes_s, encoded_bytes;
    bool is_codec, is_plan, feedback;
} rpi_report_bench_row;

typedef struct rpi_metrics_file {
    rpi_step_row *steps;
    size_t step_count, step_room;
    rpi_evaluation_row *evaluations;
    size_t evaluation_count, evaluation_room;
    rpi_report_bench_row *bench;
    size_t bench_count, bench_room;

    cJSON *header;    /* of the last start; NULL: none */
    int64_t *resumed; /* first steps of the later starts */
    size_t resumed_count, resumed_room;
    int64_t layout_from; /* first step in the layout of the last start; 0: there was no other */

    const char *unit;                  /* "images" or "tokens" */
    int64_t replaced_steps;            /* that a resumed run did again */
    int64_t torn_lines;                /* left by a death in mid-line */
    bool last_line_torn;               /* being written, or the same */
    bool closed;                       /* the last start has its closing object */
    bool stopped;                      /* which says that a signal ended it */
    double memory_bytes;               /* with the peak memory of rank 0; NaN: it has none */
    const rpi_report_picture *picture; /* of its last step, in the arena; NULL: there is none */
    const char *error;                 /* of the arena; NULL: did not fail */
    int64_t failed_step;
} rpi_metrics_file;

/* Read a whole file. `name` is for messages. RP_IO: cannot be read, RP_CORRUPT: FILE:LINE is
 * not JSON, or not of these programs. After a failure nothing needs closing. */
rp_status rpi_metrics_file_read(FILE *stream, const char *name, rpi_arena *arena,
                                rpi_metrics_file *out_file);
void rpi_metrics_file_close(rpi_metrics_file *file);

/* A folder's metrics.jsonl, or a file by its own name; only regular files are opened. */
rp_status rpi_metrics_file_open(const char *path, rpi_arena *arena, rpi_metrics_file *out_file);

#endif
