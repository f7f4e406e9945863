/* A step of ranks that share a model, as they recorded it: a row for each, with its passes as
 * blocks, and its waits; gaps are idle time. */
#include "cli/report/figure.h"

#include "base/append.h"
#include "base/status.h"
#include "cli/report/arena_text.h"
#include "cli/report/row_table.h"

enum { MOST_ROWS = 32, PASS_HEIGHT = 14, WAIT_TOP = 15, WAIT_HEIGHT = 5 };

/* What a kind looks like. */
static const struct {
    const char *class, *name;
} looks[RPI_SPAN_KINDS] = {
    [RPI_SPAN_FORWARD] = {"k0", "forward"},
    [RPI_SPAN_BACKWARD] = {"k1", "backward"},
    [RPI_SPAN_INPUTS] = {"k1", "backward, for inputs"},
    [RPI_SPAN_WEIGHTS] = {"k2", "backward, for weights"},
    [RPI_SPAN_STAGES] = {"network", "waiting for another stage"},
    [RPI_SPAN_LAYERS] = {"skew", "waiting for ranks that share its layers"},
    [RPI_SPAN_REPLICAS] = {"comm", "waiting for other replicas"},
};

static const rpi_key keys[] = {
    {"forward", "k0"},
    {"backward, or its half for inputs", "k1"},
    {"its half for weights", "k2"},
    {"exposed: other stages", "network"},
    {"exposed: ranks that share layers", "skew"},
    {"exposed: other replicas", "comm"},
};
enum { KEYS = sizeof keys / sizeof keys[0] };

static const rpi_row_columns columns = {
    {"step", "forward", "backward", "weights", "stages", "layers", "replicas"},
    {RPI_SECONDS, RPI_SECONDS, RPI_SECONDS, RPI_SECONDS, RPI_SECONDS, RPI_SECONDS, RPI_SECONDS},
};

static bool is_wait(rpi_span_kind kind) {
    return kind >= RPI_SPAN_STAGES;
}

static rp_status make_bar(rpi_arena *arena, const rpi_report_span *span, rpi_bar *bar) {
    char text[RPI_QUANTITY_TEXT], micro_batch[48] = "";
    bool waits = is_wait(span->kind);
    *bar = (rpi_bar){.from = span->start_s > 0 ? span->start_s : 0,
                     .to = span->end_s,
                     .top = waits ? WAIT_TOP : 0,
                     .height = waits ? WAIT_HEIGHT : PASS_HEIGHT,
                     .class = looks[span->kind].class};
    if (span->micro_batch >= 0)
        rpi_append(micro_batch, sizeof micro_batch, " of micro-batch %lld",
                   (long long)span->micro_batch);
    return rpi_arena_printf(arena, &bar->title, "%s%s: %s", looks[span->kind].name, micro_batch,
                            rpi_quantity_text(RPI_SECONDS, span->end_s - span->start_s, text));
}

static rp_status name_row(rpi_arena *arena, const rpi_report_run *run,
                          const rpi_picture_row *rank, rpi_chart_row *row) {
    char tensor[64] = "";
    if (run->context_ranks > 1)
        rpi_append(tensor, sizeof tensor, ", context %lld", (long long)rank->context);
    if (run->tensor_ranks > 1)
        rpi_append(tensor, sizeof tensor, ", tensor %lld", (long long)rank->tensor);
    return rpi_arena_printf(arena, &row->label, "%s: rank %lld, stage %lld%s", run->label,
                            (long long)rank->rank, (long long)rank->stage, tensor);
}

/* Waits within layers are within passes. */
static double computes_s(const rpi_picture_row *rank) {
    double sum = -rank->seconds[RPI_SPAN_LAYERS];
    for (int k = RPI_SPAN_FORWARD; k <= RPI_SPAN_WEIGHTS; k++) sum += rank->seconds[k];
    return sum;
}

static rp_status value_row(rpi_arena *arena, const rpi_picture_row *rank, rpi_chart_row *row) {
    static const rpi_span_kind waits[] = {RPI_SPAN_STAGES, RPI_SPAN_LAYERS, RPI_SPAN_REPLICAS};
    double all = 0.01 * (rank->end_s - rank->start_s);
    RP_TRY(rpi_arena_printf(arena, &row->value, "computes %.0f %%", computes_s(rank) / all));
    for (int i = 0; i < 3; i++)
        if (rank->seconds[waits[i]] > 0)
            RP_TRY(rpi_arena_printf(arena, &row->value, "%s, %s %.0f %%", row->value,
                                    rpi_span_names[waits[i]], rank->seconds[waits[i]] / all));
    return RP_OK;
}

static rp_status make_row(rpi_arena *arena, const rpi_report_run *run,
                          const rpi_picture_row *rank, rpi_chart_row *row) {
    rpi_bar *bars = NULL;
    *row = (rpi_chart_row){.span_count = rank->span_count};
    RP_TRY(rpi_arena_array(arena, (size_t)rank->span_count, sizeof *bars, &bars));
    for (int i = 0; i < rank->span_count; i++)
        RP_TRY(make_bar(arena, &rank->spans[i], &bars[i]));
    row->spans = bars;
    RP_TRY(name_row(arena, run, rank, row));
    return value_row(arena, rank, row);
}

static rp_status make_rows(const rpi_report *report, rpi_figure *figure) {
    for (int r = 0; r < report->run_count; r++) {
        const rpi_report_run *run = &report->runs[r];
        int count = run->picture ? run->picture->row_count : 0;
        for (int i = 0; i < count && figure->row_count < MOST_ROWS; i++)
            RP_TRY(make_row(report->arena, run, &run->picture->rows[i],
                            &figure->rows[figure->row_count++]));
    }
    return RP_OK;
}

static rp_status fill_table(const rpi_report *report, rpi_figure *figure) {
    RP_TRY(rpi_row_table_begin(report->arena, "rank", &columns, figure));
    int row = 0;
    for (int r = 0; r < report->run_count; r++) {
        const rpi_report_picture *picture = report->runs[r].picture;
        for (int i = 0; picture && i < picture->row_count && row < figure->row_count; i++) {
            const rpi_picture_row *rank = &picture->rows[i];
            const double *s = rank->seconds;
            const double values[] = {rank->end_s - rank->start_s,
                                     s[RPI_SPAN_FORWARD],
                                     s[RPI_SPAN_BACKWARD] + s[RPI_SPAN_INPUTS],
                                     s[RPI_SPAN_WEIGHTS],
                                     s[RPI_SPAN_STAGES],
                                     s[RPI_SPAN_LAYERS],
                                     s[RPI_SPAN_REPLICAS]};
            RP_TRY(rpi_arena_printf(report->arena, &figure->summary, "%s%s%s: %s",
                                    figure->summary, row ? "; " : "", figure->rows[row].label,
                                    figure->rows[row].value));
            RP_TRY(rpi_row_table_fill(report->arena, &columns, row++, values, figure));
        }
    }
    return RP_OK;
}

static rp_status build(const rpi_report *report, rpi_figure *figure) {
    rpi_arena *arena = report->arena;
    RP_TRY(rpi_arena_array(arena, MOST_ROWS, sizeof *figure->rows, &figure->rows));
    RP_TRY(make_rows(report, figure));
    if (figure->row_count == 0) return RP_OK;
    RP_TRY(fill_table(report, figure));
    figure->title = "A step, rank by rank";
    figure->caption =
        "The last step of each run whose ranks hold a model together, on the ranks of its "
        "first "
        "replica: passes of micro-batches above, and below them what the thread that computes "
        "waited for. Where there is neither, gradients are clipped and parameters stepped.";
    figure->x = (rpi_axis){"time", RPI_SECONDS, false, true};
    RP_TRY(rpi_arena_array(arena, KEYS, sizeof keys[0], &figure->keys));
    figure->key_count = KEYS;
    for (int i = 0; i < KEYS; i++) figure->keys[i] = keys[i];
    return RP_OK;
}

const rpi_figure_kind rpi_figure_step_picture = {"step-picture", build};
