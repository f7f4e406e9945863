/* Runs that have two pieces of a sequence each do together what one does that has all of it:
 * attention, rotary and learned positions, and dropout, by both kinds of kernels. Add a row to
 * `rows`. */
#include "harness/check.h"
#include "solo.h"

#include "base/rng.h"
#include "engine/layers.h"
#include "op_fixture.h"

#include <math.h>
#include <string.h>

enum { BATCH = 2, HEADS = 4, KEY_HEADS = 2, SIZE = 6, MOST = 160 };
enum { QUERIES = HEADS * SIZE, KEYS = KEY_HEADS * SIZE };

typedef struct piece_row {
    const char *name;
    int ranks, tokens; /* of the sequence */
    int window;
    bool both_ways;
    float dropout, attention_dropout;
    bool documents; /* each row has a few texts, of lengths of their own */
} piece_row;

static const piece_row rows[] = {
    {"two ranks", 2, 16, 0, false, 0, 0, false},
    {"four ranks", 4, 16, 0, false, 0, 0, false},
    {"dropout", 2, 24, 0, false, 0.3f, 0.2f, false},
    {"pieces of odd length, dropout", 2, 20, 0, false, 0.3f, 0.2f, false},
    {"several blocks of keys, dropout", 2, 148, 0, false, 0.1f, 0.1f, false},
    {"window", 3, 24, 5, false, 0, 0.1f, false},
    {"both ways", 2, 12, 0, true, 0.2f, 0.2f, false},
    {"texts", 2, 24, 0, false, 0, 0, true},
    {"texts, both ways", 3, 36, 0, true, 0.2f, 0.2f, true},
    {"texts, both ways, several blocks of keys", 2, 148, 0, true, 0.1f, 0.1f, true},
    {"pieces that are not full", 2, 17, 0, false, 0.3f, 0.2f, false},
    {"pieces that are not full, both ways", 3, 20, 0, true, 0.3f, 0.2f, false},
    {"pieces without a token", 4, 9, 4, false, 0.1f, 0.1f, false},
    {"pieces that are not full, texts", 3, 133, 0, true, 0.3f, 0.2f, true},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* x, keys and values are inputs that are added to parameters of zeros, whose gradients are
 * looked at. */
typedef struct run_of {
    float x[BATCH * MOST * QUERIES], keys[BATCH * MOST * KEYS], values[BATCH * MOST * KEYS];
    float dy[BATCH * MOST * QUERIES];
    float y[BATCH * MOST * QUERIES];
    float table[MOST * QUERIES]; /* and gradients */
    float dx[BATCH * MOST * QUERIES], dkeys[BATCH * MOST * KEYS], dvalues[BATCH * MOST * KEYS];
    float dtable[MOST * QUERIES];
} run_of;

static rpi_value_id parameter(rpi_graph *g, const char *name, int64_t tokens, int64_t width) {
    return rpi_graph_parameter(g, name, SHAPE(BATCH, tokens, width));
}

static void copy_in(rpi_weights *weights, const char *name, const float *from) {
    const rpi_weight *w = rpi_weights_find(weights, name);
    memcpy(rpi_weights_value_at(weights, w->index), from, (size_t)w->count * sizeof *from);
}

static void copy_out(rpi_weights *weights, const char *name, float *to) {
    const rpi_weight *w = rpi_weights_find(weights, name);
    memcpy(to, rpi_weights_gradient_at(weights, w->index), (size_t)w->count * sizeof *to);
}

/* Of `all` tokens, the padding of which is of no text. */
static void fill_documents(const piece_row *row, int64_t all, int32_t *documents) {
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t t = 0; t < all; t++)
            documents[b * all + t] = t >= row->tokens ? -1 : (int32_t)(t / (7 + 6 * b) % 3);
}

/* `own` tokens ask. */
static void run(const piece_row *row, const rpi_backend *backend, rpi_token_pieces pieces,
                int64_t own, run_of *r) {
    rpi_graph *g = NULL;
    rpi_weights *weights = NULL;
    rpi_instance *instance = NULL;
    rpi_tensor y;
    int64_t all = rpi_token_filled(&pieces, own);
    rpi_value_id documents = RPI_NO_VALUE;
    int32_t texts[BATCH * MOST];
    REQUIRE_OK(rpi_graph_create(&g));
    if (row->documents) documents = rpi_graph_input(g, "documents", RP_I32, SHAPE(BATCH, all));
    fill_documents(row, all, texts);
    rpi_value_id x = parameter(g, "x", own, QUERIES);
    rpi_value_id table = rpi_graph_parameter(g, "table", SHAPE(row->tokens + 1, QUERIES));
    x = rpi_position_embedding_of(g, "place", x, table, (rpi_position_attributes){pieces});
    x = rpi_dropout_of(g, "drop", x,
                       (rpi_dropout_attributes){.probability = row->dropout, .pieces = pieces});
    x = rpi_rope(g, "turn", x, (rpi_rope_attributes){.heads = HEADS, .pieces = pieces});
    x = rpi_attention(g, "attention", x, parameter(g, "keys", all, KEYS),
                      parameter(g, "values", all, KEYS), documents,
                      (rpi_attention_attributes){.heads = HEADS,
                                                 .kv_heads = KEY_HEADS,
                                                 .causal = !row->both_ways,
                                                 .window = row->window,
                                                 .dropout = row->attention_dropout,
                                                 .pieces = pieces});
    REQUIRE_OK(rpi_graph_check(g));
    REQUIRE_OK(rpi_weights_create(g, x, &weights));
    copy_in(weights, "x", r->x);
    copy_in(weights, "table", r->table);
    copy_in(weights, "keys", r->keys);
    copy_in(weights, "values", r->values);
    const rpi_program_options options = {
        .training = true, .results = {x}, .result_count = 1, .seeds = {x}, .seed_count = 1};
    REQUIRE_OK(solo_open(g, weights, RPI_NO_VALUE, backend, &options, &instance));
    REQUIRE_OK(rpi_instance_run(instance, &(rpi_run_options){.inputs = (const void *[]){texts},
                                                             .seeds = (const void *[]){r->dy},
                                                             .seed = 3,
                                                             .step = 5}));
    REQUIRE_OK(rpi_instance_result(instance, x, &y));
    memcpy(r->y, y.data, (size_t)(BATCH * own * QUERIES) * sizeof(float));
    copy_out(weights, "x", r->dx);
    copy_out(weights, "table", r->dtable);
    copy_out(weights, "keys", r->dkeys);
    copy_out(weights, "values", r->dvalues);
    solo_close(instance);
    rpi_weights_destroy(weights);
    rpi_graph_destroy(g);
}

/* The pieces' tokens of a whole sequence's, as a rank has them; zeros for padding. */
static void take(const rpi_token_pieces *pieces, int64_t own, const float *whole, float *part) {
    int64_t all = rpi_token_whole(pieces, own);
    memset(part, 0, (size_t)(BATCH * own * QUERIES) * sizeof *part);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t t = 0; t < own; t++)
            if (rpi_token_place(pieces, own, t) < all)
                memcpy(part + (b * own + t) * QUERIES,
                       whole + (b * all + rpi_token_place(pieces, own, t)) * QUERIES,
                       QUERIES * sizeof *part);
}

/* Keys or values of all tokens, with padding that would be seen. */
static void pad(const rpi_token_pieces *pieces, int64_t own, const float *whole, float *out) {
    int64_t all = rpi_token_whole(pieces, own), filled = rpi_token_filled(pieces, own);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t e = 0; e < filled * KEYS; e++)
            out[b * filled * KEYS + e] = e < all * KEYS ? whole[b * all * KEYS + e] : 100;
}

/* The padding of keys and values has no gradient. */
static void add_keys(const rpi_token_pieces *pieces, int64_t own, float *sum, const float *x) {
    int64_t all = rpi_token_whole(pieces, own), filled = rpi_token_filled(pieces, own);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t e = 0; e < filled * KEYS; e++)
            if (e < all * KEYS)
                sum[b * all * KEYS + e] += x[b * filled * KEYS + e];
            else
                CHECK_NEAR(x[b * filled * KEYS + e], 0, 0);
}

static void add(float *sum, const float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) sum[i] += x[i];
}

static void check_near(const piece_row *row, const char *what, const float *got,
                       const float *wanted, int64_t count) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)wanted[i]));
    for (int64_t i = 0; i < count; i++)
        CHECK_MSG(fabs((double)got[i] - (double)wanted[i]) <= 2e-6 * largest,
                  "%s: %s[%lld] is %g, of the whole %g", row->name, what, (long long)i,
                  (double)got[i], (double)wanted[i]);
}

/* What is said of padding is of no matter, but a number. */
static void clear_padding(const rpi_token_pieces *pieces, int64_t own, float *y) {
    for (int64_t t = 0; t < BATCH * own; t++)
        for (int e = 0; e < QUERIES; e++) {
            CHECK(isfinite(y[t * QUERIES + e]));
            if (rpi_token_place(pieces, own, t % own) >= rpi_token_whole(pieces, own))
                y[t * QUERIES + e] = 0;
        }
}

static void try_row(const piece_row *row, const rpi_backend *backend) {
    static run_of whole, part, sum;
    static float wanted[BATCH * MOST * QUERIES];
    int64_t tokens = row->tokens, count = 2 * row->ranks;
    int64_t own = (tokens + count - 1) / count * 2;
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, (uint64_t)(row - rows));
    float *floats = (float *)&whole;
    for (size_t i = 0; i < sizeof whole / sizeof *floats; i++) floats[i] = rpi_rng_normal(&rng);
    memset(&sum, 0, sizeof sum);
    run(row, backend, (rpi_token_pieces){0}, tokens, &whole);
    for (int r = 0; r < row->ranks; r++) {
        const rpi_token_pieces pieces = {
            .count = count, .at = {r, count - 1 - r}, .whole = tokens % count ? tokens : 0};
        part = whole;
        pad(&pieces, own, whole.keys, part.keys);
        pad(&pieces, own, whole.values, part.values);
        take(&pieces, own, whole.x, part.x);
        take(&pieces, own, whole.dy, part.dy);
        run(row, backend, pieces, own, &part);
        clear_padding(&pieces, own, part.y);
        take(&pieces, own, whole.y, wanted);
        check_near(row, "y", part.y, wanted, BATCH * own * QUERIES);
        take(&pieces, own, whole.dx, wanted);
        check_near(row, "dx", part.dx, wanted, BATCH * own * QUERIES);
        add(sum.dtable, part.dtable, (tokens + 1) * QUERIES);
        add_keys(&pieces, own, sum.dkeys, part.dkeys);
        add_keys(&pieces, own, sum.dvalues, part.dvalues);
    }
    check_near(row, "dtable", sum.dtable, whole.dtable, (tokens + 1) * QUERIES);
    check_near(row, "dkeys", sum.dkeys, whole.dkeys, BATCH * tokens * KEYS);
    check_near(row, "dvalues", sum.dvalues, whole.dvalues, BATCH * tokens * KEYS);
}

static void pieces_are_the_whole(void) {
    for (int i = 0; rpi_backend_at(i); i++)
        for (int r = 0; r < ROWS; r++) try_row(&rows[r], rpi_backend_at(i));
}

/* Work of rank r of four: the pairs of its tokens are as many on each. */
static void work_is_even(void) {
    for (int64_t r = 0, pairs; r < 4; r++) {
        const rpi_token_pieces pieces = {.count = 8, .at = {r, 7 - r}};
        pairs = 0;
        for (int64_t t = 0; t < 4; t++) pairs += rpi_token_place(&pieces, 4, t) + 1;
        CHECK_EQ(pairs, 34);
    }
    const rpi_token_pieces first = {.count = 8, .at = {0, 7}};
    CHECK_EQ(rpi_token_place(&first, 4, 1), 1);
    CHECK_EQ(rpi_token_place(&first, 4, 2), 14);
    CHECK_EQ(rpi_token_whole(&first, 4), 16);
}

/* ---- what cannot be ---- */

static const struct refused_row {
    rpi_token_pieces pieces;
    int64_t queries, keys;
    const char *says;
} refused[] = {
    {{.count = 3, .at = {0, 2}},
     4,
     6,
     "pieces 0 and 2 of 3; two of an even number, in order, are wanted"},
    {{.count = 4, .at = {2, 2}}, 4, 8, "pieces 2 and 2 of 4"},
    {{.count = 4, .at = {3, 1}}, 4, 8, "pieces 3 and 1 of 4"},
    {{.count = 4, .at = {0, 4}}, 4, 8, "pieces 0 and 4 of 4"},
    {{.count = 4, .at = {0, 3}}, 5, 10, "5 tokens are no two pieces of equal length"},
    {{.count = 4, .at = {0, 3}},
     4,
     4,
     "4 keys; the sequence of which 4 queries are 2 of 4 pieces has 8"},
    {{.count = 4, .at = {0, 3}, .whole = 9}, 4, 8, "4 pieces of 2 tokens, which hold 9"},
    {{.whole = 3}, 4, 4, "pieces 0 and 0 of 0"},
};

static void what_is_refused(void) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        rpi_graph *g = NULL;
        REQUIRE_OK(rpi_graph_create(&g));
        rpi_attention(g, "attention", parameter(g, "x", refused[i].queries, QUERIES),
                      parameter(g, "keys", refused[i].keys, KEYS),
                      parameter(g, "values", refused[i].keys, KEYS), RPI_NO_VALUE,
                      (rpi_attention_attributes){.heads = HEADS,
                                                 .kv_heads = KEY_HEADS,
                                                 .causal = true,
                                                 .pieces = refused[i].pieces});
        CHECK_FAILS(rpi_graph_check(g), INVALID, refused[i].says);
        rpi_graph_destroy(g);
    }
}

CASES({"pieces are the whole", pieces_are_the_whole}, {"work is even", work_is_even},
      {"what is refused", what_is_refused})
