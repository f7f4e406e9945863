/* A rank that comes back, over threads: whatever comes of an attempt, those that live keep all
 * that is their own, bit for bit; who comes back has what rank 0 has. */
#include "train/returns.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "harness/check.h"
#include "train_ranks.h"

#include <pthread.h>
#include <string.h>

enum { LIVING = 3, LATE = 3, WORLD = 4, BROKEN = 2, PARTS = 6, STEP = 7 };

static rp_store store;
static rpi_train_returns ways[WORLD];
static rpi_train_options options;

static rp_status give_store(void *context, const rp_store **out_store) {
    (void)context;
    *out_store = &store;
    return RP_OK;
}

static rp_status connect(void *context, const char *name, uint32_t epoch, int rank, int world,
                         double connect_timeout_s, rp_comm **out_comm) {
    (void)context;
    rp_comm_options asked = RP_COMM_OPTIONS(.transport = "inproc", .name = name, .epoch = epoch,
                                            .connect_timeout_s = connect_timeout_s,
                                            .timeout_s = 30, .progress_thread = 1);
    return rp_comm_create(&store, rank, world, &asked, out_comm);
}

static void prepare(void) {
    options = ranks_options();
    options.model = "resnet20";
    options.optimizer = "adamw";
    options.codec = "q4";
    options.strategy = "async-local-sgd:servers=1,every=5,on-loss=continue";
    for (int rank = 0; rank < WORLD; rank++)
        ways[rank] = (rpi_train_returns){.generation = rank == LATE,
                                         .rank = rank,
                                         .world = WORLD,
                                         .timeout_s = 30,
                                         .store = give_store,
                                         .connect = connect};
}

/* ---- what a rank has ---- */

typedef struct part {
    float *data;
    size_t count;
} part;

static int list_parts(const rpi_trainer *t, part out[PARTS]) {
    size_t count = (size_t)rpi_weights_count(t->weights);
    int parts = 0;
    out[parts++] = (part){rpi_weights_values(t->weights), count};
    out[parts++] =
        (part){rpi_weights_states(t->weights), (size_t)rpi_weights_states_count(t->weights)};
    out[parts++] = (part){t->residual, count};
    for (int i = 0; i < t->optimizer.kind->slot_count; i++)
        out[parts++] = (part){t->optimizer.slots[i], count};
    for (int i = 0; i < parts; i++) CHECK(out[i].data && out[i].count);
    return parts;
}

static float value_of(int rank, int what, size_t element) {
    return (float)(rank * 100 + what * 10) + (float)(element % 9) / 9;
}

static void fill(const rpi_trainer *t, int rank) {
    part parts[PARTS];
    int count = list_parts(t, parts);
    for (int p = 0; p < count; p++)
        for (size_t i = 0; i < parts[p].count; i++) parts[p].data[i] = value_of(rank, p, i);
}

/* Is it what fill() has written for this rank? but: a part that need not be; -1: none. */
static void check_has(const rpi_trainer *t, int rank, int but, const char *when) {
    part parts[PARTS];
    int count = list_parts(t, parts);
    for (int p = 0; p < count; p++)
        for (size_t i = 0; i < parts[p].count && p != but; i++)
            if (parts[p].data[i] != value_of(rank, p, i)) {
                CHECK_MSG(false, "%s: part %d of rank %d has %g at %zu, not %g", when, p, rank,
                          (double)parts[p].data[i], i, (double)value_of(rank, p, i));
                return;
            }
}

/* ---- the ranks ---- */

static rp_status refuse(void *context, rp_comm *comm) {
    (void)context, (void)comm;
    return RP_FAIL(PEER, "a link of other servers has failed");
}

/* As if the last rank had died. */
static rp_status open_living(rpi_trainer *t, const rpi_train_options *own, rp_comm *comm) {
    RP_TRY(rpi_trainer_open_apart(t, own, rp_comm_rank(comm), WORLD));
    t->comm = comm;
    rpi_train_place_move(&t->place, rp_comm_rank(comm), LIVING);
    t->step = STEP;
    t->losses.count = t->losses.first_count = LIVING;
    for (int i = 0; i < LIVING; i++) t->losses.members[i] = t->losses.first_ranks[i] = i;
    return rpi_trainer_open_strategy(t);
}

static rp_status attempt(rpi_trainer *t, rpi_readmission *readmission) {
    rpi_run_state state = {.standing = {.step = STEP}};
    int64_t deadline_ns = rpi_deadline_ns(60);
    while (t->place.rank == 0 && !rpi_return_look(&readmission->requests)) {
        if (rpi_now_ns() >= deadline_ns) return RP_FAIL(TIMEOUT, "nobody waits to come back");
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 100);
    }
    return rpi_readmission_try(t, &state, readmission);
}

static rp_status take_back(rpi_trainer *t, rpi_readmission *readmission, int rank) {
    const rpi_strategy *strategy = t->strategy;
    rpi_strategy broken = *strategy;
    rpi_back back;
    broken.grow = refuse;
    if (rank == BROKEN) t->strategy = &broken;
    RP_TRY(attempt(t, readmission));
    t->strategy = strategy;
    CHECK(!readmission->is_ready && t->place.world == LIVING && t->place.rank == rank);
    if (rank == BROKEN) CHECK(strstr(readmission->why, "a link of other servers"));
    check_has(t, rank, -1, "an attempt has failed");
    RP_TRY(attempt(t, readmission));
    CHECK_MSG(readmission->is_ready, "%s", readmission->why);
    if (!readmission->is_ready) return RP_FAIL(PEER, "the second attempt has failed");
    rpi_readmission_take(t, readmission, &back);
    CHECK(t->place.world == WORLD && back.count == 1 && back.ranks[0] == LATE);
    check_has(t, rank, -1, "a rank is back");
    return rp_barrier(t->comm);
}

static rp_status live(void *context, rp_comm *comm) {
    rpi_trainer t = {0};
    rpi_readmission readmission = {0};
    int rank = rp_comm_rank(comm);
    (void)context;
    rpi_train_options own = options;
    own.returns = &ways[rank];
    rp_status status = open_living(&t, &own, comm);
    if (status == RP_OK) status = rpi_readmission_open(&t, &readmission);
    if (status == RP_OK) {
        fill(&t, rank);
        status = take_back(&t, &readmission, rank);
    }
    rpi_trainer_close(&t);
    rpi_readmission_close(&readmission);
    return status;
}

static rp_status return_late(rpi_trainer *t, rpi_readmission *readmission) {
    static const rpi_train_hooks none;
    rpi_run_state state;
    bool over = true;
    RP_TRY(rpi_readmission_open(t, readmission));
    fill(t, LATE);
    RP_TRY(rpi_return(t, &none, readmission, &state, &over));
    CHECK(!over && t->step == STEP && t->place.rank == LATE && t->place.world == WORLD);
    check_has(t, 0, 2, "it came back"); /* but for its error feedback */
    return rp_barrier(t->comm);
}

static void *come_late(void *context) {
    rpi_trainer t = {0};
    rpi_readmission readmission = {0};
    rpi_train_options own = options;
    (void)context;
    own.returns = &ways[LATE];
    rp_status status = rpi_trainer_open_apart(&t, &own, LATE, WORLD);
    if (status == RP_OK) status = return_late(&t, &readmission);
    CHECK_MSG(status == RP_OK, "rank %d: %s", LATE, rp_last_error()->message);
    rpi_trainer_close(&t);
    rpi_readmission_close(&readmission);
    return NULL;
}

static void those_that_live_keep_what_is_theirs(void) {
    pthread_t late;
    prepare();
    REQUIRE_OK(rp_store_open_local(&store));
    REQUIRE(pthread_create(&late, NULL, come_late, NULL) == 0);
    CHECK_OK(ranks_run(LIVING, live, NULL));
    pthread_join(late, NULL);
    rp_store_close(&store);
}

CASES({"those that live keep what is theirs", those_that_live_keep_what_is_theirs})
