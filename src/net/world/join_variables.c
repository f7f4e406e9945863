#include "net/world/join_variables.h"

#include "base/variables.h"
#include "net/socket/addresses.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *rpi_join_variable(const rpi_environment *environment, const char *name) {
    const char *text = environment->get(environment->context, name);
    return text && *text && !rpi_variable_is_of_service(name, text) ? text : NULL;
}

/* Why a variable of the environment does not count. */
static const char *service_text(const rpi_environment *environment, const char *name,
                                char *text, size_t bytes) {
    const char *value = environment->get(environment->context, name);
    text[0] = '\0';
    if (value && rpi_variable_is_of_service(name, value))
        snprintf(text, bytes,
                 " (what it holds, '%.60s', Kubernetes sets for a Service of that name)",
                 value);
    return text;
}

bool rpi_join_is_set(const rpi_environment *environment, const char *name) {
    return rpi_join_variable(environment, name) != NULL;
}

rp_status rpi_join_parse_number(const char *name, const char *text, int64_t *out_value) {
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*end || end == text || errno)
        return RP_FAIL(INVALID, "environment variable %s is '%s', which is not a number", name,
                       text);
    *out_value = value;
    return RP_OK;
}

rp_status rpi_join_number(const rpi_environment *environment, const char *launcher,
                          const char *name, int least, int *out_value) {
    const char *text = rpi_join_variable(environment, name);
    int64_t value = 0;
    char service[160];
    if (!text)
        return RP_FAIL(
            INVALID,
            "the environment looks like %s, but variable %s is not set%s; set it, or "
            "unset the others to run alone",
            launcher, name, service_text(environment, name, service, sizeof service));
    RP_TRY(rpi_join_parse_number(name, text, &value));
    if (value > INT_MAX)
        return RP_FAIL(INVALID, "environment variable %s is %s; at most %d is allowed", name,
                       text, INT_MAX);
    if (value < least)
        return RP_FAIL(INVALID, "environment variable %s is %s; at least %d is allowed", name,
                       text, least);
    *out_value = (int)value;
    return RP_OK;
}

static rp_status check_range(const char *rank_name, int rank, const char *world_name,
                             int world) {
    if (rank < world) return RP_OK;
    return RP_FAIL(INVALID,
                   "environment variables %s=%d and %s=%d contradict each other: "
                   "ranks are 0 to %d",
                   rank_name, rank, world_name, world, world - 1);
}

rp_status rpi_join_read_ranks(const rpi_environment *environment, const rpi_join_names *n,
                              rpi_world_info *info) {
    snprintf(info->found_by, sizeof info->found_by, "%s", n->launcher);
    RP_TRY(rpi_join_number(environment, n->launcher, n->rank, 0, &info->rank));
    RP_TRY(rpi_join_number(environment, n->launcher, n->world, 1, &info->world));
    RP_TRY(check_range(n->rank, info->rank, n->world, info->world));
    info->local_rank = info->rank;
    info->local_world = info->world;
    bool has_rank = rpi_join_is_set(environment, n->local_rank);
    bool has_world = rpi_join_is_set(environment, n->local_world);
    if (!has_rank && !has_world) return RP_OK;
    RP_TRY(rpi_join_number(environment, n->launcher, n->local_rank, 0, &info->local_rank));
    RP_TRY(rpi_join_number(environment, n->launcher, n->local_world, 1, &info->local_world));
    info->one_host = info->local_world == info->world;
    return check_range(n->local_rank, info->local_rank, n->local_world, info->local_world);
}

rp_status rpi_join_set_host(rpi_world_info *info, const char *name, const char *host,
                            size_t length) {
    if (length >= sizeof info->host)
        return RP_FAIL(INVALID, "environment variable %s: '%.40s...' is no host's name", name,
                       host);
    memcpy(info->host, host, length);
    info->host[length] = '\0';
    rpi_host_unwrap(info->host);
    rp_status status = rpi_host_check(info->host);
    if (status != RP_OK) return rpi_fail_context(status, "environment variable %s: ", name);
    if (strcmp(info->host, "127.0.0.1") == 0 || strcmp(info->host, "localhost") == 0)
        info->one_host = true;
    return RP_OK;
}

rp_status rpi_join_read_port(const rpi_environment *environment, const char *launcher,
                             const char *name, rpi_world_info *info) {
    RP_TRY(rpi_join_number(environment, launcher, name, 1, &info->port));
    if (info->port <= 65535) return RP_OK;
    return RP_FAIL(INVALID, "environment variable %s is %d; ports are 1 to 65535", name,
                   info->port);
}
