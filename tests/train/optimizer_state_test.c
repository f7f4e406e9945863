/* The state of an optimizer over owned ranges: ranks that own the arena in parts are one rank
 * that owns it all, to the bit. */
#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <string.h>

enum { STEPS = 3, OWNERS = 3, RANGES = 4 };

/* An arena in parts, a table to add rows to: where each range ends, and who owns it. An end of
 * 0 is that of the arena. */
typedef struct cut {
    const char *name;
    struct {
        int64_t end;
        int owner;
    } ranges[RANGES];
} cut;

static const cut cuts[] = {
    {"one owner", {{0, 0}}},
    {"the last owns all", {{0, OWNERS - 1}}},
    {"halves within a tensor", {{5003, 0}, {0, 1}}},
    {"in turns", {{77, 0}, {1000, 1}, {4999, 0}, {0, 2}}},
    {"one element", {{1, 1}, {2, 0}, {0, 1}}},
};

static const char *const kinds[] = {"sgd", "adamw"};

static rp_status open_state(rpi_trainer *t, const rpi_arena_range *owned, int count,
                            rpi_optimizer_state *out_state) {
    rpi_optimizer_state_options options = {.kind = t->optimizer.kind,
                                           .network = &t->network,
                                           .weights = t->weights,
                                           .rates = rpi_train_rates(t->options),
                                           .clip = 0.25,
                                           .owned = owned,
                                           .owned_count = count};
    return rpi_optimizer_state_open(&options, out_state);
}

static void fill_gradients(rpi_trainer *t, uint64_t step) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, step);
    float *gradients = rpi_weights_gradients(t->weights);
    for (int64_t i = 0; i < rpi_weights_count(t->weights); i++)
        gradients[i] = rpi_rng_normal(&rng);
}

static int list_owned(const cut *c, int owner, int64_t elements, rpi_arena_range *owned) {
    int count = 0;
    int64_t first = 0;
    for (int i = 0; i < RANGES && first < elements; i++) {
        int64_t end = c->ranges[i].end ? c->ranges[i].end : elements;
        if (c->ranges[i].owner == owner) owned[count++] = (rpi_arena_range){first, end - first};
        first = end;
    }
    return count;
}

/* Each measures what it owns, all know the sum, each steps what it owns. */
static void step_all(rpi_trainer *t, rpi_optimizer_state *states, int count, uint64_t step) {
    rpi_arena_range all = {0, rpi_weights_count(t->weights)};
    rpi_square_sum sum = {{0}, 0};
    fill_gradients(t, step);
    for (int i = 0; i < count; i++) {
        rpi_optimizer_state_begin(&states[i]);
        rpi_optimizer_state_measure(&states[i], all);
        rpi_square_sum_add(&sum, &states[i].squares);
    }
    for (int i = 0; i < count; i++) {
        states[i].squares = sum;
        rpi_optimizer_state_clip(&states[i]);
        CHECK(states[i].scale > 0); /* it clips */
        rpi_optimizer_state_step(&states[i], step, 0.1, all);
    }
}

static void check_slots(const rpi_trainer *t, const rpi_optimizer_state *whole,
                        const rpi_optimizer_state *states, const char *name) {
    for (int s = 0; s < whole->kind->slot_count; s++)
        for (int64_t e = 0; e < rpi_weights_count(t->weights); e++) {
            int owners = 0;
            for (int i = 0; i < OWNERS; i++) {
                const float *at = rpi_optimizer_state_slot(&states[i], s, e);
                owners += at != NULL;
                if (at)
                    CHECK_MSG(*at == whole->slots[s][e], "%s: slot of %lld", name,
                              (long long)e);
            }
            CHECK_MSG(owners == 1, "%s: %d own element %lld", name, owners, (long long)e);
        }
}

static void check_cut(rpi_trainer *t, const cut *c) {
    int64_t elements = rpi_weights_count(t->weights);
    size_t bytes = (size_t)elements * sizeof(float);
    float *values = rpi_weights_values(t->weights), *before = NULL, *after = NULL;
    rpi_optimizer_state whole, states[OWNERS];
    REQUIRE_OK(rpi_alloc(bytes, "values", &before));
    REQUIRE_OK(rpi_alloc(bytes, "values", &after));
    memcpy(before, values, bytes);
    REQUIRE_OK(open_state(t, NULL, 0, &whole));
    for (uint64_t step = 0; step < STEPS; step++) step_all(t, &whole, 1, step);
    memcpy(after, values, bytes);
    memcpy(values, before, bytes);
    for (int i = 0; i < OWNERS; i++) {
        rpi_arena_range owned[RANGES] = {{0, 0}};
        int count = list_owned(c, i, elements, owned);
        REQUIRE_OK(open_state(t, owned, count, &states[i]));
    }
    for (uint64_t step = 0; step < STEPS; step++) step_all(t, states, OWNERS, step);
    CHECK_MSG(memcmp(values, after, bytes) == 0, "%s: other values", c->name);
    CHECK_MSG(states[0].norm == whole.norm, "%s: norms %.17g, %.17g", c->name, states[0].norm,
              whole.norm);
    check_slots(t, &whole, states, c->name);
    memcpy(values, before, bytes);
    for (int i = 0; i < OWNERS; i++) rpi_optimizer_state_close(&states[i]);
    rpi_optimizer_state_close(&whole);
    rpi_free(before);
    rpi_free(after);
}

static rp_status check_kind(void *context, rp_comm *comm) {
    rpi_train_options options = ranks_options();
    rpi_trainer t;
    options.optimizer = context;
    options.decay = "weights";
    options.weight_decay = 0.1;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    for (size_t i = 0; status == RP_OK && i < sizeof cuts / sizeof cuts[0]; i++)
        check_cut(&t, &cuts[i]);
    rpi_trainer_close(&t);
    return status;
}

/* Kept values are stepped in the place of the weights', from what those were. */
static rp_status check_kept(void *context, rp_comm *comm) {
    rpi_train_options options = ranks_options();
    rpi_trainer t;
    options.optimizer = context;
    RP_TRY(rpi_trainer_open(&t, &options, comm));
    rpi_optimizer_state state, kept;
    int64_t elements = rpi_weights_count(t.weights);
    float *values = rpi_weights_values(t.weights), before = values[100];
    const rpi_arena_range part = {64, elements - 64};
    rpi_optimizer_state_options of_part = {.kind = t.optimizer.kind,
                                           .network = &t.network,
                                           .weights = t.weights,
                                           .rates = rpi_train_rates(t.options),
                                           .owned = &part,
                                           .owned_count = 1};
    CHECK_OK(rpi_optimizer_state_open(&of_part, &state));
    of_part.keeps_values = true;
    CHECK_OK(rpi_optimizer_state_open(&of_part, &kept));
    CHECK_EQ(kept.slot_count, state.slot_count + 1);
    fill_gradients(&t, 0);
    rpi_optimizer_state_step(&kept, 0, 0.1, (rpi_arena_range){0, elements});
    CHECK(values[100] == before);
    fill_gradients(&t, 0);
    rpi_optimizer_state_step(&state, 0, 0.1, (rpi_arena_range){0, elements});
    CHECK(values[100] != before);
    CHECK(!memcmp(rpi_optimizer_state_values(&kept, 64), values + 64,
                  (size_t)part.count * sizeof *values));
    CHECK(rpi_optimizer_state_values(&state, 64) == values + 64);
    CHECK(!strcmp(rpi_optimizer_state_slot_name(&kept, state.slot_count), "value"));
    rpi_optimizer_state_close(&state);
    rpi_optimizer_state_close(&kept);
    rpi_trainer_close(&t);
    return RP_OK;
}

static void kept_values_are_stepped(void) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        CHECK_OK(ranks_run(1, check_kept, (void *)kinds[i]));
}

static void owners_of_parts_are_one_of_all(void) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        CHECK_OK(ranks_run(1, check_kind, (void *)kinds[i]));
}

static rp_status refuse(void *context, rp_comm *comm) {
    (void)context;
    rpi_train_options options = ranks_options();
    rpi_trainer t;
    rpi_optimizer_state state;
    options.optimizer = "lamb";
    options.momentum = 0;
    RP_TRY(rpi_trainer_open(&t, &options, comm));
    int64_t elements = rpi_weights_count(t.weights);
    const rpi_weight *second = rpi_weights_parameter(t.weights, 1);
    rpi_arena_range tensors[] = {{0, second->first}, {second->first, second->count}};
    CHECK_OK(open_state(&t, tensors, 2, &state));
    CHECK(rpi_optimizer_state_slot(&state, 0, second->first + second->count) == NULL);
    rpi_optimizer_state_close(&state);
    rpi_arena_range part = {0, second->first + 1};
    CHECK_FAILS(open_state(&t, &part, 1, &state), UNSUPPORTED, "no rank can own a part");
    rpi_arena_range twice[] = {{0, second->first}, {0, second->first}};
    CHECK_FAILS(open_state(&t, twice, 2, &state), INVALID, "are no range behind");
    rpi_arena_range beyond = {0, elements + 1};
    CHECK_FAILS(open_state(&t, &beyond, 1, &state), INVALID, "of an arena of");
    rpi_arena_range negative = {second->first, -1};
    CHECK_FAILS(open_state(&t, &negative, 1, &state), INVALID, "are no range");
    rpi_trainer_close(&t);
    return RP_OK;
}

static void what_cannot_be_owned_is_refused(void) {
    CHECK_OK(ranks_run(1, refuse, NULL));
}

CASES({"owners of parts are one of all", owners_of_parts_are_one_of_all},
      {"kept values are stepped", kept_values_are_stepped},
      {"what cannot be owned is refused", what_cannot_be_owned_is_refused})
