/* Results of `redpoll bench codec --json`: bytes of elements a second on one core. */
#include "cli/report/figure.h"

#include "base/status.h"
#include "cli/report/arena_text.h"
#include "cli/report/row_table.h"

static const rpi_row_columns columns = {
    {"encode", "decode and add", "memcpy", "error", NULL},
    {RPI_BYTES_S, RPI_BYTES_S, RPI_BYTES_S, RPI_NUMBER},
};

static const rpi_key keys[] = {
    {"encode", "k0"},
    {"decode and add", "k2"},
    {"memcpy", "comm"},
};
enum { KEYS = sizeof keys / sizeof keys[0] };

static rp_status make_row(rpi_arena *arena, const rpi_report_bench_row *bench,
                          rpi_figure *figure) {
    int index = figure->row_count++;
    rpi_chart_row *row = &figure->rows[index];
    double rates[] = {bench->encode_bytes_s, bench->decode_add_bytes_s, bench->memcpy_bytes_s};
    *row = (rpi_chart_row){.value = "", .bar_count = KEYS};
    for (int i = 0; i < KEYS; i++)
        row->bars[i] = (rpi_bar){0, rates[i], 6.5 * i, 5.5, keys[i].class, keys[i].label};
    double values[] = {rates[0], rates[1], rates[2], bench->error};
    char encode[RPI_QUANTITY_TEXT], decode[RPI_QUANTITY_TEXT];
    RP_TRY(rpi_arena_printf(arena, &row->label, "%s, %s, %s%s", bench->codec, bench->dtype,
                            bench->isa, bench->feedback ? ", error feedback" : ""));
    RP_TRY(rpi_arena_printf(arena, &figure->summary, "%s%s%s: encodes %s, decodes %s",
                            figure->summary, index ? "; " : "", row->label,
                            rpi_quantity_text(RPI_BYTES_S, rates[0], encode),
                            rpi_quantity_text(RPI_BYTES_S, rates[1], decode)));
    return rpi_row_table_fill(arena, &columns, index, values, figure);
}

static rp_status build(const rpi_report *report, rpi_figure *figure) {
    rpi_arena *arena = report->arena;
    int count = 0;
    for (int b = 0; b < report->bench_count; b++)
        for (int i = 0; i < report->benches[b].count; i++)
            count += report->benches[b].rows[i].is_codec;
    if (count == 0) return RP_OK;
    RP_TRY(rpi_arena_array(arena, (size_t)count, sizeof *figure->rows, &figure->rows));
    figure->row_count = count;
    RP_TRY(rpi_row_table_begin(arena, "codec", &columns, figure));
    figure->row_count = 0;
    for (int b = 0; b < report->bench_count; b++)
        for (int i = 0; i < report->benches[b].count; i++)
            if (report->benches[b].rows[i].is_codec)
                RP_TRY(make_row(arena, &report->benches[b].rows[i], figure));
    figure->title = "Codecs";
    figure->caption =
        "Bytes of elements encoded, decoded and added, or copied, a second on one "
        "core.";
    figure->x = (rpi_axis){"elements a second", RPI_BYTES_S, false, true};
    RP_TRY(rpi_arena_array(arena, KEYS, sizeof *figure->keys, &figure->keys));
    figure->key_count = KEYS;
    for (int i = 0; i < KEYS; i++) figure->keys[i] = keys[i];
    return RP_OK;
}

const rpi_figure_kind rpi_figure_codecs = {"codecs", build};
