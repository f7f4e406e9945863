#include "plan/combination.h"

#include "base/memory.h"
#include "plan/rational.h"

#include <string.h>

void rpi_combinations_free(rpi_combinations *pool) {
    rpi_free(pool->spans);
    *pool = (rpi_combinations){0};
}

static bool same_coefficient(const rpi_span *a, const rpi_span *b) {
    return a->times == b->times && a->over == b->over;
}

static bool continues(const rpi_span *before, const rpi_span *span) {
    return before->last + 1 == span->first && same_coefficient(before, span);
}

/* Append to the combination that is being made at the end of the pool. */
static rp_status put(rpi_combinations *pool, rpi_combination *made, rpi_span span) {
    if (made->spans && continues(&pool->spans[pool->used - 1], &span)) {
        pool->spans[pool->used - 1].last = span.last;
        return RP_OK;
    }
    if (pool->used == pool->room) {
        size_t room = pool->room ? 2 * pool->room : 64;
        RP_TRY(rpi_grow_array(pool->used, room, sizeof *pool->spans, "contributions to prove",
                              &pool->spans));
        pool->room = room;
    }
    pool->spans[pool->used++] = span;
    made->spans++;
    return RP_OK;
}

rp_status rpi_combine_one(rpi_combinations *pool, int rank, rpi_combination *out) {
    *out = (rpi_combination){.first = pool->used};
    return put(pool, out, (rpi_span){rank, rank, 1, 1});
}

static rp_status fail_overflow(void) {
    return RP_FAIL(INTERNAL, "a coefficient of a sum does not fit 63 bits");
}

rp_status rpi_combine_weigh(rpi_combinations *pool, rpi_combination a, rpi_fraction weight,
                            rpi_combination *out) {
    rpi_combination made = {.first = pool->used};
    for (int i = 0; i < a.spans; i++) {
        rpi_span span = pool->spans[a.first + (size_t)i];
        rpi_rational product;
        if (!rpi_rational_multiply((rpi_rational){span.times, span.over},
                                   rpi_rational_of(weight.times, weight.over), &product))
            return fail_overflow();
        span.times = product.times;
        span.over = product.over;
        RP_TRY(put(pool, &made, span));
    }
    *out = made;
    return RP_OK;
}

/* Both coefficients added; either may be absent. */
static rp_status add_coefficients(const rpi_span *a, const rpi_span *b, rpi_span *sum) {
    rpi_rational left = {0, 1}, right = {0, 1}, both;
    if (a) left = (rpi_rational){a->times, a->over};
    if (b) right = (rpi_rational){b->times, b->over};
    if (!rpi_rational_add(left, right, &both)) return fail_overflow();
    sum->times = both.times;
    sum->over = both.over;
    return RP_OK;
}

static rp_status unite_coefficients(const rpi_span *a, const rpi_span *b, rpi_span *sum) {
    (void)a;
    (void)b;
    sum->times = sum->over = 1;
    return RP_OK;
}

/* Where two lists of spans are being walked side by side. */
typedef struct walker {
    rpi_combination list;
    int at;
    rpi_span span; /* what is left of the current one */
} walker;

static bool load(const rpi_combinations *pool, walker *w) {
    if (w->at >= w->list.spans) return false;
    w->span = pool->spans[w->list.first + (size_t)w->at];
    return true;
}

static bool step_past(const rpi_combinations *pool, walker *w, int rank) {
    w->span.first = rank + 1;
    if (w->span.first <= w->span.last) return true;
    w->at++;
    return load(pool, w);
}

/* The next ranks that have one coefficient in each of the two. */
static rpi_span next_piece(const walker *a, bool has_a, const walker *b, bool has_b,
                           bool *out_in_a, bool *out_in_b) {
    int first =
        !has_b || (has_a && a->span.first < b->span.first) ? a->span.first : b->span.first;
    *out_in_a = has_a && a->span.first == first;
    *out_in_b = has_b && b->span.first == first;
    int last = *out_in_a ? a->span.last : b->span.last;
    if (*out_in_b && b->span.last < last) last = b->span.last;
    if (has_a && !*out_in_a && a->span.first <= last) last = a->span.first - 1;
    if (has_b && !*out_in_b && b->span.first <= last) last = b->span.first - 1;
    return (rpi_span){.first = first, .last = last};
}

static rp_status merge(rpi_combinations *pool, rpi_combination a, rpi_combination b,
                       rp_status (*join)(const rpi_span *, const rpi_span *, rpi_span *),
                       rpi_combination *out) {
    rpi_combination made = {.first = pool->used};
    walker left = {.list = a}, right = {.list = b};
    bool has_left = load(pool, &left), has_right = load(pool, &right);
    while (has_left || has_right) {
        bool in_left, in_right;
        rpi_span piece = next_piece(&left, has_left, &right, has_right, &in_left, &in_right);
        RP_TRY(join(in_left ? &left.span : NULL, in_right ? &right.span : NULL, &piece));
        if (piece.times) RP_TRY(put(pool, &made, piece));
        if (in_left) has_left = step_past(pool, &left, piece.last);
        if (in_right) has_right = step_past(pool, &right, piece.last);
    }
    *out = made;
    return RP_OK;
}

rp_status rpi_combine_add(rpi_combinations *pool, rpi_combination a, rpi_combination b,
                          rpi_combination *out) {
    return merge(pool, a, b, add_coefficients, out);
}

rp_status rpi_combine_unite(rpi_combinations *pool, rpi_combination a, rpi_combination b,
                            rpi_combination *out) {
    return merge(pool, a, b, unite_coefficients, out);
}

bool rpi_combination_is(const rpi_combinations *pool, rpi_combination a, int first, int last,
                        rpi_fraction weight) {
    if (a.spans != 1) return false;
    rpi_rational wanted = rpi_rational_of(weight.times, weight.over);
    const rpi_span *span = &pool->spans[a.first];
    return span->first == first && span->last == last && span->times == wanted.times &&
           span->over == wanted.over;
}

bool rpi_combination_same(const rpi_combinations *pool, rpi_combination a, rpi_combination b) {
    if (a.spans != b.spans) return false;
    for (size_t i = 0; i < (size_t)a.spans; i++) {
        const rpi_span *left = &pool->spans[a.first + i], *right = &pool->spans[b.first + i];
        if (left->first != right->first || left->last != right->last ||
            !same_coefficient(left, right))
            return false;
    }
    return true;
}

bool rpi_combination_is_single(const rpi_combinations *pool, rpi_combination a) {
    return a.spans == 1 && pool->spans[a.first].first == pool->spans[a.first].last;
}

int rpi_combination_lowest(const rpi_combinations *pool, rpi_combination a) {
    return a.spans ? pool->spans[a.first].first : -1;
}

int rpi_combination_highest(const rpi_combinations *pool, rpi_combination a) {
    return a.spans ? pool->spans[a.first + (size_t)a.spans - 1].last : -1;
}

static size_t print_span(const rpi_span *span, char *text, size_t bytes) {
    char weight[48] = "", ranks[32];
    if (span->over != 1)
        snprintf(weight, sizeof weight, "%lld/%lld x ", (long long)span->times,
                 (long long)span->over);
    else if (span->times != 1)
        snprintf(weight, sizeof weight, "%lld x ", (long long)span->times);
    if (span->first == span->last)
        snprintf(ranks, sizeof ranks, "rank %d", span->first);
    else
        snprintf(ranks, sizeof ranks, "ranks %d-%d", span->first, span->last);
    return (size_t)snprintf(text, bytes, "%s%s", weight, ranks);
}

const char *rpi_combination_text(const rpi_combinations *pool, rpi_combination a, char *text,
                                 size_t bytes) {
    enum { MOST = 4 };
    size_t used = 0;
    snprintf(text, bytes, "nobody");
    for (int i = 0; i < a.spans && i < MOST && used < bytes; i++) {
        if (i) used += (size_t)snprintf(text + used, bytes - used, ", ");
        if (used < bytes)
            used += print_span(&pool->spans[a.first + (size_t)i], text + used, bytes - used);
    }
    if (a.spans > MOST && used < bytes) snprintf(text + used, bytes - used, ", ...");
    return text;
}
