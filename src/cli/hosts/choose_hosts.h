/* Where a launch takes its hosts from, and which variables of this process its ranks get. */
#ifndef RPI_CLI_CHOOSE_HOSTS_H
#define RPI_CLI_CHOOSE_HOSTS_H

#include "base/option.h"
#include "cli/hosts/host_list.h"

/* The options' lists; else, if `or_batch`, that of the batch system (Slurm, PBS) whose job this
 * is, which `command` ("run") then reports on standard error. None: an empty list. */
rp_status rpi_hosts_choose(const char *command, const char *words, const char *file,
                           bool or_batch, rpi_host_list *out_list);

/* NAME=VALUE of all REDPOLL_* here except `table`'s options and those that launchers set, and
 * then of the list, in which a NAME alone has its value here. NULL-terminated; free each with
 * rpi_free(), and the array. */
rp_status rpi_variables_to_pass(const rpi_option *table, const rpi_option_list *list,
                                char ***out_variables);
void rpi_variables_free(char **variables);
/* For option tables: "NAME" that is set, or "NAME=VALUE"; none of those that launchers set. */
rp_status rpi_check_variable(const char *text);

#endif
