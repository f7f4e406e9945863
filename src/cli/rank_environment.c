/* The environment of a rank that is started here. */
#include "cli/launch.h"

#include "base/cpu.h"
#include "base/memory.h"
#include "net/store/store_tcp.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_name(const char *variable, const char *name) {
    size_t length = strlen(name);
    return strncmp(variable, name, length) == 0 && variable[length] == '=';
}

static bool is_ours(const rpi_launch_run *l, const char *variable) {
    static const char *const ours[] = {"RANK",
                                       "WORLD_SIZE",
                                       "LOCAL_RANK",
                                       "MASTER_ADDR",
                                       "MASTER_PORT",
                                       "LOCAL_WORLD_SIZE",
                                       "REDPOLL_STORE",
                                       "REDPOLL_SECRET",
                                       "REDPOLL_SECRET_FILE",
                                       RPI_GENERATION_VARIABLE,
                                       RPI_RETURN_VARIABLE};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (has_name(variable, ours[i])) return true;
    return l->options->restarts && has_name(variable, RPI_RESTARTS_VARIABLE);
}

rp_status rpi_launch_copy_environment(rpi_launch_run *l) {
    int count = 0;
    while (environ[count]) count++;
    RP_TRY(rpi_alloc_array((size_t)count + RPI_RANK_VARIABLES + 1, sizeof *l->environment,
                           "an environment", &l->environment));
    for (int i = 0; i < count; i++)
        if (!is_ours(l, environ[i])) l->environment[l->variables++] = environ[i];
    return RP_OK;
}

void rpi_launch_set_variables(rpi_launch_run *l, int rank,
                              char text[RPI_RANK_VARIABLES][RPI_RANK_VARIABLE_BYTES]) {
    int share = rpi_cpu_count() / l->ranks, count = 0;
#define SET(...) snprintf(text[count++], RPI_RANK_VARIABLE_BYTES, __VA_ARGS__)
    const rpi_launch_world *world = &l->world;
    SET("RANK=%d", world->first_rank + rank);
    SET("WORLD_SIZE=%d", world->ranks);
    SET("LOCAL_RANK=%d", rank);
    SET("LOCAL_WORLD_SIZE=%d", l->ranks);
    SET("MASTER_ADDR=%s", world->store_host);
    SET("MASTER_PORT=%d", world->master_port);
    SET("REDPOLL_STORE=%s:%d", world->store_host, world->store_port);
    int generation = l->processes[rank].generation;
    if (l->options->restarts) SET(RPI_RESTARTS_VARIABLE "=%d", l->options->restarts);
    if (generation) SET(RPI_GENERATION_VARIABLE "=%d", generation);
    if (generation)
        SET(RPI_RETURN_VARIABLE "=%d:%lu", l->processes[rank].return_end,
            l->processes[rank].pipe);
    if (*world->secret) SET("REDPOLL_SECRET=%s", world->secret); /* unlike argv, not in ps */
    if (!getenv("OMP_NUM_THREADS")) SET("OMP_NUM_THREADS=%d", share > 1 ? share : 1);
    /* Barriers that spin for long take the core that the thread they wait for needs. */
    if (!getenv("GOMP_SPINCOUNT") && !getenv("OMP_WAIT_POLICY")) SET("GOMP_SPINCOUNT=3000");
#undef SET
    for (int i = 0; i < count; i++) l->environment[l->variables + i] = text[i];
    l->environment[l->variables + count] = NULL;
}
