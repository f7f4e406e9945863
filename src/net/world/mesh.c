#include "net/world/mesh.h"

#include "base/append.h"
#include "base/memory.h"
#include "net/bytes/descriptor_limit.h"
#include "net/bytes/endian.h"
#include "net/bytes/random_bytes.h"
#include "net/shaped/host_nic.h"
#include "net/socket/addresses.h"
#include "net/store/meeting.h"
#include "net/trust/secret.h"
#include "redpoll/version.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESH_VERSION = 5, KINDS = 4, NAME_BYTES = 32, SECRET_MARK_BYTES = 20 };

/* What is open for a moment while links are made, and events of the control connection. */
enum { OTHER_DESCRIPTORS = 12 };

/* While the mesh comes up. */
typedef struct mesh_work {
    rpi_mesh *mesh;
    const rpi_mesh_options *options;
    rpi_meeting meeting;
    const rpi_transport *asked; /* by name; NULL: whichever reaches */
    const rpi_transport *outer; /* wraps the links of a mesh that has a shape; NULL: none */
    const rpi_transport *kinds[KINDS]; /* in use; mesh->endpoints[i] is of kinds[i] */
    bool wrapped[KINDS];               /* in `outer` */
    char names[KINDS][NAME_BYTES];     /* under which their addresses are shown */
    int kind_count;
    rpi_kept_error told; /* what a look has said while a link was waited for */
    bool has_told;
} mesh_work;

/* ---- info: who am I, who are you ---- */

static const char *wanted_transport(const rpi_mesh_options *options) {
    return options->transport ? options->transport : "auto";
}

static bool is_shaped(const rpi_mesh_options *options) {
    return options->shape.bytes_per_s > 0 || options->shape.latency_s > 0;
}

static const char *when_text(const mesh_work *work) {
    return work->mesh->on_need ? "need" : "start";
}

static int streams_of(const rpi_mesh_options *options) {
    return options->streams ? options->streams : 1;
}

static bool uses_tls(const rpi_mesh_options *options) {
    return options->secret && options->secret->tls;
}

/* What a rank says of its secret: "none", or something that only who has the same one
 * can compute, so that all ranks know before they dial. */
static rp_status mark_secret(const mesh_work *work, int rank, char mark[SECRET_MARK_BYTES]) {
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

static rp_status show_info(mesh_work *work) {
    const rpi_mesh *mesh = work->mesh;
    const rpi_peer_info *self = &mesh->peers[mesh->rank];
    char text[RPI_MEETING_BYTES], secret[SECRET_MARK_BYTES];
    RP_TRY(mark_secret(work, mesh->rank, secret));
    snprintf(
        text, sizeof text,
        "version=%d\nworld=%d\ntransport=%s\nconnect=%s\nshaped=%d\nframe=%zu\nstreams=%d\n"
        "secret=%s\ntls=%d\nsession="
        "%" PRIx64 "\nhost=%s\nnamed=%s\nmachine=%s\npid=%" PRId64 "\nprocess=%" PRIx64
        "\nredpoll=%s\n",
        MESH_VERSION, mesh->world, wanted_transport(work->options), when_text(work),
        is_shaped(work->options), work->options->frame_bytes, streams_of(work->options), secret,
        uses_tls(work->options), mesh->session, self->host, self->named, self->machine,
        self->pid, self->process, rp_version());
    return rpi_meeting_show(&work->meeting, "info", text);
}

/* The value behind "name=" in such a text, up to the end of its line; "" when absent. */
static const char *field(const char *text, const char *name, char *value, size_t bytes) {
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

static rp_status check_secret(const mesh_work *work, int peer, const char *text) {
    char theirs[SECRET_MARK_BYTES], wanted[SECRET_MARK_BYTES];
    int self = work->mesh->rank;
    RP_TRY(mark_secret(work, peer, wanted));
    field(text, "secret", theirs, sizeof theirs);
    if (strcmp(theirs, wanted) == 0) return RP_OK;
    bool they_have_none = strcmp(theirs, "none") == 0;
    if (they_have_none || strcmp(wanted, "none") == 0)
        return RP_FAIL(MISMATCH,
                       "rank %d has the job's secret and rank %d has none: set REDPOLL_SECRET "
                       "(or REDPOLL_SECRET_FILE) on all ranks, or on none",
                       they_have_none ? self : peer, they_have_none ? peer : self);
    return RP_FAIL(MISMATCH,
                   "rank %d has another secret than rank %d: REDPOLL_SECRET (or the file that "
                   "REDPOLL_SECRET_FILE names) must be the same on all ranks",
                   peer, self);
}

static rp_status check_tls(const mesh_work *work, int peer, const char *text) {
    char theirs[8];
    bool ours = uses_tls(work->options);
    int self = work->mesh->rank;
    if ((strcmp(field(text, "tls", theirs, sizeof theirs), "1") == 0) == ours) return RP_OK;
    return RP_FAIL(
        MISMATCH,
        "rank %d uses TLS and rank %d does not: say --tls (REDPOLL_TLS) on all ranks "
        "of the job, or on none",
        ours ? self : peer, ours ? peer : self);
}

/* Both ranks say the same about `name`, or both fail. */
static rp_status agree(const mesh_work *work, int peer, const char *text, const char *name,
                       const char *ours, const char *words) {
    char theirs[RPI_MEETING_BYTES];
    if (strcmp(field(text, name, theirs, sizeof theirs), ours) == 0) return RP_OK;
    return RP_FAIL(MISMATCH, "ranks disagree on the %s: rank %d says '%s', rank %d says '%s'",
                   words, peer, theirs, work->mesh->rank, ours);
}

/* As `redpoll run -H` has it: one release on all hosts. Before 0.3 ranks did not say theirs. */
static rp_status check_release(const mesh_work *work, int peer, const char *text) {
    char theirs[64];
    int self = work->mesh->rank;
    if (strcmp(field(text, "redpoll", theirs, sizeof theirs), rp_version()) == 0) return RP_OK;
    return RP_FAIL(MISMATCH,
                   "ranks have different versions: rank %d has redpoll %s, rank %d has redpoll "
                   "%s; install the same one on all hosts",
                   peer, theirs[0] ? theirs : "0.2.0 or older", self, rp_version());
}

static rp_status check_info(const mesh_work *work, int peer, const char *text) {
    char version[16], world[16], frame[32], streams[16];
    snprintf(version, sizeof version, "%d", MESH_VERSION);
    snprintf(world, sizeof world, "%d", work->mesh->world);
    snprintf(frame, sizeof frame, "%zu", work->options->frame_bytes);
    RP_TRY(check_release(work, peer, text));
    RP_TRY(agree(work, peer, text, "version", version, "version of the protocol"));
    RP_TRY(agree(work, peer, text, "world", world, "size of the world"));
    RP_TRY(agree(work, peer, text, "transport", wanted_transport(work->options), "transport"));
    RP_TRY(agree(work, peer, text, "connect", when_text(work),
                 "time of connecting (REDPOLL_CONNECT)"));
    RP_TRY(agree(work, peer, text, "shaped", is_shaped(work->options) ? "1" : "0",
                 "shaping of links"));
    snprintf(streams, sizeof streams, "%d", streams_of(work->options));
    RP_TRY(agree(work, peer, text, "streams", streams,
                 "number of streams of a link (REDPOLL_STREAMS)"));
    return agree(work, peer, text, "frame", frame, "longest frame");
}

static rp_status take_info(void *context, int peer, const char *text) {
    mesh_work *work = context;
    rpi_peer_info *info = &work->mesh->peers[peer];
    char number[32];
    if (peer == work->mesh->rank) return RP_OK;
    RP_TRY(check_info(work, peer, text));
    field(text, "host", info->host, sizeof info->host);
    field(text, "machine", info->machine, sizeof info->machine);
    field(text, "named", info->named, sizeof info->named);
    const rpi_peer_info *self = &work->mesh->peers[work->mesh->rank];
    if (!info->named[0] != !self->named[0])
        return RP_FAIL(
            MISMATCH, "rank %d names the host it counts as being on, rank %d does not",
            info->named[0] ? peer : work->mesh->rank, info->named[0] ? work->mesh->rank : peer);
    info->pid = strtoll(field(text, "pid", number, sizeof number), NULL, 10);
    info->process = strtoull(field(text, "process", number, sizeof number), NULL, 16);
    RP_TRY(check_secret(work, peer, text));
    RP_TRY(check_tls(work, peer, text));
    if (peer == 0)
        work->mesh->session = strtoull(field(text, "session", number, sizeof number), NULL, 16);
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

static rp_status exchange_info(mesh_work *work) {
    rpi_mesh *mesh = work->mesh;
    if (mesh->rank == 0)
        RP_TRY(
            rpi_random_bytes("a number for the session", &mesh->session, sizeof mesh->session));
    rpi_peer_info *self = &mesh->peers[mesh->rank];
    RP_TRY(rpi_peer_info_self(self));
    if (work->options->host)
        snprintf(self->named, sizeof self->named, "%s", work->options->host);
    RP_TRY(show_info(work));
    RP_TRY(rpi_meeting_read_all(&work->meeting, "info", take_info, work));
    number_hosts(mesh);
    return RP_OK;
}

/* ---- endpoints ---- */

static rp_status find_transports(mesh_work *work) {
    if (is_shaped(work->options)) RP_TRY(rpi_transport_find("shaped", &work->outer));
    return rpi_transport_choose(work->options->transport, &work->asked);
}

/* What listens on the loopback is not heard on another host. */
static rp_status check_bind_host(const mesh_work *work, int peer) {
    const rpi_mesh *mesh = work->mesh;
    const char *bind_host = work->options->bind_host;
    if (!rpi_is_loopback(bind_host) ||
        strcmp(mesh->peers[mesh->rank].host, mesh->peers[peer].host) == 0)
        return RP_OK;
    return RP_FAIL(
        INVALID,
        "rank %d listens on %s, where rank %d, which is on another host, cannot reach "
        "it: give an address of this host's network (--bind, bind_host, REDPOLL_BIND), "
        "or none where a launcher is asked",
        mesh->rank, bind_host ? bind_host : "127.0.0.1", peer);
}

/* The first of the catalogue that reaches the peer, or the one that was asked for. */
static rp_status choose(const mesh_work *work, int peer, const rpi_transport **out_choice) {
    const rpi_mesh *mesh = work->mesh;
    const rpi_peer_info *self = &mesh->peers[mesh->rank], *other = &mesh->peers[peer];
    const rpi_transport *transport = work->asked;
    RP_TRY(check_bind_host(work, peer));
    for (int i = 0; !work->asked && (transport = rpi_transport_at(i)) != NULL; i++)
        if (transport->reaches(self, other)) break;
    if (!transport || !transport->reaches(self, other))
        return RP_FAIL(UNSUPPORTED, "transport '%s' does not reach from rank %d to rank %d%s",
                       wanted_transport(work->options), mesh->rank, peer,
                       work->asked ? "; 'auto' finds one that does" : "");
    if (work->outer && !work->outer->reaches(self, other))
        return RP_FAIL(UNSUPPORTED,
                       "ranks %d and %d are on two machines: links are shaped inside one only",
                       mesh->rank, peer);
    *out_choice = transport;
    return RP_OK;
}

/* Links inside a named host are as they are. */
static bool is_wrapped(const mesh_work *work, int peer) {
    const rpi_mesh *mesh = work->mesh;
    bool inside =
        mesh->peers[mesh->rank].named[0] && mesh->host_of[peer] == mesh->host_of[mesh->rank];
    return work->outer && !inside;
}

/* What others say in the meeting is heard by who waits for a link, too. */
static rp_status look_around(void *context) {
    mesh_work *work = context;
    rp_status status = rpi_meeting_look(&work->meeting);
    work->has_told = status != RP_OK;
    if (work->has_told) rpi_error_keep(&work->told);
    return status;
}

/* Open an endpoint on one more transport. */
static rp_status open_endpoint(mesh_work *work, const rpi_transport *transport, bool wrapped) {
    rpi_mesh *mesh = work->mesh;
    rpi_endpoint_options options = {.rank = mesh->rank,
                                    .world = mesh->world,
                                    .session = mesh->session,
                                    .secret = work->options->secret,
                                    .bind_host = work->options->bind_host,
                                    .frame_bytes = work->options->frame_bytes,
                                    .streams = streams_of(work->options),
                                    .on_need = mesh->on_need,
                                    .look = {.ask = look_around, .context = work},
                                    .shares = work->options->shares && !wrapped};
    if (work->kind_count == KINDS)
        return RP_FAIL(INTERNAL, "more than %d transports in one mesh", KINDS);
    int kind = work->kind_count;
    const rpi_transport *outer = wrapped ? work->outer : transport;
    if (wrapped) {
        options.shape = work->options->shape;
        options.inner = transport;
        options.nic = mesh->nic;
    }
    RP_TRY(outer->open(&options, &mesh->endpoints[kind]));
    work->kinds[kind] = transport;
    work->wrapped[kind] = wrapped;
    work->kind_count++;
    snprintf(work->names[kind], NAME_BYTES, "%s%s", wrapped ? "shaped." : "", transport->name);
    return RP_OK;
}

/* Ranks of a named host share its interface: the first one makes it. */
static rp_status share_nic(mesh_work *work) {
    rpi_mesh *mesh = work->mesh;
    char address[RPI_MEETING_BYTES];
    int first = 0;
    if (!work->outer || !mesh->peers[mesh->rank].named[0]) return RP_OK;
    while (mesh->host_of[first] != mesh->host_of[mesh->rank]) first++;
    if (first == mesh->rank) {
        RP_TRY(rpi_host_nic_make(&work->options->shape, work->options->frame_bytes, &mesh->nic,
                                 address, sizeof address));
        return rpi_meeting_show(&work->meeting, "nic", address);
    }
    RP_TRY(rpi_meeting_read(&work->meeting, "nic", first, address, sizeof address));
    return rpi_host_nic_join(address, &mesh->nic);
}

static rp_status open_endpoints(mesh_work *work) {
    for (int peer = 0; peer < work->mesh->world; peer++) {
        const rpi_transport *transport = NULL;
        if (peer == work->mesh->rank) continue;
        RP_TRY(choose(work, peer, &transport));
        int kind = 0;
        bool wrapped = is_wrapped(work, peer);
        while (kind < work->kind_count &&
               (work->kinds[kind] != transport || work->wrapped[kind] != wrapped))
            kind++;
        if (kind == work->kind_count) RP_TRY(open_endpoint(work, transport, wrapped));
        work->mesh->kind_of[peer] = kind;
    }
    return RP_OK;
}

/* Of the links that are sure to come, and of the control connection that comes behind them. */
static rp_status check_descriptors(const mesh_work *work) {
    const rpi_mesh *mesh = work->mesh;
    long needed = OTHER_DESCRIPTORS + (mesh->rank == 0 ? mesh->world - 1 : 1);
    if (mesh->on_need) return rpi_descriptors_check(mesh->rank, mesh->world, needed);
    for (int peer = 0; peer < mesh->world; peer++) {
        if (peer == mesh->rank) continue;
        const rpi_transport *kind = work->kinds[mesh->kind_of[peer]];
        needed += kind->link_descriptors * (kind->bundles ? streams_of(work->options) : 1);
    }
    return rpi_descriptors_check(mesh->rank, mesh->world, needed);
}

/* All of them by one key, so that one page has those of many ranks. */
static rp_status show_addresses(mesh_work *work) {
    char text[RPI_MEETING_BYTES] = "", address[RPI_MEETING_BYTES];
    for (int kind = 0; kind < work->kind_count; kind++) {
        rpi_endpoint *endpoint = work->mesh->endpoints[kind];
        RP_TRY(endpoint->transport->address(endpoint, address, sizeof address));
        if (strlen(text) + strlen(address) + NAME_BYTES + 2 > sizeof text)
            return RP_FAIL(INVALID, "the addresses of rank %d are too long", work->mesh->rank);
        rpi_append(text, sizeof text, "%s=%s\n", work->names[kind], address);
    }
    return rpi_meeting_show(&work->meeting, "addresses", text);
}

static rp_status take_addresses(void *context, int peer, const char *text) {
    mesh_work *work = context;
    return rpi_strdup(text, &work->mesh->addresses[peer]);
}

static rp_status exchange_addresses(mesh_work *work) {
    if (work->mesh->world == 1) return RP_OK;
    RP_TRY(show_addresses(work));
    return rpi_meeting_read_all(&work->meeting, "addresses", take_addresses, work);
}

/* ---- links ---- */

/* `status` is TIMEOUT, and recorded. The peer may have been held up by another. */
static rp_status blame(mesh_work *work, int peer, rp_status status) {
    rpi_meeting *meeting = &work->meeting;
    rpi_meeting_pair pair;
    char reason[sizeof pair.reason];
    snprintf(reason, sizeof reason, "%s", rp_last_error()->message);
    rpi_meeting_find_pair(meeting, peer, reason, &pair);
    int low = pair.waiter < pair.late ? pair.waiter : pair.late;
    if (pair.mutual)
        return rpi_fail(
            status, __FILE__, __LINE__,
            "timed out: ranks %d and %d did not connect to each other within %g s, though both "
            "have arrived: is the network between their hosts cut, or closed by a "
            "firewall? %s",
            low, pair.waiter + pair.late - low, meeting->timeout_s, pair.reason);
    return rpi_fail(
        status, __FILE__, __LINE__,
        "timed out: rank %d waited %g s for rank %d, which has arrived and waits for nobody: "
        "is it stopped? %s",
        pair.waiter, meeting->timeout_s, pair.late, pair.reason);
}

static rp_status cannot_connect(mesh_work *work, int peer, rp_status status) {
    if (work->has_told) { /* nothing that this link is to blame for */
        rpi_error_put_back(&work->told);
        return status;
    }
    status = rpi_fail_context(status, "rank %d connecting to rank %d by %s: ", work->mesh->rank,
                              peer, work->kinds[work->mesh->kind_of[peer]]->name);
    return status == RP_TIMEOUT ? blame(work, peer, status) : status;
}

static const char *address_of(const mesh_work *work, int peer, char text[RPI_MEETING_BYTES]) {
    return field(work->mesh->addresses[peer], work->names[work->mesh->kind_of[peer]], text,
                 RPI_MEETING_BYTES);
}

/* Of all that a rank shows, the one by which it is called from here. */
static rp_status keep_addresses(mesh_work *work) {
    rpi_mesh *mesh = work->mesh;
    char text[RPI_MEETING_BYTES];
    for (int peer = 0; peer < mesh->world; peer++) {
        if (peer == mesh->rank) continue;
        char *address = NULL;
        RP_TRY(rpi_strdup(address_of(work, peer, text), &address));
        rpi_free(mesh->addresses[peer]);
        mesh->addresses[peer] = address;
    }
    return RP_OK;
}

static rp_status connect_one(mesh_work *work, int peer) {
    rpi_mesh *mesh = work->mesh;
    rpi_endpoint *endpoint = mesh->endpoints[work->mesh->kind_of[peer]];
    char address[RPI_MEETING_BYTES];
    rp_status status =
        endpoint->transport->connect(endpoint, peer, address_of(work, peer, address),
                                     work->meeting.deadline_ns, &mesh->links[peer]);
    return status == RP_OK ? RP_OK : cannot_connect(work, peer, status);
}

/* Ranks that are met together, and so many call an acceptor at once: well below RPI_CALLERS. */
enum { GROUP = 16 };

/* Begin with those of the group that are reached by this kind. */
static rp_status dial(mesh_work *work, int kind, const int *group, int count) {
    rpi_endpoint *endpoint = work->mesh->endpoints[kind];
    char texts[GROUP][RPI_MEETING_BYTES];
    const char *addresses[GROUP];
    int peers[GROUP], dialled = 0, failed = -1;
    if (!endpoint->transport->dial) return RP_OK;
    for (int i = 0; i < count; i++) {
        if (work->mesh->kind_of[group[i]] != kind) continue;
        addresses[dialled] = address_of(work, group[i], texts[dialled]);
        peers[dialled++] = group[i];
    }
    rp_status status = endpoint->transport->dial(endpoint, peers, addresses, dialled,
                                                 work->meeting.deadline_ns, &failed);
    return status == RP_OK ? RP_OK : cannot_connect(work, failed, status);
}

/* All of them are lower than this rank, or higher. Who waits for one of them to be reached by
 * one kind answers nobody who calls by another, and a call with a proof waits for its answer:
 * where there are several kinds, pairs are met one by one in the order of their rounds. */
static rp_status connect_group(mesh_work *work, const int *group, int count) {
    bool lower = count > 0 && group[0] < work->mesh->rank;
    if (lower && work->kind_count == 1) RP_TRY(dial(work, 0, group, count));
    for (int i = 0; i < count; i++) RP_TRY(connect_one(work, group[i]));
    return RP_OK;
}

/* In round r every rank meets rank ^ r: each pair once, and as all ranks take the rounds in the
 * same order, no cycle of ranks can wait for each other. Rounds r to r + n - 1, where n is a
 * power of two and r a multiple of it, are taken together: in them two blocks of n ranks meet,
 * all of one with all of the other, and those of the higher block all call. */
static rp_status connect_all(mesh_work *work) {
    const rpi_mesh *mesh = work->mesh;
    int rounds = 1, together;
    while (rounds < mesh->world) rounds *= 2;
    for (int round = 1; round < rounds; round += together) {
        int group[GROUP], count = 0;
        together = round < GROUP ? round : GROUP;
        for (int i = round; i < round + together; i++)
            if ((mesh->rank ^ i) < mesh->world) group[count++] = mesh->rank ^ i;
        RP_TRY(connect_group(work, group, count));
    }
    return RP_OK;
}

static rp_status allocate(mesh_work *work) {
    rpi_mesh *mesh = work->mesh;
    size_t world = (size_t)mesh->world;
    RP_TRY(rpi_alloc_array(world, sizeof *mesh->peers, "peers", &mesh->peers));
    RP_TRY(rpi_alloc_array(world, sizeof *mesh->host_of, "peers", &mesh->host_of));
    RP_TRY(rpi_alloc_array(world, sizeof *mesh->links, "links", &mesh->links));
    RP_TRY(rpi_alloc_array(world, sizeof *mesh->addresses, "links", &mesh->addresses));
    return rpi_alloc_array(world, sizeof *mesh->kind_of, "links", &mesh->kind_of);
}

static rp_status bring_up(mesh_work *work) {
    RP_TRY(allocate(work));
    RP_TRY(find_transports(work));
    RP_TRY(exchange_info(work));
    rpi_meeting_go_on(&work->meeting);
    RP_TRY(share_nic(work));
    RP_TRY(open_endpoints(work));
    RP_TRY(check_descriptors(work));
    RP_TRY(exchange_addresses(work));
    RP_TRY(work->mesh->on_need ? keep_addresses(work) : connect_all(work));
    const char *subjects[] = {"info", "addresses", work->mesh->nic ? "nic" : NULL, NULL};
    RP_TRY(rpi_meeting_leave(&work->meeting, subjects));
    rpi_host_nic_shut(work->mesh->nic);
    return RP_OK;
}

rp_status rpi_mesh_connect(const rp_store *store, int rank, int world,
                           const rpi_mesh_options *options, rpi_mesh **out_mesh) {
    if (world < 1 || rank < 0 || rank >= world)
        return RP_FAIL(INVALID, "rank %d of a world of %d", rank, world);
    rpi_mesh *mesh = NULL;
    RP_TRY(rpi_alloc(sizeof *mesh, "a mesh", &mesh));
    mesh->rank = rank;
    mesh->world = world;
    mesh->on_need = options->when == RPI_MESH_NEED ||
                    (options->when == RPI_MESH_AUTO && world > RPI_MESH_START_WORLD);
    mesh_work work = {.mesh = mesh, .options = options};
    rp_status status = rpi_meeting_arrive(&work.meeting, store, rank, world, options->prefix,
                                          options->timeout_s);
    work.meeting.look = options->look;
    if (status == RP_OK) {
        status = bring_up(&work);
        if (status != RP_OK) status = rpi_meeting_give_up(&work.meeting, status);
    }
    if (status != RP_OK) {
        rpi_mesh_close(mesh);
        return status;
    }
    *out_mesh = mesh;
    return RP_OK;
}

rp_status rpi_mesh_when_parse(const char *text, rpi_mesh_when *out_when) {
    static const char *const names[] = {
        [RPI_MESH_AUTO] = "auto", [RPI_MESH_START] = "start", [RPI_MESH_NEED] = "need"};
    int when = RPI_MESH_AUTO;
    while (text && when <= RPI_MESH_NEED && strcmp(text, names[when]) != 0) when++;
    if (when > RPI_MESH_NEED)
        return RP_FAIL(INVALID, "'%.40s' is no time of connecting: auto, start or need", text);
    *out_when = (rpi_mesh_when)when;
    return RP_OK;
}

rp_status rpi_mesh_call(rpi_mesh *mesh, int peer) {
    rpi_endpoint *endpoint = mesh->endpoints[mesh->kind_of[peer]];
    return endpoint->transport->call(endpoint, peer, mesh->addresses[peer]);
}

rp_status rpi_mesh_met(rpi_mesh *mesh, int *out_peer) {
    rp_status status = RP_PENDING;
    for (int i = 0; mesh->on_need && status == RP_PENDING && mesh->endpoints[i]; i++) {
        rpi_link *link = NULL;
        status = mesh->endpoints[i]->transport->met(mesh->endpoints[i], out_peer, &link);
        if (status == RP_OK) mesh->links[*out_peer] = link;
    }
    return status;
}

void rpi_mesh_close(rpi_mesh *mesh) {
    if (!mesh) return;
    for (int i = 0; mesh->endpoints[i]; i++)
        mesh->endpoints[i]->transport->close(mesh->endpoints[i]);
    rpi_host_nic_close(mesh->nic);
    for (int peer = 0; mesh->addresses && peer < mesh->world; peer++)
        rpi_free(mesh->addresses[peer]);
    rpi_free(mesh->addresses);
    rpi_free(mesh->kind_of);
    rpi_free(mesh->links);
    rpi_free(mesh->host_of);
    rpi_free(mesh->peers);
    rpi_free(mesh);
}

void rpi_mesh_forget(rpi_mesh *mesh) {
    for (int i = 0; mesh->endpoints[i]; i++)
        mesh->endpoints[i]->transport->forget(mesh->endpoints[i]);
}
