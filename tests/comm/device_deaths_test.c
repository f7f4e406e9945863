/* A rank is killed while GPUs are at it (a stand-in for them): it is named, and what the others
 * have lent is theirs again. */
#include "comm/device_world.h"

#include "harness/ranks.h"

#include <signal.h>
#include <string.h>
#include <time.h>

enum { COUNT = 100000, AT_ONCE = 3 };

static void go_on(rp_comm *comm, memory_piece *data, const rp_codec *codec, rp_status *status,
                  char *message, size_t bytes) {
    rp_request *requests[AT_ONCE] = {NULL};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.memory = RP_MEMORY_CUDA);
    for (int i = 0; i < AT_ONCE && *status == RP_OK; i++) {
        rp_segment segment = {
            .data = data[i].at, .count = COUNT, .dtype = RP_F32, .codec = *codec};
        *status = rp_all_reduce_start(comm, &segment, 1, &options, &requests[i]);
    }
    if (*status != RP_OK) snprintf(message, bytes, "%s", rp_last_error()->message);
    for (int i = 0; i < AT_ONCE; i++) {
        rp_status ended = requests[i] ? rp_request_wait(&requests[i]) : RP_OK;
        if (*status != RP_OK || ended == RP_OK) continue;
        *status = ended;
        snprintf(message, bytes, "%s", rp_last_error()->message);
    }
}

static void reduce_for_ever(void) {
    rp_store store = {0};
    rp_comm *comm = NULL;
    rp_codec codec;
    memory_piece data[AT_ONCE];
    rp_status status = RP_OK;
    char message[512] = "";
    stand_in *control = device_begin();
    REQUIRE_OK(ranks_store(&store));
    REQUIRE_OK(rp_codec_parse(ranks_argument(), &codec));
    rp_comm_options options = RP_COMM_OPTIONS(.connect_timeout_s = 30, .timeout_s = 60,
                                              .progress_thread = ranks_rank() % 2);
    if (rp_comm_create(&store, ranks_rank(), ranks_world(), &options, &comm) != RP_OK)
        ranks_die();
    for (int i = 0; i < AT_ONCE; i++) {
        data[i] = memory_take(true, COUNT * sizeof(float));
        memory_set(&data[i], 0);
    }
    for (int i = 0; status == RP_OK; i++) {
        go_on(comm, data, &codec, &status, message, sizeof message);
        if (i == 3) ranks_mark("going");
    }
    CHECK_MSG(status == RP_PEER && strstr(message, "rank 1") != NULL, "%s: %s",
              rp_status_name(status), message);
    for (int i = 0; i < AT_ONCE; i++) memory_give(&data[i]);
    memory_finish(true, memory_stream(true)); /* nobody has touched what was given back */
    rp_comm_destroy(comm);
    CHECK_EQ(atomic_load(&control->pinned), 0);
    rp_store_close(&store);
}

static void kill_one(const char *codec, int pause_ms) {
    ranks *world = ranks_start("reduce_for_ever", 3, &(ranks_options){.argument = codec});
    for (int rank = 0; rank < 3; rank++) CHECK(ranks_wait_for(world, rank, "going", 60));
    struct timespec pause = {.tv_nsec = pause_ms * 1000000L};
    nanosleep(&pause, NULL);
    ranks_signal(world, 1, SIGKILL);
    CHECK(ranks_finish(world, 60));
    ranks_check_exit(world, 0, 0, NULL);
    ranks_check_exit(world, 2, 0, NULL);
    ranks_free(world);
}

static void the_dead_are_named(void) {
    for (int i = 0; i < 6; i++) kill_one(i % 2 ? "q4" : "fp32", 7 * i);
}

static const ranks_function functions[] = {{"reduce_for_ever", reduce_for_ever}};
static const check_case cases[] = {{"the dead are named", the_dead_are_named}};
RANKS_MAIN(functions, cases)
