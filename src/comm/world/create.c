#include "comm/world/create.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/open_close.h"
#include "comm/protocol/operation_kinds.h"
#include "comm/protocol/unexpected.h"
#include "comm/run/executor.h"
#include "comm/run/progress_loop.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/variables.h"
#include "net/store/bootstrap.h"

#include <stdlib.h>
#include <string.h>

static rp_status check_place(const rp_store *store, int rank, int world) {
    if (world < 1) return RP_FAIL(INVALID, "world is %d; at least 1 is needed", world);
    if (rank < 0 || rank >= world)
        return RP_FAIL(INVALID, "rank %d is not in a world of %d", rank, world);
    if (world == 1) return RP_OK;
    if (!store || !store->ops) return RP_FAIL(INVALID, "a world of %d needs a store", world);
    const rp_store_ops *ops = store->ops;
    if (!ops->set || !ops->get || !ops->add || !ops->remove)
        return RP_FAIL(INVALID, "the store lacks one of set, get, add and remove");
    return RP_OK;
}

rp_status rpi_comm_set_options(rp_comm *comm, const rp_comm_options *options) {
    const char *name = options->name ? options->name : RPI_COMM_NAME;
    RP_TRY(rpi_strdup(name, &comm->name));
    comm->timeout_s = rpi_time_or(options->timeout_s, 600);
    comm->warn_after_s = rpi_time_or(options->warn_after_s, 30);
    comm->strict_timeout = options->strict_timeout > 0;
    comm->priority = options->priority ? options->priority : RP_PRIORITY_NORMAL;
    comm->chunk_bytes = options->chunk_bytes;
    comm->chunks_in_flight =
        options->chunks_in_flight ? options->chunks_in_flight : RPI_CHUNKS_IN_FLIGHT;
    return RP_OK;
}

rp_status rp_comm_set_timeout(rp_comm *comm, double timeout_s) {
    RPI_FPENV_SCOPE;
    if (!comm) return RP_FAIL(INVALID, "comm is NULL");
    if (!(timeout_s > 0))
        return RP_FAIL(INVALID, "timeout_s is %g; above 0 is needed", timeout_s);
    atomic_store(&comm->timeout_s, timeout_s);
    rpi_progress_wake(comm->context); /* a sleeper has the old deadline */
    return RP_OK;
}

static void name_transport(rp_comm *comm) {
    const rpi_mesh *mesh = comm->context->mesh;
    if (!mesh || comm->world == 1) {
        snprintf(comm->transport, sizeof comm->transport, "none");
        return;
    }
    size_t used = 0;
    for (int i = 0; mesh->endpoints[i] && used < sizeof comm->transport; i++) {
        const rpi_endpoint *endpoint = mesh->endpoints[i];
        const char *inner = endpoint->inner ? endpoint->inner->name : "";
        used += (size_t)snprintf(comm->transport + used, sizeof comm->transport - used,
                                 *inner ? "%s%s(%s%s)" : "%s%s%s%s", i ? "+" : "",
                                 endpoint->transport->name, inner,
                                 !endpoint->tls ? ""
                                 : *inner       ? ", tls"
                                                : "(tls)");
    }
}

/* By the hosts of the context, which are numbered again for the members. A rank whose own links
 * are shaped is a host of its own, wherever it is. */
static rp_status know_hosts(rp_comm *comm) {
    const rpi_mesh *mesh = comm->context->mesh;
    int hosts = 0, here = 0;
    RP_TRY(rpi_alloc_array((size_t)comm->world, sizeof *comm->hosts, "hosts", &comm->hosts));
    for (int rank = 0; rank < comm->world; rank++) {
        int first = 0, host = mesh->host_of[comm->members[rank]];
        while (mesh->host_of[comm->members[first]] != host) first++;
        comm->hosts[rank] = first < rank ? comm->hosts[first] : hosts++;
        here += host == mesh->host_of[comm->context->rank];
    }
    comm->host_of = comm->links_are_hosts ? NULL : comm->hosts;
    comm->one_host = here == comm->world && !comm->is_shaped;
    return RP_OK;
}

/* All ranks know the same hosts and the same constants, and so make the same choice. */
static rp_status make_choices(rp_comm *comm) {
    rpi_plan_request request = {.world = comm->world, .host_of = comm->host_of};
    rpi_world_shape shape;
    RP_TRY(rpi_world_shape_make(&request, &shape));
    rpi_choices_make(&request, &shape, &comm->context->links, &comm->choices);
    return RP_OK;
}

static rp_status make_tables(rp_comm *comm, const int *members) {
    size_t world = (size_t)comm->world, all = (size_t)comm->context->world;
    RP_TRY(rpi_alloc_array(world, sizeof *comm->peers, "peers", &comm->peers));
    RP_TRY(rpi_alloc_array(world, sizeof *comm->members, "ranks", &comm->members));
    RP_TRY(rpi_alloc_array(all, sizeof *comm->place_of, "ranks", &comm->place_of));
    for (size_t i = 0; i < all; i++) comm->place_of[i] = -1;
    for (int rank = 0; rank < comm->world; rank++) {
        comm->members[rank] = members ? members[rank] : rank;
        comm->place_of[comm->members[rank]] = rank;
        comm->peers[rank].connection = &comm->context->connections[comm->members[rank]];
    }
    rpi_flow_init(comm);
    return RP_OK;
}

rp_status rpi_comm_new(rpi_context *context, int rank, int world, const int *members,
                       rp_comm **out_comm) {
    rp_comm *comm = NULL;
    RP_TRY(rpi_alloc(sizeof *comm, "a communicator", &comm));
    comm->context = context;
    comm->kinds = rpi_operation_kinds;
    comm->rank = rank;
    comm->world = world;
    comm->inbox_end = &comm->inbox;
    comm->queue_end = &comm->queue;
    rp_status status = make_tables(comm, members);
    if (status != RP_OK)
        rpi_comm_free(comm);
    else
        *out_comm = comm;
    return status;
}

rp_status rpi_comm_begin(rp_comm *comm) {
    if (comm->world > 1) RP_TRY(know_hosts(comm));
    name_transport(comm);
    RP_TRY(make_choices(comm));
    if (comm->group) rpi_control_describe(comm->group, comm->name, comm->made_of);
    comm->made_of = NULL;
    rpi_progress_acquire(comm->context);
    rp_status status = rpi_context_add(comm);
    rpi_deadline_note_open(comm);
    rpi_progress_release(comm->context);
    comm->is_open = status == RP_OK;
    return status;
}

/* The first communicator of a context. */
static rp_status open_comm(rp_comm *comm, rpi_bootstrap_place *place,
                           const rp_comm_options *options) {
    RP_TRY(rpi_comm_set_options(comm, options));
    comm->id = RPI_WORLD_NUMBERER;
    comm->epoch = comm->context->world_epoch = options->epoch;
    rpi_comm_go_to(comm, RPI_COMM_NUMBERED);
    comm->context->has_had_world = true;
    comm->context->memory = options->memory;
    comm->is_shaped = options->link != NULL;
    comm->links_are_hosts = options->link && !options->host;
    if (comm->world > 1)
        RP_TRY(rpi_comm_connect_world(comm, place, options));
    else
        RP_TRY(rpi_comm_options_check(options, 1));
    RP_TRY(rpi_comm_begin(comm));
    return options->progress_thread ? rpi_progress_thread_start(comm->context) : RP_OK;
}

static void free_compiled_schedules(rp_comm *comm) {
    for (rpi_compiled_schedule *compiled = comm->compiled_schedules, *next; compiled;
         compiled = next) {
        next = compiled->sibling;
        for (rpi_chunk *chunk = compiled->idle, *after; chunk; chunk = after) {
            after = chunk->next;
            rpi_free(chunk->sums);
            rpi_free(chunk->of_device);
            rpi_free(chunk);
        }
        rpi_compiled_destroy(compiled);
    }
}

void rpi_comm_free(rp_comm *comm) {
    if (!comm) return;
    rpi_unexpected_clear(comm);
    if (comm->peers) rpi_flow_close(comm);
    for (int rank = 0; comm->peers && rank < comm->world; rank++)
        rpi_tags_free(&comm->peers[rank].tags);
    rpi_control_group_close(comm->group);
    rpi_identity_free(comm);
    free_compiled_schedules(comm);
    for (rp_request *request = comm->requests, *next; request; request = next) {
        next = request->sibling;
        rpi_partition_free(&request->partition);
        rpi_neighborhood_free(&request->neighborhood);
        rpi_free(request->edges);
        rpi_transfer_free(request->transfer);
        rpi_free(request);
    }
    rpi_index_free(&comm->by_number);
    rpi_free(comm->hosts);
    rpi_free(comm->place_of);
    rpi_free(comm->members);
    rpi_free(comm->peers);
    rpi_free(comm->name);
    rpi_free(comm);
}

static rp_status create(rpi_context *context, rpi_bootstrap_place *place,
                        const rp_comm_options *options, rp_comm **out_comm) {
    rp_comm *comm = NULL;
    RP_TRY(rpi_comm_new(context, context->rank, context->world, NULL, &comm));
    rp_status status = open_comm(comm, place, options);
    if (status == RP_OK) {
        *out_comm = comm;
        return RP_OK;
    }
    rpi_progress_thread_stop(context);
    if (comm->is_open) (void)rpi_context_remove(comm);
    rpi_comm_free(comm);
    return status;
}

rp_status rpi_comm_make(const rpi_bootstrap_place *given, int rank, int world,
                        const rp_comm_options *options, rp_comm **out_comm) {
    rp_comm_options own;
    rpi_bootstrap_place place = *given;
    if (!out_comm) return RP_FAIL(INVALID, "there is nowhere to put the communicator");
    RP_TRY(check_place(place.store, rank, world));
    RP_TRY(rpi_comm_options_read(options, &own));
    /* `redpoll run` has looked for its ranks. */
    if (rank == 0 && !getenv("REDPOLL_STORE")) rpi_variables_check_own();
    rpi_context *context = NULL;
    RP_TRY(rpi_context_new(rank, world, &context));
    rp_status status = create(context, &place, &own, out_comm);
    if (status != RP_OK) rpi_context_close(context);
    return status;
}

rp_status rp_comm_create(const rp_store *store, int rank, int world,
                         const rp_comm_options *options, rp_comm **out_comm) {
    RPI_FPENV_SCOPE;
    return rpi_comm_make(&(rpi_bootstrap_place){.store = store}, rank, world, options,
                         out_comm);
}

rp_status rp_comm_replace(const rp_store *store, int rank, int world,
                          const rp_comm_options *options, int *out_has_met) {
    rp_comm_options own;
    char prefix[256];
    bool has_met = false;
    if (!out_has_met) return RP_FAIL(INVALID, "there is nowhere to put what was found");
    RP_TRY(check_place(store, rank, world));
    RP_TRY(rpi_comm_options_read(options, &own));
    *out_has_met = 0;
    if (world == 1) return RP_OK;
    const char *name = own.name ? own.name : RPI_COMM_NAME;
    RP_TRY(rpi_bootstrap_check_name(name));
    rpi_bootstrap_name(name, own.epoch, prefix, sizeof prefix);
    RP_TRY(rpi_bootstrap_replace(store, rank, world, prefix, &has_met));
    *out_has_met = has_met;
    return RP_OK;
}

rp_status rp_comm_join(const rp_comm_options *options, rp_comm **out_comm) {
    RPI_FPENV_SCOPE;
    if (!out_comm) return RP_FAIL(INVALID, "there is nowhere to put the communicator");
    rp_comm_options own;
    rpi_world_info info;
    rpi_join *join = NULL;
    RP_TRY(rpi_comm_options_read(options, &own));
    RP_TRY(rpi_world_info_find_own(&info));
    info.tls = own.tls;
    RP_TRY(rpi_join_open(&info, rpi_time_or(own.connect_timeout_s, RPI_CONNECT_S), &join));
    if (!own.bind_host) own.bind_host = join->bind_host;
    rpi_bootstrap_place place = {.store = info.world > 1 ? &join->store : NULL};
    if (info.store == RPI_STORE_CLIENT) place.launchers = place.store;
    rp_status status = rpi_comm_make(&place, info.rank, info.world, &own, out_comm);
    if (status != RP_OK)
        rpi_join_close(join);
    else
        (*out_comm)->context->join = join;
    return status;
}

/* For functions that return no status: the message is recorded anyway. */
static bool is_there(const rp_comm *comm) {
    if (!comm) (void)RP_FAIL(INVALID, "comm is NULL");
    return comm != NULL;
}

int rp_comm_rank(const rp_comm *comm) {
    return is_there(comm) ? comm->rank : -1;
}

int rp_comm_world(const rp_comm *comm) {
    return is_there(comm) ? comm->world : 0;
}

const char *rp_comm_transport(const rp_comm *comm) {
    return is_there(comm) ? comm->transport : "none";
}

void rp_comm_get_stats(const rp_comm *comm, rp_comm_stats *stats) {
    RPI_FPENV_SCOPE;
    if (!stats) {
        (void)RP_FAIL(INVALID, "stats is NULL");
        return;
    }
    *stats = (rp_comm_stats){0};
    if (!is_there(comm)) return;
    pthread_mutex_t *lock = &comm->context->lock;
    pthread_mutex_lock(lock);
    *stats = comm->stats;
    if (comm->in_flight) stats->busy_s += rpi_seconds(rpi_now_ns() - comm->busy_since_ns);
    pthread_mutex_unlock(lock);
    stats->wire_bytes_sent = atomic_load(&comm->sent);
    stats->wire_bytes_received = atomic_load(&comm->received);
    stats->value_bytes_sent = atomic_load(&comm->values_sent);
}
