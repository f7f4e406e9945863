/* The keys of a bootstrap in its store, by subject and rank, and its outcome, which all ranks
 * read alike (docs/wire.md). For the files of bootstrap.h: bootstrap_arrive.c, bootstrap_read.c
 * and bootstrap_leave.c. */
#ifndef RPI_NET_BOOTSTRAP_KEYS_H
#define RPI_NET_BOOTSTRAP_KEYS_H

#include "net/store/bootstrap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* While waiting for one value, how often to check whether a rank has given up. */
#define RPI_BOOTSTRAP_LOOK_UP_S 0.1
/* Ranks that give up at the same deadline, counted from their own arrivals, do so within this.
 */
#define RPI_BOOTSTRAP_CHAIN_NS  (RPI_SECOND_NS / 2)

enum { RPI_BOOTSTRAP_KEY_BYTES = 256 };

/* "<name>/<generation>/<subject>/<rank>" or, with rank -1, without a rank. Returns `key`. */
const char *rpi_bootstrap_key(const rpi_bootstrap *bootstrap, const char *subject, int rank,
                              char *key);
/* Adds one; *out_value: the sum. */
rp_status rpi_bootstrap_add(rpi_bootstrap *bootstrap, const char *subject, int rank,
                            int64_t *out_value);
/* As text. RP_CORRUPT: it is longer than `capacity`. */
rp_status rpi_bootstrap_get(const rpi_bootstrap *bootstrap, const char *subject, int rank,
                            double timeout_s, char *text, size_t capacity);
rp_status rpi_bootstrap_set(rpi_bootstrap *bootstrap, const char *subject, int rank,
                            const char *text);
void rpi_bootstrap_take_down(rpi_bootstrap *bootstrap, const char *subject, int rank);
/* The number of the bootstrap of this name that is going on, after adding `amount` to it. */
rp_status rpi_bootstrap_add_generation(const rpi_bootstrap *bootstrap, int64_t amount,
                                       int64_t *out);

/* The outcome is "go", or "status rank message" of the first rank that gave up. */
rp_status rpi_bootstrap_read_outcome(const char *outcome);
/* RP_OK: nobody has given up so far. */
rp_status rpi_bootstrap_look_up(const rpi_bootstrap *bootstrap);
/* The first rank to claim the outcome decides it, so that all read the same one. */
rp_status rpi_bootstrap_settle(rpi_bootstrap *bootstrap, const char *outcome, bool *out_first);

typedef struct rpi_rank_list {
    int count;
    char text[200]; /* "1, 3" */
} rpi_rank_list;

/* The ranks that have not set their key on this subject. */
rpi_rank_list rpi_bootstrap_ranks_without(rpi_bootstrap *bootstrap, const char *subject);
const char *rpi_bootstrap_plural(const rpi_rank_list *list); /* "s" behind "rank", or "" */

#endif
