/* Random programs (random_programs_test.c), their ranks as processes. */
#include "comm/random_program.h"
#include "harness/ranks.h"

#include <stdlib.h>

/* In a rank's process: the argument is the file. */
static void live_as_process(void) {
    program p;
    rp_store store;
    char words[PROGRAM_WORDS];
    REQUIRE(program_read(ranks_argument(), &p));
    REQUIRE_OK(ranks_store(&store));
    const char *wrong = program_live(&p, ranks_rank(), &store, words);
    CHECK_MSG(!wrong, "%s", wrong);
    rp_store_close(&store);
}

static bool processes_fail(const program *p) {
    char path[512];
    snprintf(path, sizeof path, "%s/program.txt", check_folder());
    if (!program_write(path, p)) abort();
    ranks *world = ranks_start("live_as_process", p->world, &(ranks_options){.argument = path});
    bool failed = !ranks_finish(world, 200);
    for (int r = 0; r < p->world; r++) failed |= ranks_exit_code(world, r) != 0;
    size_t used = 0;
    for (int r = 0; failed && r < p->world && used < sizeof program_failure; r++)
        used += (size_t)snprintf(program_failure + used, sizeof program_failure - used,
                                 "%.1200s", ranks_output(world, r));
    ranks_free(world);
    return failed;
}

static void ranks_as_processes(void) {
    program_limits limits = {.processes = true,
                             .world_max = 8,
                             .steps_max = PROGRAM_STEPS,
                             .bytes_max = 4 << 20,
                             .long_max = 100000000};
    program_run_many(&limits, check_seconds(10, 600), "ranks as processes", processes_fail);
}

static void one_from_a_file(void) {
    program_run_file(processes_fail);
}

static const ranks_function functions[] = {{"live_as_process", live_as_process}};
static const check_case cases[] = {{"ranks as processes", ranks_as_processes},
                                   {"one from a file", one_from_a_file}};
RANKS_MAIN(functions, cases)
