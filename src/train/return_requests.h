/* What a rank that was started again and rank 0 say to each other before they have a
 * communicator: by keys of the launcher's store, a ticket for each time that a rank asks.
 *
 *     the rank                           rank 0
 *     tickets + 1 = N
 *     ticket/N: its number, version ---> looks at `tickets` now and then
 *               <---- invite/N           called; again; or why not
 *     here/N             ------------> in time, else nobody waits for it
 *               <---- seat/N             come to a communicator; again: ask anew
 *               <---- verdict/N          go: this is the world now; again: ask anew
 *               <---- over               in place of any of them: the run has ended */
#ifndef RPI_TRAIN_RETURN_DESK_H
#define RPI_TRAIN_RETURN_DESK_H

#include "redpoll/store.h"
#include "train/train.h"

enum { RPI_DESK_TEXT = 512 };
#define RPI_DESK_CALL_S  2.0
#define RPI_DESK_PAUSE_S 1.0

typedef struct rpi_return_desk {
    const rpi_train_returns *way; /* NULL: nobody comes back */
    bool is_off;                  /* nobody comes back any more: the store did not answer */
    const rp_store *store;        /* NULL: not opened yet */
    int64_t given;                /* tickets, as last looked at */
    int64_t taken;                /* of these */
    int64_t looked_ns;
} rpi_return_desk;

typedef struct rpi_return_ticket {
    int64_t number;
    int rank; /* when the run began */
    char version[64];
} rpi_return_ticket;

/* ---- rank 0 ---- */

/* Does anybody wait? Asks the store a few times a second at most; a store that does not answer
 * ends it: then nobody does. */
bool rpi_desk_look(rpi_return_desk *desk);
/* The next of those that were seen waiting; false: that was all. One that was given and not
 * filled in is passed over. */
bool rpi_desk_take(rpi_return_desk *desk, rpi_return_ticket *out_ticket);
/* Is whoever gave the ticket still there? Waits for RPI_DESK_CALL_S at most. */
bool rpi_desk_call(rpi_return_desk *desk, int64_t number);
/* what: "invite", "seat" or "verdict". */
rp_status rpi_desk_say(rpi_return_desk *desk, int64_t number, const char *what,
                       const char *text);
/* The run has ended: whoever waits is told so, if the store answers (again). */
void rpi_desk_close(rpi_return_desk *desk);

/* ---- a rank that was started again ---- */

rp_status rpi_desk_ask(rpi_return_desk *desk, int64_t *out_number);
/* To rpi_desk_call(). */
rp_status rpi_desk_answer(rpi_return_desk *desk, int64_t number);
/* Waits, as long as the run's operations may take. RP_CANCELLED: the run is over (*out_over),
 * or this rank is asked to end; RP_TIMEOUT: nobody has answered. */
rp_status rpi_desk_hear(rpi_return_desk *desk, int64_t number, const char *what,
                        const rpi_train_hooks *hooks, char text[RPI_DESK_TEXT], bool *out_over);
/* Before it asks anew, as who died before it may not be known to be lost yet: RPI_DESK_PAUSE_S,
 * or less where operations may take less, or this rank is asked to end. */
void rpi_desk_pause(const rpi_return_desk *desk, const rpi_train_hooks *hooks);

#endif
