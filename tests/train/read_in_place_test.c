/* Gradients and parameters that other ranks read in place: the same training, bit for bit, as
 * with those that are copied. */
#include "comm/core/communicator.h"
#include "harness/check.h"
#include "train_ranks.h"

#include <sys/resource.h>

typedef struct run {
    rpi_train_options options;
    size_t file_bytes; /* rank 0's limit of file sizes meanwhile; 0: as it is */
    rpi_train_result result;
    uint64_t lent, written; /* frames of all ranks */
} run;

static void limit_files(rlim_t bytes, rlim_t *out_before) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    *out_before = limit.rlim_cur;
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static rp_status train_rank(void *context, rp_comm *comm) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    run *r = context;
    rpi_train_result result;
    rpi_train_hooks hooks = {0};
    bool limits = r->file_bytes && rp_comm_rank(comm) == 0;
    rlim_t before = RLIM_INFINITY;
    RP_TRY(rp_barrier(comm)); /* all have their links */
    if (limits) limit_files(r->file_bytes, &before);
    RP_TRY(rp_barrier(comm));
    rp_status status = rpi_train(&r->options, comm, &hooks, &result);
    if (limits) limit_files(before, &before);
    RP_TRY(status);
    RP_TRY(rp_barrier(comm));
    pthread_mutex_lock(&lock);
    r->lent += comm->in_place_frames;
    r->written += comm->written_frames;
    if (rp_comm_rank(comm) == 0) r->result = result;
    pthread_mutex_unlock(&lock);
    return RP_OK;
}

typedef struct training {
    const char *strategy, *codec, *weights_codec;
    int world, zero;
    bool lends, writes; /* frames, if ranks can read in place */
} training;

static run train(const char *transport, const training *row, const char *folder) {
    run r = {.options = ranks_options()};
    r.options.strategy = row->strategy;
    r.options.codec = row->codec;
    r.options.weights_codec = row->weights_codec;
    r.options.zero = row->zero;
    r.options.out = ranks_folder(folder);
    r.options.overwrite = true;
    ranks_over(transport);
    CHECK_OK(ranks_run(row->world, train_rank, &r));
    ranks_over(NULL);
    return r;
}

static const char *model_in(const char *folder) {
    return ranks_path(ranks_folder(folder), "model.safetensors");
}

static void the_same_training(void) {
    static const training runs[] = {
        {"all-reduce", "fp32", NULL, 2, 0, true, true},
        {"all-reduce", "q4", NULL, 2, 0, false, false},
        {"all-reduce", "fp32", NULL, 3, 0, true, false},
        {"all-reduce", "fp32", "q8", 2, 1, true, false}, /* gradients alone */
        {"all-reduce", "q4", NULL, 2, 1, true, false},   /* parameters alone */
        {"all-reduce", "q4", NULL, 3, 2, true, false},
        {"all-reduce", "q4", "q8", 2, 1, false, false},
        {"local-sgd:every=2", "fp32", NULL, 2, 0, true, true}};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        const training *row = &runs[i];
        run copied = train("inproc", row, "copied"), read = train("shm", row, "read");
        CHECK_EQ(copied.lent, 0);
        CHECK_MSG((read.lent > 0) == row->lends && (read.written > 0) == row->writes,
                  "%s, %s, --zero %d, %d ranks: %llu and %llu frames", row->strategy,
                  row->codec, row->zero, row->world, (unsigned long long)read.lent,
                  (unsigned long long)read.written);
        CHECK(ranks_same_file(model_in("copied"), model_in("read")));
    }
}

/* One rank has no buffer, and says so; what it sends is copied. */
static void a_rank_without_a_buffer_trains_too(void) {
    run whole = {.options = ranks_options()}, cut = {.options = ranks_options()};
    cut.file_bytes = 100000; /* the model has 150,000 */
    ranks_over("shm");
    REQUIRE_OK(ranks_run(2, train_rank, &whole));
    REQUIRE_OK(ranks_run(2, train_rank, &cut));
    ranks_over(NULL);
    CHECK_EQ(cut.result.last_loss, whole.result.last_loss);
}

CASES({"the_same_training", the_same_training},
      {"a_rank_without_a_buffer_trains_too", a_rank_without_a_buffer_trains_too})
