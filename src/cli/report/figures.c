#include "cli/report/figure.h"

#include "base/status.h"
#include "cli/report/arena_text.h"

static const rpi_figure_kind *const catalogue[] = {
    &rpi_figure_loss_steps,     &rpi_figure_loss_time,       &rpi_figure_loss_bytes,
    &rpi_figure_accuracy,       &rpi_figure_perplexity,      &rpi_figure_consensus_steps,
    &rpi_figure_consensus_time, &rpi_figure_consensus_bytes, &rpi_figure_throughput,
    &rpi_figure_step_time,      &rpi_figure_step_picture,    &rpi_figure_scaling,
    &rpi_figure_bench_time,     &rpi_figure_bench_bandwidth, &rpi_figure_codecs,
};
enum { KINDS = sizeof catalogue / sizeof catalogue[0] };

const rpi_figure_kind *rpi_figure_at(int index) {
    return index >= 0 && index < KINDS ? catalogue[index] : NULL;
}

rp_status rpi_figures_build(const rpi_report *report, rpi_figure **out_figures,
                            int *out_count) {
    rpi_figure *figures = NULL;
    int count = 0;
    RP_TRY(rpi_arena_array(report->arena, KINDS, sizeof *figures, &figures));
    for (int i = 0; i < KINDS; i++) {
        rpi_figure *figure = &figures[count];
        *figure = (rpi_figure){.name = catalogue[i]->name, .caption = "", .summary = ""};
        RP_TRY(catalogue[i]->build(report, figure));
        if (figure->series_count > 0 || figure->row_count > 0) count++;
    }
    *out_figures = figures;
    *out_count = count;
    return RP_OK;
}
