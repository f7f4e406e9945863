/* Vectors of the library's own: in buffers where that helps, and in other memory where it does
 * not, or cannot be. */
#include "comm/run/in_place.h"
#include "comm/thread_world.h"
#include "methods/vector_memory.h"

#include "base/memory.h"
#include "base/status.h"
#include "net/memory/buffers.h"
#include "redpoll/log.h"

#include <sys/resource.h>

enum { BYTES = 300000 };

typedef struct wanted {
    bool in_place;
} wanted;

static void allocate(rp_comm *comm, int rank, int world, void *context) {
    const wanted *it = context;
    unsigned char *vector = NULL;
    (void)rank, (void)world;
    CHECK_EQ(rpi_comm_reads_in_place(comm), it->in_place);
    CHECK_OK(rpi_vector_alloc(comm, BYTES, "a vector", &vector));
    CHECK_EQ(rpi_buffers_is_one(vector), it->in_place);
    CHECK_EQ((uintptr_t)vector % RPI_ALIGNMENT, 0);
    int set = 0;
    for (int i = 0; i < BYTES; i++) set += vector[i] != 0;
    CHECK_EQ(set, 0);
    CHECK_OK(rp_barrier(comm));
    (void)RP_FAIL(STATE, "why it ends");
    rpi_vector_free(vector);
    CHECK(!strcmp(rp_last_error()->message, "why it ends"));
    CHECK_OK(rpi_vector_alloc(comm, 0, "nothing", &vector));
    CHECK(vector != NULL && !rpi_buffers_is_one(vector));
    rpi_vector_free(vector);
}

static void in_buffers_where_they_are_read(void) {
    static const struct {
        const char *transport, *link;
        int world;
        bool in_place;
    } worlds[] = {{"shm", NULL, 2, true},
                  {"shm", NULL, 3, true},
                  {"shm", "1Gbit,10us", 2, false},
                  {"inproc", NULL, 2, false},
                  {"tcp", NULL, 2, false}};
    int before = check_descriptors();
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        rp_comm_options options =
            RP_COMM_OPTIONS(.transport = worlds[i].transport, .link = worlds[i].link,
                            .connect_timeout_s = 20, .timeout_s = 60);
        wanted it = {worlds[i].in_place};
        world_run(worlds[i].world, &options, allocate, &it);
    }
    CHECK_EQ(check_descriptors(), before);
}

static void alone_they_are_plain(void) {
    rp_comm *comm = NULL;
    float *vector = NULL;
    CHECK(!rpi_comm_reads_in_place(NULL));
    CHECK_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
    CHECK(!rpi_comm_reads_in_place(comm));
    CHECK_OK(rpi_vector_alloc(comm, BYTES, "a vector", &vector));
    CHECK(!rpi_buffers_is_one(vector));
    rpi_vector_free(vector);
    rpi_vector_free(NULL);
    rpi_memory_fail_after(1);
    CHECK_FAILS(rpi_vector_alloc(comm, BYTES, "a vector", &vector), NOMEM, "a vector");
    rpi_memory_fail_after(0);
    rp_comm_destroy(comm);
}

/* ---- where there can be no buffer ---- */

typedef struct heard {
    int lines;
    char line[512];
} heard;

static void hear(void *context, rp_log_level level, const char *line) {
    heard *it = context;
    if (level != RP_LOG_WARNING) return;
    it->lines++;
    snprintf(it->line, sizeof it->line, "%s", line);
}

static void allocate_anyhow(rp_comm *comm, int rank, int world, void *context) {
    float *vector = NULL;
    struct rlimit before, low;
    (void)world, (void)context;
    world_meet(); /* all have their links */
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    low = before;
    low.rlim_cur = BYTES / 2;
    if (rank == 0) CHECK(setrlimit(RLIMIT_FSIZE, &low) == 0);
    world_meet();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rpi_vector_alloc(comm, BYTES, "a vector", &vector));
        CHECK(!rpi_buffers_is_one(vector));
        rpi_vector_free(vector);
    }
    world_meet();
    if (rank == 0) CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    world_meet();
}

static void who_cannot_have_one_is_told_and_goes_on(void) {
    heard it = {0};
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = "shm", .connect_timeout_s = 20, .timeout_s = 60);
    rp_log_set_sink(hear, &it);
    world_run(2, &options, allocate_anyhow, NULL);
    rp_log_set_sink(NULL, NULL);
    CHECK_EQ(it.lines, 1);
    CHECK_MSG(strstr(it.line, "a vector (300000 bytes)") && strstr(it.line, "ulimit -f"), "%s",
              it.line);
}

CASES({"in_buffers_where_they_are_read", in_buffers_where_they_are_read},
      {"alone_they_are_plain", alone_they_are_plain},
      {"who_cannot_have_one_is_told_and_goes_on", who_cannot_have_one_is_told_and_goes_on})
