/* One rank's part of a program: post, wait in its own order, compare. */
#include "comm/core/communicator.h"
#include "comm/random_program.h"
#include "comm/serial.h"
#include "redpoll/buffer.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_UNIQUE_TAG = 1000, WORDS = PROGRAM_WORDS };

/* A step that this rank has posted: its buffers, and the requests that are not done yet. */
typedef struct posted {
    bool is_posted, is_done;
    rp_request *requests[PROGRAM_RANKS];
    int request_count;
    void *in[PROGRAM_RANKS], *out[PROGRAM_RANKS];
    float *residuals[PROGRAM_RANKS];
    int sources[PROGRAM_RANKS];
} posted;

typedef struct run {
    const program *p;
    int rank;
    rp_comm *const *comms;
    rp_completions *queue;
    bool out_of_queue[PROGRAM_STEPS * PROGRAM_RANKS];
    posted all[PROGRAM_STEPS];
    char *words;
    bool failed;
} run;

static bool fail(run *r, int index, const char *what) {
    if (!r->failed)
        snprintf(r->words, WORDS, "rank %d, step %d (%s): %.*s", r->rank, index + 1,
                 program_step_name(r->p->steps[index].kind), WORDS - 100, what);
    r->failed = true;
    return false;
}

static bool must(run *r, int index, rp_status status) {
    char words[WORDS - 100];
    if (status == RP_OK) return true;
    snprintf(words, sizeof words, "%s: %s", rp_status_name(status), rp_last_error()->message);
    return fail(r, index, words);
}

/* Messages of several such steps may change places: a receive from any rank takes a fast rank's
 * next one before a slow rank's first. A sender that waited for its first at once would wait
 * for a receive of a later step, which its receiver may only come to with the sender's help. So
 * these sends are waited for at the program's end, which keeps the program legal. */
static bool shares_its_tag(const program_step *step) {
    return step->kind == STEP_FAN_IN && step->tag < FIRST_UNIQUE_TAG;
}

/* ---- buffers ---- */

/* Of exactly this size, so that the address sanitizer sees one byte too many; never NULL, so
 * that its contents can be compared. In some steps all that is long lies in a buffer, in others
 * what has an odd length does, so that ranks and blocks differ. */
static void *room(const program_step *step, int64_t count) {
    size_t bytes = (size_t)count * rp_dtype_bytes((rp_dtype)step->dtype);
    bool shared = bytes >= 1000 && (step->data % 4 == 0 || (step->data % 4 == 1 && count % 2));
    void *data = NULL;
    if (!shared)
        data = malloc(bytes ? bytes : 1);
    else if (rp_buffer_allocate(bytes, &data) != RP_OK)
        abort();
    if (!data) abort();
    memset(data, 0xee, bytes);
    return data;
}

static int64_t count_of(const run *r, const program_step *step, int rank, int b) {
    return step_count(r->p, step, rank, b);
}

static rp_block block_of(void *data, int64_t count) {
    return (rp_block){.data = count ? data : NULL, .count = (size_t)count};
}

static void *reduced_input(const run *r, const program_step *step, int b) {
    void *data = room(step, count_of(r, step, r->rank, b));
    step_fill(r->p, step, r->rank, b, data);
    return data;
}

static void *moved_input(const program_step *step, int from, int to, int64_t count) {
    void *data = room(step, count);
    step_fill_moved(step, from, to, count, data);
    return data;
}

/* One vector of a block a rank. */
static void *joined(const run *r, const program_step *step) {
    size_t bytes = (size_t)step->count * rp_dtype_bytes((rp_dtype)step->dtype);
    char *data = room(step, step->count * r->p->world);
    for (int b = 0; b < r->p->world; b++)
        step_fill(r->p, step, r->rank, b, data + bytes * (size_t)b);
    return data;
}

static void give_room(void *data) {
    if (rp_buffer_free(data) == RP_INVALID) free(data);
}

/* ---- posting ---- */

static rp_collective_options options_of(const run *r, const program_step *step) {
    bool chosen = strcmp(step->algorithm, "auto") == 0;
    return (rp_collective_options)
        RP_COLLECTIVE_OPTIONS(.algorithm = chosen ? NULL : step->algorithm,
                              .reduce = (rp_reduction)step->reduce, .seed = step->data,
                              .step = 3, .root = step->root, .factor = serial_factor(r->rank),
                              .key = step->data % 3);
}

/* Blocking, or into the next request. */
#define CALL(name, ...)                                                                        \
    (step->how == WAIT_BLOCKING                                                                \
         ? rp_##name(comm, __VA_ARGS__)                                                        \
         : rp_##name##_start(comm, __VA_ARGS__, &own->requests[own->request_count++]))

static bool with_feedback(const program_step *step) {
    return strcmp(step->codec, "fp32") != 0 && step->data % 3 == 0;
}

/* Segment b of a list, with what this rank has of it. */
static rp_segment segment_of(const run *r, const program_step *step, posted *own, int b) {
    int64_t count = count_of(r, step, r->rank, b);
    own->out[b] = reduced_input(r, step, b);
    if (with_feedback(step)) own->residuals[b] = calloc((size_t)count + 1, sizeof(float));
    return (rp_segment){.data = count ? own->out[b] : NULL,
                        .count = (size_t)count,
                        .dtype = (rp_dtype)step->dtype,
                        .codec = step_codec(step),
                        .residual = own->residuals[b],
                        .tensor = (uint32_t)b};
}

static rp_status post_all_reduce(run *r, const program_step *step, rp_comm *comm, posted *own) {
    rp_collective_options options = options_of(r, step);
    rp_segment segments[PROGRAM_RANKS];
    for (int b = 0; b < step->parts; b++) segments[b] = segment_of(r, step, own, b);
    return CALL(all_reduce, segments, (size_t)step->parts, &options);
}

static rp_status post_reduce_scatter(run *r, const program_step *step, rp_comm *comm,
                                     posted *own) {
    rp_collective_options options = options_of(r, step);
    rp_codec codec = step_codec(step);
    own->in[0] = joined(r, step);
    own->out[0] = room(step, step->count);
    return CALL(reduce_scatter, own->in[0], own->out[0], (size_t)step->count,
                (rp_dtype)step->dtype, &codec, &options);
}

static rp_status post_reduce_scatter_v(run *r, const program_step *step, rp_comm *comm,
                                       posted *own) {
    rp_collective_options options = options_of(r, step);
    rp_codec codec = step_codec(step);
    rp_block inputs[PROGRAM_RANKS];
    for (int b = 0; b < r->p->world; b++) {
        own->in[b] = reduced_input(r, step, b);
        inputs[b] = block_of(own->in[b], count_of(r, step, r->rank, b));
    }
    own->out[0] = room(step, count_of(r, step, r->rank, r->rank));
    return CALL(reduce_scatter_v, inputs, own->out[0], (rp_dtype)step->dtype, &codec, &options);
}

static rp_status post_all_gather(run *r, const program_step *step, rp_comm *comm, posted *own) {
    rp_collective_options options = options_of(r, step);
    own->in[0] = moved_input(step, r->rank, 0, step->count);
    own->out[0] = room(step, step->count * r->p->world);
    return CALL(all_gather, own->in[0], own->out[0], (size_t)step->count, (rp_dtype)step->dtype,
                NULL, &options);
}

static rp_status post_all_gather_v(run *r, const program_step *step, rp_comm *comm,
                                   posted *own) {
    rp_collective_options options = options_of(r, step);
    rp_block outputs[PROGRAM_RANKS];
    own->in[0] = moved_input(step, r->rank, 0, count_of(r, step, r->rank, r->rank));
    for (int b = 0; b < r->p->world; b++) {
        own->out[b] = room(step, count_of(r, step, b, b));
        outputs[b] = block_of(own->out[b], count_of(r, step, b, b));
    }
    return CALL(all_gather_v, own->in[0], outputs, (rp_dtype)step->dtype, NULL, &options);
}

/* own->out: what every rank has of a segment; own->in: what its owner has besides, if so. */
static void list_owned(const run *r, const program_step *step, posted *own,
                       rp_owned_segment *segments) {
    for (int b = 0; b < step->parts; b++) {
        segments[b] = (rp_owned_segment){.segment = segment_of(r, step, own, b),
                                         .owner = step_owner(r->p, step, b)};
        int64_t count = count_of(r, step, r->rank, b);
        if (segments[b].owner != r->rank || (step->data + (uint32_t)b) % 5 < 2) continue;
        own->in[b] = room(step, count);
        segments[b].own = count ? own->in[b] : NULL;
    }
}

static rp_status post_reduce_scatter_segments(run *r, const program_step *step, rp_comm *comm,
                                              posted *own) {
    rp_collective_options options = options_of(r, step);
    rp_owned_segment segments[PROGRAM_RANKS];
    list_owned(r, step, own, segments);
    return CALL(reduce_scatter_segments, segments, (size_t)step->parts, &options);
}

/* Who owns a segment gives what it had of it, others have nothing yet. */
static rp_status post_all_gather_segments(run *r, const program_step *step, rp_comm *comm,
                                          posted *own) {
    rp_collective_options options = options_of(r, step);
    rp_owned_segment segments[PROGRAM_RANKS];
    options.reduce = RP_SUM;
    list_owned(r, step, own, segments);
    for (int b = 0; b < step->parts; b++) {
        size_t bytes = segments[b].segment.count * sizeof(float);
        if (own->in[b]) memcpy(own->in[b], own->out[b], bytes);
        if (own->in[b] || segments[b].owner != r->rank) memset(own->out[b], 0xdd, bytes);
    }
    return CALL(all_gather_segments, segments, (size_t)step->parts, &options);
}

static rp_status post_broadcast(run *r, const program_step *step, rp_comm *comm, posted *own) {
    rp_collective_options options = options_of(r, step);
    own->out[0] = r->rank == step->root ? moved_input(step, step->root, 0, step->count)
                                        : room(step, step->count);
    return CALL(broadcast, own->out[0], (size_t)step->count, (rp_dtype)step->dtype, &options);
}

static rp_status post_reduce(run *r, const program_step *step, rp_comm *comm, posted *own) {
    rp_collective_options options = options_of(r, step);
    own->in[0] = reduced_input(r, step, 0);
    if (r->rank == step->root) own->out[0] = room(step, step->count);
    return CALL(reduce, own->in[0], own->out[0], (size_t)step->count, (rp_dtype)step->dtype,
                &options);
}

static rp_status post_gather(run *r, const program_step *step, rp_comm *comm, posted *own) {
    rp_collective_options options = options_of(r, step);
    rp_block outputs[PROGRAM_RANKS];
    int64_t mine = count_of(r, step, r->rank, r->rank);
    own->in[0] = moved_input(step, r->rank, step->root, mine);
    bool is_root = r->rank == step->root;
    for (int b = 0; is_root && b < r->p->world; b++) {
        own->out[b] = room(step, count_of(r, step, b, b));
        outputs[b] = block_of(own->out[b], count_of(r, step, b, b));
    }
    return CALL(gather, own->in[0], (size_t)mine, is_root ? outputs : NULL,
                (rp_dtype)step->dtype, &options);
}

static rp_status post_scatter(run *r, const program_step *step, rp_comm *comm, posted *own) {
    rp_collective_options options = options_of(r, step);
    rp_block inputs[PROGRAM_RANKS];
    int64_t mine = count_of(r, step, r->rank, r->rank);
    bool is_root = r->rank == step->root;
    for (int b = 0; is_root && b < r->p->world; b++) {
        own->in[b] = moved_input(step, step->root, b, count_of(r, step, b, b));
        inputs[b] = block_of(own->in[b], count_of(r, step, b, b));
    }
    own->out[0] = room(step, mine);
    return CALL(scatter, is_root ? inputs : NULL, own->out[0], (size_t)mine,
                (rp_dtype)step->dtype, &options);
}

static rp_status post_all_to_all(run *r, const program_step *step, rp_comm *comm, posted *own) {
    rp_collective_options options = options_of(r, step);
    rp_block inputs[PROGRAM_RANKS], outputs[PROGRAM_RANKS];
    for (int b = 0; b < r->p->world; b++) {
        int64_t to = count_of(r, step, r->rank, b), from = count_of(r, step, b, r->rank);
        own->in[b] = moved_input(step, r->rank, b, to);
        own->out[b] = room(step, from);
        inputs[b] = block_of(own->in[b], to);
        outputs[b] = block_of(own->out[b], from);
    }
    return CALL(all_to_all, inputs, outputs, (rp_dtype)step->dtype, &options);
}

static rp_status post_barrier(run *r, const program_step *step, rp_comm *comm, posted *own) {
    (void)r;
    return step->how == WAIT_BLOCKING
               ? rp_barrier(comm)
               : rp_barrier_start(comm, &own->requests[own->request_count++]);
}

/* Rounds are numbered, so that who has nobody may stay away. */
static rp_status post_neighbors(run *r, const program_step *step, rp_comm *comm, posted *own) {
    rp_neighbor sources[PROGRAM_RANKS], destinations[PROGRAM_RANKS];
    double edge_weight = 1;
    rp_neighbors lists = {.sources = sources,
                          .destinations = destinations,
                          .round = (uint64_t)(step - r->p->steps) + 1};
    for (int rank = 0; rank < r->p->world; rank++) {
        double weight = step_neighbor(r->p, step, rank, r->rank, &edge_weight);
        if (rank == r->rank) lists.self_weight = weight;
        if (rank == r->rank) continue;
        if (weight != 0) sources[lists.source_count++] = (rp_neighbor){rank, weight};
        if (step_neighbor(r->p, step, r->rank, rank, &edge_weight) != 0)
            destinations[lists.destination_count++] = (rp_neighbor){rank, edge_weight};
    }
    if (!lists.source_count && !lists.destination_count && step->data % 2) return RP_OK;
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.seed = step->data, .step = 3);
    size_t count = (size_t)step->count;
    void *data = reduced_input(r, step, 0);
    bool in_place = step->data % 5 < 2;
    own->in[0] = in_place ? NULL : data;
    own->out[0] = in_place ? data : room(step, step->count);
    if (with_feedback(step)) own->residuals[0] = calloc(count + 1, sizeof(float));
    rp_segment segment = {.data = count ? data : NULL,
                          .count = count,
                          .dtype = RP_F32,
                          .codec = step_codec(step),
                          .residual = own->residuals[0]};
    void *outputs[] = {own->out[0]};
    return CALL(neighbor_all_reduce, &segment, in_place ? NULL : outputs, 1, &lists, &options);
}

static rp_status post_message(run *r, const program_step *step, rp_comm *comm, posted *own,
                              int to) {
    own->in[0] = moved_input(step, r->rank, to, step->count);
    if (shares_its_tag(step))
        return rp_send_start(comm, own->in[0], (size_t)step->count, (rp_dtype)step->dtype, to,
                             step->tag, &own->requests[own->request_count++]);
    return CALL(send, own->in[0], (size_t)step->count, (rp_dtype)step->dtype, to, step->tag);
}

static rp_status post_send(run *r, const program_step *step, rp_comm *comm, posted *own) {
    if (r->rank == step->root) return post_message(r, step, comm, own, step->peer);
    if (r->rank != step->peer) return RP_OK;
    own->out[0] = room(step, step->count);
    return CALL(recv, own->out[0], (size_t)step->count, (rp_dtype)step->dtype, step->root,
                step->tag);
}

static rp_status post_fan_in(run *r, const program_step *step, rp_comm *comm, posted *own) {
    if (r->rank != step->root) return post_message(r, step, comm, own, step->root);
    for (int i = 0; i < r->p->world - 1; i++) {
        own->out[i] = room(step, step->count);
        RP_TRY(rp_recv_any_start(comm, own->out[i], (size_t)step->count, (rp_dtype)step->dtype,
                                 step->tag, &own->requests[i]));
        own->request_count++;
    }
    return RP_OK;
}

typedef rp_status (*poster)(run *r, const program_step *step, rp_comm *comm, posted *own);
static const poster posters[STEP_KINDS] = {
    [STEP_ALL_REDUCE] = post_all_reduce,
    [STEP_REDUCE_SCATTER] = post_reduce_scatter,
    [STEP_REDUCE_SCATTER_V] = post_reduce_scatter_v,
    [STEP_ALL_GATHER] = post_all_gather,
    [STEP_ALL_GATHER_V] = post_all_gather_v,
    [STEP_REDUCE_SCATTER_SEGMENTS] = post_reduce_scatter_segments,
    [STEP_ALL_GATHER_SEGMENTS] = post_all_gather_segments,
    [STEP_BROADCAST] = post_broadcast,
    [STEP_REDUCE] = post_reduce,
    [STEP_GATHER] = post_gather,
    [STEP_SCATTER] = post_scatter,
    [STEP_ALL_TO_ALL] = post_all_to_all,
    [STEP_BARRIER] = post_barrier,
    [STEP_NEIGHBORS] = post_neighbors,
    [STEP_SEND] = post_send,
    [STEP_FAN_IN] = post_fan_in,
};

/* ---- comparing ---- */

static const char *check_all_gathered(const run *r, const program_step *step, const posted *own,
                                      char *words) {
    size_t bytes = (size_t)step->count * rp_dtype_bytes((rp_dtype)step->dtype);
    const char *wrong = NULL;
    for (int b = 0; b < r->p->world && !wrong; b++)
        wrong = step_check_moved(step, b, 0, step->count,
                                 (const char *)own->out[0] + bytes * (size_t)b, words);
    return wrong;
}

/* On grids nothing is lost. */
static bool keeps_residual(const run *r, const program_step *step, const posted *own, int b) {
    for (int64_t i = 0; own->residuals[b] && i < count_of(r, step, r->rank, b); i++)
        if (own->residuals[b][i] != 0) return true;
    return false;
}

static const char *check_all_reduced(const run *r, const program_step *step, const posted *own,
                                     char *words) {
    for (int b = 0; b < step->parts; b++) {
        const char *wrong = step_check(r->p, step, b, own->out[b], words);
        if (wrong) return wrong;
        if (keeps_residual(r, step, own, b)) return "a residual, although nothing was lost";
    }
    return NULL;
}

static const char *check_owned(const run *r, const program_step *step, const posted *own, int b,
                               char *words) {
    int owner = step_owner(r->p, step, b);
    if (step->kind == STEP_ALL_GATHER_SEGMENTS) {
        const char *wrong = step_check_given(r->p, step, owner, b, own->out[b], words);
        if (wrong || !own->in[b]) return wrong;
        return step_check_given(r->p, step, owner, b, own->in[b], words);
    }
    if (owner == r->rank && !own->in[b]) return step_check(r->p, step, b, own->out[b], words);
    const char *wrong = step_check_given(r->p, step, r->rank, b, own->out[b], words);
    if (wrong || owner != r->rank) return wrong;
    return step_check(r->p, step, b, own->in[b], words);
}

static const char *check_list(const run *r, const program_step *step, const posted *own,
                              char *words) {
    for (int b = 0; b < step->parts; b++) {
        const char *wrong = check_owned(r, step, own, b, words);
        if (wrong) return wrong;
        if (keeps_residual(r, step, own, b)) return "a residual, although nothing was lost";
    }
    return NULL;
}

static const char *check_neighbors(const run *r, const program_step *step, const posted *own,
                                   char *words) {
    if (!own->out[0]) return NULL; /* stayed away */
    if (keeps_residual(r, step, own, 0)) return "a residual, although nothing was lost";
    return step_check_neighbors(r->p, step, r->rank, own->out[0], words);
}

/* Of every rank's block, what `from` had for `to`. */
static const char *check_blocks(const run *r, const program_step *step, const posted *own,
                                char *words) {
    const char *wrong = NULL;
    for (int b = 0; b < r->p->world && !wrong; b++) {
        bool all_to_all = step->kind == STEP_ALL_TO_ALL;
        int to = all_to_all ? r->rank : step->kind == STEP_GATHER ? step->root : 0;
        int64_t count = count_of(r, step, b, all_to_all ? r->rank : b);
        wrong = step_check_moved(step, b, to, count, own->out[b], words);
    }
    return wrong;
}

/* Messages that cannot be confused with those of other steps: each sender once. */
static const char *check_fan_in(const run *r, const program_step *step, const posted *own,
                                char *words) {
    bool seen[PROGRAM_RANKS] = {false};
    if (shares_its_tag(step)) return NULL; /* at the end: check_any_messages() */
    for (int i = 0; i < r->p->world - 1; i++) {
        int from = own->sources[i];
        if (from < 0 || from >= r->p->world || seen[from] || from == r->rank)
            return "a receive from any rank has a wrong source";
        seen[from] = true;
        const char *wrong =
            step_check_moved(step, from, step->root, step->count, own->out[i], words);
        if (wrong) return wrong;
    }
    return NULL;
}

static const char *check(const run *r, const program_step *step, const posted *own,
                         char *words) {
    bool is_root = r->rank == step->root;
    switch (step->kind) {
    case STEP_ALL_REDUCE: return check_all_reduced(r, step, own, words);
    case STEP_REDUCE_SCATTER:
    case STEP_REDUCE_SCATTER_V: return step_check(r->p, step, r->rank, own->out[0], words);
    case STEP_REDUCE_SCATTER_SEGMENTS:
    case STEP_ALL_GATHER_SEGMENTS: return check_list(r, step, own, words);
    case STEP_ALL_GATHER: return check_all_gathered(r, step, own, words);
    case STEP_ALL_GATHER_V:
    case STEP_ALL_TO_ALL: return check_blocks(r, step, own, words);
    case STEP_NEIGHBORS: return check_neighbors(r, step, own, words);
    case STEP_BROADCAST:
        return step_check_moved(step, step->root, 0, step->count, own->out[0], words);
    case STEP_REDUCE: return is_root ? step_check(r->p, step, 0, own->out[0], words) : NULL;
    case STEP_GATHER: return is_root ? check_blocks(r, step, own, words) : NULL;
    case STEP_SCATTER:
        return step_check_moved(step, step->root, r->rank, count_of(r, step, r->rank, r->rank),
                                own->out[0], words);
    case STEP_SEND:
        return r->rank == step->peer ? step_check_moved(step, step->root, step->peer,
                                                        step->count, own->out[0], words)
                                     : NULL;
    case STEP_FAN_IN: return is_root ? check_fan_in(r, step, own, words) : NULL;
    default: return NULL;
    }
}

/* ---- waiting ---- */

static rp_status take_from_queue(run *r, uint64_t token) {
    while (!r->out_of_queue[token]) {
        uint64_t tokens[4];
        size_t count = 0;
        RP_TRY(rp_completions_wait(r->queue, 90, tokens, 4, &count));
        if (!count) return RP_FAIL(TIMEOUT, "no token has come within 90 s");
        for (size_t i = 0; i < count; i++) r->out_of_queue[tokens[i]] = true;
    }
    return RP_OK;
}

static rp_status free_done(rp_request **request, rp_status status) {
    char words[WORDS];
    snprintf(words, sizeof words, "%s", rp_last_error()->message);
    RP_TRY(rp_request_free(request));
    return status == RP_OK ? RP_OK : rpi_fail(status, __FILE__, __LINE__, "%s", words);
}

static rp_status wait_one(run *r, const program_step *step, uint64_t token,
                          rp_request **request, int *out_source) {
    rp_status status = RP_PENDING;
    if (step->how == WAIT_QUEUE) RP_TRY(take_from_queue(r, token));
    if (step->how == WAIT_SLICES)
        while (status == RP_PENDING) status = rp_request_wait_for(*request, 0.003);
    else if (step->how == WAIT_TEST)
        while (status == RP_PENDING) status = rp_request_test(*request);
    else
        status = rp_request_wait_for(*request, -1);
    *out_source = rp_request_source(*request);
    if (step->how != WAIT_REQUEST) return free_done(request, status);
    return rp_request_wait(request);
}

static void release(posted *own) {
    for (int i = 0; i < PROGRAM_RANKS; i++) {
        give_room(own->in[i]);
        give_room(own->out[i]);
        free(own->residuals[i]);
        own->in[i] = own->out[i] = NULL;
        own->residuals[i] = NULL;
    }
}

static bool finish(run *r, int index) {
    const program_step *step = &r->p->steps[index];
    posted *own = &r->all[index];
    char words[200];
    if (!own->is_posted || own->is_done) return true;
    own->is_done = true;
    for (int i = 0; i < own->request_count; i++) {
        uint64_t token = (uint64_t)index * PROGRAM_RANKS + (uint64_t)i;
        if (!must(r, index, wait_one(r, step, token, &own->requests[i], &own->sources[i])))
            return false;
    }
    const char *wrong = check(r, step, own, words);
    if (wrong) return fail(r, index, wrong);
    if (!shares_its_tag(step)) release(own);
    return true;
}

/* Later steps first as often as earlier ones. */
static bool finish_due(run *r, int now) {
    for (int k = 0; k < r->p->count; k++) {
        int i = now % 2 ? k : r->p->count - 1 - k;
        const program_step *step = &r->p->steps[i];
        if (i > now || !r->all[i].is_posted || r->all[i].is_done) continue;
        if (shares_its_tag(step) && step->root != r->rank) continue;
        int lag = (int)program_choice(step, r->rank, 1, (uint32_t)step->lag + 1);
        if (i + lag <= now && !finish(r, i)) return false;
    }
    return true;
}

static bool post(run *r, int index) {
    const program_step *step = &r->p->steps[index];
    posted *own = &r->all[index];
    if (step->slow == r->rank) rpi_sleep_until_ns(rpi_now_ns() + (int64_t)step->us * 1000);
    own->is_posted = true;
    if (!must(r, index, posters[step->kind](r, step, r->comms[step->comm], own))) {
        own->request_count = 0; /* what was not posted is not waited for */
        return false;
    }
    for (int i = 0; step->how == WAIT_QUEUE && i < own->request_count; i++) {
        uint64_t token = (uint64_t)index * PROGRAM_RANKS + (uint64_t)i;
        if (!must(r, index, rp_request_notify(own->requests[i], r->queue, token))) return false;
    }
    return true;
}

/* ---- messages of several steps under one tag ---- */

/* The n-th step, counted from 0, in which everybody sends to this rank under this tag. */
static const program_step *nth_fan_in(const run *r, int comm, int tag, int n) {
    for (int i = 0; i < r->p->count; i++) {
        const program_step *step = &r->p->steps[i];
        bool is_it = step->kind == STEP_FAN_IN && step->comm == comm && step->tag == tag &&
                     step->root == r->rank;
        if (is_it && n-- == 0) return step;
    }
    return NULL;
}

/* Which receive got which message is a matter of time, but each sender's came in order. */
static bool check_any_messages(run *r) {
    int heard[PROGRAM_COMMS][PROGRAM_RANKS] = {{0}};
    char words[200];
    for (int i = 0; i < r->p->count; i++) {
        const program_step *step = &r->p->steps[i];
        if (!shares_its_tag(step) || step->root != r->rank) continue;
        for (int k = 0; k < r->p->world - 1; k++) {
            int from = r->all[i].sources[k];
            if (from < 0 || from >= r->p->world) return fail(r, i, "a message has no source");
            const program_step *sent =
                nth_fan_in(r, step->comm, step->tag, heard[step->comm][from]++);
            if (!sent) return fail(r, i, "a rank was heard too often");
            const char *wrong =
                step_check_moved(sent, from, r->rank, sent->count, r->all[i].out[k], words);
            if (wrong) return fail(r, i, wrong);
        }
    }
    return true;
}

/* ---- a rank ---- */

static bool take_steps(run *r) {
    for (int i = 0; i < r->p->count; i++) {
        if (!post(r, i) || !finish_due(r, i)) return false;
    }
    for (int i = r->p->count - 1; i >= 0; i--)
        if (!finish(r, i)) return false;
    return check_any_messages(r);
}

const char *program_run(const program *p, int rank, rp_comm *const *comms, char *words) {
    run *r = calloc(1, sizeof *r);
    if (!r) abort();
    *r = (run){.p = p, .rank = rank, .comms = comms, .words = words};
    if (must(r, 0, rp_completions_create(&r->queue))) take_steps(r);
    bool failed = r->failed;
    if (failed) /* buffers are in use until everything has failed everywhere */
        for (int c = 0; c < p->comms; c++) rp_comm_abort(comms[c], RP_CANCELLED, words);
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < r->all[i].request_count; k++)
            if (r->all[i].requests[k]) (void)rp_request_wait(&r->all[i].requests[k]);
    for (int i = 0; i < p->count; i++) release(&r->all[i]);
    /* The queue is destroyed behind the communicators: nothing of theirs is in flight now. */
    rp_completions_destroy(r->queue);
    free(r);
    return failed ? words : NULL;
}

static void spend_credit(const program *p, rp_comm *comm) {
    for (int r = 0; r < p->world; r++) comm->peers[r].eager_sent = UINT64_C(1) << 60;
}

/* Every other communicator is made of the first, and shares its links. */
static rp_status make_comm(const program *p, int rank, const rp_store *store, int c,
                           rp_comm **comms) {
    program_names names;
    rp_comm_options options = program_options(p, rank, c, &names);
    if (c % 2 == 0) return rp_comm_create(store, rank, p->world, &options, &comms[c]);
    int ranks[PROGRAM_RANKS];
    for (int r = 0; r < p->world; r++) ranks[r] = r;
    options.transport = options.link = options.host = options.bind_host = NULL;
    options.tls = 0;
    options.epoch = 0;
    return rp_comm_group(comms[0], ranks, p->world, &options, &comms[c]);
}

const char *program_live(const program *p, int rank, const rp_store *store, char *words) {
    rp_comm *comms[PROGRAM_COMMS] = {NULL};
    const char *wrong = NULL;
    for (int c = 0; c < p->comms && !wrong; c++) {
        rp_status status = make_comm(p, rank, store, c, comms);
        if (status == RP_OK && p->asks) spend_credit(p, comms[c]);
        if (status == RP_OK) continue;
        snprintf(words, WORDS, "rank %d: communicator %d: %s", rank, c,
                 rp_last_error()->message);
        wrong = words;
    }
    if (!wrong) wrong = program_run(p, rank, comms, words);
    for (int c = 0; c < p->comms; c++) rp_comm_destroy(comms[c]);
    return wrong;
}
