/* A step takes all gradients, each once and in order: whoever tells a strategy otherwise, as a
 * part of a model would that tells its own alone, is refused before anything is stepped. */
#include "base/memory.h"
#include "harness/check.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <string.h>

enum { RANGES = 3 };

/* Tellings, a table to add rows to: parts in thousandths of the arena. */
static const struct {
    const char *name, *fails; /* NULL: it is right */
    struct {
        int first, end;
    } ranges[RANGES];
} tellings[] = {
    {"all at once", NULL, {{0, 1000}}},
    {"in three", NULL, {{0, 1}, {1, 700}, {700, 1000}}},
    {"nothing", "gradients of 0 of", {{0, 0}}},
    {"the first half", "and a step takes all of them; nothing was stepped", {{0, 500}}},
    {"the second half", "came where those from 0 on were to come", {{500, 1000}}},
    {"with a gap", "were to come", {{0, 500}, {501, 1000}}},
    {"twice", "were to come", {{0, 500}, {0, 500}, {500, 1000}}},
    {"too much", "were to come", {{0, 1000}, {0, 1}}},
};

static rp_status tell(rpi_trainer *t, size_t which) {
    int64_t all = rpi_weights_count(t->weights), exposed = 0;
    memset(rpi_weights_gradients(t->weights), 0, (size_t)all * sizeof(float));
    t->learning_rate = 0.1;
    rpi_optimizer_state_begin(&t->optimizer);
    t->strategy->begin(t->strategy_self, t->step);
    for (int i = 0; i < RANGES && tellings[which].ranges[i].end; i++) {
        int64_t first = all * tellings[which].ranges[i].first / 1000;
        int64_t end = all * tellings[which].ranges[i].end / 1000;
        RP_TRY(t->strategy->gradient_final(t->strategy_self, first, end - first));
    }
    return t->strategy->finish(t->strategy_self, &exposed);
}

static rp_status check_strategy(void *context, rp_comm *comm) {
    for (size_t i = 0; i < sizeof tellings / sizeof tellings[0]; i++) {
        rpi_train_options options = ranks_options();
        rpi_trainer t;
        options.strategy = context;
        RP_TRY(rpi_trainer_open(&t, &options, comm));
        size_t bytes = (size_t)rpi_weights_count(t.weights) * sizeof(float);
        float *before = NULL;
        RP_TRY(rpi_alloc(bytes, "values", &before));
        memcpy(before, rpi_weights_values(t.weights), bytes);
        rp_status status = tell(&t, i);
        bool same = memcmp(before, rpi_weights_values(t.weights), bytes) == 0;
        if (tellings[i].fails)
            CHECK_FAILS(status, INTERNAL, tellings[i].fails);
        else
            CHECK_OK(status);
        CHECK_MSG(same == (tellings[i].fails != NULL), "%s, %s: %s", options.strategy,
                  tellings[i].name, same ? "nothing was stepped" : "a part was stepped");
        rpi_free(before);
        rpi_trainer_close(&t);
    }
    return RP_OK;
}

static void a_step_takes_all_gradients(void) {
    const rpi_strategy *strategy;
    for (int i = 0; (strategy = rpi_strategy_at(i)) != NULL; i++)
        if (strategy->finish) CHECK_OK(ranks_run(1, check_strategy, (void *)strategy->name));
}

CASES({"a step takes all gradients", a_step_takes_all_gradients})
