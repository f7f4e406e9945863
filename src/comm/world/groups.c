/* Communicators made from another one: some of its ranks, over its links. */
#include "comm/world/groups.h"
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/open_close.h"
#include "comm/run/progress_loop.h"
#include "comm/world/create.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"
#include "net/store/bootstrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_S 60.0

rp_status rpi_group_check_options(const rp_comm_options *options) {
    const char *given = options->transport   ? "transport"
                        : options->bind_host ? "bind_host"
                        : options->link      ? "link"
                        : options->host      ? "host"
                        : options->epoch     ? "epoch"
                        : options->tls       ? "tls"
                        : options->memory    ? "memory"
                                             : NULL;
    if (given)
        return RP_FAIL(INVALID,
                       "%s is the parent's: leave it out for a communicator that is made of "
                       "another (rp_comm_create() makes one of its own)",
                       given);
    return rpi_comm_options_check(options, 2);
}

rp_status rpi_group_check_ranks(const rp_comm *parent, const int *ranks, int count,
                                int *out_place) {
    if (!ranks || count < 1) return RP_FAIL(INVALID, "a communicator needs a rank at least");
    *out_place = -1;
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->world)
            return RP_FAIL(INVALID, "rank %d is not in '%s', which has %d", ranks[i],
                           parent->name, parent->world);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                return RP_FAIL(INVALID, "rank %d is named twice", ranks[i]);
        if (ranks[i] == parent->rank) *out_place = i;
    }
    return RP_OK;
}

static rp_status check_members(const rp_comm *parent, const int *ranks, int count,
                               int *out_place) {
    RP_TRY(rpi_group_check_ranks(parent, ranks, count, out_place));
    if (*out_place >= 0) return RP_OK;
    return RP_FAIL(INVALID, "rank %d, which calls, is not among the ranks: only members call",
                   parent->rank);
}

static void inherit(rp_comm *comm, const rp_comm *parent, const rp_comm_options *options) {
    comm->is_made = true;
    comm->made_of = parent->group;
    comm->is_shaped = parent->is_shaped;
    comm->links_are_hosts = parent->links_are_hosts;
    comm->silence_ns = parent->silence_ns; /* beats are the process's */
    if (!options->strict_timeout) comm->strict_timeout = parent->strict_timeout;
    if (!(options->timeout_s > 0)) comm->timeout_s = parent->timeout_s;
    if (!(options->warn_after_s > 0)) comm->warn_after_s = parent->warn_after_s;
    if (!options->priority) comm->priority = parent->priority;
    if (!options->chunk_bytes) comm->chunk_bytes = parent->chunk_bytes;
    if (!options->chunks_in_flight) comm->chunks_in_flight = parent->chunks_in_flight;
}

/* The scope of a communicator until its members have agreed on a number. Deaths of members are
 * reported in it, and no other group has it. */
static uint64_t own_scope(rpi_context *context) {
    pthread_mutex_lock(&context->lock);
    uint32_t so_far = context->unnumbered_so_far++;
    pthread_mutex_unlock(&context->lock);
    return UINT64_C(1) << 63 | (uint64_t)context->rank << 32 | so_far;
}

static rp_status open_group(rp_comm *comm) {
    rpi_context *context = comm->context;
    RP_TRY(rpi_identity_make(comm));
    if (context->control)
        RP_TRY(rpi_control_group_open(context->control, own_scope(context), comm->members,
                                      comm->world, &comm->group));
    return rpi_comm_begin(comm);
}

/* When a rank leaves the barrier, all members have opened the communicator. */
static rp_status meet(rp_comm *comm, const rp_comm_options *options) {
    double timeout_s = comm->timeout_s;
    bool strict = comm->strict_timeout;
    comm->timeout_s = options->connect_timeout_s > 0 ? options->connect_timeout_s : CONNECT_S;
    comm->strict_timeout = true; /* a member that computes has not come either */
    rp_status status = rp_barrier(comm);
    comm->strict_timeout = strict;
    comm->timeout_s = timeout_s;
    return status;
}

/* out_request NULL: wait for the others. */
static rp_status bring_up(rp_comm *comm, const rp_comm_options *options,
                          rp_request **out_request) {
    RP_TRY(open_group(comm));
    if (options->progress_thread) RP_TRY(rpi_progress_thread_start(comm->context));
    return out_request ? rp_barrier_start(comm, out_request) : meet(comm, options);
}

void rpi_group_undo(rp_comm *comm) {
    rpi_kept_error reason;
    rpi_error_keep(&reason);
    if (comm->is_open)
        rp_comm_destroy(comm);
    else
        rpi_comm_free(comm);
    rpi_error_put_back(&reason);
}

/* Of the parent's ranks, the caller at `place`. */
typedef struct selection {
    const int *ranks;
    int count, place;
    int *lost; /* receives the rank that has died, if that is why; NULL: not needed */
} selection;

static void tell_lost(rp_comm *comm, const selection *of) {
    rpi_failure failure = rpi_comm_failure(comm);
    bool is_one = failure.rank >= 0 && failure.rank < of->count;
    if (of->lost && failure.status == RP_PEER && is_one) *of->lost = of->ranks[failure.rank];
}

rp_status rpi_group_new(const rp_comm *parent, const int *ranks, int count, int place,
                        const rp_comm_options *options, rp_comm **out_comm) {
    int *members = NULL;
    rp_comm *comm = NULL;
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *members, "ranks", &members));
    for (int i = 0; i < count; i++) members[i] = parent->members[ranks[i]];
    rp_status status = rpi_comm_new(parent->context, place, count, members, &comm);
    rpi_free(members);
    if (status == RP_OK) status = rpi_comm_set_options(comm, options);
    if (status == RP_OK) {
        inherit(comm, parent, options);
        *out_comm = comm;
    } else {
        rpi_comm_free(comm);
    }
    return status;
}

static rp_status make_group(rp_comm *parent, const selection *of,
                            const rp_comm_options *options, rp_comm **out_comm,
                            rp_request **out_request) {
    rp_comm *comm = NULL;
    RP_TRY(rpi_group_new(parent, of->ranks, of->count, of->place, options, &comm));
    rp_status status = bring_up(comm, options, out_request);
    if (status == RP_OK) {
        *out_comm = comm;
        return RP_OK;
    }
    tell_lost(comm, of);
    rpi_group_undo(comm);
    return rpi_fail_context(status, "making a communicator of another: ");
}

void rpi_group_default_name(const rp_comm *parent, const char *kind, uint64_t number,
                            char *name, size_t bytes) {
    snprintf(name, bytes, "%.100s/%s %llu", parent->name, kind, (unsigned long long)number);
}

static rp_status group(rp_comm *parent, selection *of, const rp_comm_options *options,
                       rp_comm **out_comm, rp_request **out_request) {
    rp_comm_options own;
    char name[RPI_BOOTSTRAP_NAME_MAX];
    if (!parent) return RP_FAIL(INVALID, "parent is NULL");
    if (!out_comm) return RP_FAIL(INVALID, "there is nowhere to put the communicator");
    RP_TRY(rpi_comm_options_read(options, &own));
    RP_TRY(rpi_group_check_options(&own));
    RP_TRY(check_members(parent, of->ranks, of->count, &of->place));
    rpi_group_default_name(parent, "group of", (uint64_t)of->count, name, sizeof name);
    if (!own.name) own.name = name;
    return make_group(parent, of, &own, out_comm, out_request);
}

rp_status rp_comm_group(rp_comm *parent, const int *ranks, int count,
                        const rp_comm_options *options, rp_comm **out_comm) {
    RPI_FPENV_SCOPE;
    selection of = {.ranks = ranks, .count = count};
    return group(parent, &of, options, out_comm, NULL);
}

rp_status rpi_group_try(rp_comm *parent, const int *ranks, int count,
                        const rp_comm_options *options, rp_comm **out_comm, int *out_lost) {
    selection of = {.ranks = ranks, .count = count, .lost = out_lost};
    return group(parent, &of, options, out_comm, NULL);
}

rp_status rp_comm_group_start(rp_comm *parent, const int *ranks, int count,
                              const rp_comm_options *options, rp_comm **out_comm,
                              rp_request **out_request) {
    RPI_FPENV_SCOPE;
    if (!out_request) return RP_FAIL(INVALID, "there is nowhere to put the request");
    selection of = {.ranks = ranks, .count = count};
    return group(parent, &of, options, out_comm, out_request);
}

/* ---- split ---- */

typedef struct choice {
    int32_t color, key, rank;
} choice;

static int by_key(const void *a, const void *b) {
    const choice *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The ranks of one color, in the order of their keys. */
static int collect(const rp_comm *parent, choice *choices, int color, int *ranks,
                   int *out_place) {
    int count = 0;
    qsort(choices, (size_t)parent->world, sizeof *choices, by_key);
    for (int i = 0; i < parent->world; i++) {
        if (choices[i].color != color) continue;
        if (choices[i].rank == parent->rank) *out_place = count;
        ranks[count++] = choices[i].rank;
    }
    return count;
}

static rp_status split(rp_comm *parent, const choice *mine, const rp_comm_options *options,
                       choice *choices, int *ranks, rp_comm **out_comm) {
    int place = -1;
    size_t numbers = sizeof *mine / sizeof(int32_t);
    rp_status status = rp_all_gather(parent, mine, choices, numbers, RP_I32, NULL, NULL);
    if (status != RP_OK) return rpi_fail_context(status, "splitting a communicator: ");
    uint64_t number = parent->next_sequence; /* of the all-gather: the same on all ranks */
    if (mine->color < 0) return RP_OK;
    char name[RPI_BOOTSTRAP_NAME_MAX];
    rpi_group_default_name(parent, "split", number, name, sizeof name);
    rp_comm_options named = *options;
    if (!named.name) named.name = name;
    int count = collect(parent, choices, mine->color, ranks, &place);
    selection of = {.ranks = ranks, .count = count, .place = place};
    return make_group(parent, &of, &named, out_comm, NULL);
}

rp_status rp_comm_split(rp_comm *parent, int color, int key, const rp_comm_options *options,
                        rp_comm **out_comm) {
    RPI_FPENV_SCOPE;
    rp_comm_options own;
    if (!parent) return RP_FAIL(INVALID, "parent is NULL");
    if (!out_comm) return RP_FAIL(INVALID, "there is nowhere to put the communicator");
    RP_TRY(rpi_comm_options_read(options, &own));
    RP_TRY(rpi_group_check_options(&own));
    choice mine = {.color = color, .key = key, .rank = parent->rank}, *choices = NULL;
    size_t world = (size_t)parent->world;
    rp_comm *comm = NULL;
    int *ranks = NULL;
    rp_status status = rpi_alloc_array(world, sizeof *choices, "a split", &choices);
    if (status == RP_OK) status = rpi_alloc_array(world, sizeof *ranks, "a split", &ranks);
    if (status == RP_OK) status = split(parent, &mine, &own, choices, ranks, &comm);
    rpi_free(choices);
    rpi_free(ranks);
    if (status == RP_OK) *out_comm = comm;
    return status;
}
