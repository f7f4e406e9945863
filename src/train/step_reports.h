/* Reports of ranks to each other about their steps: losses, times, faults, and what they were
 * asked for.
 *
 * No step needs the reports, so that no step waits for them: each rank keeps its own, and a
 * block of several steps is gathered at once, while the block's last gradients are summed.
 * Every rank closes the same blocks, as the number of steps of the next one follows from what
 * all ranks were told. All ranks therefore learn after the same step what they are to do
 * together. */
#ifndef RPI_TRAIN_STEP_REPORTS_H
#define RPI_TRAIN_STEP_REPORTS_H

#include "redpoll/comm.h"
#include "train/step_fault.h"
#include "train/train.h"

/* One rank's report about one step; doubles, as ranks send them to each other. */
typedef struct rpi_rank_report {
    double loss;  /* its part of the whole batch's */
    double share; /* of all that counts in the loss; needed if ranks are missing */
    double compute_s;
    rpi_step_fault fault;
} rpi_rank_report;

enum {
    RPI_RANK_REPORT = sizeof(rpi_rank_report) / sizeof(double),
    /* The number of blocks by which ranks with parameters of their own may differ, which is the
     * number of blocks in flight. */
    RPI_REPORTS_APART = 4,
    RPI_REPORT_BLOCKS = RPI_REPORTS_APART + 1,
};

/* A step with the reports of all ranks. */
typedef struct rpi_told_step {
    rpi_step_metrics metrics; /* this rank's, except for the loss and the skew */
    const double
        *faults; /* of all ranks, `stride` doubles apart; valid until the next one is taken */
    int stride;
} rpi_told_step;

typedef struct rpi_report_block {
    int64_t capacity, length, count; /* steps: room for, planned, and present */
    double *own, *all;               /* reports, then the numbers of the block as a whole */
    rpi_step_metrics *metrics;       /* of this rank */
    int64_t kept;                    /* the number of them */
    int64_t start_ns;                /* of its first step */
    rp_request *request;
    bool gathered;
} rpi_report_block;

typedef struct rpi_step_reports {
    rp_comm *comm;
    int world;
    int64_t fixed_length; /* steps of every block; 0: chosen by the duration of steps */
    int64_t apart;        /* blocks that may be in flight after the current one */
    rpi_report_block blocks[RPI_REPORT_BLOCKS]; /* a ring */
    /* numbers of the oldest block that was not taken, and of the current one */
    int64_t first, next;
    int64_t length; /* of the next block */
    bool open;      /* the current block has begun */
    int64_t taken;  /* steps taken of the oldest block */
    /* of this rank in the current block; of all ranks, as gathered so far */
    int asked, all_asked;
    bool is_partial; /* ranks were lost, and with them a part of each batch */
    /* This rank's steps, after a loss, that the others will not be told about. */
    bool is_alone;
    rpi_step_metrics *alone;
    size_t alone_count, alone_room;
    rpi_rank_report latest;
} rpi_step_reports;

/* steps_each 0: blocks of about a fifth of a second. may_drift: ranks need not wait for each
 * other's reports of the latest RPI_REPORTS_APART blocks. */
void rpi_step_reports_open(rp_comm *comm, int64_t steps_each, bool may_drift,
                           rpi_step_reports *out_reports);
/* Also after a failure, when the communicator has been aborted. Zeros are fine. */
void rpi_step_reports_close(rpi_step_reports *reports);

/* This rank has the gradients of its step, which began at start_ns; it was asked for `asked`
 * (RPI_ASKED_*). Does not block: if the block is complete its gather begins. */
rp_status rpi_step_reports_add(rpi_step_reports *reports, const rpi_rank_report *own, int asked,
                               int64_t start_ns);
/* The step's gradients are summed over all ranks: waits for the blocks that are due. Collective
 * if one is. */
rp_status rpi_step_reports_wait(rpi_step_reports *reports);
/* The step is done. The loss and the skew are set when its block is taken. */
void rpi_step_reports_keep(rpi_step_reports *reports, const rpi_step_metrics *own);

/* Gathers all reports, because what follows concerns all ranks. Collective; between steps. */
rp_status rpi_step_reports_flush(rpi_step_reports *reports);

/* The next step of which all ranks' reports are there; false: there is none. Steps that are not
 * taken for RPI_REPORT_BLOCKS blocks are dropped. */
bool rpi_step_reports_take(rpi_step_reports *reports, rpi_told_step *out_step);
/* What any rank was asked for, as far as it is gathered, once: RPI_ASKED_*. The same on all
 * ranks. */
int rpi_step_reports_asked(rpi_step_reports *reports);

/* ---- when a rank has died ---- */

/* All gathered steps were taken. From here on steps, and those that were not gathered, are this
 * rank's alone, with its own loss. *out_asked: what it was asked for in these. */
rp_status rpi_step_reports_leave(rpi_step_reports *reports, int *out_asked);
/* The metrics of these steps, until rpi_step_reports_rejoin(). */
const rpi_step_metrics *rpi_step_reports_alone(const rpi_step_reports *reports,
                                               size_t *out_count);
/* Begins again over the ranks that are left. */
void rpi_step_reports_rejoin(rpi_step_reports *reports, rp_comm *comm);

#endif
