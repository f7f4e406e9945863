/* Chaos: ranks as processes that train, or run random programs, while some of them are killed,
 * stopped for good, stopped for a while or cut off from the network, at any moment from their
 * first instruction to their last. Every survivor ends in bounded time: well, or with an error
 * that names who is to blame. Nothing is left behind. A stop shorter than the timeout loses
 * nothing.
 *
 * Run k of seed s is the first of seed s + k; REDPOLL_TEST_SEED replays the schedule. */
#include "comm/random_program.h"
#include "harness/ranks.h"

#include "base/clock.h"
#include "base/rng.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Seconds. CONNECT and TIMEOUT are the ranks'; the rest is for a machine with much else to do,
 * where the ranks of a run alone may need a second to get going. */
#define CONNECT_S 9.0
#define TIMEOUT_S 3.0
#define PAUSE_S   0.9
#define SLACK_S   30.0

enum { STRIKES = 2, BUCKETS = 3, MOST_RANKS = 5, STRIKE_MS = 1200, ROUND_MS = 10 };

typedef enum strike_kind { STRIKE_NONE, KILL, STOP, PAUSE, CUT, STRIKE_KINDS } strike_kind;
static const char *const strike_names[] = {"nothing", "kill", "stop", "pause", "cut"};

typedef struct strike {
    int kind, rank, at_ms;
} strike;

typedef struct chaos {
    uint64_t seed;
    int world;
    const char *transport;
    bool own_store, programs; /* rank 0 serves the store; random programs instead of training */
    int rounds, progress_thread;
    strike strikes[STRIKES];
} chaos;

/* ---- in a rank ---- */

static rp_store store;

static _Noreturn void give_up(rp_comm *comm, const char *words) {
    fprintf(stderr, "failed: %s\n", words);
    rp_comm_destroy(comm);
    rp_store_close(&store);
    exit(1);
}

static rp_comm *open_comm(const char *transport, bool own_store, int progress_thread) {
    bool shaped = strcmp(transport, "shaped") == 0;
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = shaped ? NULL : transport,
                        .link = shaped ? "1Gbit,100us" : NULL, .connect_timeout_s = CONNECT_S,
                        .timeout_s = TIMEOUT_S, .strict_timeout = 1,
                        .progress_thread = progress_thread);
    rp_comm *comm = NULL;
    rp_status status = RP_OK;
    if (own_store) {
        status = rp_comm_join(&options, &comm);
    } else {
        status = ranks_store(&store);
        if (status == RP_OK)
            status = rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm);
    }
    if (status != RP_OK) give_up(comm, rp_last_error()->message);
    return comm;
}

static void fill(float *data, int count, int rank, int round, int bucket) {
    for (int i = 0; i < count; i++) data[i] = (float)(i % 100 + rank + round % 50 + bucket);
}

static int count_wrong(const float *data, int count, int world, int round, int bucket) {
    int wrong = 0, all = world * (world - 1) / 2;
    for (int i = 0; i < count; i++)
        wrong += data[i] != (float)(world * (i % 100 + round % 50 + bucket) + all);
    return wrong;
}

/* One step: some buckets in flight at once, each compared with the serial sum. */
static void train_step(rp_comm *comm, int round) {
    enum { COUNT = 20000 };
    static float data[BUCKETS][COUNT];
    rp_request *requests[BUCKETS] = {NULL};
    for (int b = 0; b < BUCKETS; b++) {
        fill(data[b], COUNT, ranks_rank(), round, b);
        rp_segment segment = {.data = data[b], .count = COUNT, .dtype = RP_F32};
        if (rp_all_reduce_start(comm, &segment, 1, NULL, &requests[b]) != RP_OK)
            give_up(comm, rp_last_error()->message);
    }
    for (int b = 0; b < BUCKETS; b++) {
        if (rp_request_wait(&requests[b]) != RP_OK) give_up(comm, rp_last_error()->message);
        if (count_wrong(data[b], COUNT, ranks_world(), round, b)) {
            fprintf(stderr, "wrong sums in round %d\n", round);
            exit(3);
        }
    }
}

static void train(const char *transport, bool own_store, int rounds, int progress_thread) {
    rp_comm *comm = open_comm(transport, own_store, progress_thread);
    ranks_mark("going");
    for (int round = 0; round < rounds; round++) {
        train_step(comm, round);
        rpi_sleep_until_ns(rpi_now_ns() + (int64_t)ROUND_MS * 1000000);
    }
    ranks_mark("done");
    rp_comm_destroy(comm);
    rp_store_close(&store);
    ranks_mark("left");
}

/* Programs for just this world, one after another. */
static void run_programs(uint64_t seed, int rounds) {
    program_limits limits = {
        .processes = true, .world_max = MOST_RANKS, .steps_max = 20, .bytes_max = 1 << 18};
    char words[PROGRAM_WORDS];
    if (ranks_store(&store) != RP_OK) give_up(NULL, rp_last_error()->message);
    ranks_mark("going");
    for (int done = 0; done < rounds / 10; seed++) {
        program p;
        program_make(seed, &limits, &p);
        if (p.world != ranks_world()) continue;
        p.timeout_s = (int)TIMEOUT_S;
        const char *wrong = program_live(&p, ranks_rank(), &store, words);
        if (wrong) give_up(NULL, wrong);
        done++;
    }
    ranks_mark("done");
    rp_store_close(&store);
}

static void live(void) {
    char transport[16];
    unsigned long long seed;
    int own_store, programs, rounds, progress_thread;
    ranks_cut_on(SIGUSR1);
    if (sscanf(ranks_argument(), "%15s %d %d %d %d %llu", transport, &own_store, &programs,
               &rounds, &progress_thread, &seed) != 6)
        exit(4);
    if (programs)
        run_programs(seed, rounds);
    else
        train(transport, own_store, rounds, progress_thread);
}

/* ---- making a run ---- */

static void make_strikes(rpi_rng *rng, chaos *c) {
    int count = rpi_rng_below(rng, 3) ? 1 : STRIKES;
    for (int i = 0; i < count; i++)
        c->strikes[i] = (strike){.kind = KILL + (int)rpi_rng_below(rng, CUT),
                                 .rank = (int)rpi_rng_below(rng, (uint32_t)c->world),
                                 .at_ms = (int)rpi_rng_below(rng, STRIKE_MS)};
}

static chaos make(uint64_t seed) {
    static const char *const transports[] = {"shm", "tcp", "shaped"};
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, 2);
    chaos c = {.seed = seed};
    c.world = 2 + (int)rpi_rng_below(&rng, MOST_RANKS - 1);
    c.transport = transports[rpi_rng_below(&rng, 3)];
    c.programs = rpi_rng_below(&rng, 3) == 0;
    c.own_store = !c.programs && rpi_rng_below(&rng, 2);
    c.rounds = 20 + (int)rpi_rng_below(&rng, 40);
    c.progress_thread = (int)rpi_rng_below(&rng, 2);
    make_strikes(&rng, &c);
    return c;
}

static void print(const chaos *c) {
    fprintf(stderr, "  run of seed %llu: %d ranks, %s, %s%s, %d rounds",
            (unsigned long long)c->seed, c->world, c->transport,
            c->programs ? "random programs" : "training",
            c->own_store ? ", rank 0 serves the store" : "", c->rounds);
    for (int i = 0; i < STRIKES && c->strikes[i].kind; i++)
        fprintf(stderr, "; %s rank %d after %d ms", strike_names[c->strikes[i].kind],
                c->strikes[i].rank, c->strikes[i].at_ms);
    fprintf(stderr, "\n");
}

/* ---- striking ---- */

typedef struct signal_at {
    int ms, signal, rank;
} signal_at;

static int by_time(const void *a, const void *b) {
    return ((const signal_at *)a)->ms - ((const signal_at *)b)->ms;
}

static void strike_all(const chaos *c, ranks *world) {
    static const int signals[STRIKE_KINDS] = {0, SIGKILL, SIGSTOP, SIGSTOP, SIGUSR1};
    signal_at all[2 * STRIKES];
    int count = 0;
    for (int i = 0; i < STRIKES && c->strikes[i].kind; i++) {
        const strike *s = &c->strikes[i];
        all[count++] = (signal_at){s->at_ms, signals[s->kind], s->rank};
        if (s->kind == PAUSE)
            all[count++] = (signal_at){s->at_ms + (int)(PAUSE_S * 1e3), SIGCONT, s->rank};
    }
    qsort(all, (size_t)count, sizeof *all, by_time);
    int64_t start = rpi_now_ns();
    for (int i = 0; i < count; i++) {
        rpi_sleep_until_ns(start + (int64_t)all[i].ms * 1000000);
        ranks_signal(world, all[i].rank, all[i].signal);
    }
}

/* ---- judging ---- */

static bool is_victim(const chaos *c, int rank) {
    for (int i = 0; i < STRIKES; i++) {
        int kind = c->strikes[i].kind;
        if (kind && kind != PAUSE && c->strikes[i].rank == rank) return true;
    }
    return false;
}

static bool has_victims(const chaos *c) {
    for (int rank = 0; rank < c->world; rank++)
        if (is_victim(c, rank)) return true;
    return false;
}

static bool names_a_victim(const chaos *c, const char *failure) {
    char name[16];
    for (int rank = 0; rank < c->world; rank++) {
        snprintf(name, sizeof name, "rank %d", rank);
        if (is_victim(c, rank) && strstr(failure, name)) return true;
    }
    return false;
}

/* While ranks find each other nobody knows yet who is there: any reason will do. */
static bool failed_while_joining(const char *output) {
    return !strstr(output, "going") || strstr(output, "communicator ");
}

static void judge(const chaos *c, ranks *world, int rank) {
    const char *output = ranks_output(world, rank), *failure = strstr(output, "failed: ");
    int code = ranks_exit_code(world, rank);
    if (code == 0) {
        CHECK_MSG(strstr(output, "done") != NULL, "rank %d ended well without an end", rank);
        return;
    }
    CHECK_MSG(code == 1 && failure, "rank %d ended with %d; it printed: %s", rank, code,
              output);
    CHECK_MSG(has_victims(c), "rank %d failed, although nobody was lost: %s", rank, output);
    if (code != 1 || !failure || failed_while_joining(output)) return;
    CHECK_MSG(names_a_victim(c, failure), "rank %d names none of those who were struck: %s",
              rank, failure);
}

static int count_files(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    if (folder) closedir(folder);
    return count;
}

static void run_one(const chaos *c) {
    char argument[96], variable[320], folder[280];
    snprintf(folder, sizeof folder, "%s/tmp", check_folder());
    (void)mkdir(folder, 0700);
    snprintf(variable, sizeof variable, "TMPDIR=%s", folder);
    snprintf(argument, sizeof argument, "%s %d %d %d %d %llu", c->transport, c->own_store,
             c->programs, c->rounds, c->progress_thread, (unsigned long long)c->seed);
    const char *environment[] = {variable, NULL};
    if (c->programs) program_set_secret();
    ranks *world = ranks_start("live", c->world,
                               &(ranks_options){.argument = argument,
                                                .environment = environment,
                                                .own_store = c->own_store});
    strike_all(c, world);
    ranks_finish(world, CONNECT_S + TIMEOUT_S +
                            SLACK_S); /* who has not ended, or left processes, fails it */
    for (int rank = 0; rank < c->world; rank++)
        if (!is_victim(c, rank)) judge(c, world, rank);
    CHECK_MSG(count_files(folder) == 0, "files are left in %s", folder);
    ranks_free(world);
    unsetenv("REDPOLL_SECRET");
}

static void survivors_name_who_was_struck(void) {
    int64_t end_ns = rpi_deadline_ns(check_seconds(18, 600));
    uint64_t seed = check_seed();
    int count = 0;
    for (uint64_t k = 0; rpi_now_ns() < end_ns && !check_failures(); k++) {
        chaos c = make(seed + k);
        run_one(&c);
        count++;
        if (!check_failures()) continue;
        print(&c);
        fprintf(stderr, "  replay: REDPOLL_TEST_SEED=%llu PROGRAM\n",
                (unsigned long long)c.seed);
    }
    fprintf(stderr, "  %d runs from seed %llu on\n", count, (unsigned long long)seed);
}

/* The runs' own ground: nobody is struck, all end well. */
static void nobody_is_struck(void) {
    for (uint64_t k = 0; k < 3; k++) {
        chaos c = make(check_seed() + k);
        memset(c.strikes, 0, sizeof c.strikes);
        run_one(&c);
        if (check_failures()) print(&c);
    }
}

static const ranks_function functions[] = {{"live", live}};
static const check_case cases[] = {
    {"nobody is struck", nobody_is_struck},
    {"survivors name who was struck", survivors_name_who_was_struck}};
RANKS_MAIN(functions, cases)
