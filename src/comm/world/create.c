#include "comm/world/create.h"
#include "comm/core/chunk.h"
#include "comm/core/communicator.h"
#include "comm/core/progress_owner.h"
#include "comm/core/request.h"
#include "comm/device/device.h"
#include "comm/protocol/control_frame.h"
#include "comm/protocol/flow.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/open_close.h"
#include "comm/protocol/operation_kinds.h"
#include "comm/protocol/unexpected.h"
#include "comm/protocol/window_table.h"
#include "comm/run/executor.h"
#include "comm/run/progress_loop.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/variables.h"
#include "comm/world/link_costs.h"
#include "net/shaped/link_shape.h"
#include "net/socket/addresses.h"
#include "net/store/bootstrap.h"
#include "net/trust/secret.h"
#include "net/world/launch_watch.h"

#include <stdlib.h>
#include <string.h>

/* How long destroy waits for posted bytes to leave, at most. */
#define LINGER_S  5.0
#define CONNECT_S 60.0

static double or_default(double value, double fallback) {
    return value > 0 ? value : fallback;
}

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
    comm->timeout_s = or_default(options->timeout_s, 600);
    comm->warn_after_s = or_default(options->warn_after_s, 30);
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

/* How links are made: of the process's environment, the same on all ranks. */
typedef struct link_settings {
    rpi_mesh_when when;
    int streams;
} link_settings;

/* What the first communicator of a context is made over. */
typedef struct meeting_place {
    const rp_store *store;
    const rp_store *launchers; /* the same store, where it is the launcher's; else NULL */
    char prefix[256];          /* of keys */
    rpi_launch_watch watch;
} meeting_place;

static rp_status look_for_ends(void *context) {
    return rpi_launch_watch_look(&((meeting_place *)context)->watch);
}

/* Behind the links: who has died since may have been replaced. */
static rp_status look_for_losses(void *context) {
    meeting_place *place = context;
    RP_TRY(look_for_ends(place));
    int rank = rpi_bootstrap_replaced(place->store, place->prefix);
    if (rank < 0) return RP_OK;
    return RP_FAIL(PEER,
                   "rank %d died while the ranks were connecting (connection closed by peer), "
                   "and they cannot go on without it; start the job again",
                   rank);
}

static rp_status connect_mesh(rp_comm *comm, meeting_place *place,
                              const rp_comm_options *options, const rpi_secret *secret,
                              const link_settings *links) {
    rpi_mesh_options mesh = {.prefix = place->prefix,
                             .secret = secret,
                             .transport = options->transport,
                             .host = options->host,
                             .bind_host = options->bind_host,
                             .frame_bytes = RPI_FRAME_HEADER_BYTES + RPI_FRAME_PAYLOAD,
                             .when = links->when,
                             .streams = links->streams,
                             .zero_copy = true,
                             .timeout_s = or_default(options->connect_timeout_s, CONNECT_S),
                             .look = {.ask = look_for_ends, .context = place}};
    rpi_context *context = comm->context;
    if (options->link) RP_TRY(rpi_link_shape_parse(options->link, &mesh.shape));
    RP_TRY(rpi_mesh_connect(place->store, comm->rank, comm->world, &mesh, &context->mesh));
    rpi_context_connect(context);
    return RP_OK;
}

/* Beats come often enough that short timeouts can rely on them. */
static double beat_seconds(const rp_comm *comm) {
    double least = comm->timeout_s < comm->warn_after_s ? comm->timeout_s : comm->warn_after_s;
    return least / 4 < 0.5 ? least / 4 : 0.5;
}

/* Once a process, by the rank that the others come to. Ranks that are threads have no door, and
 * what listens on the loopback is not heard outside of this host. */
static void say_whether_open(const rpi_mesh *mesh, const char *bind_host,
                             const rpi_secret *secret) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    int other = 1;
    while (other < mesh->world && mesh->peers[other].process == mesh->peers[0].process) other++;
    if (secret->is_set || mesh->rank > 0 || other == mesh->world) return;
    if (rpi_is_loopback(bind_host)) return;
    if (atomic_flag_test_and_set(&said)) return;
    rpi_log(RP_LOG_WARNING,
            "this job is open: who reaches its ports can read and disturb it; %s "
            "(docs/security.md)",
            rpi_secret_is_supported()
                ? "set REDPOLL_SECRET on all ranks, or start it with `redpoll run`"
                : "a redpoll that was built with OpenSSL (libssl-dev) can have a secret");
}

/* Before the control connection, which is open only when all ranks have come that far. */
static rp_status agree_on_links(rp_comm *comm, meeting_place *place, const char *key,
                                double timeout_s) {
    rpi_context *context = comm->context;
    rpi_look look = {.ask = look_for_losses, .context = place};
    return rpi_link_costs_agree(place->store, key, comm->rank, timeout_s, &look,
                                getenv(RPI_LINK_COSTS_VARIABLE), &context->links);
}

static rp_status find_link_settings(link_settings *out_settings) {
    rp_status status = rpi_mesh_when_parse(getenv("REDPOLL_CONNECT"), &out_settings->when);
    if (status != RP_OK) return rpi_fail_context(status, "REDPOLL_CONNECT: ");
    return rpi_streams_find(&out_settings->streams);
}

/* Under which the ranks of a communicator find each other in a store. */
static void meeting_name(const char *name, uint32_t epoch, char *text, size_t bytes) {
    snprintf(text, bytes, "%s/%u", name, epoch);
}

static rp_status open_control(rp_comm *comm, meeting_place *place,
                              const rp_comm_options *options, const rpi_secret *secret,
                              double connect_s) {
    rpi_context *context = comm->context;
    comm->silence_ns = rpi_control_silence_ns(beat_seconds(comm));
    rpi_control_options control = {.prefix = place->prefix,
                                   .bind_host = options->bind_host,
                                   .session = context->mesh->session,
                                   .secret = secret,
                                   .timeout_s = connect_s,
                                   .beat_s = beat_seconds(comm),
                                   .look = {.ask = look_for_losses, .context = place},
                                   .describe = rpi_sequence_text};
    RP_TRY(
        rpi_control_open(place->store, comm->rank, comm->world, &control, &context->control));
    comm->group = rpi_control_everybody(context->control);
    return RP_OK;
}

static rp_status connect_by(rp_comm *comm, meeting_place *place, const rp_comm_options *options,
                            const rpi_secret *secret, const link_settings *how) {
    char links_key[300];
    const rp_store *store = place->store;
    double connect_s = or_default(options->connect_timeout_s, CONNECT_S);
    RP_TRY(connect_mesh(comm, place, options, secret, how));
    say_whether_open(comm->context->mesh, options->bind_host, secret);
    snprintf(links_key, sizeof links_key, "%s/links/%016llx", place->prefix,
             (unsigned long long)comm->context->mesh->session);
    RP_TRY(agree_on_links(comm, place, links_key, connect_s));
    RP_TRY(open_control(comm, place, options, secret, connect_s));
    return comm->rank ? RP_OK : store->ops->remove(store->context, links_key);
}

static rp_status connect_with(rp_comm *comm, meeting_place *place,
                              const rp_comm_options *options, rpi_secret *secret) {
    rpi_cost_model links;
    link_settings how = {.when = RPI_MESH_AUTO};
    meeting_name(comm->name, comm->epoch, place->prefix, sizeof place->prefix);
    rp_status status = rpi_comm_options_check(options, comm->world);
    if (status == RP_OK) status = rpi_secret_find_own(secret);
    if (status == RP_OK && options->tls) status = rpi_secret_ask_for_tls(secret);
    if (status == RP_OK) status = rpi_link_costs_parse(getenv(RPI_LINK_COSTS_VARIABLE), &links);
    if (status == RP_OK) status = find_link_settings(&how);
    if (status != RP_OK)
        return rpi_bootstrap_decline(place->store, comm->rank, comm->world, place->prefix,
                                     or_default(options->connect_timeout_s, CONNECT_S), status);
    rpi_launch_watch_open(comm->rank, comm->world, place->launchers, options->tls,
                          &place->watch);
    status = connect_by(comm, place, options, secret, &how);
    rpi_launch_watch_close(&place->watch);
    return status;
}

static rp_status connect_world(rp_comm *comm, meeting_place *place,
                               const rp_comm_options *options) {
    rpi_secret secret = {0};
    rp_status status = connect_with(comm, place, options, &secret);
    rpi_secret_wipe(&secret);
    return status;
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

/* By the hosts of the context, which is numbered anew for the members. Ranks whose own links
 * are shaped are hosts of their own, wherever they are. */
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

/* All ranks know the same hosts and the same constants, and so choose alike. */
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
static rp_status open_comm(rp_comm *comm, meeting_place *place,
                           const rp_comm_options *options) {
    RP_TRY(rpi_comm_set_options(comm, options));
    comm->id = RPI_WORLD_NUMBERER;
    comm->epoch = comm->context->world_epoch = options->epoch;
    rpi_comm_go_to(comm, RPI_COMM_NUMBERED);
    comm->context->has_had_world = true;
    comm->is_shaped = options->link != NULL;
    comm->links_are_hosts = options->link && !options->host;
    if (comm->world > 1)
        RP_TRY(connect_world(comm, place, options));
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

static rp_status create(rpi_context *context, meeting_place *place,
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

/* launchers: whether the store is the launcher's. */
static rp_status make(const rp_store *store, bool launchers, int rank, int world,
                      const rp_comm_options *options, rp_comm **out_comm) {
    rp_comm_options own;
    meeting_place place = {.store = store, .launchers = launchers ? store : NULL};
    if (!out_comm) return RP_FAIL(INVALID, "there is nowhere to put the communicator");
    RP_TRY(check_place(store, rank, world));
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
    return make(store, false, rank, world, options, out_comm);
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
    meeting_name(name, own.epoch, prefix, sizeof prefix);
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
    RP_TRY(rpi_join_open(&info, or_default(own.connect_timeout_s, CONNECT_S), &join));
    if (!own.bind_host) own.bind_host = join->bind_host;
    rp_status status =
        make(info.world > 1 ? &join->store : NULL, info.store == RPI_STORE_CLIENT, info.rank,
             info.world, &own, out_comm);
    if (status != RP_OK)
        rpi_join_close(join);
    else
        (*out_comm)->context->join = join;
    return status;
}

/* Everything posted has left this process, and where it is the `last` word also this host. */
static bool is_delivered(const rpi_context *context, bool last) {
    for (int i = 0; context->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = context->mesh->endpoints[i];
        const rpi_transport *transport = endpoint->transport;
        (void)transport->progress(endpoint);
        rp_status status = transport->delivered && last ? transport->delivered(endpoint)
                                                        : transport->flushed(endpoint);
        if (status == RP_PENDING) return false;
    }
    return true;
}

/* One more than the rank whose death failed the communicator; 0: nobody's did. */
static uint64_t whose_death(const rp_comm *comm) {
    rpi_failure failure = rpi_comm_failure(comm);
    bool is_death = failure.status == RP_PEER && failure.rank >= 0 &&
                    failure.rank < comm->world && failure.rank != comm->rank;
    return is_death ? (uint64_t)failure.rank + 1 : 0;
}

static rpi_frame_header fin_header(const rp_comm *comm) {
    return (rpi_frame_header){.kind = RPI_FRAME_FIN,
                              .communicator = comm->id,
                              .epoch = comm->epoch,
                              .round = comm->is_made ? RPI_FRAME_BEFORE_OPEN : 0,
                              .count = rpi_making_is_void(comm) ? RPI_FIN_VOID : 0,
                              .sequence = whose_death(comm)};
}

static void note_fin(rp_comm *comm) {
    rpi_frame_header header = fin_header(comm);
    if (rpi_comm_is_numbered(comm)) rpi_context_note_fin(comm, &header);
}

/* Members that live on with the context hear that nothing more comes from here, and where a
 * death is why, whose; those whose link is full do when there is room, as long as that is
 * waited for.
 */
static bool send_fin(rp_comm *comm, int *next) {
    rpi_frame_header header = fin_header(comm);
    for (; rpi_comm_is_numbered(comm) && *next < comm->world; ++*next) {
        const rpi_peer *peer = &comm->peers[*next];
        if (!rpi_peer_link(peer) || peer->broken) continue;
        peer->connection->full = false;
        if (rpi_number_is_untold(comm, *next)) {
            if (header.count == RPI_FIN_VOID) continue; /* has nothing to forget */
            if (rpi_number_send_one(comm, *next) == RP_PENDING) return false;
        }
        if (rpi_control_frame_send(comm, *next, &header) == RP_PENDING) return false;
    }
    return true;
}

void rpi_comm_send_death(rp_comm *comm) {
    int64_t deadline_ns = rpi_deadline_ns(LINGER_S);
    int told = 0;
    if (!comm->context->mesh) return;
    rpi_progress_acquire(comm->context);
    note_fin(comm);
    rpi_progress_release(comm->context);
    for (bool done = false; !done && rpi_now_ns() < deadline_ns;) {
        rpi_progress_acquire(comm->context);
        done = send_fin(comm, &told);
        (void)is_delivered(comm->context, false);
        rpi_progress_release(comm->context);
        if (!done) rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 2000);
    }
}

/* Peers may still need the last frames we posted. Closing the last one's links says that it is
 * left, but not that another rank has died, which rank 0 would tell, if it were not stopped. */
static void linger(rp_comm *comm, bool last) {
    int64_t deadline_ns = rpi_deadline_ns(LINGER_S);
    bool failed = rpi_comm_has_failed(comm);
    int told = last && !(failed && whose_death(comm)) ? comm->world : 0;
    if (!last) note_fin(comm);
    for (;;) {
        bool all_told = send_fin(comm, &told);
        for (; failed && !all_told; all_told = send_fin(comm, &told))
            told++; /* waits for nobody */
        bool done = is_delivered(comm->context, last) && all_told;
        if (done || failed || rpi_now_ns() >= deadline_ns) return;
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 2000);
    }
}

static void cancel_all(rp_comm *comm) {
    char text[160] = "an operation that was not started";
    if (comm->queue) rpi_request_text(comm->queue, text, sizeof text);
    rpi_comm_fail_text(comm, RP_CANCELLED, comm->rank,
                       "%s destroyed communicator '%s' with %s in flight",
                       rpi_rank_name(comm, comm->rank).text, comm->name, text);
    rpi_comm_end_requests(comm);
}

void rp_comm_destroy(rp_comm *comm) {
    RPI_FPENV_SCOPE;
    if (!comm) return;
    rpi_context *context = comm->context;
    rpi_failure decision;
    /* The others hear of why before they hear that this rank has left. */
    if (comm->is_revoked && comm->group)
        (void)rpi_control_wait_failed(comm->group, rpi_deadline_ns(RPI_CONTROL_DECISION_S),
                                      &decision);
    rpi_progress_acquire(context);
    if (comm->in_flight > 0) cancel_all(comm);
    rpi_comm_await_decision(comm);
    rpi_comm_check_control(comm);
    rpi_windows_close(comm);
    bool last = rpi_context_remove(comm);
    if (context->mesh) linger(comm, last);
    rpi_progress_release(context);
    rpi_comm_free(comm);
    if (last) rpi_context_close(context);
}

void rp_comm_forget(rp_comm *comm) {
    if (comm) rpi_context_close_after_fork(comm->context);
}

/* For functions that return no status: the message is recorded all the same. */
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
