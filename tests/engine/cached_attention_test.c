/* Tokens that come some at a time, behind a cache, give the bits that they give at once: of
 * attention with grouped queries and a window, rotary positions, and a table of positions; by
 * programs of several lengths that share one cache. On every backend. */
#include "harness/check.h"
#include "op_fixture.h"

#include "base/rng.h"
#include "base/status.h"
#include "engine/layers.h"

enum { BATCH = 2, LENGTH = 75, MEMORY = 80, HEADS = 4, KV_HEADS = 2, SIZE = 6 };
enum { WIDTH = HEADS * SIZE, KV_WIDTH = KV_HEADS * SIZE, MOST_INPUTS = 6 };

/* q, k, v -> positions -> attention; or the same of a packed input. */
typedef struct net {
    rpi_graph *graph;
    rpi_weights *weights;
    rpi_session *session;
    rpi_value_id out;
    bool packed, cached;
    float keys[BATCH * MEMORY * WIDTH], values[BATCH * MEMORY * WIDTH];
} net;

static rpi_value_id input(const net *n, const char *name, int64_t length, int64_t width) {
    rpi_shape shape = SHAPE(BATCH, length, width);
    return rpi_graph_input(n->graph, name, RP_F32, shape);
}

static rpi_attention_attributes attributes(bool packed) {
    return (rpi_attention_attributes){.heads = HEADS,
                                      .kv_heads = packed ? HEADS : KV_HEADS,
                                      .causal = true,
                                      .window = packed ? 0 : 70};
}

static void build_packed(net *n, int64_t length, rpi_cache cache) {
    rpi_value_id x = input(n, "x", length, (int64_t)3 * WIDTH);
    rpi_value_id table = rpi_graph_parameter(n->graph, "table", SHAPE(MEMORY, 3 * WIDTH));
    x = rpi_position_embedding_at(n->graph, "positions", x, table, cache.position);
    n->out = n->cached
                 ? rpi_cached_self_attention(n->graph, "attend", x, cache, attributes(true))
                 : rpi_self_attention(n->graph, "attend", x, RPI_NO_VALUE, attributes(true));
}

static void build_apart(net *n, int64_t length, rpi_cache cache) {
    rpi_value_id q = input(n, "q", length, WIDTH), k = input(n, "k", length, KV_WIDTH);
    rpi_value_id v = input(n, "v", length, KV_WIDTH);
    q = rpi_rope_at(n->graph, "turn q", q, cache.position,
                    (rpi_rope_attributes){.heads = HEADS});
    k = rpi_rope_at(n->graph, "turn k", k, cache.position,
                    (rpi_rope_attributes){.heads = KV_HEADS, .pairs = true});
    n->out = n->cached
                 ? rpi_cached_attention(n->graph, "attend", q, k, v, cache, attributes(false))
                 : rpi_attention(n->graph, "attend", q, k, v, RPI_NO_VALUE, attributes(false));
}

/* The first inputs are the caches and the position, where there are any. */
static void open_net(net *n, bool packed, bool cached, const rpi_backend *backend) {
    memset(n, 0, sizeof *n);
    n->packed = packed;
    n->cached = cached;
    REQUIRE_OK(rpi_graph_create(&n->graph));
    rpi_cache cache = {RPI_NO_VALUE, RPI_NO_VALUE, RPI_NO_VALUE};
    int64_t memory = rpi_graph_dimension(n->graph, "memory");
    if (cached) {
        cache.keys = input(n, "keys", memory, packed ? WIDTH : KV_WIDTH);
        cache.values = input(n, "values", memory, packed ? WIDTH : KV_WIDTH);
        cache.position = rpi_graph_input(n->graph, "position", RP_I32, (rpi_shape){0});
    }
    int64_t length = rpi_graph_dimension(n->graph, "length");
    if (packed)
        build_packed(n, length, cache);
    else
        build_apart(n, length, cache);
    REQUIRE_OK(rpi_graph_check(n->graph));
    REQUIRE_OK(rpi_weights_create(n->graph, RPI_NO_VALUE, &n->weights));
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 5);
    for (int64_t i = 0; i < rpi_weights_count(n->weights); i++)
        rpi_weights_values(n->weights)[i] = rpi_rng_normal(&rng);
    REQUIRE_OK(rpi_session_create(n->weights, backend, NULL, &n->session));
}

static void close_net(net *n) {
    rpi_session_destroy(n->session);
    rpi_weights_destroy(n->weights);
    rpi_graph_destroy(n->graph);
}

/* Elements of the tokens [first, first + count) of each sequence, from all of them. */
static void cut(const float *all, int64_t width, int64_t first, int64_t count, float *out) {
    for (int64_t b = 0; b < BATCH; b++)
        memcpy(out + b * count * width, all + (b * LENGTH + first) * width,
               (size_t)(count * width) * sizeof *out);
}

static rp_status run_program(net *n, rpi_program *program, const void *const *inputs,
                             int64_t first, int64_t count, float *out) {
    rpi_instance *instance = NULL;
    rpi_tensor result;
    RP_TRY(rpi_instance_create(program, &instance));
    rp_status status = rpi_instance_run(instance, &(rpi_run_options){.inputs = inputs});
    if (status == RP_OK) status = rpi_instance_result(instance, n->out, &result);
    for (int64_t b = 0; status == RP_OK && b < BATCH; b++)
        memcpy(out + (b * LENGTH + first) * WIDTH,
               (const float *)result.data + b * count * WIDTH,
               (size_t)(count * WIDTH) * sizeof *out);
    rpi_instance_destroy(instance);
    return status;
}

/* `count` tokens by a program of their own; position: where they are put. */
static rp_status run_some(net *n, const float *const *all, int32_t position, int64_t first,
                          int64_t count, float *out) {
    static float some[3][BATCH * LENGTH * 3 * WIDTH];
    const void *inputs[MOST_INPUTS] = {n->keys, n->values, &position};
    const int64_t widths[] = {n->packed ? 3 * WIDTH : WIDTH, KV_WIDTH, KV_WIDTH};
    int used = n->cached ? 3 : 0;
    for (int i = 0; i < (n->packed ? 1 : 3); i++) {
        cut(all[i], widths[i], first, count, some[i]);
        inputs[used++] = some[i];
    }
    rpi_program_options options = {
        .dimensions = {{"length", count}}, .result_count = 1, .results = {n->out}};
    if (n->cached) options.dimensions[1] = (rpi_dimension_binding){"memory", MEMORY};
    rpi_program *program = NULL;
    RP_TRY(rpi_program_compile(n->session, n->graph, RPI_NO_VALUE, &options, &program));
    rp_status status = run_program(n, program, inputs, first, count, out);
    rpi_program_destroy(program);
    return status;
}

static float drawn[3][BATCH * LENGTH * 3 * WIDTH];
static const float *const all_inputs[] = {drawn[0], drawn[1], drawn[2]};

static void draw(rpi_rng *rng) {
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < BATCH * LENGTH * 3 * WIDTH; j++) drawn[i][j] = rpi_rng_normal(rng);
}

static void check_pieces(bool packed, const rpi_backend *backend) {
    static float wanted[BATCH * LENGTH * WIDTH], found[BATCH * LENGTH * WIDTH];
    static net whole, pieces;
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    draw(&rng);
    open_net(&whole, packed, false, backend);
    open_net(&pieces, packed, true, backend);
    CHECK_OK(run_some(&whole, all_inputs, 0, 0, LENGTH, wanted));
    for (int64_t first = 0, count; first < LENGTH; first += count) {
        count = 1 + (first % 2 ? 0 : rpi_rng_below(&rng, 20));
        if (count > LENGTH - first) count = LENGTH - first;
        CHECK_OK(run_some(&pieces, all_inputs, (int32_t)first, first, count, found));
    }
    CHECK_MSG(memcmp((const char *)wanted, (const char *)found, sizeof wanted) == 0,
              "%s, %s: other bits", backend->name, packed ? "packed" : "apart");
    close_net(&whole);
    close_net(&pieces);
}

static void pieces_give_the_bits_of_the_whole(void) {
    for (int b = 0; rpi_backend_at(b); b++) {
        check_pieces(false, rpi_backend_at(b));
        check_pieces(true, rpi_backend_at(b));
    }
}

static void places_beyond_the_cache_are_told(void) {
    static float out[BATCH * LENGTH * WIDTH];
    static net n;
    for (int packed = 0; packed < 2; packed++) {
        open_net(&n, packed, true, rpi_backend_default());
        CHECK_OK(run_some(&n, all_inputs, MEMORY - 3, 0, 3, out));
        if (packed) /* the table ends where the cache does */
            CHECK_FAILS(run_some(&n, all_inputs, MEMORY - 2, 0, 3, out), INVALID,
                        "node 'positions' (position_embedding): 3 tokens at position 78; the "
                        "table 'table' has 80");
        else
            CHECK_FAILS(run_some(&n, all_inputs, MEMORY - 2, 0, 3, out), INVALID,
                        "node 'attend' (cached_attention): 3 tokens at position 78; the cache "
                        "has room for 80");
        CHECK_FAILS(run_some(&n, all_inputs, -1, 0, 3, out), INVALID, "position");
        close_net(&n);
    }
}

static void a_cache_belongs_to_one_node(void) {
    rpi_graph *g = NULL;
    REQUIRE_OK(rpi_graph_create(&g));
    rpi_value_id x = rpi_graph_input(g, "x", RP_F32, SHAPE(1, 1, 3 * WIDTH));
    rpi_value_id position = rpi_graph_input(g, "position", RP_I32, (rpi_shape){0});
    rpi_cache cache = {rpi_graph_input(g, "keys", RP_F32, SHAPE(1, MEMORY, WIDTH)),
                       rpi_graph_input(g, "values", RP_F32, SHAPE(1, MEMORY, WIDTH)), position};
    (void)rpi_cached_self_attention(g, "first", x, cache, attributes(true));
    CHECK_OK(rpi_graph_check(g));
    (void)rpi_cached_self_attention(g, "second", x, cache, attributes(true));
    CHECK_FAILS(rpi_graph_check(g), INVALID,
                "node 'second' (cached_self_attention): key cache 'keys' is used by node "
                "'first' already");
    rpi_graph_destroy(g);
    REQUIRE_OK(rpi_graph_create(&g));
    x = rpi_graph_input(g, "x", RP_F32, SHAPE(1, 1, 3 * WIDTH));
    cache.keys = rpi_graph_parameter(g, "keys", SHAPE(1, MEMORY, WIDTH));
    cache.position = rpi_graph_input(g, "position", RP_I32, (rpi_shape){0});
    (void)rpi_cached_self_attention(g, "attend", x, cache, attributes(true));
    CHECK_FAILS(rpi_graph_check(g), INVALID, "an input of the graph is wanted");
    rpi_graph_destroy(g);
}

static void caches_are_not_trained(void) {
    static net n;
    open_net(&n, true, true, rpi_backend_default());
    rpi_program *program = NULL;
    rpi_program_options options = {.training = true,
                                   .dimensions = {{"length", 1}, {"memory", MEMORY}},
                                   .seed_count = 1,
                                   .seeds = {n.out}};
    CHECK_FAILS(rpi_program_compile(n.session, n.graph, RPI_NO_VALUE, &options, &program),
                UNSUPPORTED,
                "node 'attend' (cached_self_attention) goes on from a cache, and no gradient "
                "goes through it");
    close_net(&n);
}

CASES({"pieces give the bits of the whole", pieces_give_the_bits_of_the_whole},
      {"places beyond the cache are told", places_beyond_the_cache_are_told},
      {"a cache belongs to one node", a_cache_belongs_to_one_node},
      {"caches are not trained", caches_are_not_trained})
