#include "net/world/join.h"

#include "base/append.h"
#include "base/log.h"
#include "base/memory.h"
#include "net/socket/addresses.h"
#include "net/socket/interfaces.h"
#include "net/socket/stream.h"
#include "net/store/response_timeout.h"
#include "net/store/store_close_after_fork.h"
#include "net/store/store_tcp.h"
#include "net/store/store_torch.h"
#include "net/trust/secret.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEAVE_S   1.0
#define JOB_KEY   "redpoll/job"
#define LEFT_KEY  "redpoll/left"
#define EMPTY_KEY "redpoll/all-left"

/* ---- which of our addresses faces the others ---- */

/* The source address the kernel would use towards host:port; nothing is sent. */
static bool facing_address(const char *host, int port, char *text, size_t bytes) {
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *list = NULL;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(host, service, &hints, &list) != 0) return false;
    bool found = false;
    for (const struct addrinfo *at = list; at && !found; at = at->ai_next) {
        int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        found = fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0 &&
                rpi_stream_local_host(fd, text, bytes) == RP_OK;
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(list);
    return found;
}

/* Where links listen: the address from which the store's host is reached, or that of
 * REDPOLL_SOCKET_IFNAME. A host's own name often resolves to its loopback: then the first
 * interface that is not. */
static rp_status choose_bind_host(rpi_join *join) {
    const rpi_world_info *info = &join->info;
    const char *filter = getenv("REDPOLL_SOCKET_IFNAME");
    char facing[RPI_HOST_BYTES] = "";
    bool filters = filter && *filter;
    if (info->one_host) return RP_OK;
    if (!facing_address(info->host, info->port, facing, sizeof facing) ||
        rpi_is_loopback(facing))
        facing[0] = '\0';
    if (!filters && *facing)
        snprintf(join->address, sizeof join->address, "%s", facing);
    else
        RP_TRY(rpi_interfaces_text(filter, facing, join->address, sizeof join->address));
    if (!filters) join->address[strcspn(join->address, ",")] = '\0';
    if (!*join->address) return RP_OK;
    join->bind_host = join->address;
    rpi_log(RP_LOG_INFO, "rank %d listens at %s", info->rank, join->address);
    return RP_OK;
}

/* ---- stores ---- */

static bool is_own_address(const struct addrinfo *at) {
    int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool own = fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0;
    if (fd >= 0) close(fd);
    return own;
}

/* Where rank 0's store listens, and where rank 0 itself calls it; NULL: on all interfaces. If
 * the name of its host resolves to one address here, the others use that one. If it resolves to
 * a loopback or several addresses here, it may resolve to something else on other hosts, so
 * nothing is known. */
static const char *store_address(const rpi_world_info *info, char *text, size_t bytes) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    if (info->one_host) return "127.0.0.1";
    if (getaddrinfo(info->host, NULL, &hints, &list) != 0) return NULL;
    bool known = !list->ai_next &&
                 getnameinfo(list->ai_addr, list->ai_addrlen, text, (socklen_t)bytes, NULL, 0,
                             NI_NUMERICHOST) == 0 &&
                 !rpi_is_loopback(text) && is_own_address(list);
    freeaddrinfo(list);
    return known ? text : NULL;
}

/* The first address of MASTER_ADDR belongs to no interface here, or to one that the filter
 * excludes, or it has none here. This is logged, since others may still be able to reach this
 * host by it (NAT, a Kubernetes Service). */
static void name_address(const rpi_world_info *info) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int error = info->one_host ? 0 : getaddrinfo(info->host, NULL, &hints, &list);
    char own[RPI_HOST_BYTES] = "";
    rpi_interface at = {.name = ""};
    bool is_own = false, known = false;
    if (error)
        rpi_log(RP_LOG_WARNING,
                "rank 0 is to be found at MASTER_ADDR %s, and this host knows no such host "
                "(%s): unless the others do, they will not find rank 0",
                info->host, gai_strerror(error));
    if (info->one_host || error) return;
    for (const struct addrinfo *one = list; one; one = one->ai_next) {
        rpi_interface_at(one->ai_addr, one->ai_addrlen, &at);
        bool is_loopback = rpi_is_loopback(at.address); /* the others know it as another one */
        is_own |= is_loopback || (at.name[0] && !rpi_interface_is_inside(at.name));
        known |= at.name[0] != 0;
    }
    freeaddrinfo(list);
    if (is_own || rpi_interfaces_text(NULL, "", own, sizeof own) != RP_OK) return;
    if (!known)
        rpi_log(RP_LOG_WARNING,
                "rank 0 is to be found at MASTER_ADDR %s, which is no address of this host "
                "(%s): unless it leads here, as a Kubernetes Service does, the others will not "
                "find rank 0",
                info->host, own);
    else
        rpi_log(RP_LOG_WARNING,
                "rank 0 is to be found at MASTER_ADDR %s, the address of %s, which containers "
                "of this host reach and other hosts do not: they need another one of %s",
                info->host, at.name, own);
}

static rp_status find_secret(const rpi_world_info *info, rpi_secret *out_secret) {
    RP_TRY(rpi_secret_find_own(out_secret));
    return info->tls ? rpi_secret_ask_for_tls(out_secret) : RP_OK;
}

static rp_status serve(rpi_join *join, const char *address, const rpi_secret *secret) {
    const rpi_world_info *info = &join->info;
    const char *everywhere = strchr(info->host, ':') ? "::" : "0.0.0.0";
    rp_status status = rpi_store_serve(address ? address : everywhere, info->port, secret,
                                       &join->server, NULL);
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status, "rank 0 cannot serve the store (REDPOLL_PORT sets another "
                                    "port, on all ranks): ");
}

/* A port that is derived from a job's name may be another job's: check whose store this is. */
static rp_status check_owner(rpi_join *join, double timeout_s) {
    const rpi_world_info *info = &join->info;
    rp_store *store = &join->store;
    char owner[sizeof info->job] = "";
    size_t bytes = 0;
    if (!info->port_is_derived) return RP_OK;
    if (join->server)
        return store->ops->set(store->context, JOB_KEY, info->job, strlen(info->job));
    RP_TRY(
        store->ops->get(store->context, JOB_KEY, timeout_s, owner, sizeof owner - 1, &bytes));
    if (strcmp(owner, info->job) == 0) return RP_OK;
    return RP_FAIL(MISMATCH,
                   "the store at %s:%d is that of another job (%s); REDPOLL_PORT sets "
                   "another port, on all ranks",
                   info->host, info->port, owner);
}

static rp_status reach_store(rpi_join *join, double timeout_s, const rpi_secret *secret) {
    const rpi_world_info *info = &join->info;
    const char *host = info->host, *address = NULL;
    char text[RPI_HOST_BYTES];
    switch (info->store) {
    case RPI_STORE_NONE: return RP_OK;
    case RPI_STORE_TORCH:
        return rpi_store_connect_torch(host, info->port, info->job, timeout_s, &join->store);
    case RPI_STORE_RANK_0:
        if (info->rank == 0) {
            name_address(info);
            address = store_address(info, text, sizeof text);
            RP_TRY(serve(join, address, secret));
            host = address ? address : "127.0.0.1";
        } else if (info->one_host) {
            host = "127.0.0.1";
        }
        break;
    case RPI_STORE_CLIENT: break;
    }
    rp_status status = rpi_store_connect(host, info->port, timeout_s, secret, &join->store);
    if (status != RP_OK)
        status = rpi_fail_context(status, "cannot reach the %s: ",
                                  info->store == RPI_STORE_RANK_0 ? "store of rank 0"
                                                                  : "launcher's store");
    if (status == RP_MISMATCH && info->port_is_derived)
        return rpi_fail_context(status,
                                "if the store at port %d is another job's, REDPOLL_PORT sets "
                                "another port, on all ranks: ",
                                info->port);
    return status == RP_OK ? check_owner(join, timeout_s) : status;
}

static rp_status open_store(rpi_join *join, double timeout_s) {
    rpi_secret secret = {0};
    if (join->info.store != RPI_STORE_NONE) RP_TRY(find_secret(&join->info, &secret));
    rp_status status = reach_store(join, timeout_s, &secret);
    rpi_secret_wipe(&secret);
    return status;
}

rp_status rpi_join_open(const rpi_world_info *info, double timeout_s, rpi_join **out_join) {
    rpi_join *join = NULL;
    RP_TRY(rpi_alloc(sizeof *join, "this rank's world", &join));
    join->info = *info;
    rp_status status = open_store(join, timeout_s);
    if (status == RP_OK) status = choose_bind_host(join);
    if (status != RP_OK) {
        rp_store_close(&join->store);
        rp_store_server_stop(join->server);
        rpi_free(join);
        return status;
    }
    *out_join = join;
    return RP_OK;
}

/* The server leaves last, so that no rank that is still leaving loses its store. */
static void take_leave(rpi_join *join) {
    rp_store *store = &join->store;
    int64_t left = 0;
    size_t bytes = 0;
    if (join->info.store != RPI_STORE_RANK_0) return;
    rpi_store_set_response_timeout_tcp(store, LEAVE_S);
    if (join->server) {
        (void)store->ops->get(store->context, EMPTY_KEY, LEAVE_S, NULL, 0, &bytes);
        return;
    }
    if (store->ops->add(store->context, LEFT_KEY, 1, &left) != RP_OK) return;
    if (left == join->info.world - 1) (void)store->ops->set(store->context, EMPTY_KEY, "", 0);
}

static void shut(rpi_join *join, bool in_peace) {
    if (!join) return;
    rpi_kept_error reason;
    rpi_error_keep(&reason);
    if (in_peace) take_leave(join);
    rp_store_close(&join->store);
    rp_store_server_stop(join->server);
    rpi_free(join);
    rpi_error_put_back(&reason);
}

void rpi_join_close(rpi_join *join) {
    shut(join, true);
}

void rpi_join_abandon(rpi_join *join) {
    shut(join, false);
}

void rpi_join_close_after_fork(rpi_join *join) {
    rpi_store_close_after_fork_tcp(&join->store);
    rpi_store_close_after_fork_torch(&join->store);
    rpi_store_server_close_after_fork(join->server);
}
