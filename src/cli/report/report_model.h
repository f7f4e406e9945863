/* The content of a report: its runs and benchmark rows, small however long the runs were. All
 * texts and arrays are in one arena. */
#ifndef RPI_CLI_REPORT_MODEL_H
#define RPI_CLI_REPORT_MODEL_H

#include "cli/report/metrics_file.h"
#include "cli/run_forecast.h"

/* A few steps of a run as one point of a curve. */
typedef struct rpi_curve_point {
    double step, seconds, bytes; /* at its last step; sums since the first known step */
    double smooth;               /* mean loss around it; NaN: none is a number */
    double low, high;            /* of the losses themselves */
} rpi_curve_point;

/* An evaluation, and the time and bytes up to it since the first known step. */
typedef struct rpi_run_evaluation {
    rpi_evaluation_row row;
    double seconds, bytes;
} rpi_run_evaluation;

/* Order statistics over the steps; NaN without any. */
typedef struct rpi_spread {
    double p10, p25, p50, p75, p90;
} rpi_spread;

/* The parts of a step's time: means over the middle half of the steps, by their time (or over
 * all, if most send nothing), so that the parts add up and outliers have no effect. */
typedef struct rpi_step_parts {
    double step_s, compute_s, network_s, skew_s; /* of the training thread */
    double comm_s, codec_s; /* of the communication meanwhile; NaN: unknown */
} rpi_step_parts;

typedef struct rpi_setting {
    const char *name, *value;
} rpi_setting;

typedef enum rpi_report_run_state {
    RPI_RUN_FINISHED,
    RPI_RUN_OPEN,
    RPI_RUN_FAILED
} rpi_report_run_state;

typedef struct rpi_report_run {
    const char *label, *path;
    int style; /* of its lines: chart.h */
    const char *model, *data, *codec, *link, *transport, *unit;
    int64_t ranks, steps, last_step;
    int64_t tensor_ranks, stages, context_ranks; /* of a replica; 0 or 1: one */
    double start_time; /* of the last start, seconds since 1970; 0: unknown */
    rpi_curve_point *curve;
    int curve_count;
    int64_t window; /* steps of the mean that smooths */
    bool single;    /* each point is one step */
    double seconds, bytes, final_loss;
    int64_t final_window; /* steps in final_loss */
    rpi_run_evaluation *evaluations;
    int evaluation_count;
    double best_accuracy;
    int64_t best_step;
    rpi_spread rate;
    double step_bytes;                 /* mean: local SGD sends nothing in most steps */
    double step_units;                 /* images or tokens of a step, mean */
    double memory_bytes;               /* peak memory of rank 0; NaN: not known */
    double unit_flops;                 /* operations of an image, or a token; NaN: not known */
    const rpi_report_picture *picture; /* of its last step; NULL: there is none */
    const rpi_run_forecast *forecast;  /* NULL: none was requested, or there can be none: */
    const char *no_forecast;           /* why; NULL: nobody asked */
    rpi_step_parts parts;
    rpi_setting *settings;
    int setting_count;
    const char **notes;
    int note_count;
    rpi_report_run_state state;
} rpi_report_run;

typedef struct rpi_report_bench {
    const char *label; /* of the file */
    rpi_report_bench_row *rows;
    int count;
} rpi_report_bench;

typedef struct rpi_report {
    rpi_arena *arena;
    const char *title;
    rpi_report_run *runs;
    int run_count;
    rpi_report_bench *benches;
    int bench_count;
} rpi_report;

#endif
