/* How the ranks of a world connect: links, their costs, then the control connection, which is
 * open only when all have come this far. */
#include "comm/protocol/operation_kinds.h"
#include "comm/world/create.h"
#include "comm/world/link_costs.h"

#include "base/log.h"
#include "base/status.h"
#include "net/shaped/link_shape.h"
#include "net/socket/addresses.h"
#include "net/store/bootstrap.h"
#include "net/trust/secret.h"
#include "net/world/view_world.h"

#include <stdlib.h>

/* How links are made: of the process's environment, the same on all ranks. */
typedef struct link_settings {
    rpi_mesh_when when;
    int streams;
} link_settings;

/* Members of a view may end normally; the launcher reports the ends of others. */
static rp_status look_for_ends(void *context) {
    rpi_bootstrap_place *place = context;
    if (place->world) return rpi_world_look(place->world);
    return rpi_launch_watch_look(&place->watch);
}

/* After the links: a rank that has died since may have been replaced. */
static rp_status look_for_losses(void *context) {
    rpi_bootstrap_place *place = context;
    RP_TRY(look_for_ends(place));
    int rank = rpi_bootstrap_replaced(place->store, place->prefix);
    if (rank < 0) return RP_OK;
    return RP_FAIL(PEER,
                   "rank %d died while the ranks were connecting (connection closed by peer), "
                   "and they cannot go on without it; start the job again",
                   rank);
}

static rp_status connect_mesh(rp_comm *comm, rpi_bootstrap_place *place,
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
                             .timeout_s =
                                 rpi_time_or(options->connect_timeout_s, RPI_CONNECT_S),
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

/* Once in a process, by the rank to which the others connect. Ranks that are threads do not
 * listen, and a listener on the loopback is not visible from other hosts. */
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
static rp_status agree_on_links(rp_comm *comm, rpi_bootstrap_place *place, const char *key,
                                double timeout_s) {
    rpi_context *context = comm->context;
    rpi_look look = {.ask = look_for_losses, .context = place};
    return rpi_link_costs_agree(place->store, key, comm->rank, timeout_s, &look,
                                getenv(RPI_LINK_COSTS_VARIABLE), &context->memory,
                                &context->links);
}

static rp_status find_link_settings(link_settings *out_settings) {
    rp_status status = rpi_mesh_when_parse(getenv("REDPOLL_CONNECT"), &out_settings->when);
    if (status != RP_OK) return rpi_fail_context(status, "REDPOLL_CONNECT: ");
    return rpi_streams_find(&out_settings->streams);
}

void rpi_bootstrap_name(const char *name, uint32_t epoch, char *text, size_t bytes) {
    snprintf(text, bytes, "%s/%u", name, epoch);
}

static rp_status open_control(rp_comm *comm, rpi_bootstrap_place *place,
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

static rp_status connect_by(rp_comm *comm, rpi_bootstrap_place *place,
                            const rp_comm_options *options, const rpi_secret *secret,
                            const link_settings *how) {
    char links_key[300];
    const rp_store *store = place->store;
    double connect_s = rpi_time_or(options->connect_timeout_s, RPI_CONNECT_S);
    RP_TRY(connect_mesh(comm, place, options, secret, how));
    say_whether_open(comm->context->mesh, options->bind_host, secret);
    snprintf(links_key, sizeof links_key, "%s/links/%016llx", place->prefix,
             (unsigned long long)comm->context->mesh->session);
    RP_TRY(agree_on_links(comm, place, links_key, connect_s));
    RP_TRY(open_control(comm, place, options, secret, connect_s));
    return comm->rank ? RP_OK : store->ops->remove(store->context, links_key);
}

static rp_status connect_with(rp_comm *comm, rpi_bootstrap_place *place,
                              const rp_comm_options *options, rpi_secret *secret) {
    rpi_cost_model links;
    link_settings how = {.when = RPI_MESH_AUTO};
    rpi_bootstrap_name(comm->name, comm->epoch, place->prefix, sizeof place->prefix);
    rp_status status = rpi_comm_options_check(options, comm->world);
    if (status == RP_OK) status = rpi_secret_find_own(secret);
    if (status == RP_OK && options->tls) status = rpi_secret_ask_for_tls(secret);
    if (status == RP_OK) status = rpi_link_costs_parse(getenv(RPI_LINK_COSTS_VARIABLE), &links);
    if (status == RP_OK) status = find_link_settings(&how);
    if (status != RP_OK)
        return rpi_bootstrap_decline(place->store, comm->rank, comm->world, place->prefix,
                                     rpi_time_or(options->connect_timeout_s, RPI_CONNECT_S),
                                     status);
    if (!place->world)
        rpi_launch_watch_open(comm->rank, comm->world, place->launchers, options->tls,
                              &place->watch);
    status = connect_by(comm, place, options, secret, &how);
    rpi_launch_watch_close(&place->watch);
    return status;
}

rp_status rpi_comm_connect_world(rp_comm *comm, rpi_bootstrap_place *place,
                                 const rp_comm_options *options) {
    rpi_secret secret = {0};
    rp_status status = connect_with(comm, place, options, &secret);
    rpi_secret_wipe(&secret);
    return status;
}
