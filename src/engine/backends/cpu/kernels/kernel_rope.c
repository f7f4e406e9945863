#include "engine/backends/cpu/kernels/kernel_rope.h"

#include <math.h>

static const double circle = 6.283185307179586;

/* The index, of `rotary` / 2, of the angle that makes so many circles in the original text; the
 * order of its operations is transformers', whose rounded indices it must have. */
static double index_of(const rpi_rope_stretch *s, double theta, int64_t rotary,
                       double circles) {
    return (double)rotary * log((double)s->original / (circles * circle)) / (2 * log(theta));
}

/* How much of an angle is stretched, 0 to 1, by its index. */
static double share_of_yarn(const rpi_rope_stretch *s, double theta, int64_t rotary,
                            int64_t index) {
    double first = index_of(s, theta, rotary, s->high);
    double last = index_of(s, theta, rotary, s->low);
    if (!s->is_exact) first = floor(first), last = ceil(last);
    first = fmax(first, 0), last = fmin(last, (double)rotary - 1);
    if (first == last) last += 0.001;
    return fmin(fmax(((double)index - first) / (last - first), 0), 1);
}

static double share_of_circles(const rpi_rope_stretch *s, double angle) {
    double circles = (double)s->original * angle / circle;
    return 1 - fmin(fmax((circles - s->low) / (s->high - s->low), 0), 1);
}

/* The index-th angle of one token. */
static double angle_of(const rpi_rope_stretch *s, double theta, int64_t rotary, int64_t index) {
    double angle = pow(theta, -2.0 * (double)index / (double)rotary);
    if (!s || s->factor == 0) return angle;
    double slow = angle / s->factor;
    if (s->original == 0) return slow;
    double share =
        s->yarn ? share_of_yarn(s, theta, rotary, index) : share_of_circles(s, angle);
    return (1 - share) * angle + share * slow;
}

static double attention_of(const rpi_rope_stretch *s) {
    if (!s || !s->yarn) return 1;
    if (s->attention > 0) return s->attention;
    return s->factor > 1 ? 0.1 * log(s->factor) + 1 : 1;
}

void rpi_kernel_rope_tables(double theta, const rpi_rope_stretch *stretch, int64_t first,
                            int64_t count, int64_t rotary, float *cosines, float *sines) {
    int64_t half = rotary / 2;
    double scale = attention_of(stretch);
    for (int64_t c = 0; c < half; c++) {
        double angle = angle_of(stretch, theta, rotary, c);
        for (int64_t p = 0; p < count; p++) {
            cosines[p * half + c] = (float)(scale * cos((double)(first + p) * angle));
            sines[p * half + c] = (float)(scale * sin((double)(first + p) * angle));
        }
    }
}

static void rotate(const rpi_kernel_rope *it, rpi_kernel_rows x, int64_t from,
                   rpi_kernel_rows y, int64_t to, int64_t position) {
    int64_t half = it->rotary / 2, apart = it->pairs ? 1 : half;
    for (int64_t c = 0; c < half; c++) {
        int64_t first = it->pairs ? 2 * c : c;
        double cosine = it->cosines[position * half + c];
        double sine = it->sines[position * half + c];
        double low = rpi_kernel_get(x, 0, from + first);
        double high = rpi_kernel_get(x, 0, from + first + apart);
        if (it->inverse) sine = -sine;
        rpi_kernel_put(y, 0, to + first, low * cosine - high * sine);
        rpi_kernel_put(y, 0, to + first + apart, high * cosine + low * sine);
    }
    for (int64_t c = it->rotary; c < it->head_size; c++)
        rpi_kernel_put(y, 0, to + c, rpi_kernel_get(x, 0, from + c));
}

/* Units are tokens. */
void rpi_rope_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_rope *it = args;
    rpi_kernel_rows x = {it->x.data, 0, it->x.dtype}, y = {it->y.data, 0, it->y.dtype};
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t b = unit / it->length, t = unit % it->length;
        for (int64_t h = 0; h < it->heads; h++)
            rotate(it, x, b * it->x.batch + t * it->x.token + h * it->x.head, y,
                   b * it->y.batch + t * it->y.token + h * it->y.head,
                   rpi_rope_position(it, unit));
    }
}

void rpi_kernel_rope_apply(const rpi_kernel_run *run, const rpi_kernel_rope *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(rope);
    rpi_kernel_run plain = {run->threads, RPI_ISA_SCALAR};
    rpi_kernel_parallel(it->pairs ? &plain : run, it->batch * it->length, 1, bodies, it);
}
