#include "net/world/join_schedulers.h"
#include "net/world/join_variables.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ports derived from a job are below those that the kernel gives out by itself. */
enum { FIRST_PORT = 20000, PORTS = 12000 };

/* Step ids from here on do not belong to srun: batch script, interactive shell, external. */
#define FIRST_SPECIAL_STEP INT64_C(4294967290)

static bool same(const char *a, const char *b) {
    return a && b && strcmp(a, b) == 0;
}

/* "node[03-05,9],x" -> "node03"; plain names as they are. */
static rp_status first_host(const char *name, const char *list, rpi_world_info *info) {
    size_t end = strcspn(list, ",[");
    RP_TRY(rpi_join_set_host(info, name, list, end));
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

/* Where rank 0 serves the store if the launcher has not said: at MASTER_ADDR, on this host, or
 * on the first of Slurm's hosts (hosts_name: the variable that lists them); at a port that
 * follows from the job. */
static rp_status meet_at(const rpi_environment *environment, const char *job,
                         const char *hosts_name, rpi_world_info *info) {
    const char *master = rpi_join_variable(environment, "MASTER_ADDR");
    const char *hosts = rpi_join_variable(environment, hosts_name);
    if (info->world == 1) return RP_OK;
    info->store = RPI_STORE_RANK_0;
    if (master)
        RP_TRY(rpi_join_set_host(info, "MASTER_ADDR", master, strlen(master)));
    else if (info->one_host)
        RP_TRY(rpi_join_set_host(info, "MASTER_ADDR", "127.0.0.1", strlen("127.0.0.1")));
    else if (hosts)
        RP_TRY(first_host(hosts_name, hosts, info));
    else
        return RP_FAIL(INVALID,
                       "%s does not say that all ranks are on this host; set MASTER_ADDR to "
                       "the host of rank 0, on all of them",
                       info->found_by);
    if (rpi_join_is_set(environment, "REDPOLL_PORT"))
        return rpi_join_read_port(environment, info->found_by, "REDPOLL_PORT", info);
    if (rpi_join_is_set(environment, "MASTER_PORT"))
        return rpi_join_read_port(environment, info->found_by, "MASTER_PORT", info);
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

rp_status rpi_join_find_open_mpi(const rpi_environment *environment, rpi_world_info *info) {
    static const rpi_join_names open_mpi = {
        "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE"};
    RP_TRY(rpi_join_read_ranks(environment, &open_mpi, info));
    const char *job = rpi_join_variable(environment, "PMIX_NAMESPACE");
    if (!job) job = rpi_join_variable(environment, "OMPI_MCA_ess_base_jobid");
    return meet_at(environment, job, mpirun_hosts, info);
}

rp_status rpi_join_find_pmi(const rpi_environment *environment, rpi_world_info *info) {
    static const rpi_join_names pmi = {"mpirun (PMI)", "PMI_RANK", "PMI_SIZE",
                                       "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
    RP_TRY(rpi_join_read_ranks(environment, &pmi, info));
    /* Several jobs may run in one allocation; on one host their processes distinguish them. */
    return meet_at(environment,
                   info->one_host ? NULL : rpi_join_variable(environment, "SLURM_JOB_ID"),
                   mpirun_hosts, info);
}

/* With --mpi=pmi2 srun sets PMI_RANK and PMI_SIZE, too. Hydra, which may start its proxies with
 * srun, always sets the local ranks. */
bool rpi_join_is_pmi_of_srun(const rpi_environment *environment) {
    return !rpi_join_is_set(environment, "MPI_LOCALRANKID") &&
           same(rpi_join_variable(environment, "PMI_RANK"),
                rpi_join_variable(environment, "SLURM_PROCID")) &&
           same(rpi_join_variable(environment, "PMI_SIZE"),
                rpi_join_variable(environment, "SLURM_NTASKS"));
}

/* The number of tasks on node `index` in "2(x3),1"; 0 if it has none. */
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
    const char *per_node = rpi_join_variable(environment, "SLURM_STEP_TASKS_PER_NODE");
    const char *node = rpi_join_variable(environment, "SLURM_NODEID");
    int64_t index = 0;
    if (!rpi_join_is_set(environment, "SLURM_LOCALID")) return RP_OK;
    RP_TRY(rpi_join_number(environment, "srun", "SLURM_LOCALID", 0, &info->local_rank));
    if (node) RP_TRY(rpi_join_parse_number("SLURM_NODEID", node, &index));
    int tasks = tasks_on_node(per_node, index);
    if (tasks <= info->local_rank) return RP_OK;
    info->local_world = tasks;
    info->one_host = tasks == info->world;
    return RP_OK;
}

rp_status rpi_join_find_srun(const rpi_environment *environment, rpi_world_info *info) {
    static const rpi_join_names slurm = {"srun", "SLURM_PROCID", "SLURM_NTASKS", "", ""};
    char job[96];
    const char *id = rpi_join_variable(environment, "SLURM_JOB_ID");
    RP_TRY(rpi_join_read_ranks(environment, &slurm, info));
    RP_TRY(read_slurm_locals(environment, info));
    snprintf(job, sizeof job, "%.40s.%.40s", id ? id : "0",
             rpi_join_variable(environment, "SLURM_STEP_ID"));
    return meet_at(environment, job, "SLURM_STEP_NODELIST", info);
}

rp_status rpi_join_is_slurm_step(const rpi_environment *environment, bool *out_step) {
    const char *step = rpi_join_variable(environment, "SLURM_STEP_ID");
    int64_t id = 0;
    *out_step = false;
    if (!step) return RP_OK;
    RP_TRY(rpi_join_parse_number("SLURM_STEP_ID", step, &id));
    *out_step = id >= 0 && id < FIRST_SPECIAL_STEP &&
                (rpi_join_is_set(environment, "SLURM_PROCID") ||
                 rpi_join_is_set(environment, "SLURM_NTASKS"));
    return RP_OK;
}
