#include "engine/backends/cpu/kernels/kernel_cross_entropy.h"

#include "engine/backends/cpu/kernels/simd_math.h"

#include <math.h>
#include <string.h>

/* A row of 50,257 logits is 200 KB: it is read from memory once and stays in the second-level
 * cache for the passes after the first. */
enum { CHAINS = 4, SPAN = CHAINS * RPI_LANES };

/* The largest of the first `count`, -infinity where there is none; NaN is passed over. */
SIMD float largest(simd_row x, int64_t count) {
    const vf none = vf_set(-INFINITY);
    vf most[CHAINS] = {none, none, none, none};
    for (int64_t i = 0; i < count; i += SPAN)
        for (int v = 0; v < CHAINS && i + v * RPI_LANES < count; v++) {
            int64_t k = i + v * RPI_LANES, live = count - k;
            vf value = row_load(x, k, live);
            if (live < RPI_LANES) value = vf_first_or(value, live, none);
            most[v] = vf_max(value, most[v]);
        }
    return vf_max_of(vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3])));
}

typedef struct row_sums {
    float exponentials, shifted; /* of e^(x - most) and of x - most */
} row_sums;

/* The exponentials are kept in `kept` where that is given. */
SIMD row_sums sum_row(simd_row x, int64_t count, float most, const simd_row *kept,
                      bool smoothed) {
    vf sum[CHAINS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    vf shifted[CHAINS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (int64_t i = 0; i < count; i += SPAN)
        for (int v = 0; v < CHAINS && i + v * RPI_LANES < count; v++) {
            int64_t k = i + v * RPI_LANES, live = count - k;
            vf d = vf_sub(row_load(x, k, live), vf_set(most)), e = vf_exp(d);
            if (kept) row_store(*kept, k, e, live);
            if (live < RPI_LANES) e = vf_first(e, live), d = vf_first(d, live);
            sum[v] = vf_add(sum[v], e);
            if (smoothed) shifted[v] = vf_add(shifted[v], d);
        }
    return (row_sums){
        vf_sum(vf_add(vf_add(sum[0], sum[2]), vf_add(sum[1], sum[3]))),
        vf_sum(vf_add(vf_add(shifted[0], shifted[2]), vf_add(shifted[1], shifted[3])))};
}

SIMD float element(simd_row row, int64_t i) {
    return row.bf16 ? rpi_bf16_to_f32(((const uint16_t *)row.data)[i])
                    : ((const float *)row.data)[i];
}

SIMD void put_element(simd_row row, int64_t i, float value) {
    if (row.bf16)
        ((uint16_t *)row.data)[i] = rpi_f32_to_bf16(value);
    else
        ((float *)row.data)[i] = value;
}

/* dlogits = scale (e / sum - q); `kept` holds e, else it is computed again. The scale comes
 * last: an infinite one times a smoothing of 0 would be NaN. */
SIMD void gradient_row(const rpi_kernel_cross_entropy *it, simd_row x, simd_row dx, bool kept,
                       float most, float sum, int64_t label) {
    const float factor = 1 / sum, each = it->smoothing / (float)it->classes;
    float own = kept ? element(dx, label) : 0;
    if (!kept) own = vf_first_lane(vf_exp(vf_set(element(x, label) - most)));
    EACH_VECTOR(i, live, it->classes) {
        vf e =
            kept ? row_load(dx, i, live) : vf_exp(vf_sub(row_load(x, i, live), vf_set(most)));
        vf difference = vf_sub(vf_mul(e, vf_set(factor)), vf_set(each));
        row_store(dx, i, vf_mul(difference, vf_set(it->scale)), live);
    }
    put_element(dx, label, it->scale * (own * factor - (1 - it->smoothing) - each));
}

SIMD void zero_row(const rpi_kernel_cross_entropy *it, int64_t row, float loss) {
    it->losses[row] = loss;
    it->correct[row] = 0;
    if (!it->dlogits.data) return;
    simd_row dx = row_of(it->dlogits, row);
    EACH_VECTOR(i, live, it->classes) row_store(dx, i, vf_zero(), live);
}

SIMD void one_row(const rpi_kernel_cross_entropy *it, int64_t row) {
    bool backward = it->dlogits.data != NULL, smoothed = it->smoothing > 0;
    simd_row x = row_of(it->logits, row);
    simd_row dx = row_of(backward ? it->dlogits : it->logits, row);
    int64_t label = it->labels[row];
    float most = largest(x, it->classes), own = element(x, label);
    it->correct[row] = own == most && largest(x, label) < most;
    bool kept = backward && !dx.bf16;
    row_sums sums = sum_row(x, it->classes, most, kept ? &dx : NULL, smoothed);
    double smooth = it->smoothing;
    double loss = log((double)sums.exponentials) - (1 - smooth) * ((double)own - most);
    if (smoothed) loss -= smooth / (double)it->classes * sums.shifted;
    it->losses[row] = (float)loss;
    if (backward) gradient_row(it, x, dx, kept, most, sums.exponentials, label);
}

RPI_SIMD_BODY(cross_entropy)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_cross_entropy *it = args;
    for (int64_t row = begin; row < end; row++) {
        int64_t label = it->labels[row];
        if (label == it->ignored)
            zero_row(it, row, 0);
        else if (label < 0 || label >= it->classes)
            zero_row(it, row, NAN);
        else
            one_row(it, row);
    }
}

/* ---- of a slice of the classes ---- */

/* Of the elements as they are: sums of their distances from the largest lose what cancels. */
SIMD float total(simd_row x, int64_t count) {
    vf sum[CHAINS] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (int64_t i = 0; i < count; i += SPAN)
        for (int v = 0; v < CHAINS && i + v * RPI_LANES < count; v++) {
            int64_t k = i + v * RPI_LANES, live = count - k;
            vf value = row_load(x, k, live);
            if (live < RPI_LANES) value = vf_first(value, live);
            sum[v] = vf_add(sum[v], value);
        }
    return vf_sum(vf_add(vf_add(sum[0], sum[2]), vf_add(sum[1], sum[3])));
}

/* Where x has this value first; 0: it is nowhere. */
SIMD int64_t find_first(simd_row x, int64_t count, float value) {
    for (int64_t j = 0; j < count; j++)
        if (element(x, j) == value) return j;
    return 0;
}

SIMD void describe_row(const rpi_kernel_statistics *it, int64_t row, float *out) {
    simd_row x = row_of(it->logits, row);
    int64_t classes = rpi_statistics_classes(it), label = it->labels[row] - it->first;
    float most = largest(x, classes), shift = most > -INFINITY ? most : 0;
    row_sums sums = sum_row(x, classes, shift, NULL, false);
    out[RPI_STATISTICS_LSE] = (float)((double)shift + log((double)sums.exponentials));
    out[RPI_STATISTICS_LABEL] = label >= 0 && label < classes ? element(x, label) : 0;
    out[RPI_STATISTICS_SUM] = total(x, classes);
    out[RPI_STATISTICS_LARGEST] = most;
    out[RPI_STATISTICS_INDEX] = (float)(it->first + find_first(x, classes, most));
}

SIMD void differentiate_row(const rpi_kernel_statistics *it, int64_t row, const float *of,
                            const float *gradient) {
    simd_row x = row_of(it->logits, row), dx = row_of(it->dlogits, row);
    int64_t classes = rpi_statistics_classes(it), label = it->labels[row] - it->first;
    int64_t best = (int64_t)of[RPI_STATISTICS_INDEX] - it->first;
    float lse = of[RPI_STATISTICS_LSE];
    bool none = lse == -INFINITY;
    EACH_VECTOR(j, live, it->classes) {
        vf p = none ? vf_zero() : vf_exp(vf_sub(row_load(x, j, live), vf_set(lse)));
        row_store(dx, j,
                  vf_add(vf_mul(p, vf_set(gradient[RPI_STATISTICS_LSE])),
                         vf_set(gradient[RPI_STATISTICS_SUM])),
                  live);
    }
    for (int64_t j = classes; j < it->classes; j++) put_element(dx, j, 0);
    if (label >= 0 && label < classes)
        put_element(dx, label, element(dx, label) + gradient[RPI_STATISTICS_LABEL]);
    if (best >= 0 && best < classes)
        put_element(dx, best, element(dx, best) + gradient[RPI_STATISTICS_LARGEST]);
}

RPI_SIMD_BODY(statistics)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_statistics *it = args;
    static const float none[RPI_STATISTICS];
    for (int64_t row = begin; row < end; row++) {
        float *of = it->statistics + row * RPI_STATISTICS;
        bool ignored = it->labels[row] == it->ignored;
        if (it->gradients)
            differentiate_row(it, row, of,
                              ignored ? none : it->gradients + row * RPI_STATISTICS);
        else if (ignored)
            memset(of, 0, sizeof none);
        else
            describe_row(it, row, of);
    }
}
