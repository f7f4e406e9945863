#include "plan/choose.h"

#include <limits.h>
#include <string.h>

/* Prices are models: a smaller difference than this one decides nothing. */
#define CLEAR_GAIN 0.05

/* -1 stands for a number that grows with the world. */
static int encodings(const rpi_algorithm *algorithm, bool lossy) {
    if (!lossy) return 0;
    return algorithm->quantisations < 0 ? INT_MAX : algorithm->quantisations;
}

static bool works(const rpi_algorithm *algorithm, rpi_collective collective, int world,
                  bool lossy) {
    return algorithm->collective == collective && !(lossy && algorithm->exact) &&
           rpi_algorithm_fits(algorithm, world);
}

/* Where one adds in rank order, no other is chosen: an exact sum then has the same bits
 * whatever its length. */
static bool is_candidate(const rpi_algorithm *algorithm, rpi_collective collective, int world,
                         bool lossy) {
    const rpi_algorithm *other;
    if (!works(algorithm, collective, world, lossy)) return false;
    if (lossy || algorithm->rank_order) return true;
    for (int i = 0; (other = rpi_algorithm_at(i)) != NULL; i++)
        if (works(other, collective, world, lossy) && other->rank_order) return false;
    return true;
}

static int fewest_encodings(rpi_collective collective, int world, bool lossy,
                            int *out_candidates) {
    const rpi_algorithm *it;
    int fewest = INT_MAX;
    *out_candidates = 0;
    for (int i = 0; (it = rpi_algorithm_at(i)) != NULL; i++) {
        if (!is_candidate(it, collective, world, lossy)) continue;
        int count = encodings(it, lossy);
        if (count < fewest) *out_candidates = 0;
        if (count < fewest) fewest = count;
        *out_candidates += count == fewest;
    }
    return fewest;
}

rp_status rpi_algorithm_choose(rpi_collective collective, int world, size_t bytes,
                               size_t encoded, bool lossy, const rpi_cost_model *model,
                               const rpi_algorithm **out_algorithm) {
    int candidates;
    int fewest = fewest_encodings(collective, world, lossy, &candidates);
    const rpi_algorithm *best = NULL, *it;
    double best_s = 0;
    for (int i = 0; (it = rpi_algorithm_at(i)) != NULL; i++) {
        rpi_cost cost = {0};
        if (!is_candidate(it, collective, world, lossy) || encodings(it, lossy) != fewest)
            continue;
        if (candidates > 1) RP_TRY(rpi_plan_cost(it, world, bytes, encoded, model, &cost));
        if (best && cost.time_s >= best_s * (1 - CLEAR_GAIN)) continue;
        best = it;
        best_s = cost.time_s;
    }
    if (!best)
        return RP_FAIL(UNSUPPORTED, "no %s algorithm works in a world of %d",
                       rpi_collective_name(collective), world);
    *out_algorithm = best;
    return RP_OK;
}

enum { CROWD = 16 }; /* largest world in which everybody talks to everybody */

static const rpi_algorithm *ring_of(rpi_collective collective) {
    const rpi_algorithm *it;
    for (int i = 0; (it = rpi_algorithm_at(i)) != NULL; i++)
        if (it->collective == collective && strcmp(it->name, "ring") == 0) return it;
    return NULL;
}

static size_t size_class(size_t bytes) {
    return bytes ? (size_t)1 << (63 - __builtin_clzll((unsigned long long)bytes)) : 0;
}

rp_status rpi_algorithm_default(rpi_collective collective, int world, bool lossy, size_t bytes,
                                const rpi_algorithm **out_algorithm) {
    static const rpi_cost_model nominal = {.bytes_per_s = 1.25e9,
                                           .latency_s = 20e-6,
                                           .encode_bytes_s = 8e9,
                                           .decode_add_bytes_s = 8e9,
                                           .frame_bytes = 64,
                                           .frame_s = 10e-6};
    const rpi_algorithm *ring = ring_of(collective);
    if (world > CROWD && !lossy && ring) {
        *out_algorithm = ring;
        return RP_OK;
    }
    size_t rounded = size_class(bytes);
    return rpi_algorithm_choose(collective, world, rounded, rounded, lossy, &nominal,
                                out_algorithm);
}
