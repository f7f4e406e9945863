/* Messages between a restarted rank and rank 0 before they have a communicator. They are keys
 * of the launcher's store; a rank makes a request each time that it asks.
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
 * The launcher tells rank 0 about each rank that has died whether it is restarted or stays
 * away. */
#ifndef RPI_TRAIN_RETURN_REQUESTS_H
#define RPI_TRAIN_RETURN_REQUESTS_H

#include "redpoll/store.h"
#include "train/train.h"

enum { RPI_RETURN_TEXT = 512 };
#define RPI_RETURN_OVER_KEY "redpoll/returns/over"
#define RPI_RETURN_CALL_S   2.0
#define RPI_RETURN_PAUSE_S  1.0
#define RPI_RETURN_FATE_S   10.0 /* the launcher decides about a dead rank within this time */

typedef struct rpi_return_requests {
    const rpi_train_returns *way; /* NULL: ranks cannot come back */
    bool is_off;                  /* no rank comes back any more: the store did not answer */
    const rp_store *store;        /* NULL: not opened yet */
    int64_t given;                /* the number of requests when last read */
    int64_t taken;                /* the number of requests handled */
    int64_t looked_ns;
} rpi_return_requests;

typedef struct rpi_return_request {
    int64_t number;
    int rank; /* the rank's number when the run began */
    char version[64];
} rpi_return_request;

/* What happens to a rank that was lost. */
typedef enum rpi_return_fate {
    RPI_FATE_UNKNOWN, /* the launcher has not said it yet, or knows of no death */
    RPI_FATE_AGAIN,   /* it is restarted */
    RPI_FATE_AWAY     /* it does not come back */
} rpi_return_fate;

/* ---- the launcher, over its store ---- */

/* Notes that `rank`, whose process has ended, is restarted, or stays away. */
rp_status rpi_return_note_fate(const rp_store *store, int rank, bool again);

/* ---- rank 0 ---- */

/* What the launcher has said last. Also RPI_FATE_AWAY if no rank comes back any more. */
rpi_return_fate rpi_return_fate_of(rpi_return_requests *requests, int rank);

/* Is a rank waiting? Asks the store at most a few times a second. If the store does not answer,
 * no rank can come back any more. */
bool rpi_return_look(rpi_return_requests *requests);
/* The next waiting request; false: there are no more. A request without its text is skipped. */
bool rpi_return_take(rpi_return_requests *requests, rpi_return_request *out_request);
/* Does the rank that made the request still answer? Waits at most RPI_RETURN_CALL_S. */
bool rpi_return_call(rpi_return_requests *requests, int64_t number);
/* what: "invite", "place" or "verdict". */
rp_status rpi_return_say(rpi_return_requests *requests, int64_t number, const char *what,
                         const char *text);
/* The run has ended: tells waiting ranks so, if the store answers. */
void rpi_return_close(rpi_return_requests *requests);

/* ---- a rank that was started again ---- */

rp_status rpi_return_ask(rpi_return_requests *requests, int64_t *out_number);
/* The answer to rpi_return_call(). */
rp_status rpi_return_answer(rpi_return_requests *requests, int64_t number);
/* Waits for an answer, as long as the run's operations may take. RP_CANCELLED: the run is over
 * (*out_over), or this rank is asked to end; RP_TIMEOUT: no answer has come. */
rp_status rpi_return_hear(rpi_return_requests *requests, int64_t number, const char *what,
                          const rpi_train_hooks *hooks, char text[RPI_RETURN_TEXT],
                          bool *out_over);
/* Waits before the rank asks again, because its former process may not be known to be lost yet:
 * for RPI_RETURN_PAUSE_S, or less if operations may take less, or if this rank is asked to end.
 */
void rpi_return_pause(const rpi_return_requests *requests, const rpi_train_hooks *hooks);

#endif
