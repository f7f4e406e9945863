/* What ranks tell each other of their steps: losses, times, faults, what they were asked for.
 *
 * No step needs it, so that no step waits for it: each rank keeps its own reports, and a block
 * of several steps is gathered at once, while the block's last gradients travel. Every rank
 * closes the same blocks: how many steps the next one has follows from what all were told. So
 * what all ranks are to do together, they learn after the same step. */
#ifndef RPI_TRAIN_STEP_REPORTS_H
#define RPI_TRAIN_STEP_REPORTS_H

#include "redpoll/comm.h"
#include "train/step_fault.h"
#include "train/train.h"

/* Of one rank and step; doubles, as ranks send them to each other. */
typedef struct rpi_rank_report {
    double loss;  /* its part of the whole batch's */
    double share; /* of all that counts in the loss; for when not all ranks are there */
    double compute_s;
    rpi_step_fault fault;
} rpi_rank_report;

enum {
    RPI_RANK_REPORT = sizeof(rpi_rank_report) / sizeof(double),
    /* Blocks that ranks with parameters of their own may be apart: so many are in flight. */
    RPI_REPORTS_APART = 4,
    RPI_REPORT_BLOCKS = RPI_REPORTS_APART + 1,
};

/* A step as all ranks have told it. */
typedef struct rpi_told_step {
    rpi_step_metrics metrics; /* rank's own, but for the loss and the skew */
    const double
        *faults; /* of all ranks, `stride` doubles apart; until the next one is taken */
    int stride;
} rpi_told_step;

typedef struct rpi_report_block {
    int64_t capacity, length, count; /* steps: there is room for, it will have, it has */
    double *own, *all;               /* reports, then what the block says as a whole */
    rpi_step_metrics *metrics;       /* of this rank */
    int64_t kept;                    /* of these there are */
    int64_t start_ns;                /* of its first step */
    rp_request *request;
    bool gathered;
} rpi_report_block;

typedef struct rpi_step_reports {
    rp_comm *comm;
    int world;
    int64_t fixed_length; /* steps of every block; 0: they follow the time that steps take */
    int64_t apart;        /* blocks that may be in flight behind the current one */
    rpi_report_block blocks[RPI_REPORT_BLOCKS]; /* a ring */
    int64_t first, next; /* numbers of the oldest block that is not taken yet, of the current */
    int64_t length;      /* of the next block */
    bool open;           /* the current block has begun */
    int64_t taken;       /* steps of the oldest */
    int asked, all_asked; /* of this rank in the current block; of all, gathered so far */
    bool is_partial;      /* ranks have been lost, and with them a part of each batch */
    /* This rank's steps of which the others will not hear, after a loss. */
    bool is_alone;
    rpi_step_metrics *alone;
    size_t alone_count, alone_room;
    rpi_rank_report latest;
} rpi_step_reports;

/* steps_each 0: blocks of about a fifth of a second. may_drift: ranks need not wait for each
 * other's reports of the latest RPI_REPORTS_APART blocks. */
void rpi_step_reports_open(rp_comm *comm, int64_t steps_each, bool may_drift,
                           rpi_step_reports *out_reports);
/* Also after a failure; the communicator was then told. Zeros are fine. */
void rpi_step_reports_close(rpi_step_reports *reports);

/* This rank's step, which began at start_ns, has its gradients; it was asked for `asked`
 * (RPI_ASKED_*). Does not block: where the block is complete its gather begins. */
rp_status rpi_step_reports_add(rpi_step_reports *reports, const rpi_rank_report *own, int asked,
                               int64_t start_ns);
/* The step's gradients are the world's: wait for the blocks that are due. Collective where one
 * is. */
rp_status rpi_step_reports_wait(rpi_step_reports *reports);
/* The step is done. The loss and the skew are filled in when its block is taken. */
void rpi_step_reports_keep(rpi_step_reports *reports, const rpi_step_metrics *own);

/* Gather all there is: what follows concerns all ranks. Collective; between steps. */
rp_status rpi_step_reports_flush(rpi_step_reports *reports);

/* The next step of which all ranks' reports are there; false: none. Steps that nobody takes for
 * RPI_REPORT_BLOCKS blocks are forgotten. */
bool rpi_step_reports_take(rpi_step_reports *reports, rpi_told_step *out_step);
/* What any rank was asked for, as far as gathered, once: RPI_ASKED_*. The same on all ranks. */
int rpi_step_reports_asked(rpi_step_reports *reports);

/* ---- when a rank has died ---- */

/* What was gathered has been taken. From here on steps, and those that were not gathered, are
 * this rank's alone, with its own loss. *out_asked: for what it was asked in these. */
rp_status rpi_step_reports_leave(rpi_step_reports *reports, int *out_asked);
/* Of those, until rpi_step_reports_rejoin(). */
const rpi_step_metrics *rpi_step_reports_alone(const rpi_step_reports *reports,
                                               size_t *out_count);
/* Begin anew, over those that are left. */
void rpi_step_reports_rejoin(rpi_step_reports *reports, rp_comm *comm);

#endif
