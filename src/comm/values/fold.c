#include "comm/values/fold.h"

#include "comm/values/reductions.h"
#include "comm/values/values.h"

#include <stdint.h>
#include <string.h>

/* Five of them fit into the first cache. */
enum { TILE_BYTES = 4 * 1024 };

static bool is_aligned(const rpi_fold *fold) {
    return (uintptr_t)fold->into % rp_dtype_bytes(fold->into_dtype) == 0;
}

/* The reduction writes directly into the result if that has the accumulators' dtype, is aligned
 * and is not still to be read. */
static bool adds_in_place(const rpi_fold *fold, rp_dtype wide) {
    return fold->into_dtype == wide && fold->into != fold->second && is_aligned(fold);
}

/* A sum to its result, at any address. */
static void put(const rpi_fold *fold, const void *sum, rp_dtype wide, size_t count,
                void *into) {
    _Alignas(64) unsigned char narrow[TILE_BYTES];
    if (fold->into_dtype == wide || is_aligned(fold)) {
        rpi_values_convert(sum, wide, into, fold->into_dtype, count);
        return;
    }
    rpi_values_convert(sum, wide, narrow, fold->into_dtype, count);
    memcpy(into, narrow, count * rp_dtype_bytes(fold->into_dtype));
}

/* The factor of the result; 0: one factor is not enough. Inverses of powers of two give the
 * same bits as the division. */
static double factor_of(const rpi_fold *fold) {
    int over = fold->weight.over;
    if (!over) return 1;
    bool is_power = over > 0 && (over & (over - 1)) == 0;
    return fold->weight.times == 1 && is_power ? 1.0 / over : 0;
}

/* Most vectors are sums of floats: these need no tiles. */
static bool run_at_once(const rpi_fold *fold, size_t count) {
    double factor = factor_of(fold);
    if (!rpi_reduction_adds(fold->reduce) || fold->into_dtype != fold->dtype || factor == 0)
        return false;
    return rpi_add_two(rpi_cpu_isa(), fold->dtype, fold->first, fold->second, factor, count,
                       fold->into, fold->also, fold->is_long);
}

void rpi_fold_extent(const rpi_fold *fold, size_t count) {
    if (run_at_once(fold, count)) return;
    _Alignas(64) unsigned char tile[TILE_BYTES];
    rp_dtype wide = rpi_sum_dtype(fold->dtype);
    size_t bytes = rp_dtype_bytes(fold->dtype), into_bytes = rp_dtype_bytes(fold->into_dtype);
    size_t most = TILE_BYTES / rp_dtype_bytes(wide);
    bool in_place = adds_in_place(fold, wide);
    for (size_t i = 0, n; i < count; i += n) {
        n = count - i < most ? count - i : most;
        void *into = (unsigned char *)fold->into + i * into_bytes;
        void *sum = in_place ? into : (void *)tile;
        rpi_values_convert((const unsigned char *)fold->first + i * bytes, fold->dtype, sum,
                           wide, n);
        rpi_reduce(fold->reduce, rpi_cpu_isa(), fold->dtype,
                   (const unsigned char *)fold->second + i * bytes, n, sum);
        rpi_values_weigh(sum, wide, fold->weight.times, fold->weight.over, n);
        put(fold, sum, wide, n, into);
        if (fold->also)
            memcpy((unsigned char *)fold->also + i * into_bytes, into, n * into_bytes);
    }
}
