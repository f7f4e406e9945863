#include "train/step_reports.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum {
    STEPS_MOST = 256,       /* the most steps of a block */
    REPORTS_MOST = 1 << 16, /* the most reports of all ranks in a block */
    WHOLE = 2,              /* doubles of a block as a whole, after its reports */
    ASKED = 0,
    SECONDS = 1,
    FAULT = offsetof(rpi_rank_report, fault) / sizeof(double),
};

/* The time of a block's steps: what ranks are asked for happens within a second. */
#define BLOCK_S 0.2

static void begin(rpi_step_reports *reports, rp_comm *comm) {
    reports->comm = comm;
    reports->world = rp_comm_world(comm);
    /* A rank alone has nobody to tell, so that its reports are complete at once. */
    if (reports->world == 1) {
        reports->fixed_length = 1;
        reports->apart = 0;
    }
    reports->length = reports->fixed_length ? reports->fixed_length : 1;
}

void rpi_step_reports_open(rp_comm *comm, int64_t steps_each, bool may_drift,
                           rpi_step_reports *out_reports) {
    *out_reports = (rpi_step_reports){.fixed_length = steps_each,
                                      .apart = may_drift ? RPI_REPORTS_APART : 0};
    begin(out_reports, comm);
}

static void free_block(rpi_report_block *block) {
    rpi_free(block->own);
    rpi_free(block->all);
    rpi_free(block->metrics);
    *block = (rpi_report_block){0};
}

static void free_blocks(rpi_step_reports *reports) {
    for (int i = 0; i < RPI_REPORT_BLOCKS; i++) {
        if (reports->blocks[i].request) (void)rp_request_wait(&reports->blocks[i].request);
        free_block(&reports->blocks[i]);
    }
}

void rpi_step_reports_close(rpi_step_reports *reports) {
    free_blocks(reports);
    rpi_free(reports->alone);
    *reports = (rpi_step_reports){0};
}

/* ---- blocks ---- */

static rpi_report_block *block_at(rpi_step_reports *reports, int64_t number) {
    return &reports->blocks[number % RPI_REPORT_BLOCKS];
}

static size_t doubles_of(const rpi_report_block *block) {
    return (size_t)block->count * RPI_RANK_REPORT + WHOLE;
}

static rp_status make_room(const rpi_step_reports *reports, rpi_report_block *block) {
    size_t steps = (size_t)reports->length;
    size_t doubles = steps * RPI_RANK_REPORT + WHOLE;
    if (block->capacity >= reports->length) return RP_OK;
    free_block(block);
    RP_TRY(rpi_alloc_array(doubles, sizeof(double), "reports of steps", &block->own));
    RP_TRY(rpi_alloc_array(doubles * (size_t)reports->world, sizeof(double), "reports of steps",
                           &block->all));
    RP_TRY(rpi_alloc_array(steps, sizeof *block->metrics, "metrics", &block->metrics));
    block->capacity = reports->length;
    return RP_OK;
}

static void drop_oldest(rpi_step_reports *reports) {
    reports->first++;
    reports->taken = 0;
}

static rp_status begin_block(rpi_step_reports *reports, int64_t start_ns) {
    rpi_report_block *block = block_at(reports, reports->next);
    if (reports->next - reports->first == RPI_REPORT_BLOCKS) drop_oldest(reports);
    RP_TRY(make_room(reports, block));
    reports->open = true;
    block->length = reports->length;
    block->count = block->kept = 0;
    block->gathered = false;
    block->start_ns = start_ns;
    reports->asked = 0;
    return RP_OK;
}

static rp_status send_block(rpi_step_reports *reports) {
    rpi_report_block *block = block_at(reports, reports->next++);
    double *whole = block->own + block->count * RPI_RANK_REPORT;
    reports->open = false;
    whole[ASKED] = reports->asked;
    whole[SECONDS] = rpi_seconds(rpi_now_ns() - block->start_ns);
    reports->asked = 0;
    return rp_all_gather_start(reports->comm, block->own, block->all, doubles_of(block), RP_F64,
                               NULL, NULL, &block->request);
}

/* Computed from what all ranks were told, so that it is the same on all. */
static int64_t next_length(const rpi_step_reports *reports, const rpi_report_block *block,
                           double slowest_s) {
    if (reports->fixed_length) return reports->fixed_length;
    double steps = slowest_s > 0 ? BLOCK_S * (double)block->count / slowest_s : STEPS_MOST;
    int64_t most = REPORTS_MOST / reports->world;
    if (most > STEPS_MOST) most = STEPS_MOST;
    if (most > 2 * block->length) most = 2 * block->length;
    if (most < 1) most = 1;
    return steps < 1 ? 1 : steps > (double)most ? most : (int64_t)steps;
}

static rp_status receive_block(rpi_step_reports *reports, rpi_report_block *block) {
    double slowest_s = 0;
    RP_TRY(rp_request_wait(&block->request));
    for (int rank = 0; rank < reports->world; rank++) {
        const double *whole =
            block->all + (size_t)rank * doubles_of(block) + block->count * RPI_RANK_REPORT;
        reports->all_asked |= (int)whole[ASKED];
        if (whole[SECONDS] > slowest_s) slowest_s = whole[SECONDS];
    }
    block->gathered = true;
    reports->length = next_length(reports, block, slowest_s);
    return RP_OK;
}

/* Receives blocks in their order; all except the latest `apart`. */
static rp_status receive_blocks(rpi_step_reports *reports, int64_t apart) {
    for (int64_t number = reports->first; number < reports->next - apart; number++) {
        rpi_report_block *block = block_at(reports, number);
        if (!block->gathered) RP_TRY(receive_block(reports, block));
    }
    return RP_OK;
}

/* ---- alone ---- */

static rp_status make_alone_room(rpi_step_reports *reports) {
    if (reports->alone_count < reports->alone_room) return RP_OK;
    size_t room = reports->alone_room ? 2 * reports->alone_room : STEPS_MOST;
    rpi_step_metrics *more = NULL;
    RP_TRY(rpi_alloc_array(room, sizeof *more, "metrics", &more));
    if (reports->alone_count) memcpy(more, reports->alone, reports->alone_count * sizeof *more);
    rpi_free(reports->alone);
    reports->alone = more;
    reports->alone_room = room;
    return RP_OK;
}

/* There is room. What a rank has lost of its own part stands for the loss of all. */
static void keep_alone(rpi_step_reports *reports, const rpi_step_metrics *own,
                       const rpi_rank_report *report) {
    rpi_step_metrics *kept = &reports->alone[reports->alone_count++];
    *kept = *own;
    kept->loss = report->share > 0 ? report->loss / report->share : NAN;
    kept->skew_s = 0;
}

static rp_status take_alone(rpi_step_reports *reports, const rpi_report_block *block,
                            int64_t first) {
    for (int64_t step = first; step < block->kept; step++) {
        rpi_rank_report own;
        memcpy(&own, block->own + step * RPI_RANK_REPORT, sizeof own);
        RP_TRY(make_alone_room(reports));
        keep_alone(reports, &block->metrics[step], &own);
    }
    return RP_OK;
}

rp_status rpi_step_reports_leave(rpi_step_reports *reports, int *out_asked) {
    int asked = reports->asked | reports->all_asked;
    int64_t end = reports->next + (reports->open ? 1 : 0);
    for (int64_t number = reports->first; number < end; number++) {
        rpi_report_block *block = block_at(reports, number);
        if (block->request) (void)rp_request_wait(&block->request);
        if (block->gathered) continue;
        if (number < reports->next) asked |= (int)block->own[block->count * RPI_RANK_REPORT];
        RP_TRY(take_alone(reports, block, 0));
    }
    free_blocks(reports);
    reports->first = reports->next = reports->taken = 0;
    reports->open = false;
    reports->asked = reports->all_asked = 0;
    reports->is_alone = true;
    *out_asked = asked;
    return RP_OK;
}

const rpi_step_metrics *rpi_step_reports_alone(const rpi_step_reports *reports,
                                               size_t *out_count) {
    *out_count = reports->alone_count;
    return reports->alone;
}

void rpi_step_reports_rejoin(rpi_step_reports *reports, rp_comm *comm) {
    reports->is_alone = false;
    reports->is_partial = true;
    reports->alone_count = 0;
    reports->asked = 0;
    begin(reports, comm);
}

/* ---- a step ---- */

rp_status rpi_step_reports_add(rpi_step_reports *reports, const rpi_rank_report *own, int asked,
                               int64_t start_ns) {
    rpi_report_block *block = block_at(reports, reports->next);
    if (reports->is_alone) {
        reports->latest = *own;
        reports->asked |= asked;
        return make_alone_room(reports);
    }
    if (!reports->open) RP_TRY(begin_block(reports, start_ns));
    memcpy(block->own + block->count * RPI_RANK_REPORT, own, sizeof *own);
    block->count++;
    reports->asked |= asked;
    return block->count == block->length ? send_block(reports) : RP_OK;
}

rp_status rpi_step_reports_wait(rpi_step_reports *reports) {
    return reports->is_alone ? RP_OK : receive_blocks(reports, reports->apart);
}

/* Keeps it in the block to which the step was added, which may have been sent since. */
void rpi_step_reports_keep(rpi_step_reports *reports, const rpi_step_metrics *own) {
    if (reports->is_alone) {
        keep_alone(reports, own, &reports->latest);
        return;
    }
    rpi_report_block *block =
        block_at(reports, reports->open ? reports->next : reports->next - 1);
    block->metrics[block->kept++] = *own;
}

rp_status rpi_step_reports_flush(rpi_step_reports *reports) {
    if (reports->open) RP_TRY(send_block(reports));
    return receive_blocks(reports, 0);
}

/* ---- what all ranks say ---- */

static const double *report_of(const rpi_report_block *block, int64_t step, int rank) {
    return block->all + (size_t)rank * doubles_of(block) + step * RPI_RANK_REPORT;
}

static void complete(const rpi_step_reports *reports, const rpi_report_block *block,
                     int64_t step, rpi_step_metrics *metrics) {
    double own_s = 0, slowest_s = 0;
    double share = 0;
    metrics->loss = 0;
    for (int rank = 0; rank < reports->world; rank++) {
        rpi_rank_report theirs;
        memcpy(&theirs, report_of(block, step, rank), sizeof theirs);
        metrics->loss += theirs.loss;
        share += theirs.share;
        if (theirs.compute_s > slowest_s) slowest_s = theirs.compute_s;
        if (rank == rp_comm_rank(reports->comm)) own_s = theirs.compute_s;
    }
    if (reports->is_partial) metrics->loss = share > 0 ? metrics->loss / share : NAN;
    metrics->skew_s = slowest_s - own_s;
}

bool rpi_step_reports_take(rpi_step_reports *reports, rpi_told_step *out_step) {
    const rpi_report_block *block = block_at(reports, reports->first);
    if (reports->first < reports->next && reports->taken == block->count) {
        drop_oldest(reports);
        block = block_at(reports, reports->first);
    }
    if (reports->first == reports->next || !block->gathered) return false;
    *out_step = (rpi_told_step){.metrics = block->metrics[reports->taken],
                                .faults = report_of(block, reports->taken, 0) + FAULT,
                                .stride = (int)doubles_of(block)};
    complete(reports, block, reports->taken, &out_step->metrics);
    reports->taken++;
    return true;
}

int rpi_step_reports_asked(rpi_step_reports *reports) {
    int asked = reports->all_asked;
    reports->all_asked = 0;
    return asked;
}
