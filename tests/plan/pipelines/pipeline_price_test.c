/* What a step takes, beside answers that are known. */
#include "plan/pipelines/pipeline_price.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"

enum { PARTS = 64 };

typedef struct times {
    double forward, inputs, weights; /* of a chunk */
} times;

static const rpi_pipeline_kind *kind_of(const char *name) {
    const rpi_pipeline_kind *kind = NULL;
    CHECK_OK(rpi_pipeline_kind_find(name, &kind));
    return kind;
}

static void price(const char *name, int stages, int micro_batches, int chunks,
                  const rpi_pipeline_model *model, rpi_pipeline_price *out) {
    const rpi_pipeline_kind *kind = kind_of(name);
    rpi_pipeline_orders o;
    rpi_pipeline_shape shape;
    memset(out, 0, sizeof *out);
    REQUIRE_OK(rpi_pipeline_shape_make(kind, stages, micro_batches, chunks, &shape));
    REQUIRE_OK(rpi_pipeline_orders_build(kind, &shape, &o));
    CHECK_OK(rpi_pipeline_price_make(&o, model, out));
    rpi_pipeline_orders_destroy(&o);
}

/* All parts alike, and hops of a latency. */
static double end_of(const char *name, int stages, int micro_batches, int chunks, times t,
                     double hop_s) {
    double forward[PARTS], inputs[PARTS], weights[PARTS];
    int parts = stages * (chunks ? chunks : kind_of(name)->chunks);
    rpi_pipeline_price p;
    for (int i = 0; i < parts; i++) {
        forward[i] = t.forward;
        inputs[i] = t.inputs;
        weights[i] = t.weights;
    }
    rpi_pipeline_model model = {.entries = parts,
                                .forward_s = forward,
                                .inputs_s = inputs,
                                .weights_s = weights,
                                .latency_s = hop_s};
    price(name, stages, micro_batches, chunks, &model, &p);
    double end_s = p.time_s;
    rpi_pipeline_price_free(&p);
    return end_s;
}

/* ---- the tables: add a row ---- */

/* Four stages, eight micro-batches. Ends where all passes take 1 and hops nothing, where hops
 * take a quarter, and where passes take 4, 5 and 3. */
static const struct {
    const char *kind;
    int chunks;
    double plain, hops, unequal;
} ends[] = {
    {"afab", 0, 33, 34.5, 132},  {"1f1b", 0, 33, 37, 132},
    {"zb-h1", 0, 27, 30, 114},   {"zb-h2", 0, 27, 27.75, 108},
    {"zb-v", 0, 51, 54.25, 207}, {"interleaved", 2, 57, 60.5, 228},
};

/* Of any stages and micro-batches, passes of 1, and hops. */
static const struct {
    const char *kind;
    int stages, micro_batches;
    double hop_s, end_s;
} slow[] = {
    {"1f1b", 8, 32, 1, 185},       {"eager-1f1b", 8, 32, 1, 131}, {"zb-h1", 8, 32, 1, 151},
    {"zb-h2", 8, 32, 1, 110},      {"afab", 8, 32, 1, 131},       {"1f1b", 8, 32, 0, 117},
    {"eager-1f1b", 8, 32, 0, 117}, {"zb-h1", 8, 32, 0, 103},      {"zb-h2", 8, 32, 0, 103},
    {"afab", 8, 32, 0, 117},       {"1f1b", 4, 8, 0, 33},         {"1f1b", 4, 8, 1, 49},
    {"1f1b", 4, 32, 0, 105},       {"1f1b", 4, 32, 1, 157},       {"afab", 4, 8, 1, 39},
    {"afab", 4, 32, 1, 111},       {"eager-1f1b", 4, 8, 1, 39},   {"eager-1f1b", 4, 32, 1, 111},
};

static void ends_are_those_that_are_known(void) {
    static const times ones = {1, 1, 1}, unlike = {4, 5, 3};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const char *kind = ends[i].kind;
        CHECK_NEAR(end_of(kind, 4, 8, ends[i].chunks, ones, 0), ends[i].plain, 1e-9);
        CHECK_NEAR(end_of(kind, 4, 8, ends[i].chunks, ones, .25), ends[i].hops, 1e-9);
        CHECK_NEAR(end_of(kind, 4, 8, ends[i].chunks, unlike, 0), ends[i].unequal, 1e-9);
    }
    for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++) {
        double end_s =
            end_of(slow[i].kind, slow[i].stages, slow[i].micro_batches, 0, ones, slow[i].hop_s);
        CHECK_MSG(fabs(end_s - slow[i].end_s) < 1e-9,
                  "%s, %d stages, %d micro-batches, hop %g: "
                  "%g, not %g",
                  slow[i].kind, slow[i].stages, slow[i].micro_batches, slow[i].hop_s, end_s,
                  slow[i].end_s);
    }
}

/* With hops of c no longer than a pass, micro-batches in whole rounds of the stages:
 * 3 (m + p - 1) + c (2 (p - 1) m / p + 2 (p - 2)) for 1F1B, which pays with each micro-batch,
 * 3 (m + p - 1) + 2 (p - 1) c with twice the warm-up, which pays once. */
static void a_hop_hurts_1f1b_most(void) {
    static const double hops[] = {.125, .5, 1};
    static const times ones = {1, 1, 1};
    for (int p = 2; p <= 8; p++)
        for (int rounds = 1; rounds <= 4; rounds++)
            for (int h = 0; h < 3; h++) {
                int m = p * rounds;
                double c = hops[h], plain = 3 * (m + p - 1);
                CHECK_NEAR(end_of("1f1b", p, m, 0, ones, c),
                           plain + c * (2 * (p - 1) * rounds + 2 * (p - 2)), 1e-9);
                CHECK_NEAR(end_of("afab", p, m, 0, ones, c), plain + 2 * (p - 1) * c, 1e-9);
                CHECK_NEAR(end_of("eager-1f1b", p, m, 0, ones, c), plain + 2 * (p - 1) * c,
                           1e-9);
            }
}

/* Whatever passes take, stages are idle for (p - 1) (F + D) in AFAB and 1F1B, a v-th of that
 * interleaved, and for (p - 1) (F + B - W) in ZB-H1 where passes for weights are no longer than
 * the others. */
static void idle_times_are_those_of_the_formulas(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    for (int trial = 0; trial < 400; trial++) {
        int p = 1 + (int)(rpi_rng_u32(&rng) % 8), m = 1 + (int)(rpi_rng_u32(&rng) % 24);
        int v = 2 + (int)(rpi_rng_u32(&rng) % 3);
        times t = {1 + rpi_rng_u32(&rng) % 9, 1 + rpi_rng_u32(&rng) % 9, 0};
        double most = fmin(t.forward, t.inputs);
        t.weights = fmax(1, floor(most * (rpi_rng_u32(&rng) % 5) / 4));
        double all = t.forward + t.inputs + t.weights;
        CHECK_NEAR(end_of("afab", p, m, 0, t, 0), (m + p - 1) * all, 1e-9);
        CHECK_NEAR(end_of("1f1b", p, m, 0, t, 0), (m + p - 1) * all, 1e-9);
        CHECK_NEAR(end_of("interleaved", p, p * m, v, t, 0), (v * p * m + p - 1) * all, 1e-9);
        if (m >= p)
            CHECK_NEAR(end_of("zb-h1", p, m, 0, t, 0),
                       m * all + (p - 1) * (t.forward + t.inputs - t.weights), 1e-9);
    }
}

/* Shares of idle time: (p - 1) / (m + p - 1), and with v chunks (p - 1) / (v m + p - 1). */
static void bubbles_are_those_of_the_formulas(void) {
    double units[16];
    for (int i = 0; i < 16; i++) units[i] = 1;
    rpi_pipeline_model model = {
        .entries = 4, .forward_s = units, .inputs_s = units, .weights_s = units};
    rpi_pipeline_price p;
    price("1f1b", 4, 8, 0, &model, &p);
    CHECK_NEAR(p.bubble, 3. / 11, 1e-12);
    for (int s = 0; s < 4; s++) CHECK_NEAR(p.stage[s].idle_s, 9, 1e-12);
    rpi_pipeline_price_free(&p);
    price("afab", 4, 32, 0, &model, &p);
    CHECK_NEAR(p.bubble, 3. / 35, 1e-12);
    rpi_pipeline_price_free(&p);
    for (int v = 2; v <= 4; v++) {
        price("interleaved", 4, 8, v, &model, &p);
        CHECK_NEAR(p.bubble, 3. / (8 * v + 3), 1e-12);
        CHECK_NEAR(p.stage[0].busy_s, 24, 1e-9); /* chunks share a stage's time */
        rpi_pipeline_price_free(&p);
    }
    price("zb-h1", 4, 8, 0, &model, &p);
    CHECK_NEAR(p.bubble, 3. / 27, 1e-12);
    rpi_pipeline_price_free(&p);
    price("zb-v", 4, 8, 0, &model, &p); /* no stage waits between its first and last pass */
    for (int s = 0; s < 4; s++)
        CHECK_NEAR(p.stage[s].last_s - p.stage[s].first_s, p.stage[s].busy_s, 1e-9);
    rpi_pipeline_price_free(&p);
}

/* ---- links ---- */

/* One stage sends three messages of 2 s at once, which come one behind the other. */
static void an_interface_carries_one_message_at_a_time(void) {
    double forward[] = {0, 1}, backward[] = {.5, .5};
    rpi_pipeline_model model = {.entries = 2,
                                .forward_s = forward,
                                .inputs_s = backward,
                                .weights_s = backward,
                                .border_bytes = 20,
                                .bytes_per_s = 10,
                                .latency_s = .25};
    rpi_pipeline_price p;
    price("afab", 2, 3, 0, &model, &p);
    /* Arrive after 2.25, 4.25, 6.25; backward passes end there at 8.25, 9.25, 10.25, and their
     * messages come at 10.5, 12.5 and 14.5. */
    CHECK_NEAR(p.spans[6].start_s, 2.25, 1e-12);
    CHECK_NEAR(p.spans[8].start_s, 6.25, 1e-12);
    CHECK_NEAR(p.spans[9].start_s, 7.25, 1e-12);
    CHECK_NEAR(p.spans[3].start_s, 10.5, 1e-12);
    CHECK_NEAR(p.spans[4].start_s, 12.5, 1e-12);
    CHECK_NEAR(p.time_s, 15.5, 1e-12);
    CHECK_NEAR(p.exposed_s, 15.5 - 7, 1e-12);
    CHECK_NEAR(p.stage[1].link_s, 2.25 + 1 + 1, 1e-12);
    CHECK_EQ(p.messages, 6);
    rpi_pipeline_price_free(&p);
}

static void stages_of_a_host_have_links_of_their_own(void) {
    double units[] = {1, 1, 1, 1};
    static const int hosts[] = {0, 0, 1, 1};
    rpi_pipeline_model model = {.entries = 4,
                                .forward_s = units,
                                .inputs_s = units,
                                .weights_s = units,
                                .latency_s = 1,
                                .host_of = hosts};
    rpi_pipeline_price p;
    price("afab", 4, 8, 0, &model, &p); /* one slow hop there, one back */
    CHECK_NEAR(p.time_s, 35, 1e-12);
    rpi_pipeline_price_free(&p);
    model.inside_latency_s = .25;
    price("afab", 4, 8, 0, &model, &p);
    CHECK_NEAR(p.time_s, 36, 1e-12);
    rpi_pipeline_price_free(&p);
    model.inside_latency_s = 0;
    static const int one[] = {0, 0, 0, 0};
    model.host_of = one;
    price("1f1b", 4, 8, 0, &model, &p);
    CHECK_NEAR(p.time_s, 33, 1e-12);
    CHECK_NEAR(p.exposed_s, 0, 1e-12);
    rpi_pipeline_price_free(&p);
}

/* ---- stages that are unlike ---- */

/* The slowest one sets the pace: it is never idle between its first pass and its last. */
static void the_slowest_stage_sets_the_pace(void) {
    double forward[] = {1, 1, 3, 1}, half[] = {1, 1, 3, 1};
    rpi_pipeline_model model = {
        .entries = 4, .forward_s = forward, .inputs_s = half, .weights_s = half};
    rpi_pipeline_price p;
    price("1f1b", 4, 32, 0, &model, &p);
    CHECK_NEAR(p.stage[2].busy_s, 32 * 9, 1e-9);
    CHECK(p.time_s >= 32 * 9 && p.time_s < 32 * 9 + 20);
    CHECK_NEAR(p.stage[0].idle_s, p.time_s - 32 * 3, 1e-9);
    rpi_pipeline_price_free(&p);
}

/* Entries of parts are in the order of the model: in ZB-V the last part is on the first stage.
 */
static void parts_may_be_unlike(void) {
    double units[] = {1, 1, 1, 1, 1, 1, 1, 5};
    rpi_pipeline_model model = {
        .entries = 8, .forward_s = units, .inputs_s = units, .weights_s = units};
    rpi_pipeline_price p;
    price("zb-v", 4, 8, 0, &model, &p);
    CHECK_NEAR(p.stage[0].busy_s, 8 * 3 * 6, 1e-9);
    CHECK_NEAR(p.stage[3].busy_s, 8 * 3 * 2, 1e-9);
    rpi_pipeline_price_free(&p);
    price("interleaved", 4, 8, 2, &model, &p);
    CHECK_NEAR(p.stage[0].busy_s, 8 * 3 * 2, 1e-9);
    CHECK_NEAR(p.stage[3].busy_s, 8 * 3 * 6, 1e-9);
    rpi_pipeline_price_free(&p);
}

/* ---- memory ---- */

static void memory_follows_from_the_order(void) {
    double units[] = {1, 1, 1, 1}, kept[] = {100, 100, 100, 100}, late[] = {40, 40, 40, 40};
    rpi_pipeline_model model = {.entries = 4,
                                .forward_s = units,
                                .inputs_s = units,
                                .weights_s = units,
                                .kept_bytes = kept};
    rpi_pipeline_price p;
    price("1f1b", 4, 8, 0, &model, &p);
    for (int s = 0; s < 4; s++) {
        CHECK_EQ(p.stage[s].kept, 4 - s);
        CHECK_NEAR(p.stage[s].kept_bytes, 100 * (4 - s), 1e-9);
    }
    rpi_pipeline_price_free(&p);
    price("zb-h1", 4, 8, 0, &model, &p);
    for (int s = 0; s < 4; s++) CHECK_NEAR(p.stage[s].kept_bytes, 400, 1e-9);
    rpi_pipeline_price_free(&p);
    model.weights_bytes =
        late; /* the last stage: one before its pass for inputs, three behind */
    price("zb-h1", 4, 8, 0, &model, &p);
    CHECK_NEAR(p.stage[0].kept_bytes, 400, 1e-9);
    CHECK_NEAR(p.stage[3].kept_bytes, 100 + 3 * 40, 1e-9);
    rpi_pipeline_price_free(&p);
    price("zb-v", 4, 8, 0, &model, &p); /* of chunks, which have half of it each */
    CHECK_EQ(p.stage[0].kept, 8);
    CHECK_NEAR(p.stage[0].kept_bytes, 400, 1e-9);
    rpi_pipeline_price_free(&p);
}

/* ---- what cannot be ---- */

static rp_status try_model(const rpi_pipeline_model *model) {
    rpi_pipeline_shape shape = {4, 8, 1};
    rpi_pipeline_orders o;
    rpi_pipeline_price p;
    RP_TRY(rpi_pipeline_orders_build(kind_of("1f1b"), &shape, &o));
    rp_status status = rpi_pipeline_price_make(&o, model, &p);
    rpi_pipeline_orders_destroy(&o);
    rpi_pipeline_price_free(&p);
    return status;
}

static void nonsense_is_refused(void) {
    double units[] = {1, 1, 1, 1}, wrong[] = {1, 1, NAN, 1};
    rpi_pipeline_model good = {
        .entries = 4, .forward_s = units, .inputs_s = units, .weights_s = units};
    rpi_pipeline_model bad = good;
    bad.entries = 3;
    CHECK_FAILS(try_model(&bad), INVALID,
                "3 times of a pipeline; 4 stages and 4 parts have them");
    bad = good;
    bad.inputs_s = wrong;
    CHECK_FAILS(try_model(&bad), INVALID, "a time for inputs of a pipeline is negative or no");
    bad = good;
    bad.latency_s = -1;
    CHECK_FAILS(try_model(&bad), INVALID, "a latency of a pipeline");
    bad = good;
    bad.bytes_per_s = INFINITY;
    CHECK_FAILS(try_model(&bad), INVALID, "a rate of a pipeline");
    for (long n = 1;; n++) {
        rpi_memory_fail_after(n);
        rp_status status = try_model(&good);
        rpi_memory_fail_after(0);
        if (status == RP_OK) break;
        CHECK_EQ(status, RP_NOMEM);
        REQUIRE(n < 100);
    }
}

CASES({"ends are those that are known", ends_are_those_that_are_known},
      {"a hop hurts 1F1B most", a_hop_hurts_1f1b_most},
      {"idle times are those of the formulas", idle_times_are_those_of_the_formulas},
      {"bubbles are those of the formulas", bubbles_are_those_of_the_formulas},
      {"an interface carries one message at a time",
       an_interface_carries_one_message_at_a_time},
      {"stages of a host have links of their own", stages_of_a_host_have_links_of_their_own},
      {"the slowest stage sets the pace", the_slowest_stage_sets_the_pace},
      {"parts may be unlike", parts_may_be_unlike},
      {"memory follows from the order", memory_follows_from_the_order},
      {"nonsense is refused", nonsense_is_refused})
