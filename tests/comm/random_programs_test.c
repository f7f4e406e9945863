/* Random programs, their ranks as threads, on every transport.
 *
 * A program that fails is made smaller and printed; REDPOLL_TEST_SEED replays the seed, and
 * REDPOLL_TEST_PROGRAM=FILE runs one program as it is printed. */
#include "comm/random_program.h"
#include "harness/check.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct thread_rank {
    pthread_t thread;
    const program *p;
    const rp_store *store;
    int rank;
    bool failed;
    char words[PROGRAM_WORDS];
} thread_rank;

static void *thread_main(void *context) {
    thread_rank *self = context;
    self->failed = program_live(self->p, self->rank, self->store, self->words) != NULL;
    return NULL;
}

static bool threads_fail(const program *p) {
    thread_rank threads[PROGRAM_RANKS] = {{0}};
    rp_store store = {0};
    bool failed = false;
    if (rp_store_open_local(&store) != RP_OK) abort();
    for (int r = 0; r < p->world; r++) {
        threads[r].p = p;
        threads[r].store = &store;
        threads[r].rank = r;
        if (pthread_create(&threads[r].thread, NULL, thread_main, &threads[r]) != 0) abort();
    }
    for (int r = 0; r < p->world; r++) pthread_join(threads[r].thread, NULL);
    rp_store_close(&store);
    for (int r = 0; r < p->world; r++) failed |= threads[r].failed;
    size_t used = 0;
    for (int r = 0; failed && r < p->world; r++)
        if (threads[r].failed)
            used += (size_t)snprintf(program_failure + used, sizeof program_failure - used,
                                     "  %s\n", threads[r].words);
    return failed;
}

static void ranks_as_threads(void) {
    program_limits limits = {.world_max = 8,
                             .steps_max = PROGRAM_STEPS,
                             .bytes_max = 4 << 20,
                             .long_max = 100000000};
    program_run_many(&limits, check_seconds(10, 600), "ranks as threads", threads_fail);
}

/* ---- what the generator and its text promise ---- */

static void a_program_is_read_back_as_it_was_printed(void) {
    for (uint64_t k = 0; k < 200; k++) {
        static program p, q;
        static char first[PROGRAM_TEXT], second[PROGRAM_TEXT];
        program_limits limits = {.processes = k % 2,
                                 .world_max = 8,
                                 .steps_max = PROGRAM_STEPS,
                                 .bytes_max = 1 << 22,
                                 .long_max = 100000000};
        program_make(check_seed() + k, &limits, &p);
        REQUIRE(program_parse(program_text(&p, first, sizeof first), &q));
        CHECK(strcmp(first, program_text(&q, second, sizeof second)) == 0);
        CHECK(strlen(first) < PROGRAM_TEXT - 200);
    }
}

/* A test of the test: an answer that is not the expected one is found, and little is left of
 * the program around it. */
static bool has_a_max_of_many(const program *p) {
    for (int i = 0; i < p->count; i++)
        if (p->steps[i].kind == STEP_ALL_REDUCE && p->steps[i].count > 40 && p->world > 2)
            return true;
    return false;
}

static void what_fails_is_made_small(void) {
    program_limits limits = {.world_max = 8, .steps_max = PROGRAM_STEPS, .bytes_max = 1 << 20};
    program p;
    for (uint64_t k = 0; k < 1000; k++) {
        program_make(check_seed() + k, &limits, &p);
        if (!has_a_max_of_many(&p)) continue;
        program_shrink(&p, has_a_max_of_many, 20);
        CHECK_EQ(p.count, 1);
        CHECK_EQ(p.world, 3);
        CHECK(p.steps[0].count <= 4 * 41 && p.steps[0].how == WAIT_BLOCKING);
        return;
    }
    check_failed(__FILE__, __LINE__, "no such program was made");
}

static void wrong_answers_are_found(void) {
    program p;
    char words[200];
    REQUIRE(program_parse("program world=3\nall-reduce count=5000 dtype=f32 reduce=sum "
                          "codec=q4 data=12\nbroadcast count=77 dtype=i16 root=1 data=5\n"
                          "all-reduce count=70 dtype=i32 reduce=max data=8\n",
                          &p));
    float *sums = calloc(5000, sizeof *sums);
    int16_t moved[77];
    int32_t most[70] = {0};
    for (int r = 0; r < 3; r++) {
        float *input = calloc(5000, sizeof *input);
        step_fill(&p, &p.steps[0], r, 0, input);
        for (int i = 0; i < 5000; i++) sums[i] += input[i];
        free(input);
    }
    CHECK(step_check(&p, &p.steps[0], 0, sums, words) == NULL);
    sums[4999] += 1;
    CHECK(step_check(&p, &p.steps[0], 0, sums, words) != NULL);
    step_fill_moved(&p.steps[1], 1, 0, 77, moved);
    CHECK(step_check_moved(&p.steps[1], 1, 0, 77, moved, words) == NULL);
    moved[76] ^= 1;
    CHECK(step_check_moved(&p.steps[1], 1, 0, 77, moved, words) != NULL);
    CHECK(step_check(&p, &p.steps[2], 0, most, words) != NULL);
    free(sums);
}

/* Ranks 0, 1, 3 and 4 may each be heard twice before another's first message: see
 * shares_its_tag(). Such a program ended only when no sender was fast. */
static void a_fast_sender_is_heard_twice(void) {
    program p;
    REQUIRE(program_parse("program world=5 transport=tcp comms=1 chunk=100000 timeout=4\n"
                          "fan-in root=2 tag=100 count=64 dtype=f32 data=3611677579\n"
                          "all-gather count=0 dtype=u8 data=2310783807 how=slices lag=2\n"
                          "fan-in root=2 tag=100 count=64 dtype=f32 data=2694013691\n",
                          &p));
    for (int i = 0; i < 20 && !check_failures(); i++)
        CHECK_MSG(!threads_fail(&p), "run %d fails:\n%s", i + 1, program_failure);
}

static void one_from_a_file(void) {
    program_run_file(threads_fail);
}

CASES({"a program is read back as it was printed", a_program_is_read_back_as_it_was_printed},
      {"wrong answers are found", wrong_answers_are_found},
      {"what fails is made small", what_fails_is_made_small},
      {"a fast sender is heard twice", a_fast_sender_is_heard_twice},
      {"ranks as threads", ranks_as_threads}, {"one from a file", one_from_a_file})
