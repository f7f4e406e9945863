#include "cli/progress.h"

#include "base/clock.h"
#include "cli/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LEAST_BAR = 4, MOST_BAR = 24, LINES = 20, NARROWEST = 16, TEXT_BYTES = 256 };

bool rpi_is_terminal(FILE *stream) {
    const char *kind = getenv("TERM");
    return isatty(fileno(stream)) == 1 && kind && *kind && strcmp(kind, "dumb") != 0;
}

rpi_progress rpi_progress_on(FILE *stream) {
    return (rpi_progress){.stream = stream, .terminal = rpi_is_terminal(stream)};
}

/* A warning of another thread may end the bar while it is drawn: both lock the stream. */
void rpi_progress_end(rpi_progress *p) {
    flockfile(p->stream);
    if (p->bar_open) fputc('\n', p->stream);
    p->bar_open = false;
    fflush(p->stream);
    funlockfile(p->stream);
}

/* ---- a step in a line ---- */

enum { LOSS, RATE, LEFT, PARTS };

static size_t width_of(const char *const *parts, const bool *shown) {
    size_t width = 0;
    for (int i = 0; i < PARTS; i++) width += shown[i] ? 2 + strlen(parts[i]) : 0;
    return width;
}

static void draw_bar(const rpi_progress_step *s, size_t room, char bar[MOST_BAR + 4]) {
    size_t length = room < MOST_BAR + 3 ? room - 3 : MOST_BAR;
    size_t filled =
        s->last_step > 0 ? (size_t)(s->step * (int64_t)length / s->last_step) : length;
    bar[0] = '[';
    memset(bar + 1, '.', length);
    memset(bar + 1, '#', filled < length ? filled : length);
    memcpy(bar + 1 + length, "] ", 3);
}

const char *rpi_progress_text(const rpi_progress_step *s, bool bar, int columns, char *text,
                              size_t bytes) {
    static const int least_first[PARTS] = {RATE, LEFT, LOSS};
    char step[48], loss[48], rate[48], left[48], number[RPI_NUMBER_BYTES], time[RPI_TIME_BYTES];
    char drawn[MOST_BAR + 4] = "";
    const char *const parts[PARTS] = {loss, rate, left};
    bool shown[PARTS] = {true, true, true};
    snprintf(step, sizeof step, "step %lld/%lld", (long long)s->step, (long long)s->last_step);
    snprintf(loss, sizeof loss, "loss %s", rpi_loss_text(s->loss, number));
    snprintf(rate, sizeof rate, "%.1f %s/s", s->rate, s->unit);
    snprintf(left, sizeof left, "%s left", rpi_time_text(s->left_s, time));
    size_t most = columns > 0 ? (size_t)columns : SIZE_MAX;
    for (int i = 0; i < PARTS && strlen(step) + width_of(parts, shown) > most; i++)
        shown[least_first[i]] = false;
    size_t room = most - (strlen(step) + width_of(parts, shown));
    if (strlen(step) <= most && bar && room >= LEAST_BAR + 3) draw_bar(s, room, drawn);
    snprintf(text, bytes, "%s%s", drawn, step);
    for (int i = 0; i < PARTS; i++) {
        size_t used = strlen(text);
        if (shown[i]) snprintf(text + used, bytes - used, "  %s", parts[i]);
    }
    if (strlen(text) > most && most < bytes) text[most] = '\0';
    return text;
}

/* ---- what the run tells ---- */

/* Read anew for every bar, because people resize their windows. The last column stays free,
 * since some terminals go on to the next line once it is written. */
static int columns_of(FILE *stream) {
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 79;
    return size.ws_col > NARROWEST ? size.ws_col - 1 : NARROWEST;
}

static void draw(rpi_progress *p, const rpi_progress_step *step) {
    char text[TEXT_BYTES];
    int columns = columns_of(p->stream);
    flockfile(p->stream);
    /* A bar that has become wider than the window is broken into lines, or cut: leave it. */
    if (p->bar_open && p->bar_width > columns) fputc('\n', p->stream);
    rpi_progress_text(step, true, columns, text, sizeof text);
    fprintf(p->stream, "\r%s\033[K", text);
    p->bar_open = true;
    p->bar_width = (int)strlen(text);
    fflush(p->stream);
    funlockfile(p->stream);
}

static void started(void *context, int64_t first_step, int64_t last_step, int64_t parameters) {
    rpi_progress *p = context;
    p->first_step = first_step;
    p->last_step = last_step;
    p->every = (last_step - first_step) / LINES + 1;
    p->started_ns = rpi_now_ns();
    if (p->is_silent) return;
    if (last_step >= first_step)
        fprintf(p->stream, "%lld parameters, steps %lld to %lld\n", (long long)parameters,
                (long long)first_step, (long long)last_step);
    else
        fprintf(p->stream, "%lld parameters, %lld steps done\n", (long long)parameters,
                (long long)first_step - 1);
    if (p->begun) p->begun(p->begun_context, p->stream, last_step - first_step + 1);
    fflush(p->stream);
}

static void stepped(void *context, const rpi_step_metrics *m) {
    rpi_progress *p = context;
    double rate = (double)m->count / m->step_s;
    p->rate = p->rate > 0 ? 0.9 * p->rate + 0.1 * rate : rate;
    int64_t now = rpi_now_ns();
    bool last = m->step == p->last_step;
    bool wanted =
        p->terminal ? now - p->drawn_ns > RPI_SECOND_NS / 10 : m->step % p->every == 0;
    if (p->is_silent || (!wanted && !last && m->step != p->first_step)) return;
    p->drawn_ns = now;
    double done = (double)(m->step - p->first_step + 1);
    double left_s = rpi_seconds(now - p->started_ns) / done * (double)(p->last_step - m->step);
    rpi_progress_step step = {m->step, p->last_step, m->loss, p->rate, left_s, m->unit};
    char text[TEXT_BYTES];
    if (p->terminal)
        draw(p, &step);
    else
        fprintf(p->stream, "%s\n", rpi_progress_text(&step, false, 0, text, sizeof text));
    fflush(p->stream);
}

static void evaluated(void *context, int64_t step, const rpi_evaluation *e) {
    rpi_progress *p = context;
    if (p->is_silent) return;
    rpi_progress_end(p);
    char loss[RPI_NUMBER_BYTES], perplexity[RPI_NUMBER_BYTES];
    fprintf(p->stream, "after step %lld: ", (long long)step);
    if (e->count > 0)
        fprintf(p->stream, "test accuracy %.2f %%, test loss %s", 100 * e->accuracy,
                rpi_loss_text(e->loss, loss));
    else
        fprintf(p->stream, "no %s to test", e->unit);
    if (!isnan(e->perplexity))
        fprintf(p->stream, ", perplexity %s", rpi_loss_text(e->perplexity, perplexity));
    if (e->sample_metric)
        fprintf(p->stream, ", %s accuracy %.2f %%, %s loss %s", e->sample_metric,
                100 * e->sample_accuracy, e->sample_metric,
                rpi_loss_text(e->sample_loss, loss));
    for (int i = 0; i < e->scores.count; i++)
        fprintf(p->stream, ", %s %.2f %%", e->scores.at[i].label, e->scores.at[i].percent);
    if (e->scores.count)
        fprintf(p->stream, " of %lld %s", (long long)e->scores.over, e->scores.unit);
    if (!isnan(e->consensus_distance))
        fprintf(p->stream, ", consensus distance %.2g", e->consensus_distance);
    fprintf(p->stream, " (%lld %s)\n", (long long)e->count, e->unit);
    fflush(p->stream);
}

static void sampled(void *context, int64_t step, const char *text) {
    rpi_progress *p = context;
    if (p->is_silent) return;
    rpi_progress_end(p);
    fprintf(p->stream, "after step %lld it writes: %s\n", (long long)step, text);
    fflush(p->stream);
}

static void saved(void *context, int64_t step, const char *path) {
    rpi_progress *p = context;
    if (p->is_silent) return;
    rpi_progress_end(p);
    fprintf(p->stream, "saved step %lld to %s\n", (long long)step, path);
    fflush(p->stream);
}

static void note(void *context, const char *line) {
    rpi_progress *p = context;
    if (p->is_silent) return;
    rpi_progress_end(p);
    fprintf(p->stream, "note: %s\n", line);
    fflush(p->stream);
}

static void lost(void *context, const rpi_loss *loss, bool first) {
    rpi_progress *p = context;
    if (first) p->is_silent = false;
    note(context, loss->line);
}

rpi_train_hooks rpi_progress_hooks(rpi_progress *progress) {
    return (rpi_train_hooks){.context = progress,
                             .started = started,
                             .stepped = stepped,
                             .evaluated = evaluated,
                             .sampled = sampled,
                             .saved = saved,
                             .note = note,
                             .lost = lost};
}
