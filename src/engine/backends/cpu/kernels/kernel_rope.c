#include "engine/backends/cpu/kernels/kernel_rope.h"

#include <math.h>

/* The angle of one token, of what it would be without. */
static double stretched(const rpi_rope_stretch *s, double angle) {
    static const double circle = 6.283185307179586;
    if (!s || s->factor == 0) return angle;
    double slow = angle / s->factor;
    if (s->original == 0) return slow;
    double circles = (double)s->original * angle / circle;
    double share = (circles - s->low) / (s->high - s->low);
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    return share * angle + (1 - share) * slow;
}

void rpi_kernel_rope_tables(double theta, const rpi_rope_stretch *stretch, int64_t first,
                            int64_t count, int64_t rotary, float *cosines, float *sines) {
    int64_t half = rotary / 2;
    for (int64_t c = 0; c < half; c++) {
        double frequency = stretched(stretch, pow(theta, -2.0 * (double)c / (double)rotary));
        for (int64_t p = 0; p < count; p++) {
            cosines[p * half + c] = (float)cos((double)(first + p) * frequency);
            sines[p * half + c] = (float)sin((double)(first + p) * frequency);
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
