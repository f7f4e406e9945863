/* The contract of a figure; figures.c is the catalogue. A new figure is one file and one row.
 */
#ifndef RPI_CLI_REPORT_FIGURE_H
#define RPI_CLI_REPORT_FIGURE_H

#include "cli/report/chart.h"
#include "cli/report/report_model.h"

typedef struct rpi_figure_kind {
    const char *name; /* of its file in --svg */
    /* All of a figure's texts and arrays belong to the report's arena. A figure without rows
     * and series is left out, because the runs have no data for it. */
    rp_status (*build)(const rpi_report *report, rpi_figure *figure);
} rpi_figure_kind;

const rpi_figure_kind *rpi_figure_at(int index); /* NULL past the end */

extern const rpi_figure_kind rpi_figure_loss_steps;
extern const rpi_figure_kind rpi_figure_loss_time;
extern const rpi_figure_kind rpi_figure_loss_bytes;
extern const rpi_figure_kind rpi_figure_accuracy;
extern const rpi_figure_kind rpi_figure_perplexity;
extern const rpi_figure_kind rpi_figure_consensus_steps;
extern const rpi_figure_kind rpi_figure_consensus_time;
extern const rpi_figure_kind rpi_figure_consensus_bytes;
extern const rpi_figure_kind rpi_figure_throughput;
extern const rpi_figure_kind rpi_figure_step_time;
extern const rpi_figure_kind rpi_figure_step_picture;
extern const rpi_figure_kind rpi_figure_scaling;
extern const rpi_figure_kind rpi_figure_bench_time;
extern const rpi_figure_kind rpi_figure_bench_bandwidth;
extern const rpi_figure_kind rpi_figure_codecs;

/* All figures of this report; the array belongs to its arena. */
rp_status rpi_figures_build(const rpi_report *report, rpi_figure **out_figures, int *out_count);

/* As a file of its own, with title, legend, caption and both palettes; `subtitle` may be NULL.
 */
void rpi_figure_write_file(FILE *stream, const rpi_figure *figure, const char *subtitle);
/* As a numbered <figure> of a page, with its caption and its table. */
void rpi_figure_write_page(FILE *stream, const rpi_figure *figure, int number);
/* The sample of a line or a box in legends. */
void rpi_figure_key(FILE *stream, const char *class, bool is_line);

#endif
