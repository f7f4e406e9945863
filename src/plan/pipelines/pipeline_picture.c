#include "plan/pipelines/pipeline_picture.h"

#include <math.h>
#include <string.h>

static const char gap[] = " ... "; /* between the beginning and the end */

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

/* The shortest pass, where it is not far shorter than they are as a rule: what is is not worth
 * that all others are drawn long. */
static double shortest_s(const rpi_pipeline_price *p) {
    double least = p->time_s, sum = 0;
    for (int i = 0; i < p->passes; i++) {
        double takes_s = p->spans[i].end_s - p->spans[i].start_s;
        if (takes_s > 0) least = fmin(least, takes_s);
        sum += takes_s;
    }
    return fmax(least, sum / p->passes / 4);
}

rpi_picture_frame rpi_pipeline_frame(const rpi_pipeline_orders *o, const rpi_pipeline_price *p,
                                     int most) {
    if (!(p->time_s > 0)) return (rpi_picture_frame){.columns = 1, .first = 1};
    double passes = p->time_s / shortest_s(p), names = name_columns(o);
    double each = fmin(floor(most / passes), names);
    if (each < 2) each = names;
    double columns = fmax(1, ceil(passes * each - 1e-6));
    if (columns <= most) return (rpi_picture_frame){columns, (int)columns, 0, each >= 2};
    int half = (most - (int)strlen(gap)) / 2;
    return (rpi_picture_frame){columns, half, half, true};
}

/* A stretch of columns of a line. */
typedef struct stretch {
    double from; /* of the whole step */
    int columns;
    char *line;
} stretch;

static void put(const stretch *s, double column, char letter) {
    double at = column - s->from;
    if (at >= 0 && at < s->columns) s->line[(int)at] = letter;
}

static void draw_pass(const rpi_pipeline_orders *o, const rpi_pipeline_price *p, int pass,
                      const rpi_picture_frame *frame, const stretch *s) {
    char text[RPI_PASS_TEXT];
    double from = floor(p->spans[pass].start_s / p->time_s * frame->columns + .5);
    double to = floor(p->spans[pass].end_s / p->time_s * frame->columns + .5);
    if (to < s->from || from >= s->from + s->columns) return;
    rpi_pass_text(&o->passes[pass], o->shape.chunks, text);
    double length = (double)strlen(text), room = to - from;
    if (frame->spaced && room > 1) room--;
    if (length > room) length = 1; /* a part of a number would be another number */
    for (double c = fmax(0, s->from - from); c < room && from + c < s->from + s->columns; c++)
        put(s, from + c, c < length ? text[(int)c] : '-');
}

static void draw(const rpi_pipeline_orders *o, const rpi_pipeline_price *p, int stage,
                 const rpi_picture_frame *frame, const stretch *s) {
    memset(s->line, ' ', (size_t)s->columns);
    for (int k = 0; k < o->each && p->time_s > 0; k++)
        draw_pass(o, p, stage * o->each + k, frame, s);
}

void rpi_pipeline_picture(FILE *stream, const rpi_pipeline_orders *o,
                          const rpi_pipeline_price *p, const rpi_picture_frame *frame) {
    char line[RPI_PICTURE_COLUMNS + 1];
    int between = frame->last ? (int)strlen(gap) : 0;
    stretch begin = {0, frame->first, line};
    stretch end = {frame->columns - frame->last, frame->last, line + frame->first + between};
    for (int stage = 0; stage < p->stages; stage++) {
        int length = frame->first + between + frame->last;
        draw(o, p, stage, frame, &begin);
        memcpy(line + frame->first, gap, (size_t)between);
        if (frame->last) draw(o, p, stage, frame, &end);
        while (length > 0 && line[length - 1] == ' ') length--;
        line[length] = '\0';
        fprintf(stream, "  %-4d  %s\n", stage, line);
    }
}
