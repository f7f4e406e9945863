/* Which launcher's variables count, in order of trust. */
#include "net/world/join.h"
#include "net/world/join_schedulers.h"
#include "net/world/join_variables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rpi_join_names common_names = {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE",
                                            "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

/* REDPOLL_STORE=host:port of the store that the launcher serves. */
static rp_status find_redpoll_run(const rpi_environment *environment, rpi_world_info *info) {
    rpi_join_names ours = common_names;
    ours.launcher = "redpoll run";
    RP_TRY(rpi_join_read_ranks(environment, &ours, info));
    const char *text = rpi_join_variable(environment, "REDPOLL_STORE"),
               *colon = strrchr(text, ':');
    int64_t port = 0;
    if (!colon || colon == text)
        return RP_FAIL(INVALID, "environment variable REDPOLL_STORE is '%s', not HOST:PORT",
                       text);
    RP_TRY(rpi_join_set_host(info, "REDPOLL_STORE", text, (size_t)(colon - text)));
    RP_TRY(rpi_join_parse_number("REDPOLL_STORE", colon + 1, &port));
    if (port < 1 || port > 65535)
        return RP_FAIL(INVALID,
                       "environment variable REDPOLL_STORE is '%s'; ports are 1 to "
                       "65535",
                       text);
    info->port = (int)port;
    info->store = RPI_STORE_CLIENT;
    return RP_OK;
}

static rp_status read_master(const rpi_environment *environment, const char *launcher,
                             rpi_world_info *info) {
    const char *host = rpi_join_variable(environment, "MASTER_ADDR");
    if (!host)
        return RP_FAIL(INVALID,
                       "the environment looks like %s, but variable MASTER_ADDR is not "
                       "set; set it to the host of rank 0",
                       launcher);
    RP_TRY(rpi_join_set_host(info, "MASTER_ADDR", host, strlen(host)));
    return rpi_join_read_port(environment, launcher, "MASTER_PORT", info);
}

/* torchrun's agent serves its own store at MASTER_PORT; without one (or with REDPOLL_PORT) rank
 * 0 serves ours. */
static rp_status find_torchrun(const rpi_environment *environment, rpi_world_info *info) {
    rpi_join_names ours = common_names;
    ours.launcher = "torchrun";
    RP_TRY(rpi_join_read_ranks(environment, &ours, info));
    RP_TRY(read_master(environment, "torchrun", info));
    const char *agent = rpi_join_variable(environment, "TORCHELASTIC_USE_AGENT_STORE");
    const char *restart = rpi_join_variable(environment, "TORCHELASTIC_RESTART_COUNT");
    info->store = agent && strcmp(agent, "True") == 0 ? RPI_STORE_TORCH : RPI_STORE_RANK_0;
    if (rpi_join_is_set(environment, "REDPOLL_PORT")) {
        RP_TRY(rpi_join_read_port(environment, "torchrun", "REDPOLL_PORT", info));
        info->store = RPI_STORE_RANK_0;
    }
    /* A restarted world must not read the keys of the one that failed. */
    snprintf(info->job, sizeof info->job, "/redpoll/%.90s/%.20s",
             rpi_join_variable(environment, "TORCHELASTIC_RUN_ID"), restart ? restart : "0");
    return RP_OK;
}

static rp_status find_by_hand(const rpi_environment *environment, rpi_world_info *info) {
    RP_TRY(rpi_join_read_ranks(environment, &common_names, info));
    if (info->world == 1) return RP_OK;
    RP_TRY(read_master(environment, common_names.launcher, info));
    info->store = RPI_STORE_RANK_0;
    return RP_OK;
}

/* For a launcher that tells rank 0 where to serve. */
static rp_status find_master(const rpi_environment *environment, const char *launcher,
                             rpi_world_info *info) {
    rpi_join_names ours = common_names;
    ours.launcher = launcher;
    RP_TRY(rpi_join_read_ranks(environment, &ours, info));
    if (info->world == 1 && !rpi_join_is_set(environment, "MASTER_ADDR")) return RP_OK;
    info->store = RPI_STORE_RANK_0;
    return read_master(environment, launcher, info);
}

/* Launchers whose variables have the common names. */
typedef struct common_launcher {
    const char *mark, *or_mark, *name;
    rp_status (*find)(const rpi_environment *environment, rpi_world_info *info);
} common_launcher;

static const common_launcher common_launchers[] = {
    {"REDPOLL_STORE", "", "redpoll run", find_redpoll_run},
    {"TORCHELASTIC_RUN_ID", "", "torchrun", find_torchrun},
    {"RANK", "WORLD_SIZE", "RANK and WORLD_SIZE", find_by_hand},
};
enum { COMMON_LAUNCHERS = sizeof common_launchers / sizeof common_launchers[0] };

/* by_master: of rank 0's own store. */
static rp_status find(const rpi_environment *environment, bool by_master,
                      rpi_world_info *info) {
    bool in_step = false;
    for (int i = 0; i < COMMON_LAUNCHERS; i++) {
        const common_launcher *each = &common_launchers[i];
        if (!rpi_join_is_set(environment, each->mark) &&
            !rpi_join_is_set(environment, each->or_mark))
            continue;
        return by_master ? find_master(environment, each->name, info)
                         : each->find(environment, info);
    }
    if (rpi_join_is_set(environment, "OMPI_COMM_WORLD_RANK") ||
        rpi_join_is_set(environment, "OMPI_COMM_WORLD_SIZE"))
        return rpi_join_find_open_mpi(environment, info);
    RP_TRY(rpi_join_is_slurm_step(environment, &in_step));
    if (in_step && rpi_join_is_pmi_of_srun(environment))
        return rpi_join_find_srun(environment, info);
    if (rpi_join_is_set(environment, "PMI_RANK") || rpi_join_is_set(environment, "PMI_SIZE"))
        return rpi_join_find_pmi(environment, info);
    if (in_step) return rpi_join_find_srun(environment, info);
    if (rpi_join_is_set(environment, "PMIX_RANK"))
        return RP_FAIL(INVALID,
                       "PMIX_RANK is set, but this launcher does not say how many ranks "
                       "there are; set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    snprintf(info->found_by, sizeof info->found_by, "no launcher: a world of one");
    info->alone = true;
    return RP_OK;
}

static rp_status find_world(const rpi_environment *environment, bool by_master,
                            rpi_world_info *out_info) {
    rpi_world_info info = {.world = 1, .local_world = 1};
    RP_TRY(find(environment, by_master, &info));
    if (info.world == 1) {
        info.store = RPI_STORE_NONE;
        info.one_host = true;
    }
    *out_info = info;
    return RP_OK;
}

rp_status rpi_world_info_find(const rpi_environment *environment, rpi_world_info *out_info) {
    return find_world(environment, false, out_info);
}

rp_status rpi_world_info_find_master(const rpi_environment *environment,
                                     rpi_world_info *out_info) {
    return find_world(environment, true, out_info);
}

static const char *get_own(const void *context, const char *name) {
    (void)context;
    return getenv(name);
}

static rpi_environment own_environment(void) {
    return (rpi_environment){.get = get_own, .launcher = rpi_launcher_pid()};
}

rp_status rpi_world_info_find_own(rpi_world_info *out_info) {
    rpi_environment own = own_environment();
    return rpi_world_info_find(&own, out_info);
}

rp_status rpi_world_info_find_own_master(rpi_world_info *out_info) {
    rpi_environment own = own_environment();
    return rpi_world_info_find_master(&own, out_info);
}
