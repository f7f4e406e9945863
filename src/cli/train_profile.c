#include "cli/train_profile.h"

#include "base/clock.h"
#include "cli/numbers.h"

/* A step's share of a row. */
static void print_row(const rpi_profile *p, const char *phase, const char *what, int64_t calls,
                      int64_t ns, FILE *stream) {
    char time[RPI_TIME_BYTES];
    fprintf(stream, "  %-9s %-32.32s ", phase, what);
    if (calls > 0)
        fprintf(stream, "%6.4g", (double)calls / (double)p->steps);
    else
        fprintf(stream, "%6s", "");
    fprintf(stream, " %9s %5.1f %%\n", rpi_time_text(rpi_seconds(ns) / (double)p->steps, time),
            p->step_ns ? 100.0 * (double)ns / (double)p->step_ns : 0);
}

static void print_rate(const rpi_profile *p, FILE *stream) {
    double rate = p->flops / rpi_seconds(p->step_ns);
    fprintf(stream, "%.1f GFLOP/s a rank (a multiply-add is two)", 1e-9 * rate);
    if (p->matrix_flop_s > 0)
        fprintf(stream, ", %.0f %% of the %.1f of a large f32 matrix product here",
                100 * rate / p->matrix_flop_s, 1e-9 * p->matrix_flop_s);
    fprintf(stream, "; at most %.0f MB in memory\n", 1e-6 * p->memory_bytes);
}

void rpi_train_profile_print(const rpi_profile *p, FILE *stream) {
    if (!p->steps) return;
    fprintf(stream, "where a step's time goes on rank 0 (mean of %lld step%s):\n",
            (long long)p->steps, p->steps == 1 ? "" : "s");
    fprintf(stream, "  %-9s %-32s %6s %9s %7s\n", "", "", "calls", "time", "share");
    for (int i = 0; i < p->count; i++)
        print_row(p, p->rows[i].phase, p->rows[i].what, p->rows[i].calls, p->rows[i].ns,
                  stream);
    print_row(p, "other", "data, loss, accounts", 0, rpi_profile_rest_ns(p), stream);
    print_rate(p, stream);
}
