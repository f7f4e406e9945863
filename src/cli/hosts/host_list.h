/* The hosts on which ranks are started, and how many on each: lists of the command line, of
 * files and of batch systems. Pure except for reading the file. */
#ifndef RPI_CLI_HOST_LIST_H
#define RPI_CLI_HOST_LIST_H

#include "net/socket/stream.h"

typedef struct rpi_host {
    char name[RPI_HOST_BYTES]; /* as ssh takes it: big, user@big, 10.0.0.1, fe80::1 */
    int slots;                 /* ranks that may be started there, at least 1 */
} rpi_host;

typedef struct rpi_host_list {
    rpi_host *hosts; /* each once, in the order in which they were first named */
    int count;
    int64_t slots; /* of all */
} rpi_host_list;

/* Each of these adds to the list, which begins as zeros; a host that is repeated has more
 * slots. RP_INVALID says which word is wrong and what is allowed. */

/* "big:4,small:4"; 1 if there is no number. An IPv6 address with a number: "[fe80::1]:4". */
rp_status rpi_host_list_add_words(rpi_host_list *list, const char *text);
/* Lines "big slots=4" (Open MPI's), "big:4" or "big" (also PBS's); # begins a comment. */
rp_status rpi_host_list_add_file(rpi_host_list *list, const char *path);
/* Slurm's "n[1-3,07],gpu" with its "4(x3),2"; NULL tasks: one on each. */
rp_status rpi_host_list_add_slurm(rpi_host_list *list, const char *nodes, const char *tasks);

/* At most `ranks`, those of the first hosts. RP_INVALID: there are fewer slots. */
rp_status rpi_host_list_limit(rpi_host_list *list, int64_t ranks);
void rpi_host_list_free(rpi_host_list *list);

#endif
