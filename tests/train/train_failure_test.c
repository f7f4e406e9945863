/* Failures of one rank: they end all ranks, with one line that says whose and why. */
#include "base/memory.h"
#include "harness/check.h"
#include "train_ranks.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Rank 1 is started with other options than rank 0. */
static rp_status train_as_told(void *context, rp_comm *comm) {
    const rpi_train_options *options = context;
    rpi_train_result result;
    return rpi_train(&options[rp_comm_rank(comm)], comm, NULL, &result);
}

/* A command's table, as far as it matters here. */
#define CHOICE(name, type, field)                                                              \
    { name, NULL, NULL, type, offsetof(rpi_train_options, field), NULL, 0, 0, NULL, NULL, NULL }
static const rpi_option table[] = {
    CHOICE("seed", RPI_OPTION_COUNT, seed),       CHOICE("lr", RPI_OPTION_REAL, lr),
    CHOICE("clip", RPI_OPTION_REAL, clip),        CHOICE("decay", RPI_OPTION_TEXT, decay),
    CHOICE("threads", RPI_OPTION_COUNT, threads), {0},
};

static void ranks_that_differ_are_told(void) {
    static const struct {
        const char *mine, *theirs;
    } wanted[] = {
        {"rank 1 has '--seed 2', rank 0 has '--seed 1'", "--seed"},
        {"rank 1 has '--lr 0.25', rank 0 has '--lr 0.05", "--lr"},
        {"rank 1 has '--model mlp:hidden=47'", "--model"},
        {"rank 1 has '--codec q4:bucket=512'", "--codec"},
        {"steps of the run 11", "steps of the run"},
        {"rank 1 has '--clip 1'", "--clip 0"},
        {"rank 1 has '--decay weights'", "--decay all"},
    };
    for (int i = 0; i < (int)(sizeof wanted / sizeof wanted[0]); i++) {
        rpi_train_options options[2] = {ranks_options(), ranks_options()};
        if (i == 0) options[1].seed = 2;
        if (i == 1) options[1].lr = 0.25;
        if (i == 2) options[1].model = "mlp:hidden=47";
        if (i == 3) options[1].codec = "q4";
        if (i == 4) options[1].steps = 11;
        if (i == 5) options[1].clip = 1;
        if (i == 6) options[1].decay = "weights";
        options[1].threads = 3; /* every rank has its own */
        for (int rank = 0; rank < 2; rank++) {
            options[rank].table = table;
            options[rank].target = &options[rank];
        }
        CHECK(ranks_run(2, train_as_told, options) == RP_MISMATCH);
        CHECK_MSG(strstr(ranks_message(1), wanted[i].mine), "rank 1 says '%s'",
                  ranks_message(1));
        CHECK_MSG(strstr(ranks_message(0), wanted[i].theirs), "rank 0 says '%s'",
                  ranks_message(0));
    }
}

typedef struct shortage {
    rpi_train_options options;
    int rank;
    long n;
} shortage;

static rp_status train_short_of_memory(void *context, rp_comm *comm) {
    const shortage *s = context;
    rpi_train_result result;
    if (rp_comm_rank(comm) == s->rank) rpi_memory_fail_after(s->n);
    rp_status status = rpi_train(&s->options, comm, NULL, &result);
    rpi_memory_fail_after(0);
    return status;
}

/* Wherever memory runs out on one rank, all ranks fail and none hangs. */
static void memory_that_runs_out_fails_all(void) {
    shortage s = {.options = ranks_options()};
    s.options.steps = 2;
    s.options.codec = "q4";
    s.options.overwrite = true;
    s.options.train_images = s.options.test_images = 24;
    s.options.checkpoint_every = s.options.eval_every = 1;
    s.options.out = ranks_folder("memory");
    for (int world = 1; world <= 2; world++) {
        s.rank = world - 1;
        bool succeeded = false;
        for (s.n = 1; s.n < 2000 && !succeeded; s.n += world == 1 ? 2 : 7) {
            rp_status status = ranks_run(world, train_short_of_memory, &s);
            succeeded = status == RP_OK;
            if (succeeded) break;
            CHECK_EQ(ranks_status(s.rank), RP_NOMEM);
            CHECK(ranks_status(0) != RP_OK);
            if (world == 2)
                CHECK_MSG(strstr(ranks_message(0), "no memory"), "rank 0 says '%s' at %ld",
                          ranks_message(0), s.n);
        }
        CHECK(succeeded);
    }
}

static void metrics_on_a_full_disk_end_the_run(void) {
    if (access("/dev/full", W_OK) != 0) {
        check_skip("no /dev/full here");
        return;
    }
    rpi_train_options options = ranks_options();
    options.overwrite = true;
    options.out = ranks_folder("full");
    REQUIRE(mkdir(options.out, 0700) == 0);
    char path[600];
    snprintf(path, sizeof path, "%s/metrics.jsonl", options.out);
    REQUIRE(symlink("/dev/full", path) == 0);
    CHECK_FAILS(ranks_train(&options, 2, NULL), IO, "metrics.jsonl: No space left");
    CHECK_MSG(strstr(ranks_message(1), "rank 0 gave up"), "rank 1 says '%s'", ranks_message(1));
}

static void folders_that_cannot_be_are_named(void) {
    rpi_train_options options = ranks_options();
    options.out = "/dev/null/run";
    CHECK_FAILS(ranks_train(&options, 1, NULL), IO, "cannot make the folder /dev/null");
    options.out = "/dev/null";
    CHECK_FAILS(ranks_train(&options, 1, NULL), INVALID, "/dev/null is not a folder");
}

static rp_status give_up_early(void *context, rp_comm *comm) {
    rpi_train_result result;
    if (rp_comm_rank(comm) != 1) return rpi_train(context, comm, NULL, &result);
    return RP_FAIL(IO, "rank 1 leaves before it starts");
}

static void a_rank_that_leaves_ends_the_others(void) {
    rpi_train_options options = ranks_options();
    options.out = ranks_folder("left");
    CHECK(ranks_run(3, give_up_early, &options) != RP_OK);
    for (int rank = 0; rank < 3; rank += 2)
        CHECK_MSG(strstr(ranks_message(rank), "rank 1"), "rank %d says '%s'", rank,
                  ranks_message(rank));
    CHECK(access(options.out, F_OK) != 0);
}

CASES({"ranks that differ are told", ranks_that_differ_are_told},
      {"memory that runs out fails all", memory_that_runs_out_fails_all},
      {"metrics on a full disk end the run", metrics_on_a_full_disk_end_the_run},
      {"folders that cannot be are named", folders_that_cannot_be_are_named},
      {"a rank that leaves ends the others", a_rank_that_leaves_ends_the_others})
