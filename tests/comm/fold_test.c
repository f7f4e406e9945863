/* One pass gives the bits of the three that it stands for: every reduction of every dtype, with
 * and without a mean, wherever the result goes. */
#include "comm/values/fold.h"

#include "comm/serial.h"
#include "comm/values/reductions.h"
#include "comm/values/values.h"
#include "harness/check.h"

#include <stdlib.h>
#include <string.h>

enum { COUNT = 4099, BYTES_MAX = COUNT * 16 + 16, REDUCTIONS = RP_PREMUL_SUM + 1 };

static unsigned char inputs[2][COUNT * 16]; /* filled once for each dtype */

typedef struct place {
    bool into_first, into_second; /* the result is written over an input */
    bool wide;                    /* it stays an accumulator */
    bool odd;                     /* it lies at an odd address */
    bool also_other;              /* its copy is written over the other input */
} place;

/* An accumulator, an addition, a mean, a copy out. */
static void in_three_passes(const rpi_fold *fold, void *into) {
    rp_dtype wide = rpi_sum_dtype(fold->dtype);
    unsigned char *sum = malloc(BYTES_MAX);
    rpi_values_convert(fold->first, fold->dtype, sum, wide, COUNT);
    rpi_reduce(fold->reduce, rpi_cpu_isa(), fold->dtype, fold->second, COUNT, sum);
    rpi_values_weigh(sum, wide, fold->weight.times, fold->weight.over, COUNT);
    rpi_values_convert(sum, wide, into, fold->into_dtype, COUNT);
    free(sum);
}

static bool may_be(const rpi_fold *fold, place at) {
    bool same = rpi_sum_dtype(fold->dtype) == fold->dtype;
    return !(at.wide && !same && (at.into_first || at.into_second || at.odd));
}

static void check_at(rpi_fold fold, place at) {
    if (!may_be(&fold, at)) return;
    unsigned char *first = malloc(BYTES_MAX), *second = malloc(BYTES_MAX);
    unsigned char *into = malloc(BYTES_MAX), *also = malloc(BYTES_MAX),
                  *wanted = malloc(BYTES_MAX);
    memcpy(first, inputs[0], sizeof inputs[0]);
    fold.first = first;
    fold.second = memcpy(second + at.odd, inputs[1], sizeof inputs[1]);
    fold.into_dtype = at.wide ? rpi_sum_dtype(fold.dtype) : fold.dtype;
    fold.into = at.into_first ? first : at.into_second ? second + at.odd : into + at.odd;
    fold.also = at.wide          ? NULL
                : !at.also_other ? also + 1
                : at.into_first  ? second + at.odd
                                 : first;
    in_three_passes(&fold, wanted);
    rpi_fold_extent(&fold, COUNT);
    size_t bytes = COUNT * rp_dtype_bytes(fold.into_dtype);
    CHECK_MSG(memcmp(fold.into, wanted, bytes) == 0 &&
                  (!fold.also || memcmp(fold.also, wanted, bytes) == 0),
              "%s of %s, over %d: into first %d, second %d, wide %d, odd %d, also other %d",
              rpi_reduction_name(fold.reduce), rp_dtype_name(fold.dtype), fold.weight.over,
              at.into_first, at.into_second, at.wide, at.odd, at.also_other);
    free(first), free(second), free(into), free(also), free(wanted);
}

static void check_all_places(const rpi_fold *fold) {
    for (int bits = 0; bits < 64; bits++) {
        place at = {bits & 1, bits & 2, bits & 4, bits & 8, bits & 16};
        rpi_fold as = *fold;
        as.is_long = bits & 32;
        if (!(at.into_first && at.into_second)) check_at(as, at);
    }
}

static bool divides(rp_dtype dtype) {
    return rp_dtype_is_float(dtype) || dtype == RP_C64 || dtype == RP_C128;
}

/* By each form of the loop that adds two. */
static void check_all_forms(const rpi_fold *fold) {
    for (int form = 0; form < rpi_form_count(&rpi_add_two_form); form++) {
        rpi_form_set(&rpi_add_two_form, form);
        int failures = check_failures();
        check_all_places(fold);
        if (check_failures() != failures)
            fprintf(stderr, "  ... by form %s\n", rpi_add_two_form.names[form]);
        if (!rpi_reduction_adds(fold->reduce)) break; /* it is not used */
    }
}

static void one_pass_gives_the_bits_of_three(void) {
    for (rp_dtype dtype = RP_F32; rp_dtype_bytes(dtype); dtype++) {
        for (int i = 0; i < 2; i++)
            serial_fill(SERIAL_ANY, dtype, check_seed(), i, inputs[i], COUNT);
        for (int r = 0; r < REDUCTIONS; r++) {
            rpi_fold fold = {.reduce = (rp_reduction)r, .dtype = dtype};
            if (!serial_takes(fold.reduce, dtype)) continue;
            check_all_forms(&fold);
            if (fold.reduce != RP_AVG || !divides(dtype)) continue;
            for (int over = 2; over <= 3; over++) {
                fold.weight = (rpi_fraction){1, over};
                check_all_forms(&fold);
            }
        }
    }
}

CASES({"one pass gives the bits of three", one_pass_gives_the_bits_of_three})
