#include "train/progress.h"

#include "base/clock.h"

#include <string.h>
#include <unistd.h>

enum { BAR = 24, LINES = 20 };

rpi_progress rpi_progress_on(FILE *stream) {
    return (rpi_progress){.stream = stream, .terminal = isatty(fileno(stream)) == 1};
}

void rpi_progress_end(rpi_progress *p) {
    if (p->bar_open) fputc('\n', p->stream);
    p->bar_open = false;
    fflush(p->stream);
}

static void started(void *context, int64_t first_step, int64_t last_step, int64_t parameters) {
    rpi_progress *p = context;
    p->first_step = first_step;
    p->last_step = last_step;
    p->every = (last_step - first_step) / LINES + 1;
    p->started_ns = rpi_now_ns();
    if (last_step >= first_step)
        fprintf(p->stream, "%lld parameters, steps %lld to %lld\n", (long long)parameters,
                (long long)first_step, (long long)last_step);
    else
        fprintf(p->stream, "%lld parameters, %lld steps done\n", (long long)parameters,
                (long long)first_step - 1);
    fflush(p->stream);
}

/* "1:02:03" or "2:03" */
static void format_time(double seconds, char *text, size_t bytes) {
    long long s = (long long)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, bytes, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, bytes, "%lld:%02lld", s / 60, s % 60);
}

static void draw_bar(rpi_progress *p, int64_t step) {
    char bar[BAR + 1];
    int64_t filled = p->last_step > 0 ? step * BAR / p->last_step : BAR;
    memset(bar, '.', BAR);
    memset(bar, '#', (size_t)filled);
    bar[BAR] = '\0';
    fprintf(p->stream, "\r[%s] ", bar);
}

static void stepped(void *context, const rpi_step_metrics *m) {
    rpi_progress *p = context;
    double rate = (double)m->images / m->step_s;
    p->rate = p->rate > 0 ? 0.9 * p->rate + 0.1 * rate : rate;
    int64_t now = rpi_now_ns();
    bool last = m->step == p->last_step;
    bool wanted =
        p->terminal ? now - p->drawn_ns > RPI_SECOND_NS / 10 : m->step % p->every == 0;
    if (!wanted && !last && m->step != p->first_step) return;
    p->drawn_ns = now;
    double done = (double)(m->step - p->first_step + 1);
    double left = rpi_seconds(now - p->started_ns) / done * (double)(p->last_step - m->step);
    char time[32];
    format_time(left, time, sizeof time);
    if (p->terminal) draw_bar(p, m->step);
    fprintf(p->stream, "step %lld/%lld  loss %.4f  %.1f images/s  %s left%s",
            (long long)m->step, (long long)p->last_step, m->loss, p->rate, time,
            p->terminal ? "\033[K" : "\n");
    p->bar_open = p->terminal;
    fflush(p->stream);
}

static void evaluated(void *context, int64_t step, const rpi_evaluation *e) {
    rpi_progress *p = context;
    rpi_progress_end(p);
    fprintf(p->stream, "after step %lld: test accuracy %.2f %%, test loss %.4f (%lld images)\n",
            (long long)step, 100 * e->accuracy, e->loss, (long long)e->images);
    fflush(p->stream);
}

static void saved(void *context, int64_t step, const char *path) {
    rpi_progress *p = context;
    rpi_progress_end(p);
    fprintf(p->stream, "saved step %lld to %s\n", (long long)step, path);
    fflush(p->stream);
}

static void note(void *context, const char *line) {
    rpi_progress *p = context;
    rpi_progress_end(p);
    fprintf(p->stream, "note: %s\n", line);
    fflush(p->stream);
}

rpi_train_hooks rpi_progress_hooks(rpi_progress *progress) {
    return (rpi_train_hooks){.context = progress,
                             .started = started,
                             .stepped = stepped,
                             .evaluated = evaluated,
                             .saved = saved,
                             .note = note};
}
