#include "net/world/mesh_work.h"

#include "base/append.h"
#include "base/memory.h"
#include "net/bytes/descriptor_limit.h"
#include "net/shaped/host_nic.h"
#include "net/socket/addresses.h"

#include <stdio.h>
#include <string.h>

/* Descriptors that are open for a moment while links are made, and events of the control
 * connection. */
enum { OTHER_DESCRIPTORS = 12 };

/* ---- endpoints ---- */

static rp_status find_transports(rpi_mesh_work *work) {
    if (rpi_mesh_is_shaped(work->options)) RP_TRY(rpi_transport_find("shaped", &work->outer));
    return rpi_transport_choose(work->options->transport, &work->asked);
}

/* A listener on the loopback cannot be reached from another host. */
static rp_status check_bind_host(const rpi_mesh_work *work, int peer) {
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

/* The first of the catalogue that reaches the peer, or the requested one. */
static rp_status choose(const rpi_mesh_work *work, int peer, const rpi_transport **out_choice) {
    const rpi_mesh *mesh = work->mesh;
    const rpi_peer_info *self = &mesh->peers[mesh->rank], *other = &mesh->peers[peer];
    const rpi_transport *transport = work->asked;
    RP_TRY(check_bind_host(work, peer));
    for (int i = 0; !work->asked && (transport = rpi_transport_at(i)) != NULL; i++)
        if (transport->reaches(self, other)) break;
    if (!transport || !transport->reaches(self, other))
        return RP_FAIL(UNSUPPORTED, "transport '%s' does not reach from rank %d to rank %d%s",
                       rpi_mesh_requested(work->options), mesh->rank, peer,
                       work->asked ? "; 'auto' finds one that does" : "");
    if (work->outer && !work->outer->reaches(self, other))
        return RP_FAIL(UNSUPPORTED,
                       "ranks %d and %d are on two machines: links are shaped inside one only",
                       mesh->rank, peer);
    *out_choice = transport;
    return RP_OK;
}

/* Links inside a named host are not wrapped. */
static bool is_wrapped(const rpi_mesh_work *work, int peer) {
    const rpi_mesh *mesh = work->mesh;
    bool inside =
        mesh->peers[mesh->rank].named[0] && mesh->host_of[peer] == mesh->host_of[mesh->rank];
    return work->outer && !inside;
}

/* Failures in the bootstrap also end a wait for a link. */
static rp_status look_around(void *context) {
    rpi_mesh_work *work = context;
    rp_status status = rpi_bootstrap_look(&work->bootstrap);
    work->has_told = status != RP_OK;
    if (work->has_told) rpi_error_keep(&work->told);
    return status;
}

/* Open an endpoint on one more transport. */
static rp_status open_endpoint(rpi_mesh_work *work, const rpi_transport *transport,
                               bool wrapped) {
    rpi_mesh *mesh = work->mesh;
    rpi_endpoint_options options = {.rank = mesh->rank,
                                    .world = mesh->world,
                                    .session = mesh->session,
                                    .secret = work->options->secret,
                                    .bind_host = work->options->bind_host,
                                    .frame_bytes = work->options->frame_bytes,
                                    .streams = rpi_mesh_streams(work->options),
                                    .on_need = mesh->on_need,
                                    .look = {.ask = look_around, .context = work},
                                    .zero_copy = work->options->zero_copy && !wrapped};
    if (work->kind_count == RPI_MESH_KINDS)
        return RP_FAIL(INTERNAL, "more than %d transports in one mesh", RPI_MESH_KINDS);
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
    snprintf(work->names[kind], RPI_MESH_NAME_BYTES, "%s%s", wrapped ? "shaped." : "",
             transport->name);
    return RP_OK;
}

/* Ranks of a named host share its interface: the first one makes it. */
static rp_status share_nic(rpi_mesh_work *work) {
    rpi_mesh *mesh = work->mesh;
    char address[RPI_BOOTSTRAP_BYTES];
    int first = 0;
    if (!work->outer || !mesh->peers[mesh->rank].named[0]) return RP_OK;
    while (mesh->host_of[first] != mesh->host_of[mesh->rank]) first++;
    if (first == mesh->rank) {
        RP_TRY(rpi_host_nic_make(&work->options->shape, work->options->frame_bytes, &mesh->nic,
                                 address, sizeof address));
        return rpi_bootstrap_show(&work->bootstrap, "nic", address);
    }
    RP_TRY(rpi_bootstrap_read(&work->bootstrap, "nic", first, address, sizeof address));
    return rpi_host_nic_join(address, &mesh->nic);
}

static rp_status open_endpoints(rpi_mesh_work *work) {
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

/* For links that are certain to be made, and for the control connection that follows. */
static rp_status check_descriptors(const rpi_mesh_work *work) {
    const rpi_mesh *mesh = work->mesh;
    long needed = OTHER_DESCRIPTORS + (mesh->rank == 0 ? mesh->world - 1 : 1);
    if (mesh->on_need) return rpi_descriptors_check(mesh->rank, mesh->world, needed);
    for (int peer = 0; peer < mesh->world; peer++) {
        if (peer == mesh->rank) continue;
        const rpi_transport *kind = work->kinds[mesh->kind_of[peer]];
        needed +=
            kind->link_descriptors * (kind->multistream ? rpi_mesh_streams(work->options) : 1);
    }
    return rpi_descriptors_check(mesh->rank, mesh->world, needed);
}

/* All of them in one key, so that one page has those of many ranks. */
static rp_status show_addresses(rpi_mesh_work *work) {
    char text[RPI_BOOTSTRAP_BYTES] = "", address[RPI_BOOTSTRAP_BYTES];
    for (int kind = 0; kind < work->kind_count; kind++) {
        rpi_endpoint *endpoint = work->mesh->endpoints[kind];
        RP_TRY(endpoint->transport->address(endpoint, address, sizeof address));
        if (strlen(text) + strlen(address) + RPI_MESH_NAME_BYTES + 2 > sizeof text)
            return RP_FAIL(INVALID, "the addresses of rank %d are too long", work->mesh->rank);
        rpi_append(text, sizeof text, "%s=%s\n", work->names[kind], address);
    }
    return rpi_bootstrap_show(&work->bootstrap, "addresses", text);
}

static rp_status take_addresses(void *context, int peer, const char *text) {
    rpi_mesh_work *work = context;
    return rpi_strdup(text, &work->mesh->addresses[peer]);
}

static rp_status exchange_addresses(rpi_mesh_work *work) {
    if (work->mesh->world == 1) return RP_OK;
    RP_TRY(show_addresses(work));
    return rpi_bootstrap_read_all(&work->bootstrap, "addresses", take_addresses, work);
}

static rp_status allocate(rpi_mesh_work *work) {
    rpi_mesh *mesh = work->mesh;
    size_t world = (size_t)mesh->world;
    RP_TRY(rpi_alloc_array(world, sizeof *mesh->peers, "peers", &mesh->peers));
    RP_TRY(rpi_alloc_array(world, sizeof *mesh->host_of, "peers", &mesh->host_of));
    RP_TRY(rpi_alloc_array(world, sizeof *mesh->links, "links", &mesh->links));
    RP_TRY(rpi_alloc_array(world, sizeof *mesh->addresses, "links", &mesh->addresses));
    return rpi_alloc_array(world, sizeof *mesh->kind_of, "links", &mesh->kind_of);
}

static rp_status bring_up(rpi_mesh_work *work) {
    RP_TRY(allocate(work));
    RP_TRY(find_transports(work));
    RP_TRY(rpi_mesh_exchange_info(work));
    rpi_bootstrap_go_on(&work->bootstrap);
    RP_TRY(share_nic(work));
    RP_TRY(open_endpoints(work));
    RP_TRY(check_descriptors(work));
    RP_TRY(exchange_addresses(work));
    RP_TRY(work->mesh->on_need ? rpi_mesh_keep_addresses(work) : rpi_mesh_connect_all(work));
    const char *subjects[] = {"info", "addresses", work->mesh->nic ? "nic" : NULL, NULL};
    RP_TRY(rpi_bootstrap_leave(&work->bootstrap, subjects));
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
    rpi_mesh_work work = {.mesh = mesh, .options = options};
    rp_status status = rpi_bootstrap_arrive(&work.bootstrap, store, rank, world,
                                            options->prefix, options->timeout_s);
    work.bootstrap.look = options->look;
    if (status == RP_OK) {
        status = bring_up(&work);
        if (status != RP_OK) status = rpi_bootstrap_give_up(&work.bootstrap, status);
    }
    if (status != RP_OK) {
        rpi_mesh_close(mesh);
        return status;
    }
    *out_mesh = mesh;
    return RP_OK;
}
