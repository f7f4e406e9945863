/* Replicas that are no longer equal stop all ranks, with one line that names who, where and
 * what to do; nothing is saved of them. */
#include "harness/check.h"
#include "train/checkpoint/checkpoint.h"
#include "train/replicas.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <sys/stat.h>

/* One bit of this element of a rank: of the parameters, or of the momentum. */
typedef struct drift {
    int rank;
    const char *tensor;
    bool in_slot;
} drift;

typedef struct job {
    rpi_train_options options;
    drift drifts[3];
    int count;
    bool saves; /* before they drift */
} job;

static void change(rpi_trainer *t, const drift *what) {
    const rpi_weight *w = rpi_weights_find(t->weights, what->tensor);
    float *values = what->in_slot ? t->optimizer.slots[0] : rpi_weights_values(t->weights);
    uint32_t bits;
    memcpy(&bits, values + w->first + w->count - 1, sizeof bits);
    bits ^= 1u + (uint32_t)what->rank;
    memcpy(values + w->first + w->count - 1, &bits, sizeof bits);
}

static rp_status drift_and_check(rpi_trainer *t, const job *it) {
    rpi_step_metrics metrics;
    RP_TRY(rpi_replicas_check(t));
    RP_TRY(rpi_trainer_step(t, &metrics));
    RP_TRY(rpi_replicas_check(t));
    if (it->saves) RP_TRY(rpi_checkpoint_save(t, it->options.out));
    for (int i = 0; i < it->count; i++)
        if (it->drifts[i].rank == t->place.rank) change(t, &it->drifts[i]);
    if (it->saves) RP_TRY(rpi_trainer_step(t, &metrics));
    return rpi_replicas_check(t);
}

static rp_status train_apart(void *context, rp_comm *comm) {
    const job *it = context;
    rpi_trainer t = {0};
    rp_status status = rpi_trainer_open(&t, &it->options, comm);
    if (status == RP_OK) status = drift_and_check(&t, it);
    rpi_kept_error kept;
    rpi_error_keep(&kept);
    if (status != RP_OK) rp_comm_abort(comm, status, kept.message);
    rpi_trainer_close(&t);
    rpi_error_put_back(&kept);
    return status;
}

static job job_of(int count, drift first, drift second, drift third) {
    return (job){.options = ranks_options(), .drifts = {first, second, third}, .count = count};
}

static void says(const job *it, int world, const char *words) {
    job own = *it;
    CHECK(ranks_run(world, train_apart, &own) == RP_MISMATCH);
    for (int rank = 0; rank < world; rank++)
        CHECK_MSG(strstr(ranks_message(rank), words), "rank %d of %d says '%s', not '%s'", rank,
                  world, ranks_message(rank), words);
}

static void equal_ones_pass(void) {
    for (int world = 1; world <= 4; world++) {
        job it = job_of(0, (drift){0}, (drift){0}, (drift){0});
        it.options.codec = world == 3 ? "q4" : "fp32";
        CHECK_OK(ranks_run(world, train_apart, &it));
    }
}

static void who_differs_is_named(void) {
    const drift none = {0};
    job it = job_of(1, (drift){.rank = 2, .tensor = "fc1.weight"}, none, none);
    says(&it, 4,
         "replicas are not equal after step 1: rank 2 differs from the other ranks in "
         "fc1.weight; replicas stay equal bit for bit unless ");
    it.drifts[0].rank = 0;
    says(&it, 3, "rank 0 differs from the other ranks in fc1.weight; ");
    says(&it, 2, "rank 1 differs from rank 0 in fc1.weight; ");
    it = job_of(2, (drift){.rank = 1, .tensor = "fc2.bias"},
                (drift){.rank = 3, .tensor = "fc1.bias"}, none);
    says(&it, 6, "ranks 1 and 3 differ from the other ranks in fc2.bias and 1 more tensor; ");
    it = job_of(3, (drift){.rank = 1, .tensor = "fc2.bias"},
                (drift){.rank = 2, .tensor = "fc2.bias"},
                (drift){.rank = 3, .tensor = "fc2.bias"});
    says(&it, 4, "ranks 1, 2 and 3 differ from rank 0 in fc2.bias; ");
}

static void so_is_the_optimizer_state(void) {
    job it = job_of(1, (drift){.rank = 1, .tensor = "fc1.bias", .in_slot = true}, (drift){0},
                    (drift){0});
    says(&it, 3, "rank 1 differs from the other ranks in the momentum of fc1.bias; ");
}

static void the_last_checkpoint_is_named(void) {
    char words[700];
    job it = job_of(1, (drift){.rank = 1, .tensor = "fc1.weight"}, (drift){0}, (drift){0});
    says(&it, 2, "there is no checkpoint to go on from (--checkpoint-every N)");
    it.saves = true;
    it.options.out = ranks_folder("saved");
    REQUIRE(mkdir(it.options.out, 0700) == 0);
    snprintf(words, sizeof words,
             "the last checkpoint with equal ones is that of step 1: --resume %s",
             it.options.out);
    says(&it, 2, words);
}

/* Ranks that read different folders when they go on: of the same run but for the seed. */
static rp_status resume_own(void *context, rp_comm *comm) {
    char(*folders)[600] = context;
    rpi_train_options options = ranks_options();
    rpi_train_result result;
    options.steps = 4;
    options.resume = folders[rp_comm_rank(comm)];
    return rpi_train(&options, comm, NULL, &result);
}

static void ranks_go_on_from_the_same_files(void) {
    static char folders[2][600];
    for (int i = 0; i < 2; i++) {
        rpi_train_options options = ranks_options();
        snprintf(folders[i], sizeof folders[i], "%s", ranks_folder(i ? "two" : "one"));
        options.steps = 2;
        options.lr = i ? 0.01 : 0.02;
        options.out = folders[i];
        REQUIRE_OK(ranks_train(&options, 2, NULL));
    }
    CHECK_FAILS(ranks_run(2, resume_own, folders), MISMATCH, "rank 1 differs from rank 0 in ");
    CHECK_MSG(strstr(ranks_message(0), "and 3 more tensors; every rank reads its own ") ||
                  strstr(ranks_message(0), "and 7 more tensors; every rank reads its own "),
              "'%s'", ranks_message(0));
    snprintf(folders[1], sizeof folders[1], "%s", folders[0]);
    CHECK_OK(ranks_run(2, resume_own, folders));
}

/* A norm is on all ranks that share its layer, and one bit of a copy differs. */
static void copies_of_tensor_ranks_are_compared(void) {
    job it = job_of(1, (drift){3, "encoder.ln.weight", false}, (drift){0}, (drift){0});
    it.options.model = "vit:patch=14,layers=1,hidden=12,heads=2";
    it.options.tensor_ranks = 2;
    CHECK(ranks_run(4, train_apart, &it) == RP_MISMATCH);
    for (int rank = 2; rank < 4; rank++)
        CHECK_MSG(strstr(ranks_message(rank),
                         "copies are not equal after step 1: rank 3, tensor "
                         "1 of replica 1 differs from rank 2, tensor 0 of "
                         "replica 1 in encoder.ln.weight; "),
                  "rank %d says '%s'", rank, ranks_message(rank));
}

CASES({"equal ones pass", equal_ones_pass}, {"who differs is named", who_differs_is_named},
      {"so is the optimizer state", so_is_the_optimizer_state},
      {"the last checkpoint is named", the_last_checkpoint_is_named},
      {"ranks go on from the same files", ranks_go_on_from_the_same_files},
      {"copies of tensor ranks are compared", copies_of_tensor_ranks_are_compared})
