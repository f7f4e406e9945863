/* Reading the launchers' variables. */
#include "net/world/join.h"

#include "base/variables.h"
#include "net/socket/addresses.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ports derived from a job lie below those that the kernel hands out by itself. */
enum { FIRST_PORT = 20000, PORTS = 12000 };

/* Step ids from here on are not of srun: batch script, interactive shell, external. */
#define FIRST_SPECIAL_STEP INT64_C(4294967290)

static const char *variable(const rpi_environment *environment, const char *name) {
    const char *text = environment->get(environment->context, name);
    return text && *text && !rpi_variable_is_of_service(name, text) ? text : NULL;
}

/* Why one that the environment has does not count. */
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

static bool is_set(const rpi_environment *environment, const char *name) {
    return variable(environment, name) != NULL;
}

static rp_status parse_number(const char *name, const char *text, int64_t *out_value) {
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*end || end == text || errno)
        return RP_FAIL(INVALID, "environment variable %s is '%s', which is not a number", name,
                       text);
    *out_value = value;
    return RP_OK;
}

/* A number of this launcher that must be there, at least `least`. */
static rp_status number(const rpi_environment *environment, const char *launcher,
                        const char *name, int least, int *out_value) {
    const char *text = variable(environment, name);
    int64_t value = 0;
    char service[160];
    if (!text)
        return RP_FAIL(
            INVALID,
            "the environment looks like %s, but variable %s is not set%s; set it, or "
            "unset the others to run alone",
            launcher, name, service_text(environment, name, service, sizeof service));
    RP_TRY(parse_number(name, text, &value));
    if (value > INT_MAX)
        return RP_FAIL(INVALID, "environment variable %s is %s; at most %d is allowed", name,
                       text, INT_MAX);
    if (value < least)
        return RP_FAIL(INVALID, "environment variable %s is %s; at least %d is allowed", name,
                       text, least);
    *out_value = (int)value;
    return RP_OK;
}

/* The names under which one launcher says who a process is. */
typedef struct names {
    const char *launcher, *rank, *world, *local_rank, *local_world;
} names;

static rp_status check_range(const char *rank_name, int rank, const char *world_name,
                             int world) {
    if (rank < world) return RP_OK;
    return RP_FAIL(INVALID,
                   "environment variables %s=%d and %s=%d contradict each other: "
                   "ranks are 0 to %d",
                   rank_name, rank, world_name, world, world - 1);
}

/* Ranks are required; local ranks are where the launcher gives them. */
static rp_status read_ranks(const rpi_environment *environment, const names *n,
                            rpi_world_info *info) {
    snprintf(info->found_by, sizeof info->found_by, "%s", n->launcher);
    RP_TRY(number(environment, n->launcher, n->rank, 0, &info->rank));
    RP_TRY(number(environment, n->launcher, n->world, 1, &info->world));
    RP_TRY(check_range(n->rank, info->rank, n->world, info->world));
    info->local_rank = info->rank;
    info->local_world = info->world;
    bool has_rank = is_set(environment, n->local_rank);
    bool has_world = is_set(environment, n->local_world);
    if (!has_rank && !has_world) return RP_OK;
    RP_TRY(number(environment, n->launcher, n->local_rank, 0, &info->local_rank));
    RP_TRY(number(environment, n->launcher, n->local_world, 1, &info->local_world));
    info->one_host = info->local_world == info->world;
    return check_range(n->local_rank, info->local_rank, n->local_world, info->local_world);
}

static rp_status set_host(rpi_world_info *info, const char *name, const char *host,
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

static rp_status read_port(const rpi_environment *environment, const char *launcher,
                           const char *name, rpi_world_info *info) {
    RP_TRY(number(environment, launcher, name, 1, &info->port));
    if (info->port <= 65535) return RP_OK;
    return RP_FAIL(INVALID, "environment variable %s is %d; ports are 1 to 65535", name,
                   info->port);
}

/* ---- redpoll run, torchrun ---- */

static const names common_names = {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                   "LOCAL_WORLD_SIZE"};

/* REDPOLL_STORE=host:port of the store that the launcher serves. */
static rp_status find_redpoll_run(const rpi_environment *environment, rpi_world_info *info) {
    names ours = common_names;
    ours.launcher = "redpoll run";
    RP_TRY(read_ranks(environment, &ours, info));
    const char *text = variable(environment, "REDPOLL_STORE"), *colon = strrchr(text, ':');
    int64_t port = 0;
    if (!colon || colon == text)
        return RP_FAIL(INVALID, "environment variable REDPOLL_STORE is '%s', not HOST:PORT",
                       text);
    RP_TRY(set_host(info, "REDPOLL_STORE", text, (size_t)(colon - text)));
    RP_TRY(parse_number("REDPOLL_STORE", colon + 1, &port));
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
    const char *host = variable(environment, "MASTER_ADDR");
    if (!host)
        return RP_FAIL(INVALID,
                       "the environment looks like %s, but variable MASTER_ADDR is not "
                       "set; set it to the host of rank 0",
                       launcher);
    RP_TRY(set_host(info, "MASTER_ADDR", host, strlen(host)));
    return read_port(environment, launcher, "MASTER_PORT", info);
}

/* torchrun's agent serves a store of its own at MASTER_PORT; without one (or with REDPOLL_PORT)
 * rank 0 serves ours. */
static rp_status find_torchrun(const rpi_environment *environment, rpi_world_info *info) {
    names ours = common_names;
    ours.launcher = "torchrun";
    RP_TRY(read_ranks(environment, &ours, info));
    RP_TRY(read_master(environment, "torchrun", info));
    const char *agent = variable(environment, "TORCHELASTIC_USE_AGENT_STORE");
    const char *restart = variable(environment, "TORCHELASTIC_RESTART_COUNT");
    info->store = agent && strcmp(agent, "True") == 0 ? RPI_STORE_TORCH : RPI_STORE_RANK_0;
    if (is_set(environment, "REDPOLL_PORT")) {
        RP_TRY(read_port(environment, "torchrun", "REDPOLL_PORT", info));
        info->store = RPI_STORE_RANK_0;
    }
    /* A restarted world may not read the keys of the one that failed. */
    snprintf(info->job, sizeof info->job, "/redpoll/%.90s/%.20s",
             variable(environment, "TORCHELASTIC_RUN_ID"), restart ? restart : "0");
    return RP_OK;
}

static rp_status find_by_hand(const rpi_environment *environment, rpi_world_info *info) {
    RP_TRY(read_ranks(environment, &common_names, info));
    if (info->world == 1) return RP_OK;
    RP_TRY(read_master(environment, common_names.launcher, info));
    info->store = RPI_STORE_RANK_0;
    return RP_OK;
}

/* Of a launcher that tells rank 0 where to serve. */
static rp_status find_master(const rpi_environment *environment, const char *launcher,
                             rpi_world_info *info) {
    names ours = common_names;
    ours.launcher = launcher;
    RP_TRY(read_ranks(environment, &ours, info));
    if (info->world == 1 && !is_set(environment, "MASTER_ADDR")) return RP_OK;
    info->store = RPI_STORE_RANK_0;
    return read_master(environment, launcher, info);
}

/* ---- mpirun, srun: they say who, not where ---- */

static bool same(const char *a, const char *b) {
    return a && b && strcmp(a, b) == 0;
}

/* "node[03-05,9],x" -> "node03"; plain names as they are. */
static rp_status first_host(const char *name, const char *list, rpi_world_info *info) {
    size_t end = strcspn(list, ",[");
    RP_TRY(set_host(info, name, list, end));
    if (list[end] != '[') return RP_OK;
    const char *number_text = list + end + 1;
    size_t digits = strspn(number_text, "0123456789");
    const char *close = strchr(number_text, ']');
    if (!digits || !close || end + digits >= sizeof info->host)
        return RP_FAIL(INVALID, "cannot read the first host of '%s'", list);
    size_t suffix = strcspn(close + 1, ",[");
    if (end + digits + suffix >= sizeof info->host)
        return RP_FAIL(INVALID, "cannot read the first host of '%s'", list);
    memcpy(info->host + end, number_text, digits);
    memcpy(info->host + end + digits, close + 1, suffix);
    info->host[end + digits + suffix] = '\0';
    return RP_OK;
}

static int port_of_job(const char *job) {
    uint32_t hash = UINT32_C(2166136261); /* FNV-1a */
    for (; *job; job++) hash = (hash ^ (unsigned char)*job) * UINT32_C(16777619);
    return FIRST_PORT + (int)(hash % PORTS);
}

/* Where rank 0 serves the store when the launcher has not said: at MASTER_ADDR, on this host,
 * or on the first of Slurm's hosts (hosts_name: where they are listed); at a port that follows
 * from the job. */
static rp_status meet_at(const rpi_environment *environment, const char *job,
                         const char *hosts_name, rpi_world_info *info) {
    const char *master = variable(environment, "MASTER_ADDR");
    const char *hosts = variable(environment, hosts_name);
    if (info->world == 1) return RP_OK;
    info->store = RPI_STORE_RANK_0;
    if (master)
        RP_TRY(set_host(info, "MASTER_ADDR", master, strlen(master)));
    else if (info->one_host)
        RP_TRY(set_host(info, "MASTER_ADDR", "127.0.0.1", strlen("127.0.0.1")));
    else if (hosts)
        RP_TRY(first_host(hosts_name, hosts, info));
    else
        return RP_FAIL(INVALID,
                       "%s does not say that all ranks are on this host; set MASTER_ADDR to "
                       "the host of rank 0, on all of them",
                       info->found_by);
    if (is_set(environment, "REDPOLL_PORT"))
        return read_port(environment, info->found_by, "REDPOLL_PORT", info);
    if (is_set(environment, "MASTER_PORT"))
        return read_port(environment, info->found_by, "MASTER_PORT", info);
    if (job)
        snprintf(info->job, sizeof info->job, "%s %.90s", info->found_by, job);
    else if (info->one_host && environment->launcher > 0)
        snprintf(info->job, sizeof info->job, "%s, process %lld", info->found_by,
                 (long long)environment->launcher);
    else
        return RP_FAIL(INVALID,
                       "%s gives its job no name; set MASTER_PORT to a free port of the "
                       "host of rank 0, on all hosts",
                       info->found_by);
    info->port = port_of_job(info->job);
    info->port_is_derived = true;
    return RP_OK;
}

/* Open MPI starts the ranks of its own host itself and the others in a Slurm step of their
 * hosts: only the list of the whole job is the same for all. */
static const char mpirun_hosts[] = "SLURM_JOB_NODELIST";

static rp_status find_open_mpi(const rpi_environment *environment, rpi_world_info *info) {
    static const names open_mpi = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                   "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
    RP_TRY(read_ranks(environment, &open_mpi, info));
    const char *job = variable(environment, "PMIX_NAMESPACE");
    if (!job) job = variable(environment, "OMPI_MCA_ess_base_jobid");
    return meet_at(environment, job, mpirun_hosts, info);
}

static rp_status find_pmi(const rpi_environment *environment, rpi_world_info *info) {
    static const names pmi = {"mpirun (PMI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                              "MPI_LOCALNRANKS"};
    RP_TRY(read_ranks(environment, &pmi, info));
    /* Several may run in one allocation; on one host their processes tell them apart. */
    return meet_at(environment, info->one_host ? NULL : variable(environment, "SLURM_JOB_ID"),
                   mpirun_hosts, info);
}

/* With --mpi=pmi2 srun sets PMI_RANK and PMI_SIZE, too. Hydra, which may start its proxies with
 * srun, always says who is on a host. */
static bool is_pmi_of_srun(const rpi_environment *environment) {
    return !is_set(environment, "MPI_LOCALRANKID") &&
           same(variable(environment, "PMI_RANK"), variable(environment, "SLURM_PROCID")) &&
           same(variable(environment, "PMI_SIZE"), variable(environment, "SLURM_NTASKS"));
}

/* Tasks on node `index` by "2(x3),1"; 0 when it does not say. */
static int tasks_on_node(const char *text, int64_t index) {
    while (text && *text) {
        char *end = NULL;
        long tasks = strtol(text, &end, 10), nodes = 1;
        if (end[0] == '(' && end[1] == 'x') {
            nodes = strtol(end + 2, &end, 10);
            if (*end == ')') end++;
        }
        if (end == text || tasks < 1 || tasks > INT_MAX) return 0;
        if (index < nodes) return (int)tasks;
        index -= nodes;
        text = *end == ',' ? end + 1 : end;
        if (*end && *end != ',') return 0;
    }
    return 0;
}

static rp_status read_slurm_locals(const rpi_environment *environment, rpi_world_info *info) {
    const char *per_node = variable(environment, "SLURM_STEP_TASKS_PER_NODE");
    const char *node = variable(environment, "SLURM_NODEID");
    int64_t index = 0;
    if (!is_set(environment, "SLURM_LOCALID")) return RP_OK;
    RP_TRY(number(environment, "srun", "SLURM_LOCALID", 0, &info->local_rank));
    if (node) RP_TRY(parse_number("SLURM_NODEID", node, &index));
    int tasks = tasks_on_node(per_node, index);
    if (tasks <= info->local_rank) return RP_OK;
    info->local_world = tasks;
    info->one_host = tasks == info->world;
    return RP_OK;
}

static rp_status find_srun(const rpi_environment *environment, rpi_world_info *info) {
    static const names slurm = {"srun", "SLURM_PROCID", "SLURM_NTASKS", "", ""};
    char job[96];
    const char *id = variable(environment, "SLURM_JOB_ID");
    RP_TRY(read_ranks(environment, &slurm, info));
    RP_TRY(read_slurm_locals(environment, info));
    snprintf(job, sizeof job, "%.40s.%.40s", id ? id : "0",
             variable(environment, "SLURM_STEP_ID"));
    return meet_at(environment, job, "SLURM_STEP_NODELIST", info);
}

/* Only a step has ranks: in a batch script SLURM_PROCID is set too, and means nothing. */
static rp_status is_slurm_step(const rpi_environment *environment, bool *out_step) {
    const char *step = variable(environment, "SLURM_STEP_ID");
    int64_t id = 0;
    *out_step = false;
    if (!step) return RP_OK;
    RP_TRY(parse_number("SLURM_STEP_ID", step, &id));
    *out_step = id >= 0 && id < FIRST_SPECIAL_STEP &&
                (is_set(environment, "SLURM_PROCID") || is_set(environment, "SLURM_NTASKS"));
    return RP_OK;
}

/* ---- in order of trust ---- */

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
        if (!is_set(environment, each->mark) && !is_set(environment, each->or_mark)) continue;
        return by_master ? find_master(environment, each->name, info)
                         : each->find(environment, info);
    }
    if (is_set(environment, "OMPI_COMM_WORLD_RANK") ||
        is_set(environment, "OMPI_COMM_WORLD_SIZE"))
        return find_open_mpi(environment, info);
    RP_TRY(is_slurm_step(environment, &in_step));
    if (in_step && is_pmi_of_srun(environment)) return find_srun(environment, info);
    if (is_set(environment, "PMI_RANK") || is_set(environment, "PMI_SIZE"))
        return find_pmi(environment, info);
    if (in_step) return find_srun(environment, info);
    if (is_set(environment, "PMIX_RANK"))
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
