#include "comm/communicator.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"
#include "net/forget.h"
#include "net/link_shape.h"
#include "net/meeting.h"
#include "net/secret.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

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

static rp_status set_options(rp_comm *comm, const rp_comm_options *options) {
    const char *name = options->name ? options->name : RPI_COMM_NAME;
    RP_TRY(rpi_strdup(name, &comm->name));
    comm->id = rpi_crc32c(0, name, strlen(name));
    comm->epoch = options->epoch;
    comm->timeout_s = or_default(options->timeout_s, 600);
    comm->warn_after_s = or_default(options->warn_after_s, 30);
    comm->strict_timeout = options->strict_timeout;
    comm->chunk_bytes = options->chunk_bytes;
    comm->window = options->chunks_in_flight ? options->chunks_in_flight : RPI_CHUNKS_IN_FLIGHT;
    return RP_OK;
}

rp_status rp_comm_set_timeout(rp_comm *comm, double timeout_s) {
    RPI_FPENV_SCOPE;
    if (!comm) return RP_FAIL(INVALID, "comm is NULL");
    if (!(timeout_s > 0))
        return RP_FAIL(INVALID, "timeout_s is %g; above 0 is needed", timeout_s);
    atomic_store(&comm->timeout_s, timeout_s);
    rpi_drive_wake(comm); /* a sleeper has the old deadline */
    return RP_OK;
}

static rp_status make_primitives(rp_comm *comm) {
    comm->wake_fd = -1;
    comm->inbox_end = &comm->inbox;
    comm->queue_end = &comm->queue;
    pthread_mutex_init(&comm->lock, NULL); /* neither fails on Linux */
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&comm->changed, &attributes);
    pthread_cond_init(&comm->work, &attributes);
    pthread_condattr_destroy(&attributes);
    comm->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->wake_fd < 0) return RP_FAIL_ERRNO(IO, "cannot make an event descriptor");
    RP_TRY(rpi_alloc_array((size_t)comm->world, sizeof *comm->peers, "peers", &comm->peers));
    rpi_flow_init(comm);
    return RP_OK;
}

static rp_status connect_mesh(rp_comm *comm, const rp_store *store,
                              const rp_comm_options *options, const rpi_secret *secret,
                              const char *prefix) {
    rpi_mesh_options mesh = {.prefix = prefix,
                             .secret = secret,
                             .transport = options->transport,
                             .host = options->host,
                             .bind_host = options->bind_host,
                             .frame_bytes = RPI_FRAME_HEADER_BYTES + RPI_FRAME_PAYLOAD,
                             .timeout_s = or_default(options->connect_timeout_s, CONNECT_S)};
    if (options->link) RP_TRY(rpi_link_shape_parse(options->link, &mesh.shape));
    RP_TRY(rpi_mesh_connect(store, comm->rank, comm->world, &mesh, &comm->mesh));
    for (int rank = 0; rank < comm->world; rank++)
        comm->peers[rank].link = comm->mesh->links[rank];
    return RP_OK;
}

/* Beats come often enough that short timeouts can rely on them. */
static double beat_seconds(const rp_comm *comm) {
    double least = comm->timeout_s < comm->warn_after_s ? comm->timeout_s : comm->warn_after_s;
    return least / 4 < 0.5 ? least / 4 : 0.5;
}

static rp_status connect_world(rp_comm *comm, const rp_store *store,
                               const rp_comm_options *options) {
    char prefix[256];
    snprintf(prefix, sizeof prefix, "%s/%u", comm->name, comm->epoch);
    double connect_s = or_default(options->connect_timeout_s, CONNECT_S);
    rpi_secret secret;
    rp_status status = rpi_comm_options_check(options, comm->world);
    if (status == RP_OK) status = rpi_secret_find_own(&secret);
    if (status != RP_OK)
        return rpi_meeting_decline(store, comm->rank, comm->world, prefix, connect_s, status);
    RP_TRY(connect_mesh(comm, store, options, &secret, prefix));
    comm->silence_ns = rpi_control_silence_ns(beat_seconds(comm));
    rpi_control_options control = {.prefix = prefix,
                                   .bind_host = options->bind_host,
                                   .session = comm->mesh->session,
                                   .secret = &secret,
                                   .timeout_s = connect_s,
                                   .beat_s = beat_seconds(comm)};
    RP_TRY(rpi_control_open(store, comm->rank, comm->world, &control, &comm->control));
    comm->group = rpi_control_everybody(comm->control);
    return RP_OK;
}

static void name_transport(rp_comm *comm) {
    if (!comm->mesh) {
        snprintf(comm->transport, sizeof comm->transport, "none");
        return;
    }
    size_t used = 0;
    for (int i = 0; comm->mesh->endpoints[i] && used < sizeof comm->transport; i++) {
        const rpi_endpoint *endpoint = comm->mesh->endpoints[i];
        const char *inner = endpoint->inner ? endpoint->inner->name : "";
        used += (size_t)snprintf(comm->transport + used, sizeof comm->transport - used,
                                 *inner ? "%s%s(%s)" : "%s%s%s", i ? "+" : "",
                                 endpoint->transport->name, inner);
    }
}

/* Where bytes move at the speed of memory, what all ranks have in flight together is to stay in
 * the processor's caches: window * parts * parts * bytes of a part, 2 MiB. Frames of lossy
 * codecs are short enough, and would be so short that their headers count. */
enum { CACHED_BYTES = 512 * 1024, PART_BYTES_MIN = 16 * 1024, PART_BYTES_MAX = 128 * 1024 };

size_t rpi_comm_chunk_bytes(const rp_comm *comm, rpi_split_layout layout, int parts,
                            bool lossy) {
    if (comm->chunk_bytes || !comm->one_host || lossy) return comm->chunk_bytes;
    size_t bytes = CACHED_BYTES / ((size_t)parts * (size_t)parts);
    if (bytes < PART_BYTES_MIN) bytes = PART_BYTES_MIN;
    if (bytes > PART_BYTES_MAX) bytes = PART_BYTES_MAX;
    return layout == RPI_SPLIT_BLOCKS ? bytes : (size_t)parts * bytes;
}

/* Ranks whose own links are shaped are hosts of their own, wherever they are. */
static void know_hosts(rp_comm *comm, const rp_comm_options *options) {
    int here = 0;
    comm->host_of = options->link && !options->host ? NULL : comm->mesh->host_of;
    for (int rank = 0; rank < comm->world; rank++)
        here += comm->mesh->host_of[rank] == comm->mesh->host_of[comm->rank];
    comm->one_host = here == comm->world && !options->link;
}

/* All ranks know the same hosts and the same constants, and so choose alike. */
static rp_status make_choices(rp_comm *comm) {
    rpi_plan_request request = {.world = comm->world, .host_of = comm->host_of};
    rpi_world_shape shape;
    RP_TRY(rpi_world_shape_make(&request, &shape));
    rpi_choices_make(&request, &shape, &rpi_nominal_links, &comm->choices);
    return RP_OK;
}

static rp_status open_comm(rp_comm *comm, const rp_store *store,
                           const rp_comm_options *options) {
    RP_TRY(make_primitives(comm));
    RP_TRY(set_options(comm, options));
    if (comm->world > 1) {
        RP_TRY(connect_world(comm, store, options));
        know_hosts(comm, options);
    } else {
        RP_TRY(rpi_comm_options_check(options, 1));
    }
    name_transport(comm);
    RP_TRY(make_choices(comm));
    return options->progress_thread ? rpi_progress_thread_start(comm) : RP_OK;
}

static void free_routines(rp_comm *comm) {
    for (rpi_routine *routine = comm->routines, *next; routine; routine = next) {
        next = routine->sibling;
        for (rpi_chunk *chunk = routine->idle, *after; chunk; chunk = after) {
            after = chunk->next;
            rpi_free(chunk->sums);
            rpi_free(chunk);
        }
        rpi_routine_destroy(routine);
    }
}

static void free_comm(rp_comm *comm) {
    rpi_aside_clear(comm);
    if (comm->peers) rpi_flow_close(comm);
    for (int rank = 0; comm->peers && rank < comm->world; rank++)
        rpi_tags_free(&comm->peers[rank].tags);
    rpi_control_close(comm->control); /* goodbye first: closed links are then no deaths */
    rpi_mesh_close(comm->mesh);
    if (atomic_load(&comm->failed))
        rpi_join_abandon(comm->join);
    else
        rpi_join_close(comm->join);
    free_routines(comm);
    for (rp_request *request = comm->requests, *next; request; request = next) {
        next = request->sibling;
        rpi_cut_free(&request->cut);
        rpi_neighborhood_free(&request->hood);
        rpi_free(request->edges);
        rpi_free(request);
    }
    rpi_blocks_free(comm);
    rpi_index_free(&comm->by_number);
    if (comm->wake_fd >= 0) close(comm->wake_fd);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->changed);
    pthread_cond_destroy(&comm->work);
    rpi_free(comm->scratch);
    rpi_free(comm->peers);
    rpi_free(comm->name);
    rpi_free(comm);
}

rp_status rp_comm_create(const rp_store *store, int rank, int world,
                         const rp_comm_options *options, rp_comm **out_comm) {
    RPI_FPENV_SCOPE;
    static const rp_comm_options defaults = {0};
    if (!out_comm) return RP_FAIL(INVALID, "there is nowhere to put the communicator");
    RP_TRY(check_place(store, rank, world));
    rp_comm *comm = NULL;
    RP_TRY(rpi_alloc(sizeof *comm, "a communicator", &comm));
    comm->rank = rank;
    comm->world = world;
    rp_status status = open_comm(comm, store, options ? options : &defaults);
    if (status != RP_OK)
        free_comm(comm);
    else
        *out_comm = comm;
    return status;
}

rp_status rp_comm_join(const rp_comm_options *options, rp_comm **out_comm) {
    RPI_FPENV_SCOPE;
    if (!out_comm) return RP_FAIL(INVALID, "there is nowhere to put the communicator");
    rp_comm_options own = options ? *options : (rp_comm_options){0};
    rpi_place place;
    rpi_join *join = NULL;
    RP_TRY(rpi_place_find_own(&place));
    RP_TRY(rpi_join_open(&place, or_default(own.connect_timeout_s, CONNECT_S), &join));
    if (!own.bind_host) own.bind_host = join->bind_host;
    rp_status status = rp_comm_create(place.world > 1 ? &join->store : NULL, place.rank,
                                      place.world, &own, out_comm);
    if (status != RP_OK)
        rpi_join_close(join);
    else
        (*out_comm)->join = join;
    return status;
}

static bool all_delivered(rp_comm *comm) {
    for (int i = 0; comm->mesh->endpoints[i]; i++) {
        rpi_endpoint *endpoint = comm->mesh->endpoints[i];
        const rpi_transport *transport = endpoint->transport;
        (void)transport->progress(endpoint);
        rp_status status = transport->delivered ? transport->delivered(endpoint)
                                                : transport->flushed(endpoint);
        if (status == RP_PENDING) return false;
    }
    return true;
}

/* Peers may still need the last frames we posted. */
static void linger(rp_comm *comm) {
    int64_t deadline_ns = rpi_deadline_ns(LINGER_S);
    while (!all_delivered(comm) && rpi_now_ns() < deadline_ns)
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 2000);
}

static void cancel_all(rp_comm *comm) {
    char text[160] = "an operation that was not started";
    if (comm->queue) rpi_request_text(comm->queue, text, sizeof text);
    rpi_comm_fail_text(comm, RP_CANCELLED, comm->rank,
                       "rank %d destroyed communicator '%s' with %s in flight", comm->rank,
                       comm->name, text);
    rpi_comm_pass(comm); /* completes everything with that failure */
}

void rp_comm_destroy(rp_comm *comm) {
    RPI_FPENV_SCOPE;
    if (!comm) return;
    rpi_progress_thread_stop(comm);
    rpi_drive_take(comm);
    bool busy = comm->in_flight > 0;
    if (busy) cancel_all(comm);
    rpi_comm_check_control(comm);
    if (comm->mesh && !atomic_load(&comm->failed)) linger(comm);
    rpi_drive_give(comm);
    free_comm(comm);
}

void rp_comm_forget(rp_comm *comm) {
    if (!comm) return;
    rpi_fd_forget(&comm->wake_fd);
    if (comm->mesh) rpi_mesh_forget(comm->mesh);
    if (comm->control) rpi_control_forget(comm->control);
    if (comm->join) rpi_join_forget(comm->join);
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
    /* The lock is the only thing written. */
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&comm->lock;
    pthread_mutex_lock(lock);
    *stats = comm->stats;
    if (comm->in_flight) stats->busy_s += rpi_seconds(rpi_now_ns() - comm->busy_since_ns);
    pthread_mutex_unlock(lock);
    stats->wire_bytes_sent = atomic_load(&comm->sent);
    stats->wire_bytes_received = atomic_load(&comm->received);
    stats->value_bytes_sent = atomic_load(&comm->values_sent);
}
