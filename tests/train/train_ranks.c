#include "train_ranks.h"

#include "base/status.h"
#include "harness/check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct one_rank {
    pthread_t thread;
    const rp_store *store;
    int rank, world;
    ranks_body body;
    void *context;
    rp_status status;
    char message[RPI_ERROR_BYTES];
} one_rank;

static one_rank ranks[RANKS_MOST];

rpi_train_options ranks_options(void) {
    return (rpi_train_options){.model = "mlp:hidden=48",
                               .data = "synthetic",
                               .train_images = 200,
                               .test_images = 50,
                               .steps = 10,
                               .global_batch_size = 24,
                               .seed = 1,
                               .optimizer = "sgd",
                               .lr = 0.05,
                               .momentum = 0.9,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .epsilon = 1e-8,
                               .weight_decay = 1e-4,
                               .decay = "all",
                               .lr_schedule = "constant",
                               .strategy = "all-reduce",
                               .codec = "fp32",
                               .bucket_mb = 0.0625,
                               .error_feedback = true,
                               .backend = "reference",
                               .checkpoint = true,
                               .memory_check = true,
                               .eval = true};
}

static const char *shape, *transport;

void ranks_shape(const char *link) {
    shape = link;
}

void ranks_over(const char *name) {
    transport = name;
}

static int hosts;

void ranks_hosts(int count) {
    hosts = count;
}

static void *run_rank(void *context) {
    one_rank *self = context;
    char host[32];
    snprintf(host, sizeof host, "host %d", self->rank * hosts / self->world);
    rp_comm_options options =
        RP_COMM_OPTIONS(.transport = transport ? transport : "inproc", .link = shape,
                        .timeout_s = 30, .progress_thread = 1, .host = hosts ? host : NULL);
    rp_comm *comm = NULL;
    self->status = rp_comm_create(self->world > 1 ? self->store : NULL, self->rank, self->world,
                                  &options, &comm);
    if (self->status == RP_OK) self->status = self->body(self->context, comm);
    snprintf(self->message, sizeof self->message, "%s",
             self->status == RP_OK ? "" : rp_last_error()->message);
    rp_comm_destroy(comm);
    return NULL;
}

rp_status ranks_run(int world, ranks_body body, void *context) {
    rp_store store = {0};
    RP_TRY(rp_store_open_local(&store));
    for (int r = 0; r < world; r++) {
        ranks[r] = (one_rank){
            .store = &store, .rank = r, .world = world, .body = body, .context = context};
        if (pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]) != 0) abort();
    }
    for (int r = 0; r < world; r++) pthread_join(ranks[r].thread, NULL);
    rp_store_close(&store);
    for (int r = 0; r < world; r++)
        if (ranks[r].status != RP_OK)
            return rpi_fail(ranks[r].status, __FILE__, __LINE__, "%s", ranks[r].message);
    return RP_OK;
}

rp_status ranks_status(int rank) {
    return ranks[rank].status;
}

const char *ranks_message(int rank) {
    return ranks[rank].message;
}

typedef struct training {
    const rpi_train_options *options;
    rpi_train_result *result;
} training;

static ranks_wish wish;

void ranks_ask(ranks_wish next) {
    wish = next;
}

typedef struct asked_rank {
    int rank, calls;
} asked_rank;

static int asked(void *context) {
    asked_rank *self = context;
    self->calls++;
    if (self->rank != wish.rank || self->calls < wish.step) return 0;
    return self->calls == wish.step || wish.what == RPI_ASKED_STOP ? wish.what : 0;
}

static char notes[4096];

static void take_note(void *context, const char *line) {
    (void)context;
    size_t used = strlen(notes);
    snprintf(notes + used, sizeof notes - used, "%s\n", line);
}

const char *ranks_notes(void) {
    return notes;
}

static rp_status train_rank(void *context, rp_comm *comm) {
    training *job = context;
    rpi_train_result result;
    asked_rank self = {.rank = rp_comm_rank(comm)};
    rpi_train_hooks hooks = {.context = &self, .asked = asked};
    if (self.rank == 0) hooks.note = take_note;
    if (self.rank == 0) notes[0] = '\0';
    RP_TRY(rpi_train(job->options, comm, &hooks, &result));
    if (rp_comm_rank(comm) == 0 && job->result) *job->result = result;
    return RP_OK;
}

rp_status ranks_train(const rpi_train_options *options, int world, rpi_train_result *result) {
    return ranks_run(world, train_rank, &(training){options, result});
}

static const char *join(char *path, size_t bytes, const char *folder, const char *name) {
    snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

const char *ranks_folder(const char *name) {
    static char paths[8][512];
    static int next;
    return join(paths[next++ % 8], sizeof paths[0], check_folder(), name);
}

const char *ranks_path(const char *folder, const char *name) {
    static char paths[8][600];
    static int next;
    return join(paths[next++ % 8], sizeof paths[0], folder, name);
}

unsigned char *ranks_file(const char *path, size_t *bytes) {
    FILE *stream = fopen(path, "rb");
    if (!stream) return NULL;
    fseek(stream, 0, SEEK_END);
    *bytes = (size_t)ftell(stream);
    rewind(stream);
    unsigned char *data = malloc(*bytes + 1);
    if (data && fread(data, 1, *bytes, stream) != *bytes) {
        free(data);
        data = NULL;
    }
    fclose(stream);
    return data;
}

int ranks_same_file(const char *a, const char *b) {
    size_t a_bytes = 0, b_bytes = 0;
    unsigned char *x = ranks_file(a, &a_bytes), *y = ranks_file(b, &b_bytes);
    int same = x && y && a_bytes == b_bytes && memcmp(x, y, a_bytes) == 0;
    free(x);
    free(y);
    return same;
}
