/* How many of its host's cores are a rank's? */
#ifndef RPI_CLI_CORES_H
#define RPI_CLI_CORES_H

/* At least 1. own: cores this rank may use; all: those that its launcher may, 0 when that is
 * not known; local_ranks: at least 1.
 *
 * A launcher that binds each rank to cores of its own still has all of them itself; one that
 * binds nobody leaves all to every rank. */
int rpi_share_of_cores(int own, int all, int local_ranks);
/* The same for this process. */
int rpi_own_share_of_cores(int local_ranks);

#endif
