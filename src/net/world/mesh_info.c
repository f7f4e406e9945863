#include "net/bytes/endian.h"
#include "net/bytes/random_bytes.h"
#include "net/trust/secret.h"
#include "net/world/mesh_work.h"
#include "redpoll/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESH_VERSION = 5, SECRET_MARK_BYTES = 20 };

static const char *when_text(const rpi_mesh_work *work) {
    return work->mesh->on_need ? "need" : "start";
}

static bool uses_tls(const rpi_mesh_options *options) {
    return options->secret && options->secret->tls;
}

/* What a rank publishes about its secret: "none", or a value that only a rank with the same
 * secret can compute, so that all ranks can compare before they call. */
static rp_status mark_secret(const rpi_mesh_work *work, int rank,
                             char mark[SECRET_MARK_BYTES]) {
    const rpi_secret *secret = work->options->secret;
    unsigned char mac[RPI_MAC_BYTES];
    char text[64];
    snprintf(mark, SECRET_MARK_BYTES, "none");
    if (!secret || !secret->is_set) return RP_OK;
    snprintf(text, sizeof text, "redpoll: info of %d: %" PRIx64, rank,
             work->mesh->peers[rank].process);
    RP_TRY(rpi_secret_sign(secret, text, strlen(text), mac));
    snprintf(mark, SECRET_MARK_BYTES, "%016" PRIx64, rpi_get_u64(mac));
    return RP_OK;
}

static rp_status show_info(rpi_mesh_work *work) {
    const rpi_mesh *mesh = work->mesh;
    const rpi_peer_info *self = &mesh->peers[mesh->rank];
    char text[RPI_BOOTSTRAP_BYTES], secret[SECRET_MARK_BYTES];
    RP_TRY(mark_secret(work, mesh->rank, secret));
    snprintf(
        text, sizeof text,
        "version=%d\nworld=%d\ntransport=%s\nconnect=%s\nshaped=%d\nframe=%zu\nstreams=%d\n"
        "secret=%s\ntls=%d\nsession="
        "%" PRIx64 "\nhost=%s\nnamed=%s\nmachine=%s\npid=%" PRId64 "\nprocess=%" PRIx64
        "\nredpoll=%s\n",
        MESH_VERSION, mesh->world, rpi_mesh_requested(work->options), when_text(work),
        rpi_mesh_is_shaped(work->options), work->options->frame_bytes,
        rpi_mesh_streams(work->options), secret, uses_tls(work->options), mesh->session,
        self->host, self->named, self->machine, self->pid, self->process, rp_version());
    return rpi_bootstrap_show(&work->bootstrap, "info", text);
}

const char *rpi_mesh_field(const char *text, const char *name, char *value, size_t bytes) {
    size_t length = strlen(name);
    value[0] = '\0';
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, name, length) != 0 || line[length] != '=') continue;
        const char *start = line + length + 1;
        snprintf(value, bytes, "%.*s", (int)strcspn(start, "\n"), start);
        return value;
    }
    return value;
}

static rp_status check_secret(const rpi_mesh_work *work, int peer, const char *text) {
    char theirs[SECRET_MARK_BYTES], ours[SECRET_MARK_BYTES];
    int self = work->mesh->rank;
    RP_TRY(mark_secret(work, peer, ours));
    rpi_mesh_field(text, "secret", theirs, sizeof theirs);
    if (strcmp(theirs, ours) == 0) return RP_OK;
    bool they_have_none = strcmp(theirs, "none") == 0;
    if (they_have_none || strcmp(ours, "none") == 0)
        return RP_FAIL(MISMATCH,
                       "rank %d has the job's secret and rank %d has none: set REDPOLL_SECRET "
                       "(or REDPOLL_SECRET_FILE) on all ranks, or on none",
                       they_have_none ? self : peer, they_have_none ? peer : self);
    return RP_FAIL(MISMATCH,
                   "rank %d has another secret than rank %d: REDPOLL_SECRET (or the file that "
                   "REDPOLL_SECRET_FILE names) must be the same on all ranks",
                   peer, self);
}

static rp_status check_tls(const rpi_mesh_work *work, int peer, const char *text) {
    char theirs[8];
    bool ours = uses_tls(work->options);
    int self = work->mesh->rank;
    if ((strcmp(rpi_mesh_field(text, "tls", theirs, sizeof theirs), "1") == 0) == ours)
        return RP_OK;
    return RP_FAIL(
        MISMATCH,
        "rank %d uses TLS and rank %d does not: say --tls (REDPOLL_TLS) on all ranks "
        "of the job, or on none",
        ours ? self : peer, ours ? peer : self);
}

/* If both ranks do not publish the same under `name`, both fail. */
static rp_status agree(const rpi_mesh_work *work, int peer, const char *text, const char *name,
                       const char *ours, const char *words) {
    char theirs[RPI_BOOTSTRAP_BYTES];
    if (strcmp(rpi_mesh_field(text, name, theirs, sizeof theirs), ours) == 0) return RP_OK;
    return RP_FAIL(MISMATCH, "ranks disagree on the %s: rank %d says '%s', rank %d says '%s'",
                   words, peer, theirs, work->mesh->rank, ours);
}

/* As with `redpoll run -H`: one release on all hosts. Before 0.3 ranks did not publish theirs.
 */
static rp_status check_release(const rpi_mesh_work *work, int peer, const char *text) {
    char theirs[64];
    int self = work->mesh->rank;
    if (strcmp(rpi_mesh_field(text, "redpoll", theirs, sizeof theirs), rp_version()) == 0)
        return RP_OK;
    return RP_FAIL(MISMATCH,
                   "ranks have different versions: rank %d has redpoll %s, rank %d has redpoll "
                   "%s; install the same one on all hosts",
                   peer, theirs[0] ? theirs : "0.2.0 or older", self, rp_version());
}

static rp_status check_info(const rpi_mesh_work *work, int peer, const char *text) {
    char version[16], world[16], frame[32], streams[16];
    snprintf(version, sizeof version, "%d", MESH_VERSION);
    snprintf(world, sizeof world, "%d", work->mesh->world);
    snprintf(frame, sizeof frame, "%zu", work->options->frame_bytes);
    RP_TRY(check_release(work, peer, text));
    RP_TRY(agree(work, peer, text, "version", version, "version of the protocol"));
    RP_TRY(agree(work, peer, text, "world", world, "size of the world"));
    RP_TRY(
        agree(work, peer, text, "transport", rpi_mesh_requested(work->options), "transport"));
    RP_TRY(agree(work, peer, text, "connect", when_text(work),
                 "time of connecting (REDPOLL_CONNECT)"));
    RP_TRY(agree(work, peer, text, "shaped", rpi_mesh_is_shaped(work->options) ? "1" : "0",
                 "shaping of links"));
    snprintf(streams, sizeof streams, "%d", rpi_mesh_streams(work->options));
    RP_TRY(agree(work, peer, text, "streams", streams,
                 "number of streams of a link (REDPOLL_STREAMS)"));
    return agree(work, peer, text, "frame", frame, "longest frame");
}

static rp_status take_info(void *context, int peer, const char *text) {
    rpi_mesh_work *work = context;
    rpi_peer_info *info = &work->mesh->peers[peer];
    char number[32];
    if (peer == work->mesh->rank) return RP_OK;
    RP_TRY(check_info(work, peer, text));
    rpi_mesh_field(text, "host", info->host, sizeof info->host);
    rpi_mesh_field(text, "machine", info->machine, sizeof info->machine);
    rpi_mesh_field(text, "named", info->named, sizeof info->named);
    const rpi_peer_info *self = &work->mesh->peers[work->mesh->rank];
    if (!info->named[0] != !self->named[0])
        return RP_FAIL(
            MISMATCH, "rank %d names the host it counts as being on, rank %d does not",
            info->named[0] ? peer : work->mesh->rank, info->named[0] ? work->mesh->rank : peer);
    info->pid = strtoll(rpi_mesh_field(text, "pid", number, sizeof number), NULL, 10);
    info->process = strtoull(rpi_mesh_field(text, "process", number, sizeof number), NULL, 16);
    RP_TRY(check_secret(work, peer, text));
    RP_TRY(check_tls(work, peer, text));
    if (peer == 0)
        work->mesh->session =
            strtoull(rpi_mesh_field(text, "session", number, sizeof number), NULL, 16);
    return RP_OK;
}

static bool same_host(const rpi_peer_info *a, const rpi_peer_info *b) {
    return strcmp(a->host, b->host) == 0 && strcmp(a->named, b->named) == 0;
}

static void number_hosts(rpi_mesh *mesh) {
    int hosts = 0;
    for (int rank = 0; rank < mesh->world; rank++) {
        int first = 0;
        while (!same_host(&mesh->peers[first], &mesh->peers[rank])) first++;
        mesh->host_of[rank] = first < rank ? mesh->host_of[first] : hosts++;
    }
}

rp_status rpi_mesh_exchange_info(rpi_mesh_work *work) {
    rpi_mesh *mesh = work->mesh;
    if (mesh->rank == 0)
        RP_TRY(
            rpi_random_bytes("a number for the session", &mesh->session, sizeof mesh->session));
    rpi_peer_info *self = &mesh->peers[mesh->rank];
    RP_TRY(rpi_peer_info_self(self));
    if (work->options->host)
        snprintf(self->named, sizeof self->named, "%s", work->options->host);
    RP_TRY(show_info(work));
    RP_TRY(rpi_bootstrap_read_all(&work->bootstrap, "info", take_info, work));
    number_hosts(mesh);
    return RP_OK;
}
