/* The check of every kind, for every pipeline up to 16 stages, 33 micro-batches and 4 chunks;
 * and that it fails where an order is wrong. */
#include "plan/pipelines/pipeline_check.h"

#include "harness/check.h"

enum { MOST_STAGES = 16, MOST_MICRO_BATCHES = 33, MOST_CHUNKS = 4 };

static rp_status prove(const rpi_pipeline_kind *kind, const rpi_pipeline_shape *shape) {
    rpi_pipeline_orders o;
    RP_TRY(rpi_pipeline_orders_build(kind, shape, &o));
    rp_status status = rpi_pipeline_check(&o);
    rpi_pipeline_orders_destroy(&o);
    return status;
}

static void prove_stages(const rpi_pipeline_kind *kind, int stages, int chunks) {
    for (int m = 1; m <= MOST_MICRO_BATCHES; m++) {
        rpi_pipeline_shape shape = {stages, m, chunks};
        rp_status status = prove(kind, &shape);
        CHECK_MSG(status == RP_OK, "%d stages, %d micro-batches, %d chunks: %s", stages, m,
                  chunks, rp_last_error()->message);
    }
}

static void every_kind_is_proved(void) {
    const rpi_pipeline_kind *kind;
    for (int i = 0; (kind = rpi_pipeline_kind_at(i)) != NULL; i++)
        for (int p = 1; p <= MOST_STAGES; p++)
            for (int v = kind->chunks ? kind->chunks : 2;
                 v <= (kind->chunks ? kind->chunks : MOST_CHUNKS); v++)
                prove_stages(kind, p, v);
}

static void larger_ones_are_proved(void) {
    static const rpi_pipeline_shape shapes[] = {{64, 200, 1}, {17, 34, 1}, {5, 1000, 1}};
    const rpi_pipeline_kind *kind;
    for (int i = 0; (kind = rpi_pipeline_kind_at(i)) != NULL; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
            rpi_pipeline_shape shape = shapes[s];
            shape.chunks = kind->chunks ? kind->chunks : 3;
            CHECK_OK(prove(kind, &shape));
        }
}

/* Where micro-batches are whole rounds of the stages, and of all kinds but one always. */
static void one_message_a_link_is_enough(void) {
    const rpi_pipeline_kind *kind;
    for (int i = 0; (kind = rpi_pipeline_kind_at(i)) != NULL; i++)
        for (int p = 1; p <= MOST_STAGES; p++)
            for (int m = 1; m <= MOST_MICRO_BATCHES; m++) {
                rpi_pipeline_shape shape = {p, m, kind->chunks ? kind->chunks : 2};
                int room = rpi_pipeline_room(kind, &shape);
                CHECK(room == 1 ||
                      (kind->chunks == 0 && m % p > 0 && m > p && room <= m - p + 1));
            }
}

/* ---- wrong orders ---- */

static const rpi_pipeline_kind *kind_of(const char *name) {
    const rpi_pipeline_kind *kind = NULL;
    CHECK_OK(rpi_pipeline_kind_find(name, &kind));
    return kind;
}

static void build(const char *name, rpi_pipeline_orders *o) {
    rpi_pipeline_shape shape = {4, 8, 0};
    const rpi_pipeline_kind *kind = kind_of(name);
    shape.chunks = kind->chunks ? kind->chunks : 2;
    REQUIRE_OK(rpi_pipeline_orders_build(kind, &shape, o));
}

static void swap(rpi_pipeline_orders *o, int a, int b) {
    rpi_pipeline_pass pass = o->passes[a];
    o->passes[a] = o->passes[b];
    o->passes[b] = pass;
}

/* The number of a pass of a stage. */
static int at(const rpi_pipeline_orders *o, int stage, rpi_pass_kind kind, int micro_batch) {
    for (int k = 0; k < o->each; k++) {
        const rpi_pipeline_pass *pass = &o->passes[stage * o->each + k];
        if (pass->kind == kind && pass->micro_batch == micro_batch) return stage * o->each + k;
    }
    return 0;
}

static void each_mistake_is_found(void) {
    rpi_pipeline_orders o;
    build("zb-h1", &o); /* one twice, and so another never */
    o.passes[at(&o, 1, RPI_PASS_WEIGHTS, 3)].micro_batch = 4;
    CHECK_FAILS(rpi_pipeline_check(&o), INTERNAL,
                "W4 of stage 1 runs twice, and another never");
    o.passes[at(&o, 1, RPI_PASS_WEIGHTS, 4)].micro_batch = 8;
    CHECK_FAILS(rpi_pipeline_check(&o), INTERNAL, "there is no W8 of stage 1");
    rpi_pipeline_orders_destroy(&o);

    build("1f1b", &o); /* backward out of order */
    swap(&o, at(&o, 0, RPI_PASS_BACKWARD, 2), at(&o, 0, RPI_PASS_BACKWARD, 3));
    CHECK_FAILS(rpi_pipeline_check(&o), INTERNAL,
                "D3 of stage 0 runs where micro-batch 2 is next");
    rpi_pipeline_orders_destroy(&o);

    build("zb-h1", &o); /* weights ahead of inputs */
    swap(&o, at(&o, 3, RPI_PASS_INPUTS, 7), at(&o, 3, RPI_PASS_WEIGHTS, 7));
    CHECK_FAILS(rpi_pipeline_check(&o), INTERNAL, "W7 of stage 3");
    rpi_pipeline_orders_destroy(&o);

    build("afab", &o); /* a link whose messages are needed in another order */
    swap(&o, at(&o, 2, RPI_PASS_FORWARD, 4), at(&o, 2, RPI_PASS_FORWARD, 6));
    CHECK_FAILS(rpi_pipeline_check(&o), INTERNAL, "all wait for ever");
    rpi_pipeline_orders_destroy(&o);

    build("1f1b", &o); /* an answer before the question */
    swap(&o, at(&o, 2, RPI_PASS_FORWARD, 0), at(&o, 2, RPI_PASS_BACKWARD, 0));
    CHECK_FAILS(rpi_pipeline_check(&o), INTERNAL, "all wait for ever");
    rpi_pipeline_orders_destroy(&o);

    build("1f1b", &o); /* one more in memory than was said */
    swap(&o, at(&o, 3, RPI_PASS_FORWARD, 3), at(&o, 3, RPI_PASS_BACKWARD, 2));
    CHECK_FAILS(rpi_pipeline_check(&o), INTERNAL, "stage 3 keeps 2 micro-batches, not 1");
    rpi_pipeline_orders_destroy(&o);

    build("zb-h1", &o); /* weights where others wait for inputs */
    for (int m = 0; m < 4; m++)
        swap(&o, at(&o, 3, RPI_PASS_INPUTS, 4 + m), at(&o, 3, RPI_PASS_WEIGHTS, m));
    CHECK(rpi_pipeline_check(&o) == RP_INTERNAL);
    rpi_pipeline_orders_destroy(&o);
}

/* An order that keeps every promise but its time. */
static void a_slow_order_is_found(void) {
    rpi_pipeline_orders o;
    build("zb-h1", &o);
    swap(&o, at(&o, 0, RPI_PASS_FORWARD, 4), at(&o, 0, RPI_PASS_WEIGHTS, 0));
    swap(&o, at(&o, 0, RPI_PASS_FORWARD, 4), at(&o, 0, RPI_PASS_INPUTS, 1));
    CHECK(rpi_pipeline_check(&o) == RP_INTERNAL);
    rpi_pipeline_orders_destroy(&o);
}

CASES({"every kind is proved", every_kind_is_proved},
      {"larger ones are proved", larger_ones_are_proved},
      {"one message a link is enough", one_message_a_link_is_enough},
      {"each mistake is found", each_mistake_is_found},
      {"a slow order is found", a_slow_order_is_found})
