/* Variables of launchers, read and checked: a failure names the variable. [pure] */
#ifndef RPI_NET_JOIN_VARIABLES_H
#define RPI_NET_JOIN_VARIABLES_H

#include "net/world/join.h"

/* NULL: it is not set, or has what Kubernetes sets for a Service of that name. */
const char *rpi_join_variable(const rpi_environment *environment, const char *name);
bool rpi_join_is_set(const rpi_environment *environment, const char *name);
rp_status rpi_join_parse_number(const char *name, const char *text, int64_t *out_value);
/* A number of this launcher that must be set, at least `least`. */
rp_status rpi_join_number(const rpi_environment *environment, const char *launcher,
                          const char *name, int least, int *out_value);

/* The names of one launcher's variables for a process's place. */
typedef struct rpi_join_names {
    const char *launcher, *rank, *world, *local_rank, *local_world;
} rpi_join_names;

/* Ranks are required; local ranks only if the launcher sets them. */
rp_status rpi_join_read_ranks(const rpi_environment *environment, const rpi_join_names *names,
                              rpi_world_info *info);
/* The host of the store, from variable `name`. */
rp_status rpi_join_set_host(rpi_world_info *info, const char *name, const char *host,
                            size_t length);
rp_status rpi_join_read_port(const rpi_environment *environment, const char *launcher,
                             const char *name, rpi_world_info *info);

#endif
