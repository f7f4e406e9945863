/* How the ranks of a world find each other in a store: all arrive, publish what they are, read
 * the others, and then all leave together or all fail for one reason. docs/wire.md names the
 * keys. */
#ifndef RPI_NET_BOOTSTRAP_H
#define RPI_NET_BOOTSTRAP_H

#include "redpoll/store.h"

#include "base/status.h"
#include "net/bytes/look.h"

#include <stdbool.h>

enum { RPI_BOOTSTRAP_BYTES = 1024, RPI_BOOTSTRAP_PREFIX_BYTES = 160 };
/* Of a communicator: "/" and its epoch follow it. */
enum { RPI_BOOTSTRAP_NAME_MAX = RPI_BOOTSTRAP_PREFIX_BYTES - 12 };

typedef struct rpi_bootstrap {
    const rp_store *store;
    int rank, world;
    double timeout_s;
    int64_t deadline_ns;
    char name[RPI_BOOTSTRAP_PREFIX_BYTES];        /* of every key */
    char prefix[RPI_BOOTSTRAP_PREFIX_BYTES + 24]; /* of this bootstrap's: name / generation */
    rpi_look look; /* in waits, besides whether others have given up; zeros: nothing. Set it
                      behind rpi_bootstrap_arrive() */
} rpi_bootstrap;

/* Arrive. Bootstraps of one name follow each other, also after one that has failed: a rank that
 * was in it comes to the next one; a rank that was not gets the reason why it failed, unless
 * others come back within half a second. If a rank comes twice, a bootstrap that goes on fails:
 * RP_MISMATCH. */
rp_status rpi_bootstrap_arrive(rpi_bootstrap *bootstrap, const rp_store *store, int rank,
                               int world, const char *name, double timeout_s);
/* RP_INVALID: no name for a communicator. */
rp_status rpi_bootstrap_check_name(const char *name);
/* Instead of arriving: the others fail with `status` and the recorded message. Returns as
 * rpi_bootstrap_give_up(). */
rp_status rpi_bootstrap_decline(const rp_store *store, int rank, int world, const char *name,
                                double timeout_s, rp_status status);
/* For a process that was started in the place of a rank that died. If that rank had not
 * arrived, this process arrives in its place: RP_OK and not *out_has_met. If all had finished
 * the bootstrap, they go on or fail without it. Otherwise the rank has died during the
 * bootstrap, and nobody waits for it any longer: RP_PEER, here and on all ranks. */
rp_status rpi_bootstrap_replace(const rp_store *store, int rank, int world, const char *name,
                                bool *out_has_met);
/* For ranks that have finished the bootstrap and still make their links: the rank that has died
 * since and been replaced, or -1. Of the latest bootstrap of this name. */
int rpi_bootstrap_replaced(const rp_store *store, const char *name);
/* Publish a text of this rank, shorter than RPI_BOOTSTRAP_BYTES, on one subject. */
rp_status rpi_bootstrap_show(rpi_bootstrap *bootstrap, const char *subject, const char *value);
/* Read the text of a rank, and wait for it. RP_TIMEOUT names every rank that has not arrived,
 * or this one if all have; ends early with the reason if another rank has given up. */
rp_status rpi_bootstrap_read(rpi_bootstrap *bootstrap, const char *subject, int rank,
                             char *value, size_t bytes);
/* The same for all ranks, in their order, by as few requests as the store has pages; if `take`
 * returns something other than RP_OK this ends it. A value is text, shorter than
 * RPI_BOOTSTRAP_BYTES. */
typedef rp_status rpi_bootstrap_take(void *context, int rank, const char *value);
rp_status rpi_bootstrap_read_all(rpi_bootstrap *bootstrap, const char *subject,
                                 rpi_bootstrap_take *take, void *context);
/* For a rank that waits elsewhere for ranks of this bootstrap: the reason for which another has
 * given up, or the status of the bootstrap's own check. Asks the store. */
rp_status rpi_bootstrap_look(rpi_bootstrap *bootstrap);
/* All ranks have arrived, and read this now: the next phase has a new timeout, and its deadline
 * is the same on all ranks, however late one of them was. */
void rpi_bootstrap_go_on(rpi_bootstrap *bootstrap);

/* Who could not go on for whom. */
typedef struct rpi_bootstrap_pair {
    int waiter, late;
    bool mutual;                          /* `late` waits for `waiter`, too; else for nobody */
    char reason[RPI_BOOTSTRAP_BYTES / 2]; /* as text: of both, that of the higher rank, which
                                           * calls */
} rpi_bootstrap_pair;

/* This rank has waited for `peer` until the deadline, for a reason. The peer may have waited
 * for a third: find the end of that chain. Takes half a second, in which ranks that wait as we
 * do publish for whom. Never fails. */
void rpi_bootstrap_find_pair(rpi_bootstrap *bootstrap, int peer, const char *reason,
                             rpi_bootstrap_pair *out_pair);
/* Wait until every rank has come here. All pass or none does. Removes this rank's texts on the
 * `subjects` (NULL-terminated). */
rp_status rpi_bootstrap_leave(rpi_bootstrap *bootstrap, const char *const *subjects);
/* This rank fails with `status` and the recorded message: the others fail with it. Returns
 * `status`, or the status with which another rank gave up before. */
rp_status rpi_bootstrap_give_up(rpi_bootstrap *bootstrap, rp_status status);

#endif
