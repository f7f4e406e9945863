#include "redpoll/parameter_server.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/sized_options.h"
#include "codec/codec.h"
#include "comm/world/comm_stats.h"
#include "methods/parameter_server/parameter_server_object.h"
#include "methods/vector_memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- options ---- */

static rp_status check_roles(const rp_parameter_server_options *o, int world) {
    if (o->servers < 0)
        return RP_FAIL(INVALID, "parameter server: %d servers; 0 (every rank serves) or more",
                       o->servers);
    if (world && o->servers >= world)
        return RP_FAIL(INVALID,
                       "parameter server: %d server%s of %d rank%s leave no worker; take at "
                       "most %d, or shared, where every rank serves and works",
                       o->servers, o->servers == 1 ? "" : "s", world, world == 1 ? "" : "s",
                       world - 1);
    if (o->workers < 0 || (world && o->workers && o->workers < world - o->servers))
        return RP_FAIL(INVALID,
                       "parameter server: a step shared among %d workers, and %d are there; as "
                       "many or more, or 0",
                       o->workers, world - o->servers);
    if (o->goes_on && !o->servers)
        return RP_FAIL(
            INVALID, "parameter server: a rank that serves cannot be left behind; to go on "
                     "without workers that die, take servers of their own: servers=1 or more");
    return RP_OK;
}

static rp_status check_merges(const rp_parameter_server_options *o, int world) {
    int workers = o->workers ? o->workers : world - o->servers;
    if (o->staleness < RP_ANY_STALENESS)
        return RP_FAIL(INVALID,
                       "parameter server: a staleness of %lld; 0 (synchronous), a number of "
                       "steps, or inf (asynchronous)",
                       (long long)o->staleness);
    if (o->quorum < 0 || (world && o->quorum > workers))
        return RP_FAIL(INVALID, "parameter server: a quorum of %d of %d worker%s; at most all",
                       o->quorum, workers, workers == 1 ? "" : "s");
    if (o->quorum && !o->staleness)
        return RP_FAIL(INVALID, "parameter server: a quorum does not wait for all, and a "
                                "staleness of 0 (synchronous) does; say staleness=inf, or a "
                                "number of steps");
    if (!(o->grace_s >= 0) || !isfinite(o->grace_s))
        return RP_FAIL(INVALID, "parameter server: a grace of %g s; 0 or more", o->grace_s);
    if (o->grace_s > 0 && !o->quorum)
        return RP_FAIL(INVALID, "parameter server: a grace is what a quorum waits for more; "
                                "say quorum=K, too");
    return RP_OK;
}

static rp_status read_options(const rp_parameter_server_options *given, int world,
                              rp_parameter_server_options *out_own) {
    static const rpi_sized sized = {.name = "rp_parameter_server_options",
                                    .initializer = "RP_PARAMETER_SERVER_OPTIONS",
                                    .least =
                                        RPI_SIZE_UP_TO(rp_parameter_server_options, context),
                                    .known = sizeof(rp_parameter_server_options)};
    if (!given) return RP_FAIL(INVALID, "parameter server: options are NULL");
    RP_TRY(rpi_sized_read(&sized, given, out_own));
    if (world < 0) return RP_FAIL(INVALID, "parameter server: a world of %d ranks", world);
    RP_TRY(check_roles(out_own, world));
    return check_merges(out_own, world);
}

rp_status rp_parameter_server_check(const rp_parameter_server_options *options, int world) {
    rp_parameter_server_options own;
    return read_options(options, world, &own);
}

static rp_status check_segments(const rp_segment *segments, size_t count) {
    char text[64];
    if (!segments || !count) return RP_FAIL(INVALID, "parameter server: no segments");
    for (size_t i = 0; i < count; i++) {
        const rp_segment *s = &segments[i];
        if (s->dtype != RP_F32)
            return RP_FAIL(UNSUPPORTED, "parameter server: tensor %zu is %s; f32 is taken", i,
                           rp_dtype_name(s->dtype));
        if (s->count > RPI_ELEMENTS_MAX || (s->count && !s->data))
            return RP_FAIL(INVALID, "parameter server: tensor %zu has %zu elements at %p", i,
                           s->count, s->data);
        if (!rp_codec_supports(&s->codec, RP_F32))
            return RP_FAIL(UNSUPPORTED, "parameter server: %s does not take f32",
                           rp_codec_text(&s->codec, text, sizeof text));
        if (s->residual) RP_TRY(rpi_codec_check_feedback(&s->codec, RP_F32));
    }
    return RP_OK;
}

/* ---- links ---- */

static bool is_worker(const rp_parameter_server *s) {
    return s->worker >= 0;
}

typedef struct meeting {
    rp_comm **comms;
    rp_request **requests;
    int count;
} meeting;

/* A communicator of a server and a worker, one of which this rank is. */
static rp_status start_link(rp_parameter_server *s, int server, int worker, meeting *all) {
    int ranks[] = {server, rpi_push_worker_rank(s, worker)};
    char name[64];
    snprintf(name, sizeof name, "parameters of %d for %d", ranks[0], ranks[1]);
    rp_comm_options options = RP_COMM_OPTIONS(.name = name, .progress_thread = 1);
    if (ranks[0] == ranks[1]) return RP_OK;
    if (ranks[0] != s->rank && ranks[1] != s->rank) return RP_OK;
    rp_comm **place =
        ranks[0] == s->rank ? &s->at.links[worker].comm : &s->uplinks[server].comm;
    RP_TRY(rp_comm_group_start(s->comm, ranks, 2, &options, place, &all->requests[all->count]));
    all->count++;
    return RP_OK;
}

/* Of the first server and another one, for orders. */
static rp_status start_order_link(rp_parameter_server *s, int server, meeting *all) {
    int ranks[] = {0, server};
    char name[64];
    snprintf(name, sizeof name, "orders of 0 for %d", server);
    rp_comm_options options = RP_COMM_OPTIONS(.name = name, .progress_thread = 1);
    if (s->rank != 0 && s->rank != server) return RP_OK;
    rp_comm **place = &s->at.orders.comms[s->rank == 0 ? server : 0];
    RP_TRY(rp_comm_group_start(s->comm, ranks, 2, &options, place, &all->requests[all->count]));
    all->count++;
    return RP_OK;
}

static rp_status start_links(rp_parameter_server *s, meeting *all) {
    for (int server = 0; server < s->server_count; server++)
        for (int worker = 0; worker < s->workers; worker++)
            RP_TRY(start_link(s, server, worker, all));
    for (int server = 1; server < s->server_count && s->first_merges; server++)
        RP_TRY(start_order_link(s, server, all));
    return RP_OK;
}

static rp_status meet(rp_parameter_server *s) {
    meeting all = {0};
    size_t most = 2 * (size_t)s->server_count + (size_t)s->workers;
    RP_TRY(rpi_alloc_array(most, sizeof *all.requests, "links", &all.requests));
    rp_status status = start_links(s, &all);
    rpi_kept_error first;
    rpi_error_keep(&first);
    for (int i = 0; i < all.count; i++) {
        rp_status one = rp_request_wait(&all.requests[i]);
        if (one == RP_OK || status != RP_OK) continue;
        status = one;
        rpi_error_keep(&first);
    }
    rpi_free(all.requests);
    rpi_push_watch_links(s);
    if (status != RP_OK) rpi_error_put_back(&first);
    return status;
}

/* Servers that do nothing else tell each other who was lost. */
static rp_status join_servers(rp_parameter_server *s) {
    int *ranks = NULL, count = s->options.servers;
    if (count < 2 || s->rank >= count) return RP_OK;
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *ranks, "servers", &ranks));
    for (int i = 0; i < count; i++) ranks[i] = i;
    rp_comm_options options = RP_COMM_OPTIONS(.name = "parameter servers");
    rp_status status = rp_comm_group(s->comm, ranks, count, &options, &s->servers_comm);
    rpi_free(ranks);
    return status;
}

/* ---- life ---- */

static void take_roles(rp_parameter_server *s) {
    int servers = s->options.servers;
    s->rank = rp_comm_rank(s->comm);
    s->world = rp_comm_world(s->comm);
    s->server_count = servers ? servers : s->world;
    s->workers = s->world - servers;
    s->shares = s->options.workers ? s->options.workers : s->workers;
    s->server = s->rank < s->server_count ? s->rank : -1;
    s->worker = s->rank >= servers ? s->rank - servers : -1;
    s->first_decides = s->options.staleness > 0 && s->server_count > 1;
    s->first_merges = s->options.quorum > 0 && s->server_count > 1;
}

static rp_status copy_segments(rp_parameter_server *s, const rp_segment *segments,
                               size_t count) {
    RP_TRY(rpi_alloc_array(count, sizeof *s->segments, "segments", &s->segments));
    memcpy(s->segments, segments, count * sizeof *segments);
    s->segment_count = count;
    for (size_t i = 0; i < count; i++) s->count += segments[i].count;
    return rpi_push_cut(s);
}

/* A rank that serves and works has the worker write its push where the server reads it. */
static rp_status open_uplinks(rp_parameter_server *s) {
    if (!is_worker(s)) return RP_OK;
    RP_TRY(
        rpi_alloc_array((size_t)s->server_count, sizeof *s->uplinks, "servers", &s->uplinks));
    for (int i = 0; i < s->server_count; i++) {
        if (i == s->server)
            s->uplinks[i].payload = s->at.links[s->worker].payload;
        else
            RP_TRY(rpi_vector_alloc(s->comm, s->shards[i].payload_bytes, "a push",
                                    &s->uplinks[i].payload));
    }
    return RP_OK;
}

static rp_status prepare(rp_parameter_server *s, const rp_segment *segments, size_t count) {
    size_t world = (size_t)s->world;
    RP_TRY(rpi_alloc_array(world + 1, sizeof *s->verdict, "ranks", &s->verdict));
    RP_TRY(rpi_alloc_array(world, sizeof *s->reasons, "ranks", &s->reasons));
    RP_TRY(copy_segments(s, segments, count));
    RP_TRY(rpi_push_server_open(s));
    RP_TRY(open_uplinks(s));
    RP_TRY(meet(s));
    return join_servers(s);
}

rp_status rp_parameter_server_create(rp_comm *comm, const rp_segment *segments, size_t count,
                                     const rp_parameter_server_options *options,
                                     rp_parameter_server **server) {
    RPI_FPENV_SCOPE;
    rp_parameter_server *s = NULL;
    rp_parameter_server_options own;
    if (!comm || !server)
        return RP_FAIL(INVALID, "parameter server: needs a communicator and a place");
    RP_TRY(read_options(options, rp_comm_world(comm), &own));
    if (!own.merge)
        return RP_FAIL(INVALID, "parameter server: merge is NULL; who steps the shards?");
    RP_TRY(check_segments(segments, count));
    RP_TRY(rpi_alloc(sizeof *s, "a parameter server", &s));
    s->comm = comm;
    s->options = own;
    s->waits.answer = -1;
    pthread_mutex_init(&s->handover.lock, NULL);
    pthread_cond_init(&s->handover.changed, NULL);
    take_roles(s);
    rp_status status = prepare(s, segments, count);
    if (status == RP_OK)
        *server = s;
    else
        rp_parameter_server_destroy(s);
    return status;
}

static void destroy_comms(rp_parameter_server *s) {
    for (int i = 0; i < s->server_count; i++) rp_comm_destroy(rpi_push_order_link(s, i));
    for (int i = 0; i < s->server_count && s->uplinks; i++) rp_comm_destroy(s->uplinks[i].comm);
    for (int w = 0; w < s->workers && s->at.links; w++) rp_comm_destroy(s->at.links[w].comm);
    for (int i = 0; i < s->earlier_count; i++) rp_comm_destroy(s->earlier[i]);
    rp_comm_destroy(s->alive);
    rp_comm_destroy(s->servers_comm);
}

void rp_parameter_server_destroy(rp_parameter_server *s) {
    if (!s) return;
    rpi_kept_error why;
    rpi_error_keep(&why);
    if (s->has_begun)
        rp_parameter_server_abort(s, RP_CANCELLED, "it has destroyed its parameter server");
    (void)rpi_push_serve_join(s);
    destroy_comms(s);
    for (int i = 0; i < s->server_count && s->uplinks; i++)
        if (i != s->server) rpi_vector_free(s->uplinks[i].payload);
    rpi_free(s->uplinks);
    rpi_push_server_close(s);
    rpi_free(s->segments);
    rpi_free(s->parts);
    rpi_free(s->shards);
    rpi_free(s->verdict);
    rpi_free(s->reasons);
    rpi_free(s->earlier);
    pthread_cond_destroy(&s->handover.changed);
    pthread_mutex_destroy(&s->handover.lock);
    rpi_free(s);
    rpi_error_put_back(&why);
}

/* ---- accounts ---- */

static bool is_null(const rp_parameter_server *s) {
    if (!s) (void)RP_FAIL(INVALID, "server is NULL");
    return !s;
}

int rp_parameter_server_workers(const rp_parameter_server *s) {
    return is_null(s) ? 0 : s->shares;
}

void rp_parameter_server_name(rp_parameter_server *s, const int *names) {
    if (!is_null(s)) s->names = names;
}

int rp_parameter_server_worker(const rp_parameter_server *s) {
    return is_null(s) ? -1 : s->worker;
}

rp_comm *rp_parameter_server_comm(rp_parameter_server *s) {
    if (is_null(s)) return NULL;
    return s->alive ? s->alive : s->comm;
}

void rp_parameter_server_get_stats(const rp_parameter_server *s, rp_comm_stats *stats) {
    rp_comm_stats sum = {0};
    if (is_null(s)) return;
    if (!stats) {
        (void)RP_FAIL(INVALID, "stats is NULL");
        return;
    }
    for (int i = 0; i < s->server_count && s->uplinks; i++)
        rpi_add_comm_stats(s->uplinks[i].comm, &sum);
    for (int w = 0; w < s->workers && s->at.links; w++)
        rpi_add_comm_stats(s->at.links[w].comm, &sum);
    for (int i = 0; i < s->server_count; i++)
        rpi_add_comm_stats(rpi_push_order_link(s, i), &sum);
    sum.busy_s = 0; /* links are busy at the same time */
    *stats = sum;
}

const char *rp_parameter_server_lost(const rp_parameter_server *s, int rank) {
    if (is_null(s)) return NULL;
    if (rank < 0 || rank >= s->world) {
        (void)RP_FAIL(INVALID, "rank is %d in a world of %d", rank, s->world);
        return NULL;
    }
    if (s->verdict[rank] == 0) return NULL;
    return s->reasons[rank][0] ? s->reasons[rank] : "it is gone";
}

void rp_parameter_server_stop(rp_parameter_server *s) {
    if (!is_null(s)) atomic_store(&s->at.stops, true);
}
