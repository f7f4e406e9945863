/* The parts of a step's time: the upper bar is the training thread's computation and waits, the
 * lower bar the communication at the same time. */
#include "cli/report/figure.h"

#include "base/status.h"
#include "cli/report/arena_text.h"
#include "cli/report/row_table.h"

#include <math.h>

static const rpi_row_columns columns = {
    {"step", "compute", "exposed: network", "exposed: waiting for a rank", "in flight", "codec",
     NULL},
    {RPI_SECONDS, RPI_SECONDS, RPI_SECONDS, RPI_SECONDS, RPI_SECONDS, RPI_SECONDS},
};

static const rpi_key keys[] = {
    {"compute", "compute"},
    {"exposed: network", "network"},
    {"exposed: waiting for a slower rank", "skew"},
    {"communication in flight", "comm"},
    {"of it, encoding and decoding", "codec"},
};

/* A part of 0 gets no bar. */
static rp_status add_bar(rpi_arena *arena, const char *name, const char *class, double from,
                         double length, double top, double height, rpi_chart_row *row) {
    char text[RPI_QUANTITY_TEXT];
    if (!(length > 0)) return RP_OK;
    rpi_bar *bar = &row->bars[row->bar_count++];
    *bar = (rpi_bar){from, from + length, top, height, class, NULL};
    return rpi_arena_printf(arena, &bar->title, "%s: %s", name,
                            rpi_quantity_text(RPI_SECONDS, length, text));
}

static rp_status make_row(rpi_arena *arena, const rpi_report_run *run, rpi_chart_row *row) {
    const rpi_step_parts *p = &run->parts;
    char text[RPI_QUANTITY_TEXT];
    double exposed = p->network_s + p->skew_s;
    *row = (rpi_chart_row){.label = run->label};
    RP_TRY(add_bar(arena, "compute", "compute", 0, p->compute_s, 0, 11, row));
    RP_TRY(
        add_bar(arena, "exposed: network", "network", p->compute_s, p->network_s, 0, 11, row));
    RP_TRY(add_bar(arena, "exposed: waiting for a slower rank", "skew",
                   p->compute_s + p->network_s, p->skew_s, 0, 11, row));
    RP_TRY(add_bar(arena, "communication in flight", "comm", 0, p->comm_s, 13, 5, row));
    RP_TRY(add_bar(arena, "of it, encoding and decoding", "codec", 0, p->codec_s, 13, 5, row));
    rpi_quantity_text(RPI_SECONDS, p->step_s, text);
    if (!(exposed > 0)) return rpi_arena_printf(arena, &row->value, "%s", text);
    return rpi_arena_printf(arena, &row->value, "%s, %.0f %% exposed", text,
                            100 * exposed / p->step_s);
}

static rp_status build(const rpi_report *report, rpi_figure *figure) {
    rpi_arena *arena = report->arena;
    RP_TRY(
        rpi_arena_array(arena, (size_t)report->run_count, sizeof *figure->rows, &figure->rows));
    for (int r = 0; r < report->run_count; r++)
        if (!isnan(report->runs[r].parts.step_s))
            RP_TRY(make_row(arena, &report->runs[r], &figure->rows[figure->row_count++]));
    RP_TRY(rpi_row_table_begin(arena, "run", &columns, figure));
    for (int r = 0, row = 0; r < report->run_count; r++) {
        const rpi_step_parts *p = &report->runs[r].parts;
        if (isnan(p->step_s)) continue;
        double values[] = {p->step_s, p->compute_s, p->network_s,
                           p->skew_s, p->comm_s,    p->codec_s};
        RP_TRY(rpi_arena_printf(arena, &figure->summary, "%s%s%s: %s", figure->summary,
                                row ? "; " : "", figure->rows[row].label,
                                figure->rows[row].value));
        RP_TRY(rpi_row_table_fill(arena, &columns, row++, values, figure));
    }
    figure->title = "Where the time of a step goes";
    figure->caption =
        "The thick bar is the training thread of rank 0: what it computes, and what it is "
        "blocked "
        "for after its last backward op (exposed). The thin bar is the communication beneath. "
        "Means over the middle half of the steps by their time, or over all of them where most "
        "send nothing.";
    figure->x = (rpi_axis){"time", RPI_SECONDS, false, true};
    RP_TRY(rpi_arena_array(arena, sizeof keys / sizeof keys[0], sizeof keys[0], &figure->keys));
    figure->key_count = sizeof keys / sizeof keys[0];
    for (int i = 0; i < figure->key_count; i++) figure->keys[i] = keys[i];
    return RP_OK;
}

const rpi_figure_kind rpi_figure_step_time = {"step-time", build};
