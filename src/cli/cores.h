/* The share of a rank in its host's cores. */
#ifndef RPI_CLI_CORES_H
#define RPI_CLI_CORES_H

/* At least 1. own: the cores that this rank may use; all: those that its launcher may use, 0 if
 * unknown; local_ranks: at least 1.
 *
 * A launcher that binds each rank to cores of its own may itself use all of them; one that does
 * not bind leaves all of them to every rank. */
int rpi_share_of_cores(int own, int all, int local_ranks);
/* The same for this process. */
int rpi_own_share_of_cores(int local_ranks);

#endif
