/* Programs of a run: compiled before its first step, kept while they are in use. */
#include "harness/check.h"
#include "train/trainer.h"
#include "train_ranks.h"

enum { WORLD = 2 };

/* An epoch of 3 steps, the last of 20 images instead of 40, and a test set that is no multiple
 * of the batch: nothing is compiled once the steps run. */
static rp_status walk(void *context, rp_comm *comm) {
    (void)context;
    rpi_train_options options = ranks_options();
    rpi_trainer t;
    rpi_step_metrics metrics;
    rpi_evaluation evaluation;
    options.train_images = 100;
    options.test_images = 70;
    options.batch_size = 0;
    options.global_batch_size = 40;
    options.epochs = 0;
    options.steps = 7;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    if (status == RP_OK) status = rpi_trainer_compile(&t);
    int compiled = t.programs.count;
    CHECK_EQ(compiled, 4);
    for (int i = 0; i < 7 && status == RP_OK; i++) {
        status = rpi_trainer_step(&t, &metrics);
        if (status == RP_OK && i == 3) status = rpi_trainer_evaluate(&t, &evaluation);
        CHECK_EQ(t.programs.count, compiled);
    }
    rpi_session_facts facts = {0};
    if (t.programs.session) facts = rpi_session_get_facts(t.programs.session);
    CHECK_EQ(facts.arenas, 1);
    rpi_trainer_close(&t);
    return status;
}

static void compiled_at_the_start(void) {
    CHECK_OK(ranks_run(WORLD, walk, NULL));
}

/* The one that was used last is never the one that makes room. */
static rp_status many_programs(void *context, rp_comm *comm) {
    (void)context;
    rpi_train_options options = ranks_options();
    rpi_trainer t;
    rpi_instance *first = NULL, *again = NULL, *other = NULL;
    rp_status status = rpi_trainer_open(&t, &options, comm);
    if (status == RP_OK) status = rpi_program_set_get(&t.programs, true, 9, &first);
    for (int batch = 1; batch <= RPI_PROGRAM_SET + 2 && status == RP_OK; batch++) {
        status = rpi_program_set_get(&t.programs, false, batch, &other);
        if (status == RP_OK) status = rpi_program_set_get(&t.programs, true, 9, &again);
        CHECK(again == first);
    }
    CHECK_EQ(t.programs.count, RPI_PROGRAM_SET);
    rpi_trainer_close(&t);
    return status;
}

static void the_training_program_stays(void) {
    CHECK_OK(ranks_run(1, many_programs, NULL));
}

CASES({"compiled_at_the_start", compiled_at_the_start},
      {"the_training_program_stays", the_training_program_stays})
