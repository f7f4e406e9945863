#include "comm/thread_world.h"

#include "base/memory.h"
#include "base/rng.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct world_rank {
    pthread_t thread;
    const rp_store *store;
    const rp_comm_options *options;
    int rank, world;
    world_function function;
    void *context;
    pthread_barrier_t *meeting;
} world_rank;

static _Thread_local pthread_barrier_t *my_meeting;

void world_meet(void) {
    pthread_barrier_wait(my_meeting);
}

static const int *hosts; /* of the worlds to come */

void world_hosts(const int *host_of) {
    hosts = host_of;
}

static void *rank_main(void *context) {
    world_rank *self = context;
    my_meeting = self->meeting;
    rp_comm *comm = NULL;
    rp_comm_options options = *self->options;
    char host[16];
    if (hosts) snprintf(host, sizeof host, "host %d", hosts[self->rank]);
    if (hosts) options.host = host;
    rp_status status = rp_comm_create(self->store, self->rank, self->world, &options, &comm);
    if (status != RP_OK) {
        check_failed(__FILE__, __LINE__, "rank %d: %s", self->rank, rp_last_error()->message);
        return NULL;
    }
    self->function(comm, self->rank, self->world, self->context);
    rp_comm_destroy(comm);
    return NULL;
}

void world_run(int world, const rp_comm_options *options, world_function function,
               void *context) {
    static const rp_comm_options inproc =
        RP_COMM_OPTIONS(.transport = "inproc", .connect_timeout_s = 20);
    rp_store store = {0};
    if (rp_store_open_local(&store) != RP_OK) {
        check_failed(__FILE__, __LINE__, "%s", rp_last_error()->message);
        return;
    }
    world_rank *ranks = calloc((size_t)world, sizeof *ranks);
    pthread_barrier_t meeting;
    pthread_barrier_init(&meeting, NULL, (unsigned)world);
    for (int rank = 0; rank < world; rank++) {
        ranks[rank] = (world_rank){.store = &store,
                                   .options = options ? options : &inproc,
                                   .rank = rank,
                                   .world = world,
                                   .function = function,
                                   .context = context,
                                   .meeting = &meeting};
        if (pthread_create(&ranks[rank].thread, NULL, rank_main, &ranks[rank]) != 0) abort();
    }
    for (int rank = 0; rank < world; rank++) pthread_join(ranks[rank].thread, NULL);
    pthread_barrier_destroy(&meeting);
    free(ranks);
    rp_store_close(&store);
}

static void fill(uint64_t seed, int rank, float *values, size_t count) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, (uint64_t)rank);
    for (size_t i = 0; i < count; i++) values[i] = rpi_rng_normal(&rng);
}

/* The last input of each rank: tests want the same again and again, and making it takes most
 * of their time under a sanitizer. A shorter input is the beginning of a longer one. */
enum { KEPT_RANKS = 8, KEPT_ELEMENTS = 1 << 19 };
static struct {
    uint64_t seed;
    size_t count;
    float values[KEPT_ELEMENTS];
} kept[KEPT_RANKS];
/* One each: a common one would order what ranks do, and hide races from the sanitizer. */
static pthread_mutex_t kept_locks[KEPT_RANKS] = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

void world_fill(uint64_t seed, int rank, float *values, size_t count) {
    if (rank >= KEPT_RANKS || count > KEPT_ELEMENTS) {
        fill(seed, rank, values, count);
        return;
    }
    pthread_mutex_lock(&kept_locks[rank]);
    if (kept[rank].seed != seed || kept[rank].count < count) {
        fill(seed, rank, kept[rank].values, count);
        kept[rank].seed = seed;
        kept[rank].count = count;
    }
    memcpy(values, kept[rank].values, count * sizeof *values);
    pthread_mutex_unlock(&kept_locks[rank]);
}

double world_error(uint64_t seed, int world, const float *got, size_t count, double scale) {
    double *sum = calloc(count + 1, sizeof *sum);
    float *input = calloc(count + 1, sizeof *input);
    double wrong = 0, right = 0, inputs = 0;
    for (int rank = 0; rank < world; rank++) {
        world_fill(seed, rank, input, count);
        for (size_t i = 0; i < count; i++) sum[i] += input[i];
        for (size_t i = 0; i < count; i++) inputs += (double)input[i] * input[i];
    }
    for (size_t i = 0; i < count; i++) {
        double want = sum[i] * scale;
        wrong += (got[i] - want) * (got[i] - want);
        right += want * want;
    }
    free(sum);
    free(input);
    /* A few numbers may cancel out: their inputs then say what an error is to be measured by.
     */
    if (right < inputs * scale * scale) right = inputs * scale * scale;
    return right > 0 ? sqrt(wrong / right) : wrong;
}
