/* Every public function with arguments that it must refuse: NULL where something is needed,
 * negative counts, ranks and tags out of range. It answers RP_INVALID with a message, or, where
 * it returns no status, records one; and what comes after works.
 *
 * The last case reads the headers: a function that is not in the tables here fails it. */
#include "comm/arguments.h"

#include "comm/thread_world.h"

#include <ctype.h>
#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum { NAMES_MAX = 256, NAME_BYTES = 64 };

static const char *tried[NAMES_MAX];
static int tried_count;
static pthread_mutex_t tried_lock = PTHREAD_MUTEX_INITIALIZER;

void arguments_note(const char *function) {
    pthread_mutex_lock(&tried_lock);
    int i = 0;
    while (i < tried_count && strcmp(tried[i], function) != 0) i++;
    if (i == tried_count && tried_count < NAMES_MAX) tried[tried_count++] = function;
    pthread_mutex_unlock(&tried_lock);
}

void arguments_forget(void) {
    (void)RP_FAIL(INTERNAL, "nothing was refused");
}

void arguments_recorded(const char *function, const char *file, int line, const char *part) {
    arguments_note(function);
    const rp_error *error = rp_last_error();
    if (error->status != RP_INVALID || !strstr(error->message, part))
        check_failed(file, line, "%s: '%s' (%s) lacks '%s'", function, error->message,
                     rp_status_name(error->status), part);
}

void arguments_refused(const char *function, const char *file, int line, const char *part,
                       rp_status status) {
    if (status != RP_INVALID)
        check_failed(file, line, "%s (%s): %s, not INVALID", function, part,
                     rp_status_name(status));
    arguments_recorded(function, file, line, part);
}

#define NEGATIVE ((size_t)-1)

/* ---- base, codecs, stores ---- */

static void dtypes_and_numbers(void) {
    rp_dtype dtype;
    const uint32_t counter[4] = {1, 2, 3, 4}, key[2] = {5, 6};
    uint32_t out[4];
    REFUSES("no name", rp_dtype_parse, NULL, &dtype);
    REFUSES("nowhere", rp_dtype_parse, "f32", NULL);
    RECORDS("NULL", rp_philox4x32, (rp_philox4x32(NULL, key, out), true));
    RECORDS("NULL", rp_philox4x32, (rp_philox4x32(counter, NULL, out), true));
    RECORDS("NULL", rp_philox4x32, (rp_philox4x32(counter, key, NULL), true));
    LEGAL(rp_dtype_bytes, CHECK_EQ(rp_dtype_bytes((rp_dtype)-1), 0));
    LEGAL(rp_dtype_name, CHECK(strcmp(rp_dtype_name((rp_dtype)-1), "unknown") == 0));
    LEGAL(rp_dtype_is_float, CHECK_EQ(rp_dtype_is_float((rp_dtype)99), 0));
    LEGAL(rp_f32_to_f16, CHECK_EQ(rp_f32_to_f16(1), 0x3c00));
    LEGAL(rp_f16_to_f32, CHECK(rp_f16_to_f32(0x3c00) == 1));
    LEGAL(rp_f32_to_bf16, CHECK_EQ(rp_f32_to_bf16(1), 0x3f80));
    LEGAL(rp_bf16_to_f32, CHECK(rp_bf16_to_f32(0x3f80) == 1));
    LEGAL(rp_status_text, CHECK(rp_status_text((rp_status)77) != NULL));
    LEGAL(rp_status_name, CHECK(rp_status_name((rp_status)77) != NULL));
    LEGAL(rp_last_error, CHECK(rp_last_error() != NULL));
    LEGAL(rp_version, CHECK(rp_version() != NULL));
    LEGAL(rp_log_set_sink, rp_log_set_sink(NULL, NULL));
    LEGAL(rp_log_set_level, rp_log_set_level(RP_LOG_WARNING));
}

static void codecs(void) {
    rp_codec q4, broken = {0};
    float x[4] = {0};
    unsigned char bytes[64];
    char text[64], adaptive_text[RP_ADAPTIVE_TEXT];
    REQUIRE_OK(rp_codec_parse("q4", &q4));
    size_t size = rp_codec_encoded_bytes(&q4, RP_F32, 4);
    rp_encode_context feedback = {.residual = x};
    broken = q4;
    broken.bits = 77;
    REFUSES("no codec text", rp_codec_parse, NULL, &q4);
    REFUSES("nowhere", rp_codec_parse, "q4", NULL);
    RECORDS("nowhere", rp_codec_text, rp_codec_text(&q4, NULL, 9)[0] == '\0');
    LEGAL(rp_codec_text, CHECK(strcmp(rp_codec_text(NULL, text, sizeof text), "fp32") == 0));
    LEGAL(rp_codec_is_exact, CHECK_EQ(rp_codec_is_exact(NULL, RP_I32), 1));
    LEGAL(rp_codec_supports, CHECK_EQ(rp_codec_supports(&broken, RP_F32), 0));
    LEGAL(rp_codec_granule, CHECK_EQ(rp_codec_granule(NULL), 1));
    LEGAL(rp_codec_encoded_bytes, CHECK_EQ(rp_codec_encoded_bytes(NULL, RP_F32, NEGATIVE), 0));
    rp_adaptive_codec adaptive;
    rp_level_choice choice = {0};
    REFUSES("no codec text", rp_adaptive_codec_parse, NULL, &adaptive);
    REFUSES("nowhere", rp_adaptive_codec_parse, "q4", NULL);
    REFUSES("nowhere", rp_adaptive_codec_parse, "auto:like=q4", NULL);
    RECORDS("nowhere", rp_adaptive_codec_text,
            rp_adaptive_codec_text(&adaptive, NULL)[0] == '\0');
    LEGAL(rp_adaptive_codec_text,
          CHECK(strcmp(rp_adaptive_codec_text(NULL, adaptive_text), "fp32") == 0));
    REFUSES("no bits to choose", rp_level_codec, NULL, 1, &broken);
    REFUSES("level is 33", rp_level_codec, &q4, 33, &broken);
    REFUSES("nowhere", rp_level_codec, &q4, 1, NULL);
    rp_step_trial trial = {0};
    double seconds[2];
    RECORDS("no trial", rp_step_trial_begin, rp_step_trial_begin(NULL, 0) == RP_TRIAL_OVER);
    REFUSES("a trial", rp_step_trial_times, NULL, seconds);
    REFUSES("a trial", rp_step_trial_times, &trial, NULL);
    REFUSES("not over", rp_step_trial_times, &trial, seconds);
    RECORDS("no times", rp_step_trial_gains, rp_step_trial_gains(NULL) == 0);
    REFUSES("no bits to choose", rp_level_like, NULL, &broken);
    REFUSES("nowhere", rp_level_like, &q4, NULL);
    REFUSES("no bits to choose", rp_levels_measure, NULL, x, NULL, 4, choice.measured);
    REFUSES("no data", rp_levels_measure, &q4, NULL, NULL, 4, choice.measured);
    REFUSES("negative", rp_levels_measure, &q4, x, NULL, NEGATIVE, choice.measured);
    REFUSES("nowhere", rp_levels_measure, &q4, x, NULL, 4, NULL);
    REFUSES("no bits to choose", rp_levels_choose, NULL, &choice, 1);
    REFUSES("no list of them", rp_levels_choose, &q4, NULL, 1);
    REFUSES("from NULL", rp_codec_encode, &q4, RP_F32, NULL, 4, NULL, bytes, NULL);
    REFUSES("to NULL", rp_codec_encode, &q4, RP_F32, x, 4, NULL, NULL, NULL);
    REFUSES("negative", rp_codec_encode, &q4, RP_F32, x, NEGATIVE, NULL, bytes, NULL);
    REFUSES("77 bits", rp_codec_encode, &broken, RP_F32, x, 4, NULL, bytes, NULL);
    REFUSES("feedback", rp_codec_encode, NULL, RP_I32, x, 4, &feedback, bytes, NULL);
    REFUSES("from NULL", rp_codec_decode, &q4, RP_F32, NULL, size, 4, NULL, x);
    REFUSES("to NULL", rp_codec_decode, &q4, RP_F32, bytes, size, 4, NULL, NULL);
    REFUSES("negative", rp_codec_decode, &q4, RP_F32, bytes, size, NEGATIVE, NULL, x);
    REFUSES("from NULL", rp_codec_decode_add, &q4, RP_F32, NULL, size, 4, NULL, x);
    REFUSES("to NULL", rp_codec_decode_add, &q4, RP_F32, bytes, size, 4, NULL, NULL);
    REFUSES("77 bits", rp_codec_decode_add, &broken, RP_F32, bytes, size, 4, NULL, x);
    CHECK_OK(rp_codec_encode(&q4, RP_F32, NULL, 0, NULL, NULL, NULL));
    CHECK_OK(rp_codec_decode(&q4, RP_F32, NULL, 0, 0, NULL, NULL));
    CHECK_OK(rp_codec_decode_add(&q4, RP_F32, NULL, 0, 0, NULL, NULL));
}

static void use_store_wrongly(const rp_store *store) {
    const rp_store_ops *ops = store->ops;
    int64_t number = 0;
    size_t bytes = 0;
    REFUSES("empty", ops->set, store->context, NULL, "x", 1);
    REFUSES("NULL", ops->set, store->context, "key", NULL, 5);
    REFUSES("empty", ops->get, store->context, NULL, 1, NULL, 0, &bytes);
    REFUSES("bytes", ops->get, store->context, "key", 1, NULL, 0, NULL);
    REFUSES("empty", ops->add, store->context, "", 1, &number);
    REFUSES("result", ops->add, store->context, "number", 1, NULL);
    REFUSES("empty", ops->remove, store->context, NULL);
    REFUSES("empty", ops->compare_set, store->context, NULL, "", 0, "x", 1, NULL, 0, &bytes);
    REFUSES("NULL", ops->compare_set, store->context, "key", NULL, 1, "x", 1, NULL, 0, &bytes);
    REFUSES("NULL", ops->compare_set, store->context, "key", "", 0, NULL, 1, NULL, 0, &bytes);
    REFUSES("bytes", ops->compare_set, store->context, "key", "", 0, "x", 1, NULL, 0, NULL);
    CHECK_OK(ops->set(store->context, "key", NULL, 0));
    CHECK_OK(ops->get(store->context, "key", 1, NULL, 0, &bytes));
}

static void stores(void) {
    rp_store store = {0};
    rp_store_server *server = NULL;
    int port = 0;
    REFUSES("server is NULL", rp_store_serve, NULL, 0, NULL, &port);
    REFUSES("port -1", rp_store_serve, NULL, -1, &server, &port);
    REFUSES("port 65536", rp_store_serve, NULL, 65536, &server, &port);
    REQUIRE_OK(rp_store_serve(NULL, 0, &server, &port));
    REFUSES("store is NULL", rp_store_connect, NULL, port, 5, NULL);
    REFUSES("port 0", rp_store_connect, NULL, 0, 5, &store);
    REFUSES("port 70000", rp_store_connect, NULL, 70000, 5, &store);
    REFUSES("timeout_s", rp_store_connect, NULL, port, (double)NAN, &store);
    REFUSES("store is NULL", rp_store_open_local, NULL);
    REQUIRE_OK(rp_store_connect(NULL, port, 5, &store));
    use_store_wrongly(&store);
    rp_store_close(&store);
    REQUIRE_OK(rp_store_open_local(&store));
    use_store_wrongly(&store);
    LEGAL(rp_store_close, (rp_store_close(&store), rp_store_close(&store)));
    LEGAL(rp_store_close, rp_store_close(NULL));
    LEGAL(rp_store_server_stop, (rp_store_server_stop(NULL), rp_store_server_stop(server)));
}

static const char *half_set(const void *context, const char *name) {
    (void)context;
    return strcmp(name, "RANK") == 0 ? "0" : NULL;
}

static const char *unset(const void *context, const char *name) {
    (void)context, (void)name;
    return NULL;
}

static void places(void) {
    rp_place place = {.port = 7};
    REFUSES("nowhere", rp_place_find, unset, NULL, 0, NULL);
    REFUSES("WORLD_SIZE is not set", rp_place_find, half_set, NULL, 0, &place);
    CHECK_EQ(place.port, 7);
    CHECK_OK(rp_place_find(unset, NULL, -1, &place));
    CHECK(place.world == 1 && place.rank == 0 && place.port == 0 && place.one_host == 1);
    CHECK(strcmp(place.host, "") == 0 && strcmp(place.job, "") == 0);
}

/* ---- communicators ---- */

static void making_communicators(void) {
    static const rp_store_ops nothing = {0};
    rp_store store = {0}, hollow = {.ops = &nothing};
    rp_comm *comm = NULL;
    REQUIRE_OK(rp_store_open_local(&store));
    REFUSES("nowhere", rp_comm_create, NULL, 0, 1, NULL, NULL);
    REFUSES("nowhere", rp_comm_join, NULL, NULL);
    REFUSES("world is 0", rp_comm_create, NULL, 0, 0, NULL, &comm);
    int has_met = 0;
    REFUSES("nowhere", rp_comm_replace, &store, 0, 2, NULL, NULL);
    REFUSES("world is 0", rp_comm_replace, &store, 0, 0, NULL, &has_met);
    REFUSES("rank 2", rp_comm_replace, &store, 2, 2, NULL, &has_met);
    REFUSES("needs a store", rp_comm_replace, NULL, 0, 2, NULL, &has_met);
    REFUSES("1 to ", rp_comm_replace, &store, 0, 2,
            &(rp_comm_options)RP_COMM_OPTIONS(.name = ""), &has_met);
    REFUSES("world is -3", rp_comm_create, NULL, 0, -3, NULL, &comm);
    REFUSES("rank -1", rp_comm_create, &store, -1, 2, NULL, &comm);
    REFUSES("rank 2", rp_comm_create, &store, 2, 2, NULL, &comm);
    REFUSES("needs a store", rp_comm_create, NULL, 0, 2, NULL, &comm);
    REFUSES("lacks one of", rp_comm_create, &hollow, 0, 2, NULL, &comm);
    rp_comm *parent = NULL;
    int self = 0, strange = 1;
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, NULL, &parent));
    rp_codec codec = {0}, broken;
    rp_codec_comparison comparison;
    char text[RP_COMPARISON_TEXT];
    REQUIRE_OK(rp_codec_parse("q4", &broken));
    broken.bits = 77;
    REFUSES("comm is NULL", rp_codec_compare, NULL, &codec, 1, 0, NULL, &comparison);
    REFUSES("codec is NULL", rp_codec_compare, parent, NULL, 1, 0, NULL, &comparison);
    REFUSES("codec: ", rp_codec_compare, parent, &broken, 1, 0, NULL, &comparison);
    REFUSES("most is 0", rp_codec_compare, parent, &codec, 0, 0, NULL, &comparison);
    REFUSES("most is", rp_codec_compare, parent, &codec, NEGATIVE, 0, NULL, &comparison);
    REFUSES("nowhere", rp_codec_compare, parent, &codec, 1, 0, NULL, NULL);
    RECORDS("nowhere", rp_codec_comparison_text,
            rp_codec_comparison_text(&comparison, &codec, NULL)[0] == '\0');
    LEGAL(rp_codec_comparison_text, CHECK(!rp_codec_comparison_text(NULL, &codec, text)[0]));
    REFUSES("parent is NULL", rp_comm_group, NULL, &self, 1, NULL, &comm);
    REFUSES("nowhere", rp_comm_group, parent, &self, 1, NULL, NULL);
    REFUSES("a rank at least", rp_comm_group, parent, NULL, 1, NULL, &comm);
    REFUSES("is not in", rp_comm_group, parent, &strange, 1, NULL, &comm);
    rp_request *request = NULL;
    REFUSES("request", rp_comm_group_start, parent, &self, 1, NULL, &comm, NULL);
    REFUSES("parent is NULL", rp_comm_group_start, NULL, &self, 1, NULL, &comm, &request);
    rp_group list = {.ranks = &self, .count = 1};
    REFUSES("parent is NULL", rp_comm_groups, NULL, &list, 1, &comm);
    REFUSES("nowhere", rp_comm_groups, parent, &list, 1, NULL);
    REFUSES("no list", rp_comm_groups, parent, NULL, 1, &comm);
    REFUSES("too long", rp_comm_groups, parent, &list, NEGATIVE, &comm);
    LEGAL(rp_comm_groups, CHECK_OK(rp_comm_groups(parent, NULL, 0, &comm)));
    REFUSES("comm is NULL", rp_comm_revoke, NULL);
    REFUSES("parent is NULL", rp_comm_split, NULL, 0, 0, NULL, &comm);
    REFUSES("nowhere", rp_comm_split, parent, 0, 0, NULL, NULL);
    REFUSES("comm is NULL", rp_comm_survivors, NULL, NULL, NULL, &comm);
    REFUSES("nowhere", rp_comm_survivors, parent, NULL, NULL, NULL);
    CHECK_FAILS(rp_comm_survivors(parent, NULL, NULL, &comm), STATE, "has lost no rank");
    rp_comm_destroy(parent);
    CHECK(comm == NULL);
    rp_store_close(&store);
}

static void addresses_to_listen_at(void) {
    char text[256] = "untouched";
    REFUSES("nowhere to put", rp_bind_addresses, NULL, NULL, 10);
    REFUSES("nowhere to put", rp_bind_addresses, NULL, text, 0);
    setenv("REDPOLL_SOCKET_IFNAME", "=no-such-interface", 1);
    REFUSES("no-such-interface", rp_bind_addresses, NULL, text, sizeof text);
    setenv("REDPOLL_SOCKET_IFNAME", "=lo", 1);
    LEGAL(rp_bind_addresses, CHECK_OK(rp_bind_addresses("192.0.2.1", text, sizeof text)));
    CHECK_MSG(strncmp(text, "127.0.0.1", 9) == 0, "of =lo: %s", text);
    unsetenv("REDPOLL_SOCKET_IFNAME");
}

static void functions_of_no_communicator(void) {
    rp_comm_stats stats = {.operations = 7};
    RECORDS("comm is NULL", rp_comm_rank, rp_comm_rank(NULL) == -1);
    RECORDS("comm is NULL", rp_comm_world, rp_comm_world(NULL) == 0);
    RECORDS("comm is NULL", rp_comm_transport, strcmp(rp_comm_transport(NULL), "none") == 0);
    RECORDS("comm is NULL", rp_comm_get_stats,
            (rp_comm_get_stats(NULL, &stats), stats.operations == 0));
    RECORDS("comm is NULL", rp_comm_abort, (rp_comm_abort(NULL, RP_IO, "why"), true));
    RECORDS("comm is NULL", rp_comm_attend, (rp_comm_attend(NULL), true));
    RECORDS("comm is NULL", rp_comm_leave, (rp_comm_leave(NULL), true));
    REFUSES("comm is NULL", rp_comm_set_timeout, NULL, 1);
    REFUSES("comm is NULL", rp_comm_status, NULL);
    LEGAL(rp_comm_destroy, rp_comm_destroy(NULL));
    LEGAL(rp_comm_forget, rp_comm_forget(NULL));
    REFUSES("no kind of memory", rp_memory_check, (rp_memory)7);
    void *buffer = NULL;
    REFUSES("0 bytes", rp_buffer_allocate, 0, &buffer);
    REFUSES("bytes; 1 to", rp_buffer_allocate, NEGATIVE, &buffer);
    REFUSES("NULL", rp_buffer_allocate, 1, NULL);
    REFUSES("no buffer", rp_buffer_free, &stats);
    addresses_to_listen_at();
}

static void requests_and_queues(void) {
    rp_request *request = NULL;
    rp_completions *queue = NULL;
    uint64_t token;
    size_t count;
    REFUSES("no request", rp_request_wait, &request);
    REFUSES("no request", rp_request_wait, NULL);
    REFUSES("no request", rp_request_test, NULL);
    REFUSES("no request", rp_request_wait_for, NULL, 1);
    REFUSES("no request", rp_request_wait_stream, NULL, NULL);
    REFUSES("no request", rp_request_wait_stream_for, NULL, NULL, 1);
    LEGAL(rp_request_free, CHECK_OK(rp_request_free(&request)));
    LEGAL(rp_request_free, CHECK_OK(rp_request_free(NULL)));
    RECORDS("request is NULL", rp_request_source, rp_request_source(NULL) == -1);
    REFUSES("nowhere", rp_completions_create, NULL);
    REQUIRE_OK(rp_completions_create(&queue));
    REFUSES("needed", rp_request_notify, NULL, queue, 1);
    REFUSES("completions is NULL", rp_completions_wait, NULL, 0, &token, 1, &count);
    REFUSES("tokens is NULL", rp_completions_wait, queue, 0, NULL, 1, &count);
    REFUSES("number of tokens", rp_completions_wait, queue, 0, &token, 1, NULL);
    REFUSES("timeout_s", rp_completions_wait, queue, (double)NAN, &token, 1, &count);
    CHECK_OK(rp_completions_wait(queue, 0, NULL, 0, &count));
    RECORDS("completions is NULL", rp_completions_wake, (rp_completions_wake(NULL), true));
    char line[RP_LOG_LINE];
    rp_log_level level;
    REFUSES("completions is NULL", rp_completions_keep_log, NULL);
    REFUSES("completions is NULL", rp_completions_take_line, NULL, &level, line, sizeof line);
    REFUSES("the level", rp_completions_take_line, queue, NULL, line, sizeof line);
    REFUSES("the line", rp_completions_take_line, queue, &level, NULL, sizeof line);
    REFUSES("the line", rp_completions_take_line, queue, &level, line, 0);
    LEGAL(rp_completions_destroy, rp_completions_destroy(NULL));
    rp_completions_destroy(queue);
}

/* ---- operations, on every rank of a world: nothing of this is ever posted ---- */

typedef struct scene {
    rp_comm *comm;
    int rank, world, other; /* other: a rank that is not this one; `world` in a world of one */
    float *x;               /* 4 elements for each rank */
    rp_block *blocks;       /* of them */
    rp_request *request;
    rp_collective_options here; /* this rank is the root */
} scene;

enum { EACH = 4 };

static void refuse_all_reduces(scene *s) {
    rp_segment good = {.data = s->x, .count = EACH, .dtype = RP_F32}, bad = good;
    rp_request **out = &s->request;
    REFUSES("all-reduce: comm is NULL", rp_all_reduce_start, NULL, &good, 1, NULL, out);
    REFUSES("nowhere to put", rp_all_reduce_start, s->comm, &good, 1, NULL, NULL);
    REFUSES("segments is NULL", rp_all_reduce_start, s->comm, NULL, 1, NULL, out);
    REFUSES("too many", rp_all_reduce_start, s->comm, &good, NEGATIVE, NULL, out);
    REFUSES("all-reduce: comm is NULL", rp_all_reduce, NULL, &good, 1, NULL);
    REFUSES("segments is NULL", rp_all_reduce, s->comm, NULL, 2, NULL);
    bad.data = NULL;
    REFUSES("no data", rp_all_reduce, s->comm, &bad, 1, NULL);
    bad = (rp_segment){.data = s->x, .count = NEGATIVE, .dtype = RP_F32};
    REFUSES("negative", rp_all_reduce, s->comm, &bad, 1, NULL);
    bad = (rp_segment){.data = s->x, .count = EACH, .dtype = (rp_dtype)77};
    REFUSES("no dtype", rp_all_reduce, s->comm, &bad, 1, NULL);
    bad = (rp_segment){.data = s->x, .count = EACH, .dtype = RP_I32, .residual = s->x};
    REFUSES("feedback needs floating", rp_all_reduce, s->comm, &bad, 1, NULL);
    bad.dtype = RP_F32;
    CHECK_OK(rp_codec_parse("q1:rounding=stochastic", &bad.codec));
    REFUSES("diverges", rp_all_reduce, s->comm, &bad, 1, NULL);
    rp_collective_options strange = RP_COLLECTIVE_OPTIONS(.reduce = (rp_reduction)77);
    REFUSES("no reduction", rp_all_reduce, s->comm, &good, 1, &strange);
}

static void refuse_reduce_scatters(scene *s) {
    rp_request **out = &s->request;
    REFUSES("reduce-scatter: comm is NULL", rp_reduce_scatter_start, NULL, s->x, s->x, 1,
            RP_F32, NULL, NULL, out);
    REFUSES("nowhere", rp_reduce_scatter_start, s->comm, s->x, s->x, 1, RP_F32, NULL, NULL,
            NULL);
    REFUSES("input has 1 elements and no data", rp_reduce_scatter, s->comm, NULL, s->x, 1,
            RP_F32, NULL, NULL);
    REFUSES("output has 1 elements and no data", rp_reduce_scatter, s->comm, s->x, NULL, 1,
            RP_F32, NULL, NULL);
    REFUSES("negative", rp_reduce_scatter, s->comm, s->x, s->x, NEGATIVE, RP_F32, NULL, NULL);
    REFUSES("reduce-scatter: comm is NULL", rp_reduce_scatter, NULL, s->x, s->x, 1, RP_F32,
            NULL, NULL);
    REFUSES("comm is NULL", rp_reduce_scatter_v_start, NULL, s->blocks, s->x, RP_F32, NULL,
            NULL, out);
    REFUSES("nowhere", rp_reduce_scatter_v_start, s->comm, s->blocks, s->x, RP_F32, NULL, NULL,
            NULL);
    REFUSES("inputs is NULL", rp_reduce_scatter_v, s->comm, NULL, s->x, RP_F32, NULL, NULL);
    REFUSES("output has 4 elements and no data", rp_reduce_scatter_v, s->comm, s->blocks, NULL,
            RP_F32, NULL, NULL);
    REFUSES("comm is NULL", rp_reduce_scatter_v, NULL, s->blocks, s->x, RP_F32, NULL, NULL);
}

static void refuse_all_gathers(scene *s) {
    rp_request **out = &s->request;
    REFUSES("all-gather: comm is NULL", rp_all_gather_start, NULL, s->x, s->x, 1, RP_F32, NULL,
            NULL, out);
    REFUSES("nowhere", rp_all_gather_start, s->comm, s->x, s->x, 1, RP_F32, NULL, NULL, NULL);
    REFUSES("comm is NULL", rp_all_gather, NULL, s->x, s->x, 1, RP_F32, NULL, NULL);
    REFUSES("input", rp_all_gather, s->comm, NULL, s->x, 1, RP_F32, NULL, NULL);
    REFUSES("output", rp_all_gather, s->comm, s->x, NULL, 1, RP_F32, NULL, NULL);
    REFUSES("negative", rp_all_gather, s->comm, s->x, s->x, NEGATIVE, RP_F32, NULL, NULL);
    REFUSES("comm is NULL", rp_all_gather_v_start, NULL, s->x, s->blocks, RP_F32, NULL, NULL,
            out);
    REFUSES("nowhere", rp_all_gather_v_start, s->comm, s->x, s->blocks, RP_F32, NULL, NULL,
            NULL);
    REFUSES("comm is NULL", rp_all_gather_v, NULL, s->x, s->blocks, RP_F32, NULL, NULL);
    REFUSES("outputs is NULL", rp_all_gather_v, s->comm, s->x, NULL, RP_F32, NULL, NULL);
    REFUSES("input", rp_all_gather_v, s->comm, NULL, s->blocks, RP_F32, NULL, NULL);
}

static void refuse_owned_segments(scene *s) {
    rp_request **out = &s->request;
    rp_owned_segment good = {.segment = {.data = s->x, .count = EACH, .dtype = RP_F32}},
                     bad = good;
    rp_collective_options strange = RP_COLLECTIVE_OPTIONS(.reduce = (rp_reduction)77);
    REFUSES("reduce-scatter: comm is NULL", rp_reduce_scatter_segments_start, NULL, &good, 1,
            NULL, out);
    REFUSES("nowhere", rp_reduce_scatter_segments_start, s->comm, &good, 1, NULL, NULL);
    REFUSES("segments is NULL", rp_reduce_scatter_segments_start, s->comm, NULL, 1, NULL, out);
    REFUSES("too many", rp_reduce_scatter_segments_start, s->comm, &good, NEGATIVE, NULL, out);
    REFUSES("comm is NULL", rp_reduce_scatter_segments, NULL, &good, 1, NULL);
    REFUSES("no reduction", rp_reduce_scatter_segments, s->comm, &good, 1, &strange);
    REFUSES("all-gather: comm is NULL", rp_all_gather_segments_start, NULL, &good, 1, NULL,
            out);
    REFUSES("nowhere", rp_all_gather_segments_start, s->comm, &good, 1, NULL, NULL);
    REFUSES("segments is NULL", rp_all_gather_segments_start, s->comm, NULL, 1, NULL, out);
    REFUSES("comm is NULL", rp_all_gather_segments, NULL, &good, 1, NULL);
    char range[64];
    bad.owner = s->world;
    snprintf(range, sizeof range, "segment 0 belongs to rank %d; there are 0 to %d", s->world,
             s->world - 1);
    REFUSES(range, rp_reduce_scatter_segments, s->comm, &bad, 1, NULL);
    REFUSES(range, rp_all_gather_segments, s->comm, &bad, 1, NULL);
    bad.owner = -1;
    REFUSES("belongs to rank -1; there are 0 to", rp_all_gather_segments, s->comm, &bad, 1,
            NULL);
    bad = good, bad.segment.data = NULL, bad.own = s->x;
    REFUSES("segment 0 has 4 elements and no data", rp_reduce_scatter_segments, s->comm, &bad,
            1, NULL);
    REFUSES("segment 0 has 4 elements and no data", rp_all_gather_segments, s->comm, &bad, 1,
            NULL);
    bad = good, bad.segment.count = NEGATIVE;
    REFUSES("negative", rp_reduce_scatter_segments, s->comm, &bad, 1, NULL);
    REFUSES("negative", rp_all_gather_segments, s->comm, &bad, 1, NULL);
    bad = good, bad.segment.dtype = (rp_dtype)77;
    REFUSES("no dtype", rp_all_gather_segments, s->comm, &bad, 1, NULL);
    bad = good, bad.segment.dtype = RP_I32, bad.segment.residual = s->x;
    REFUSES("feedback needs floating", rp_reduce_scatter_segments, s->comm, &bad, 1, NULL);
    REFUSES("feedback needs floating", rp_all_gather_segments, s->comm, &bad, 1, NULL);
    bad.segment.dtype = RP_F32;
    CHECK_OK(rp_codec_parse("q1:rounding=stochastic", &bad.segment.codec));
    REFUSES("diverges", rp_all_gather_segments, s->comm, &bad, 1, NULL);
    CHECK_OK(rp_codec_parse("q4:bucket=100", &bad.segment.codec));
    bad.segment.first = 50;
    REFUSES("segment 0 starts at element 50, inside a codec granule of 100",
            rp_reduce_scatter_segments, s->comm, &bad, 1, NULL);
    /* The second of the caller's list, wherever its owner has it. */
    rp_owned_segment list[] = {good, bad, good};
    list[0].owner = s->world - 1;
    REFUSES("segment 1 starts at", rp_all_gather_segments, s->comm, list, 3, NULL);
}

static void refuse_roots(scene *s) {
    rp_request **out = &s->request;
    rp_collective_options below = RP_COLLECTIVE_OPTIONS(.root = -1),
                          above = RP_COLLECTIVE_OPTIONS(.root = s->world);
    REFUSES("broadcast: comm is NULL", rp_broadcast_start, NULL, s->x, 1, RP_F32, NULL, out);
    REFUSES("nowhere", rp_broadcast_start, s->comm, s->x, 1, RP_F32, NULL, NULL);
    REFUSES("comm is NULL", rp_broadcast, NULL, s->x, 1, RP_F32, NULL);
    REFUSES("no data", rp_broadcast, s->comm, NULL, 1, RP_F32, NULL);
    REFUSES("negative", rp_broadcast, s->comm, s->x, NEGATIVE, RP_F32, NULL);
    REFUSES("root -1", rp_broadcast, s->comm, s->x, 1, RP_F32, &below);
    REFUSES("root ", rp_broadcast, s->comm, s->x, 1, RP_F32, &above);
    REFUSES("reduce: comm is NULL", rp_reduce_start, NULL, s->x, s->x, 1, RP_F32, NULL, out);
    REFUSES("nowhere", rp_reduce_start, s->comm, s->x, s->x, 1, RP_F32, NULL, NULL);
    REFUSES("comm is NULL", rp_reduce, NULL, s->x, s->x, 1, RP_F32, NULL);
    REFUSES("input", rp_reduce, s->comm, NULL, s->x, 1, RP_F32, NULL);
    REFUSES("output", rp_reduce, s->comm, s->x, NULL, 1, RP_F32, &s->here);
    REFUSES("root -1", rp_reduce, s->comm, s->x, s->x, 1, RP_F32, &below);
    REFUSES("root ", rp_reduce, s->comm, s->x, s->x, 1, RP_F32, &above);
}

static void refuse_blocks(scene *s) {
    rp_request **out = &s->request;
    rp_collective_options below = RP_COLLECTIVE_OPTIONS(.root = -1);
    rp_block *hollow = calloc((size_t)s->world, sizeof *hollow);
    rp_block *endless = calloc((size_t)s->world, sizeof *endless);
    hollow[s->rank].count = endless[s->rank].count = EACH;
    endless[s->rank].data = s->x;
    endless[0] = (rp_block){s->x, NEGATIVE};
    REFUSES("gather: comm is NULL", rp_gather_start, NULL, s->x, EACH, s->blocks, RP_F32,
            &s->here, out);
    REFUSES("nowhere", rp_gather_start, s->comm, s->x, EACH, s->blocks, RP_F32, &s->here, NULL);
    REFUSES("comm is NULL", rp_gather, NULL, s->x, EACH, s->blocks, RP_F32, &s->here);
    REFUSES("outputs is NULL", rp_gather, s->comm, s->x, EACH, NULL, RP_F32, &s->here);
    REFUSES("no data", rp_gather, s->comm, s->x, EACH, hollow, RP_F32, &s->here);
    REFUSES("negative", rp_gather, s->comm, s->x, EACH, endless, RP_F32, &s->here);
    REFUSES("no data", rp_gather, s->comm, NULL, EACH, s->blocks, RP_F32, &s->here);
    REFUSES("root -1", rp_gather, s->comm, s->x, EACH, s->blocks, RP_F32, &below);
    REFUSES("scatter: comm is NULL", rp_scatter_start, NULL, s->blocks, s->x, EACH, RP_F32,
            &s->here, out);
    REFUSES("nowhere", rp_scatter_start, s->comm, s->blocks, s->x, EACH, RP_F32, &s->here,
            NULL);
    REFUSES("comm is NULL", rp_scatter, NULL, s->blocks, s->x, EACH, RP_F32, &s->here);
    REFUSES("inputs is NULL", rp_scatter, s->comm, NULL, s->x, EACH, RP_F32, &s->here);
    REFUSES("no data", rp_scatter, s->comm, s->blocks, NULL, EACH, RP_F32, &s->here);
    REFUSES("root -1", rp_scatter, s->comm, s->blocks, s->x, EACH, RP_F32, &below);
    REFUSES("all-to-all: comm is NULL", rp_all_to_all_start, NULL, s->blocks, s->blocks, RP_F32,
            NULL, out);
    REFUSES("nowhere", rp_all_to_all_start, s->comm, s->blocks, s->blocks, RP_F32, NULL, NULL);
    REFUSES("comm is NULL", rp_all_to_all, NULL, s->blocks, s->blocks, RP_F32, NULL);
    REFUSES("inputs is NULL", rp_all_to_all, s->comm, NULL, s->blocks, RP_F32, NULL);
    REFUSES("outputs is NULL", rp_all_to_all, s->comm, s->blocks, NULL, RP_F32, NULL);
    REFUSES("negative", rp_all_to_all, s->comm, endless, s->blocks, RP_F32, NULL);
    free(hollow);
    free(endless);
}

static void refuse_neighbors(scene *s) {
    rp_request **out = &s->request;
    rp_segment segment = {.data = s->x, .count = EACH, .dtype = RP_F32};
    rp_segment hollow = {.count = EACH, .dtype = RP_F32};
    rp_segment whole = {.data = s->x, .count = EACH, .dtype = RP_I32};
    void *nowhere[] = {NULL};
    rp_neighbors nobody = {.self_weight = 1};
    rp_collective_options mean = RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG),
                          ring = RP_COLLECTIVE_OPTIONS(.algorithm = "ring");
    REFUSES("neighbor-all-reduce: comm is NULL", rp_neighbor_all_reduce_start, NULL, &segment,
            NULL, 1, &nobody, NULL, out);
    REFUSES("nowhere", rp_neighbor_all_reduce_start, s->comm, &segment, NULL, 1, &nobody, NULL,
            NULL);
    REFUSES("comm is NULL", rp_neighbor_all_reduce, NULL, &segment, NULL, 1, &nobody, NULL);
    REFUSES("segments is NULL", rp_neighbor_all_reduce, s->comm, NULL, NULL, 1, &nobody, NULL);
    REFUSES("no data", rp_neighbor_all_reduce, s->comm, &hollow, NULL, 1, &nobody, NULL);
    REFUSES("output 0", rp_neighbor_all_reduce, s->comm, &segment, nowhere, 1, &nobody, NULL);
    REFUSES("too many", rp_neighbor_all_reduce, s->comm, &segment, NULL, NEGATIVE, &nobody,
            NULL);
    REFUSES("segment 0 is of i32", rp_neighbor_all_reduce, s->comm, &whole, NULL, 1, &nobody,
            NULL);
    REFUSES("neighbors is NULL", rp_neighbor_all_reduce, s->comm, &segment, NULL, 1, NULL,
            NULL);
    REFUSES("RP_SUM is allowed", rp_neighbor_all_reduce, s->comm, &segment, NULL, 1, &nobody,
            &mean);
    CHECK_FAILS(rp_neighbor_all_reduce(s->comm, &segment, NULL, 1, &nobody, &ring), NOT_FOUND,
                "'ring'");
    rp_neighbors bad[] = {
        {.self_weight = NAN},
        {.round = UINT64_MAX},
        {.source_count = 1},
        {.sources = &(rp_neighbor){s->rank, 1}, .source_count = 1},
        {.sources = &(rp_neighbor){s->other, INFINITY}, .source_count = 1},
        {.destinations = &(rp_neighbor){s->world, 1}, .destination_count = 1},
        {.destinations = (rp_neighbor[]){{s->other, 1}, {s->other, 1}}, .destination_count = 2},
    };
    bool alone = s->world == 1;
    const char *parts[] = {"self_weight is",
                           "round is",
                           "no list",
                           alone ? "0 others" : "names itself as a source",
                           alone ? "0 others" : "the weight of source",
                           alone ? "0 others" : "there is no rank",
                           s->world < 3 ? "others at most" : "named twice"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        REFUSES(parts[i], rp_neighbor_all_reduce, s->comm, &segment, NULL, 1, &bad[i], NULL);
}

static void refuse_sends(scene *s) {
    rp_request **out = &s->request;
    REFUSES("send: comm is NULL", rp_send_start, NULL, s->x, 1, RP_F32, s->other, 0, out);
    REFUSES("nowhere", rp_send_start, s->comm, s->x, 1, RP_F32, s->other, 0, NULL);
    REFUSES("comm is NULL", rp_send, NULL, s->x, 1, RP_F32, s->other, 0);
    REFUSES("rank -1", rp_send, s->comm, s->x, 1, RP_F32, -1, 0);
    REFUSES("in a world of", rp_send, s->comm, s->x, 1, RP_F32, s->world, 0);
    REFUSES("in a world of", rp_send, s->comm, s->x, 1, RP_F32, s->rank, 0);
    rp_collective_options there = RP_COLLECTIVE_OPTIONS(.memory = (rp_memory)9);
    REFUSES("send: comm is NULL", rp_send_with_start, NULL, s->x, 1, RP_F32, s->other, 0,
            &there, out);
    REFUSES("receive: comm is NULL", rp_recv_with_start, NULL, s->x, 1, RP_F32, s->other, 0,
            &there, out);
    REFUSES("comm is NULL", rp_recv_any_with_start, NULL, s->x, 1, RP_F32, 0, &there, out);
    REFUSES("receive: comm is NULL", rp_recv_start, NULL, s->x, 1, RP_F32, s->other, 0, out);
    REFUSES("nowhere", rp_recv_start, s->comm, s->x, 1, RP_F32, s->other, 0, NULL);
    REFUSES("comm is NULL", rp_recv, NULL, s->x, 1, RP_F32, s->other, 0);
    REFUSES("rank -1", rp_recv, s->comm, s->x, 1, RP_F32, -1, 0);
    REFUSES("comm is NULL", rp_recv_any_start, NULL, s->x, 1, RP_F32, 0, out);
    REFUSES("nowhere", rp_recv_any_start, s->comm, s->x, 1, RP_F32, 0, NULL);
    REFUSES("barrier: comm is NULL", rp_barrier_start, NULL, out);
    REFUSES("nowhere", rp_barrier_start, s->comm, NULL);
    REFUSES("comm is NULL", rp_barrier, NULL);
    if (s->world == 1) {
        REFUSES("nobody", rp_recv_any_start, s->comm, s->x, 1, RP_F32, 0, out);
        return;
    }
    REFUSES("tag is -1", rp_send, s->comm, s->x, 1, RP_F32, s->other, -1);
    REFUSES("no data", rp_send, s->comm, NULL, 1, RP_F32, s->other, 0);
    REFUSES("negative", rp_send, s->comm, s->x, NEGATIVE, RP_F32, s->other, 0);
    REFUSES("no dtype", rp_send, s->comm, s->x, 1, (rp_dtype)0, s->other, 0);
    REFUSES("tag is -2", rp_recv, s->comm, s->x, 1, RP_F32, s->other, -2);
    REFUSES("no data", rp_recv, s->comm, NULL, 1, RP_F32, s->other, 0);
    REFUSES("negative", rp_recv, s->comm, s->x, NEGATIVE, RP_F32, s->other, 0);
    REFUSES("tag is -1", rp_recv_any_start, s->comm, s->x, 1, RP_F32, -1, out);
    REFUSES("no data", rp_recv_any_start, s->comm, NULL, 1, RP_F32, 0, out);
}

static void refuse_the_rest(scene *s) {
    rp_request *request = NULL;
    rp_completions *queue = NULL;
    REFUSES("above 0", rp_comm_set_timeout, s->comm, -1);
    RECORDS("stats is NULL", rp_comm_get_stats, (rp_comm_get_stats(s->comm, NULL), true));
    REQUIRE_OK(rp_completions_create(&queue));
    REQUIRE_OK(rp_barrier_start(s->comm, &request));
    REFUSES("timeout_s", rp_request_wait_for, request, (double)NAN);
    REFUSES("needed", rp_request_notify, request, NULL, 1);
    CHECK_OK(rp_request_wait(&request));
    rp_completions_destroy(queue);
}

/* Nothing to move needs no memory. */
static void do_nothing(scene *s) {
    rp_segment none = {.dtype = RP_F32};
    rp_block *empty = calloc((size_t)s->world, sizeof *empty);
    CHECK_OK(rp_all_reduce(s->comm, NULL, 0, NULL));
    CHECK_OK(rp_all_reduce(s->comm, &none, 1, NULL));
    CHECK_OK(rp_reduce_scatter(s->comm, NULL, NULL, 0, RP_F32, NULL, NULL));
    CHECK_OK(rp_reduce_scatter_v(s->comm, empty, NULL, RP_F32, NULL, NULL));
    CHECK_OK(rp_all_gather(s->comm, NULL, NULL, 0, RP_F32, NULL, NULL));
    CHECK_OK(rp_all_gather_v(s->comm, NULL, empty, RP_F32, NULL, NULL));
    CHECK_OK(rp_broadcast(s->comm, NULL, 0, RP_F32, NULL));
    CHECK_OK(rp_reduce(s->comm, NULL, NULL, 0, RP_F32, NULL));
    CHECK_OK(rp_gather(s->comm, NULL, 0, empty, RP_F32, NULL));
    CHECK_OK(rp_scatter(s->comm, empty, NULL, 0, RP_F32, NULL));
    CHECK_OK(rp_all_to_all(s->comm, empty, empty, RP_F32, NULL));
    CHECK_OK(rp_neighbor_all_reduce(s->comm, &none, NULL, 1, &(rp_neighbors){0}, NULL));
    if (s->rank < 2 && s->world > 1)
        CHECK_OK(s->rank ? rp_recv(s->comm, NULL, 0, RP_F32, 0, 1)
                         : rp_send(s->comm, NULL, 0, RP_F32, 1, 1));
    free(empty);
}

static void refuse_in_world(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    float *x = calloc((size_t)world, EACH * sizeof *x);
    rp_block *blocks = calloc((size_t)world, sizeof *blocks);
    for (int r = 0; r < world; r++) blocks[r] = (rp_block){x + EACH * r, EACH};
    scene s = {.comm = comm,
               .rank = rank,
               .world = world,
               .other = (rank + 1) % world == rank ? world : (rank + 1) % world,
               .x = x,
               .blocks = blocks,
               .here = RP_COLLECTIVE_OPTIONS(.root = rank)};
    refuse_all_reduces(&s);
    refuse_reduce_scatters(&s);
    refuse_all_gathers(&s);
    refuse_owned_segments(&s);
    refuse_roots(&s);
    refuse_blocks(&s);
    refuse_neighbors(&s);
    refuse_sends(&s);
    refuse_the_rest(&s);
    do_nothing(&s);
    for (int i = 0; i < EACH; i++) x[i] = 1;
    rp_segment segment = {.data = x, .count = EACH, .dtype = RP_F32};
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    CHECK(x[EACH - 1] == (float)world);
    CHECK(s.request == NULL);
    free(blocks);
    free(x);
}

static void operations(void) {
    for (int world = 1; world <= 3; world++) world_run(world, NULL, refuse_in_world, NULL);
}

/* ---- options: the same answer in a world of one ---- */

typedef struct bad_options {
    rp_comm_options options;
    const char *part;
} bad_options;

static void *come_with_bad_options(void *context) {
    const bad_options *bad = ((void **)context)[0];
    const rp_store *store = ((void **)context)[1];
    rp_comm *comm = NULL;
    rp_status status = rp_comm_create(store, 1, 2, &bad->options, &comm);
    CHECK_MSG(status != RP_OK && !comm, "world of two: %s", bad->part);
    CHECK_MSG(strstr(rp_last_error()->message, bad->part), "world of two: '%s' lacks '%s'",
              rp_last_error()->message, bad->part);
    rp_comm_destroy(comm);
    return NULL;
}

/* The rank with the mistake names it; the other, whose options are good, hears of it at once.
 */
static void refuse_in_two(const bad_options *bad, rp_status *out_status) {
    rp_store store = {0};
    rp_comm *comm = NULL;
    pthread_t thread;
    REQUIRE_OK(rp_store_open_local(&store));
    void *context[] = {(void *)(uintptr_t)bad, &store};
    if (pthread_create(&thread, NULL, come_with_bad_options, context) != 0) abort();
    rp_comm_options good = RP_COMM_OPTIONS(.transport = "inproc", .connect_timeout_s = 30);
    *out_status = rp_comm_create(&store, 0, 2, &good, &comm);
    CHECK_MSG(strstr(rp_last_error()->message, bad->part) &&
                  strstr(rp_last_error()->message, "rank 1"),
              "the other rank: '%s' lacks '%s'", rp_last_error()->message, bad->part);
    pthread_join(thread, NULL);
    rp_comm_destroy(comm);
    rp_store_close(&store);
}

static void options_are_checked_alike_in_every_world(void) {
    static char long_name[300];
    memset(long_name, 'n', sizeof long_name - 1);
    const bad_options table[] = {
        {RP_COMM_OPTIONS(.transport = "udp"), "unknown transport 'udp'"},
        {RP_COMM_OPTIONS(.transport = ""), "unknown transport ''"},
        {RP_COMM_OPTIONS(.transport = "shaped"), "wraps another"},
        {RP_COMM_OPTIONS(.link = "fast"), "not the rate of a link"},
        {RP_COMM_OPTIONS(.link = "1Gbit,-3us"), "-3us"},
        {RP_COMM_OPTIONS(.timeout_s = -1), "timeout_s is -1"},
        {RP_COMM_OPTIONS(.timeout_s = NAN), "timeout_s is"},
        {RP_COMM_OPTIONS(.warn_after_s = -0.5), "warn_after_s is -0.5"},
        {RP_COMM_OPTIONS(.connect_timeout_s = -7), "connect_timeout_s is -7"},
        {RP_COMM_OPTIONS(.chunks_in_flight = 100000), "chunks_in_flight is 100000"},
        {RP_COMM_OPTIONS(.priority = (rp_priority)4), "priority is 4"},
        {RP_COMM_OPTIONS(.priority = (rp_priority)-1), "priority is -1"},
        {RP_COMM_OPTIONS(.memory = (rp_memory)2), "memory is 2"},
        {RP_COMM_OPTIONS(.memory = (rp_memory)-1), "memory is -1"},
        {RP_COMM_OPTIONS(.bind_host = "no.such.host.invalid", .transport = "tcp"),
         "no.such.host.invalid"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        rp_comm *comm = NULL;
        rp_status alone = rp_comm_create(NULL, 0, 1, &table[i].options, &comm);
        CHECK_MSG(alone != RP_OK && !comm, "world of one: %s", table[i].part);
        CHECK_MSG(strstr(rp_last_error()->message, table[i].part), "world of one: '%s'",
                  rp_last_error()->message);
        rp_comm_destroy(comm);
        if (table[i].options.bind_host) continue; /* of two, one may not get there */
        rp_status in_two = RP_OK;
        refuse_in_two(&table[i], &in_two);
        CHECK_MSG(in_two == alone, "%s: %s alone, %s in two", table[i].part,
                  rp_status_name(alone), rp_status_name(in_two));
    }
    rp_comm *comm = NULL;
    REFUSES("1 to ", rp_comm_create, NULL, 0, 1,
            &(rp_comm_options)RP_COMM_OPTIONS(.name = long_name), &comm);
    REFUSES("1 to ", rp_comm_create, NULL, 0, 1, &(rp_comm_options)RP_COMM_OPTIONS(.name = ""),
            &comm);
}

/* A world of one listens nowhere: it only tries the address. */
static void an_address_that_is_tried_is_given_back(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.bind_host = "127.0.0.1");
    int before = check_descriptors();
    rp_comm *comm = NULL;
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, &options, &comm));
    rp_comm_destroy(comm);
    CHECK_EQ(check_descriptors(), before);
}

static void misuse_alone(rp_comm *comm, int rank, int world, void *context) {
    (void)rank, (void)world, (void)context;
    float x[8] = {0};
    rp_segment segment = {.data = x, .count = 8, .dtype = RP_F32};
    rp_collective_options strange = RP_COLLECTIVE_OPTIONS(.algorithm = "sro"),
                          mean = RP_COLLECTIVE_OPTIONS(.reduce = RP_AVG);
    rp_codec q4;
    REQUIRE_OK(rp_codec_parse("q4", &q4));
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, &strange), NOT_FOUND, "sro");
    CHECK_FAILS(rp_broadcast(comm, x, 8, RP_F32, &strange), NOT_FOUND, "sro");
    CHECK_FAILS(rp_all_gather(comm, x, x, 8, RP_I32, &q4, NULL), UNSUPPORTED, "q4");
    CHECK_FAILS(rp_reduce_scatter(comm, x, x, 8, RP_F64, &q4, NULL), UNSUPPORTED, "q4");
    CHECK_FAILS(rp_reduce(comm, x, x, 8, RP_I32, &mean), INVALID, "avg");
    segment.codec = q4;
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1,
                              &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.reduce = RP_MAX)),
                UNSUPPORTED, "max");
    segment.first = 3;
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, NULL), INVALID, "granule");
}

static void operations_are_checked_alike_in_every_world(void) {
    for (int world = 1; world <= 2; world++) world_run(world, NULL, misuse_alone, NULL);
}

/* ---- structs that begin with their size: of callers that know more fields, or fewer ---- */

typedef struct sized_call {
    rp_collective_options collective;
    unsigned char more[64]; /* fields of a later version */
} sized_call;

static void pass_sizes(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    float x[4] = {1, 1, 1, 1};
    rp_segment segment = {.data = x, .count = 4, .dtype = RP_F32};
    sized_call later = {.collective = RP_COLLECTIVE_OPTIONS(.reduce = RP_MAX)};
    rp_collective_options none = RP_COLLECTIVE_OPTIONS(), pointer = none, before = none;
    none.size = 0;
    pointer.size = (size_t)(uintptr_t) "of a struct without a size"; /* its first field */
    before.size--;
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, &none), INVALID,
                "rp_collective_options.size is 0");
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, &pointer), INVALID, "RP_COLLECTIVE_OPTIONS()");
    CHECK_FAILS(rp_broadcast(comm, x, 4, RP_F32, &none), INVALID, "size is 0");
    CHECK_FAILS(rp_reduce(comm, x, x, 4, RP_F32, &none), INVALID, "size is 0");
    rp_request *request = NULL;
    if (world > 1)
        CHECK_FAILS(rp_recv_with_start(comm, x, 4, RP_F32, 1 - rank, 0, &none, &request),
                    INVALID, "size is 0");
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, &before), INVALID, "is what it is here");
    later.collective.size = sizeof later;
    CHECK_OK(rp_all_reduce(comm, &segment, 1, &later.collective));
    CHECK_EQ(x[0], 1); /* the largest, and not the sum: the fields before count */
    later.more[63] = 1;
    CHECK_FAILS(rp_all_reduce(comm, &segment, 1, &later.collective), UNSUPPORTED,
                "a field that this library does not know");
    /* Nothing of these was posted. */
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    CHECK_EQ(x[0], world);
}

static void sizes_of_options_are_checked(void) {
    struct {
        rp_comm_options options;
        unsigned char more[32];
    } later = {.options = RP_COMM_OPTIONS(.name = "later")};
    rp_comm_options none = {.name = "none"};
    rp_comm *comm = NULL, *made = NULL;
    int self = 0, has_met = 0;
    rp_group list = {.ranks = &self, .count = 1, .options = &none};
    rp_store store;
    REQUIRE_OK(rp_store_open_local(&store));
    CHECK_FAILS(rp_comm_create(NULL, 0, 1, &none, &comm), INVALID, "rp_comm_options.size is 0");
    CHECK_FAILS(rp_comm_replace(&store, 0, 2, &none, &has_met), INVALID, "RP_COMM_OPTIONS()");
    CHECK_FAILS(rp_comm_join(&none, &comm), INVALID, "size is 0");
    later.options.size = sizeof later;
    later.more[0] = 1;
    CHECK_FAILS(rp_comm_create(NULL, 0, 1, &later.options, &comm), UNSUPPORTED,
                "does not know");
    later.more[0] = 0;
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, &later.options, &comm));
    CHECK_FAILS(rp_comm_group(comm, &self, 1, &none, &made), INVALID, "size is 0");
    CHECK_FAILS(rp_comm_split(comm, 0, 0, &none, &made), INVALID, "size is 0");
    CHECK_FAILS(rp_comm_survivors(comm, &none, NULL, &made), INVALID, "size is 0");
    CHECK_FAILS(rp_comm_groups(comm, &list, 1, &made), INVALID, "size is 0");
    rp_comm_destroy(comm);
    rp_store_close(&store);
    for (int world = 1; world <= 2; world++) world_run(world, NULL, pass_sizes, NULL);
}

/* ---- nothing is forgotten ---- */

static bool is_tried(const char *name) {
    for (int i = 0; i < tried_count; i++)
        if (strcmp(tried[i], name) == 0) return true;
    return false;
}

/* The name before the first bracket of a declaration that begins behind RP_API. */
static int check_declarations(char *text, const char *file) {
    int found = 0;
    for (char *at = text; (at = strstr(at, "RP_API ")) != NULL; at++) {
        char *line = at;
        while (line > text && line[-1] != '\n') line--;
        if (*line == '#') continue;
        char *end = strchr(at, '('), name[NAME_BYTES] = "";
        if (!end) break;
        char *begin = end;
        while (begin > at && (isalnum((unsigned char)begin[-1]) || begin[-1] == '_')) begin--;
        snprintf(name, sizeof name, "%.*s", (int)(end - begin), begin);
        found++;
        CHECK_MSG(is_tried(name), "%s: %s() is in no table of this test", file, name);
    }
    return found;
}

static void every_public_function_is_here(void) {
    static char text[1 << 17];
    int found = 0;
    operations();
    dtypes_and_numbers();
    codecs();
    stores();
    places();
    making_communicators();
    functions_of_no_communicator();
    requests_and_queues();
    arguments_of_training();
    arguments_of_windows();
    DIR *folder = opendir(REDPOLL_HEADERS);
    REQUIRE(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", REDPOLL_HEADERS, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file) continue;
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        found += check_declarations(text, entry->d_name);
    }
    closedir(folder);
    CHECK_MSG(found >= 70, "only %d functions were found in " REDPOLL_HEADERS, found);
}

CASES({"sizes of options are checked", sizes_of_options_are_checked},
      {"dtypes and numbers", dtypes_and_numbers}, {"codecs", codecs}, {"stores", stores},
      {"places", places}, {"making communicators", making_communicators},
      {"functions of no communicator", functions_of_no_communicator},
      {"requests and queues", requests_and_queues}, {"training", arguments_of_training},
      {"windows", arguments_of_windows}, {"worlds of views", arguments_of_views},
      {"operations", operations},
      {"options are checked alike in every world", options_are_checked_alike_in_every_world},
      {"an address that is tried is given back", an_address_that_is_tried_is_given_back},
      {"operations are checked alike in every world",
       operations_are_checked_alike_in_every_world},
      {"every public function is here", every_public_function_is_here})
