/* What a rank that was started again and rank 0 say to each other before they have a
 * communicator: by keys of the launcher's store, a request for each time that a rank asks.
 *
 *     the rank                           rank 0
 *     requests + 1 = N
 *     request/N: its rank, version --> looks at `requests` now and then
 *               <---- invite/N           called; again; or why not
 *     here/N             ------------> in time, else nobody waits for it
 *               <---- place/N            come to a communicator; again: ask anew
 *               <---- verdict/N          go: this is the world now; again: ask anew
 *               <---- over               in place of any of them: the run has ended
 *
 * And the launcher says to rank 0 what becomes of each rank that has died: it is started again,
 * or stays away. */
#ifndef RPI_TRAIN_RETURN_REQUESTS_H
#define RPI_TRAIN_RETURN_REQUESTS_H

#include "redpoll/store.h"
#include "train/train.h"

enum { RPI_RETURN_TEXT = 512 };
#define RPI_RETURN_OVER_KEY "redpoll/returns/over"
#define RPI_RETURN_CALL_S   2.0
#define RPI_RETURN_PAUSE_S  1.0
#define RPI_RETURN_FATE_S   10.0 /* within which the launcher says what becomes of a rank */

typedef struct rpi_return_requests {
    const rpi_train_returns *way; /* NULL: nobody comes back */
    bool is_off;                  /* nobody comes back any more: the store did not answer */
    const rp_store *store;        /* NULL: not opened yet */
    int64_t given;                /* requests, as last looked at */
    int64_t taken;                /* of these */
    int64_t looked_ns;
} rpi_return_requests;

typedef struct rpi_return_request {
    int64_t number;
    int rank; /* when the run began */
    char version[64];
} rpi_return_request;

/* Of a rank that was lost. */
typedef enum rpi_return_fate {
    RPI_FATE_UNKNOWN, /* the launcher has not said it yet, or knows of no death */
    RPI_FATE_AGAIN,   /* it is started again */
    RPI_FATE_AWAY     /* it comes no more */
} rpi_return_fate;

/* ---- the launcher, over its store ---- */

/* `rank`, a process of which has ended, is started again, or stays away. */
rp_status rpi_return_note_fate(const rp_store *store, int rank, bool again);

/* ---- rank 0 ---- */

/* What the launcher has said last. RPI_FATE_AWAY, too, where nobody comes back any more. */
rpi_return_fate rpi_return_fate_of(rpi_return_requests *requests, int rank);

/* Does anybody wait? Asks the store a few times a second at most; a store that does not answer
 * ends it: then nobody does. */
bool rpi_return_look(rpi_return_requests *requests);
/* The next of those that were seen waiting; false: that was all. One that was given and not
 * filled in is passed over. */
bool rpi_return_take(rpi_return_requests *requests, rpi_return_request *out_request);
/* Is whoever gave the request still there? Waits for RPI_RETURN_CALL_S at most. */
bool rpi_return_call(rpi_return_requests *requests, int64_t number);
/* what: "invite", "place" or "verdict". */
rp_status rpi_return_say(rpi_return_requests *requests, int64_t number, const char *what,
                         const char *text);
/* The run has ended: whoever waits is told so, if the store answers (again). */
void rpi_return_close(rpi_return_requests *requests);

/* ---- a rank that was started again ---- */

rp_status rpi_return_ask(rpi_return_requests *requests, int64_t *out_number);
/* To rpi_return_call(). */
rp_status rpi_return_answer(rpi_return_requests *requests, int64_t number);
/* Waits, as long as the run's operations may take. RP_CANCELLED: the run is over (*out_over),
 * or this rank is asked to end; RP_TIMEOUT: nobody has answered. */
rp_status rpi_return_hear(rpi_return_requests *requests, int64_t number, const char *what,
                          const rpi_train_hooks *hooks, char text[RPI_RETURN_TEXT],
                          bool *out_over);
/* Before it asks anew, as who died before it may not be known to be lost yet:
 * RPI_RETURN_PAUSE_S, or less where operations may take less, or this rank is asked to end. */
void rpi_return_pause(const rpi_return_requests *requests, const rpi_train_hooks *hooks);

#endif
