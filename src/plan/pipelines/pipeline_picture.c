#include "plan/pipelines/pipeline_picture.h"

#include <math.h>
#include <string.h>

/* Of the longest name, and a column between. */
static int name_columns(const rpi_pipeline_orders *o) {
    int most = 0;
    char text[RPI_PASS_TEXT];
    for (int i = 0; i < o->each; i++) {
        int length = (int)strlen(rpi_pass_text(&o->passes[i], o->shape.chunks, text));
        if (length > most) most = length;
    }
    return most + 1;
}

static double shortest_s(const rpi_pipeline_price *p) {
    double least = INFINITY;
    for (int i = 0; i < p->passes; i++) {
        double takes_s = p->spans[i].end_s - p->spans[i].start_s;
        if (takes_s > 0) least = fmin(least, takes_s);
    }
    return least;
}

int rpi_pipeline_picture_columns(const rpi_pipeline_orders *o, const rpi_pipeline_price *p,
                                 int most) {
    double wanted = ceil(p->time_s / shortest_s(p) * name_columns(o) - 1e-6);
    return wanted < most ? (int)fmax(1, wanted) : most;
}

static void draw_pass(const rpi_pipeline_orders *o, const rpi_pass_span *span, int pass,
                      double columns_per_s, char *line) {
    char text[RPI_PASS_TEXT];
    int from = (int)floor(span->start_s * columns_per_s + .5);
    int to = (int)floor(span->end_s * columns_per_s + .5);
    rpi_pass_text(&o->passes[pass], o->shape.chunks, text);
    int length = (int)strlen(text), room = to - from > 1 ? to - from - 1 : to - from;
    /* Part of a number would be another number. */
    if (length > room) length = 1;
    for (int c = 0; c < room; c++) line[from + c] = c < length ? text[c] : '-';
}

void rpi_pipeline_picture(FILE *stream, const rpi_pipeline_orders *o,
                          const rpi_pipeline_price *p, int columns) {
    char line[RPI_PICTURE_COLUMNS + 1];
    double columns_per_s = p->time_s > 0 ? columns / p->time_s : 0;
    for (int stage = 0; stage < p->stages; stage++) {
        memset(line, ' ', (size_t)columns);
        line[columns] = '\0';
        for (int k = 0; k < o->each; k++) {
            int pass = stage * o->each + k;
            draw_pass(o, &p->spans[pass], pass, columns_per_s, line);
        }
        int end = columns;
        while (end > 0 && line[end - 1] == ' ') line[--end] = '\0';
        fprintf(stream, "  %-4d  %s\n", stage, line);
    }
}
