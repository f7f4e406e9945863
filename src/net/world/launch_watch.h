/* Has a rank of this launch ended for good? The launcher says it over its store, by
 *
 *     redpoll/launch/ended   R HOW: rank R, the first that has ended and is not started again,
 *                            "was killed by signal 9 (Killed)", say
 *
 * and ranks that wait for all to connect look there: they cannot meet without it, whatever they
 * meet over. Behind that the control connection knows of deaths. */
#ifndef RPI_NET_LAUNCH_WATCH_H
#define RPI_NET_LAUNCH_WATCH_H

#include "net/world/join.h"

typedef struct rpi_launch_watch {
    rpi_world_info info;
    const rp_store *launchers; /* borrowed; NULL: `own`, opened when it is first needed */
    rp_store own;
    bool is_on; /* all ranks of the launch take part, and the store answers */
} rpi_launch_watch;

/* ---- the launcher ---- */

/* `rank` has ended; only the first report is kept, since others may be consequences. */
rp_status rpi_launch_note_end(const rp_store *store, int rank, const char *how);

/* ---- a rank ---- */

/* For ranks that connect as `rank` of `world`. launchers: the launcher's store if it is open
 * already, borrowed until close; NULL: not. tls: as in rpi_world_info. Opens nothing. */
void rpi_launch_watch_open(int rank, int world, const rp_store *launchers, bool tls,
                           rpi_launch_watch *out_watch);
/* RP_PEER names a rank that has ended. RP_OK: none has, or none is reported. */
rp_status rpi_launch_watch_look(rpi_launch_watch *watch);
void rpi_launch_watch_close(rpi_launch_watch *watch);

#endif
