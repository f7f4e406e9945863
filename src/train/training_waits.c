/* Servers whose workers have all been lost wait for those that the launcher restarts.
 *
 * Rank 0 asks the store a few times a second whether a worker asks for its place, and what the
 * launcher has reported about the lost ones. It tells the other servers each time, so that all
 * learn of a server that dies meanwhile, and all end alike. */
#include "train/training.h"

#include "base/append.h"
#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>

#define LOOK_S 0.2

typedef enum wait_word { WAIT, COME, STOP, NOBODY, TOO_LATE } wait_word;

/* Of a wait, on rank 0. */
typedef struct watch {
    int64_t deadline_ns; /* of it all */
    int64_t fates_ns;    /* by when the launcher has said what it does */
    bool is_told;        /* for whom they wait */
} watch;

bool rpi_training_lacks_workers(const rpi_training *r) {
    const rpi_trainer *t = &r->trainer;
    return t->place.servers > 0 && t->place.world <= t->place.servers;
}

/* The workers that are restarted, and how many more may be. Each is asked about once, as the
 * launcher may report meanwhile. */
static int find(rpi_training *r, int *out_ranks, int *out_unknown) {
    const rpi_trainer *t = &r->trainer;
    int count = 0;
    *out_unknown = 0;
    for (int rank = t->place.servers; rank < t->place.servers + t->place.workers; rank++) {
        rpi_return_fate fate = rpi_return_fate_of(&r->readmission.requests, rank);
        if (fate == RPI_FATE_AGAIN) out_ranks[count++] = rank;
        *out_unknown += fate == RPI_FATE_UNKNOWN;
    }
    return count;
}

static void tell(rpi_training *r, const int *ranks, int count) {
    char line[400] = "no worker is left; waiting for ";
    rpi_append_ranks(line, sizeof line, ranks, count);
    rpi_append(line, sizeof line, ", which %s started again", count == 1 ? "is" : "are");
    if (r->hooks->note) r->hooks->note(r->hooks->context, line);
}

static wait_word look(rpi_training *r, watch *w) {
    int *ranks = r->readmission.back;
    r->asked |= rpi_training_asked(r);
    if (r->asked & RPI_ASKED_STOP) return STOP;
    if (rpi_return_look(&r->readmission.requests)) return COME;
    int unknown = 0, again = find(r, ranks, &unknown);
    if (again && !w->is_told) tell(r, ranks, again);
    w->is_told |= again > 0;
    if (rpi_now_ns() >= w->deadline_ns) return TOO_LATE;
    bool may_be_said = unknown > 0 && rpi_now_ns() < w->fates_ns;
    return again || may_be_said ? WAIT : NOBODY;
}

/* The line on rank 0 that says why the last one is missing. */
static const char *reason(const rpi_trainer *t) {
    const rpi_losses *losses = &t->losses;
    const char *last = NULL;
    for (int place = t->place.servers; place < losses->first_count; place++) {
        const char *why = t->strategy->lost(t->strategy_self, place);
        if (why && (!last || losses->first_ranks[place] == losses->lost[0])) last = why;
    }
    return last ? last : "all are lost";
}

static rp_status fail(const rpi_training *r, wait_word word) {
    if (word == NOBODY) return RP_FAIL(PEER, "no worker is left: %s", reason(&r->trainer));
    return RP_FAIL(TIMEOUT,
                   "timed out: no worker is left (%s), and none that was started again has "
                   "asked for its place in %.3g s (--timeout)",
                   reason(&r->trainer), r->options->returns->timeout_s);
}

rp_status rpi_training_wait_for_workers(rpi_training *r, int64_t deadline_ns) {
    rpi_trainer *t = &r->trainer;
    watch w = {.deadline_ns = deadline_ns, .fates_ns = rpi_deadline_ns(RPI_RETURN_FATE_S)};
    int word = WAIT;
    while (word == WAIT) {
        if (t->place.rank == 0) word = (int)look(r, &w);
        RP_TRY(rp_broadcast(t->comm, &word, 1, RP_I32, NULL));
        if (word == WAIT) rpi_sleep_until_ns(rpi_deadline_ns(LOOK_S));
    }
    r->result.stopped = word == STOP;
    return word == COME || word == STOP ? RP_OK : fail(r, (wait_word)word);
}
