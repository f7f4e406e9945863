#include "train/generation/token_choice.h"

#include "base/rng.h"
#include "base/status.h"

#include <math.h>

static bool is_before(rpi_token_candidate a, rpi_token_candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

static void swap(rpi_token_candidate *a, rpi_token_candidate *b) {
    rpi_token_candidate kept = *a;
    *a = *b;
    *b = kept;
}

/* ---- a heap whose root is before all others ---- */

static void sift_down(rpi_token_candidate *heap, int64_t count, int64_t at) {
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_before(heap[child + 1], heap[child])) child++;
        if (!is_before(heap[child], heap[at])) return;
        swap(&heap[child], &heap[at]);
    }
}

static void make_heap(rpi_token_candidate *heap, int64_t count) {
    for (int64_t at = count / 2 - 1; at >= 0; at--) sift_down(heap, count, at);
}

/* The first goes to the place behind the others. */
static void pop(rpi_token_candidate *heap, int64_t *count) {
    swap(&heap[0], &heap[--*count]);
    sift_down(heap, *count, 0);
}

/* ---- what may be drawn ---- */

static rp_status collect(const float *logits, int64_t count, const bool *allowed,
                         rpi_token_candidate *candidates, int64_t *out_count) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return RP_FAIL(CORRUPT, "the model's logit of token %lld is %s", (long long)i,
                           isnan(logits[i]) ? "NaN" : "infinite");
        if (logits[i] == -INFINITY || (allowed && !allowed[i])) continue;
        candidates[found++] = (rpi_token_candidate){logits[i], (uint32_t)i};
    }
    if (found == 0) return RP_FAIL(CORRUPT, "the model gives no token a chance");
    *out_count = found;
    return RP_OK;
}

static rpi_token_candidate first_of(const rpi_token_candidate *candidates, int64_t count) {
    rpi_token_candidate first = candidates[0];
    for (int64_t i = 1; i < count; i++)
        if (is_before(candidates[i], first)) first = candidates[i];
    return first;
}

/* e^((logit - top) / temperature), which is p but for a factor. */
static double weight_of(const rpi_token_choice *choice, rpi_token_candidate it, float top) {
    return exp(((double)it.logit - (double)top) / choice->temperature);
}

static double total_of(const rpi_token_choice *choice, const rpi_token_candidate *candidates,
                       int64_t count, float top) {
    double total = 0;
    for (int64_t i = 0; i < count; i++) total += weight_of(choice, candidates[i], top);
    return total;
}

/* Which remain, from *out_first to the end, the likeliest last; *out_total: of their weights.
 */
static void narrow(const rpi_token_choice *choice, rpi_token_candidate *candidates,
                   int64_t count, float top, int64_t *out_first, double *out_total) {
    int64_t heap = count,
            least = choice->top_k && choice->top_k < count ? count - choice->top_k : 0;
    double total = 0;
    make_heap(candidates, heap);
    if (least) {
        while (heap > least) pop(candidates, &heap);
        total = total_of(choice, candidates + heap, count - heap, top);
    } else {
        total = total_of(choice, candidates, count, top);
    }
    double wanted = choice->top_p * total, sum = 0;
    int64_t first = count;
    while (first > least && sum < wanted) {
        if (first <= heap) pop(candidates, &heap);
        sum += weight_of(choice, candidates[--first], top);
    }
    *out_first = first;
    *out_total = sum;
}

/* Uniform in [0, 1), 53 bits. */
static double draw(uint64_t seed, uint64_t index) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_GENERATE, index);
    uint64_t high = rpi_rng_u32(&rng) >> 5, low = rpi_rng_u32(&rng) >> 6;
    return (double)(high << 26 | low) * 0x1p-53;
}

rp_status rpi_token_choose(const rpi_token_choice *choice, const float *logits, int64_t count,
                           const bool *allowed, uint64_t index, rpi_token_candidate *candidates,
                           uint32_t *out_token) {
    int64_t found = 0, first = 0;
    double total = 0;
    RP_TRY(collect(logits, count, allowed, candidates, &found));
    rpi_token_candidate top = first_of(candidates, found);
    *out_token = top.token;
    if (choice->temperature == 0) return RP_OK;
    if (choice->top_k || choice->top_p < 1)
        narrow(choice, candidates, found, top.logit, &first, &total);
    else
        total = total_of(choice, candidates, found, top.logit);
    double left = draw(choice->seed, index) * total;
    for (int64_t i = found - 1; i >= first && left >= 0; i--) {
        left -= weight_of(choice, candidates[i], top.logit);
        *out_token = candidates[i].token;
    }
    return RP_OK;
}
