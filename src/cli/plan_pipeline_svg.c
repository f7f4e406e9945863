/* A step of a pipeline as a picture of its own: a line a stage, time to the right. */
#include "cli/numbers.h"
#include "cli/plan_pipeline.h"
#include "cli/report/markup.h"
#include "cli/report/output_file.h"
#include "cli/report/scale.h"
#include "cli/report/stylesheet.h"

#include "base/status.h"

#include <string.h>

enum {
    MARGIN = 16,
    LEFT = 64,   /* of the bars: stages' names stand before them */
    WIDTH = 960, /* of the bars */
    TOP = 84,
    LINE = 30, /* of a stage, with its gap */
    BAR = 24,
    LETTER = 7 /* width of one */
};

static const struct {
    const char *class, *label;
} looks[RPI_PASS_KINDS] = {
    {"k0", "forward"},
    {"k1", "backward"},
    {"k1", "backward: inputs"},
    {"k2", "backward: weights"},
};

static void write_text(FILE *stream, const char *class, int x, int y, const char *text) {
    fprintf(stream, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class, x, y);
    rpi_markup_text(stream, text);
    fprintf(stream, "</text>\n");
}

static void write_legend(FILE *stream, const rpi_pipeline_plan *p) {
    int x = LEFT;
    for (int kind = 0; kind < RPI_PASS_KINDS; kind++) {
        bool half = kind == RPI_PASS_INPUTS || kind == RPI_PASS_WEIGHTS;
        if (kind != RPI_PASS_FORWARD && half != p->shown.orders.kind->splits) continue;
        fprintf(stream, "<rect class=\"%s\" x=\"%d\" y=\"56\" width=\"18\" height=\"10\"/>",
                looks[kind].class, x);
        write_text(stream, "", x + 26, 65, looks[kind].label);
        x += 44 + LETTER * (int)strlen(looks[kind].label);
    }
}

static void write_axis(FILE *stream, const rpi_pipeline_plan *p, const rpi_scale *scale) {
    int bottom = TOP + p->shown.price.stages * LINE;
    fprintf(stream, "<g class=\"grid\">");
    for (int i = 0; i < scale->tick_count; i++)
        fprintf(stream, "<path d=\"M%.1f %dV%d\"/>", rpi_scale_at(scale, scale->ticks[i].value),
                TOP - 6, bottom);
    fprintf(stream, "</g><g class=\"axis\"><path d=\"M%d %dH%d\"/></g><g class=\"ticks\">\n",
            LEFT, bottom, LEFT + WIDTH);
    for (int i = 0; i < scale->tick_count; i++) {
        fprintf(stream, "<text class=\"middle\" x=\"%.1f\" y=\"%d\">",
                rpi_scale_at(scale, scale->ticks[i].value), bottom + 18);
        rpi_markup_text(stream, scale->ticks[i].text);
        fprintf(stream, "</text>");
    }
    char title[64];
    snprintf(title, sizeof title, "time%s%s%s", scale->unit[0] ? " (" : "", scale->unit,
             scale->unit[0] ? ")" : "");
    fprintf(stream, "</g>\n");
    write_text(stream, "title end", LEFT + WIDTH, bottom + 36, title);
}

static void write_pass(FILE *stream, const rpi_pipeline_plan *p, const rpi_scale *scale,
                       int number, int top) {
    const rpi_pass_span *span = &p->shown.price.spans[number];
    const rpi_pipeline_pass *pass = &p->shown.orders.passes[number];
    char name[RPI_PASS_TEXT], from[RPI_TIME_BYTES], to[RPI_TIME_BYTES];
    double x = rpi_scale_at(scale, span->start_s), end = rpi_scale_at(scale, span->end_s);
    double width = end - x > 2 ? end - x - 1 : end - x;
    rpi_pass_text(pass, p->shown.orders.shape.chunks, name);
    fprintf(
        stream,
        "<rect class=\"%s%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>%s: %s "
        "to %s</title></rect>",
        looks[pass->kind].class, pass->chunk % 2 ? " second" : "", x, top, width, BAR, name,
        rpi_time_text(span->start_s, from), rpi_time_text(span->end_s, to));
    if (width >= LETTER * (double)strlen(name) + 2)
        fprintf(stream, "<text class=\"middle pass\" x=\"%.2f\" y=\"%d\">%s</text>",
                x + width / 2, top + 16, name);
    fprintf(stream, "\n");
}

static void write_stages(FILE *stream, const rpi_pipeline_plan *p, const rpi_scale *scale) {
    for (int s = 0; s < p->shown.price.stages; s++) {
        char name[32];
        int top = TOP + s * LINE;
        snprintf(name, sizeof name, "stage %d", s);
        write_text(stream, "end", LEFT - 8, top + 16, name);
        for (int k = 0; k < p->shown.orders.each; k++)
            write_pass(stream, p, scale, s * p->shown.orders.each + k, top);
    }
}

static void write_picture(FILE *stream, const rpi_pipeline_plan *p) {
    const rpi_pipeline_row *row = &p->rows[p->chosen];
    int width = LEFT + WIDTH + MARGIN, height = TOP + p->shown.price.stages * LINE + 52;
    char title[128], subtitle[128], time[RPI_TIME_BYTES];
    rpi_range range = {.high = p->shown.price.time_s, .quantity = RPI_SECONDS, .wanted = 8};
    rpi_scale scale = rpi_scale_make(&range, LEFT, LEFT + WIDTH);
    snprintf(title, sizeof title, "%s: %d stages, %d micro-batches", row->kind->name,
             row->shape.stages, row->shape.micro_batches);
    snprintf(subtitle, sizeof subtitle, "a step of %s, in which stages are idle for %.1f %%",
             rpi_time_text(p->shown.price.time_s, time), 100 * p->shown.price.bubble);
    fprintf(
        stream,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 "
        "%d %d\" role=\"img\" aria-labelledby=\"pipeline-title pipeline-desc\">\n"
        "<title id=\"pipeline-title\">%s</title><desc id=\"pipeline-desc\">%s</desc>\n"
        "<style>\n",
        width, height, width, height, title, subtitle);
    rpi_stylesheet_figure(stream);
    fprintf(stream,
            "svg text.pass{fill:var(--paper);font-size:11px}rect.second{fill-opacity:.8}\n"
            "</style>\n<rect class=\"ground\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n",
            width, height);
    write_text(stream, "heading", MARGIN, 26, title);
    write_text(stream, "subtitle", MARGIN, 44, subtitle);
    write_legend(stream, p);
    write_axis(stream, p, &scale);
    write_stages(stream, p, &scale);
    fprintf(stream, "</svg>\n");
}

rp_status rpi_pipeline_plan_draw(const rpi_pipeline_plan *p, const char *path) {
    rpi_output_file file;
    RP_TRY(rpi_output_open(path, &file));
    write_picture(file.stream, p);
    return rpi_output_commit(&file);
}
