#include "plan/plan_check.h"

#include "base/memory.h"
#include "plan/collective.h"
#include "plan/combination.h"
#include "plan/expression.h"
#include "plan/schedule.h"
#include "plan/topologies/mixing.h"

/* What stands for the numbers of one part. */
typedef struct value {
    bool present;
    bool own;           /* holds this rank's contribution, which no lossy codec has touched */
    bool in_rank_order; /* a fold over single contributions, ranks rising */
    bool unread;        /* of a SUM: written and not read since */
    uint8_t level;      /* of bytes */
    int depth;          /* most lossy encodings that any contribution has passed */
    int part;
    int expression; /* what it was computed by: expression.h */
    rpi_combination contributions;
} value;

typedef struct frame {
    bool present, token;
    value value;
    rpi_combination heard; /* ranks whose beginning precedes this frame */
} frame;

typedef struct rank_state {
    const rpi_schedule *schedule;
    int at;         /* next step */
    int first_step; /* number of its first step among all ranks' */
    rpi_combination heard;
    rpi_combination self; /* this rank alone */
    rpi_combination row;  /* of a mixing: what OUT must hold */
    bool keeps;           /* and it holds the rank's own, too */
    value *out, *sum;     /* [parts] */
    value *wire;          /* [encoded_slots] */
    bool *encoded;        /* [parts] */
} rank_state;

typedef struct checker {
    const rpi_algorithm *algorithm;
    const rpi_collective_kind *kind;
    const rpi_plan_request *request;
    int world, root;
    rank_state *ranks; /* [world] */
    frame *links;      /* [from * world + to]: the one frame on its way */
    rpi_combinations combinations;
    rpi_expressions expressions;
} checker;

static const rpi_step *current(const rank_state *rank) {
    return &rank->schedule->steps[rank->at];
}

/* Fail at the step that `rank` is about to do. */
#define FAIL_HERE(rank, ...) rpi_schedule_fail((rank)->schedule, (rank)->at, __VA_ARGS__)

static rpi_seat seat_of(const checker *p, int rank) {
    return (rpi_seat){.world = p->world, .root = p->root, .rank = rank};
}

static bool has_input(const checker *p, int rank, int part) {
    rpi_seat seat = seat_of(p, rank);
    return p->kind->gives(&seat, part);
}

static int wanted(const checker *p, int rank, int part) {
    rpi_seat seat = seat_of(p, rank);
    return p->kind->wants(&seat, part);
}

/* The weight with which a contribution ends in a result. */
static rpi_fraction result_weight(const checker *p) {
    return p->kind->reduces && p->request->mean ? (rpi_fraction){1, p->world}
                                                : (rpi_fraction){1, 1};
}

static bool is_finished(const checker *p, const rank_state *rank, const value *it) {
    if (p->kind->mixes)
        return rpi_combination_same(&p->combinations, it->contributions, rank->row);
    return rpi_combination_is(&p->combinations, it->contributions, 0, p->world - 1,
                              result_weight(p));
}

static rp_status read_input(checker *p, const rank_state *rank, value *out_value) {
    int part = current(rank)->part, self = rank->schedule->rank;
    if (!has_input(p, self, part)) return FAIL_HERE(rank, "the rank has no such input");
    if (rank->out[part].present) return FAIL_HERE(rank, "reads IN after OUT was written");
    *out_value = (value){.present = true,
                         .own = true,
                         .part = part,
                         .in_rank_order = true,
                         .contributions = rank->self};
    return rpi_expression_number(&p->expressions, RPI_OPERATION_INPUT, self, part,
                                 &out_value->expression);
}

static rp_status read_slot(checker *p, rank_state *rank, value *out_value) {
    const rpi_step *step = current(rank);
    if (step->from == RPI_SLOT_IN) return read_input(p, rank, out_value);
    value *slot = step->from == RPI_SLOT_SUM ? &rank->sum[step->part]
                                             : &rank->wire[step->from - RPI_SLOT_ENCODED];
    if (!slot->present)
        return FAIL_HERE(rank, "reads slot %d before it is written", step->from);
    slot->unread = false;
    *out_value = *slot;
    return RP_OK;
}

/* Times the weight of the step that reads it. */
static rp_status weigh(checker *p, const rpi_step *step, value *it) {
    if (!step->weight.over) return RP_OK;
    int64_t weight = (int64_t)step->weight.times * ((int64_t)INT32_MAX + 1) + step->weight.over;
    RP_TRY(rpi_combine_weigh(&p->combinations, it->contributions, step->weight,
                             &it->contributions));
    return rpi_expression_number(&p->expressions, RPI_OPERATION_WEIGHED, it->expression, weight,
                                 &it->expression);
}

/* To the dtype of the data, which is not that of every accumulator. */
static rp_status round_value(checker *p, value *it) {
    return rpi_expression_number(&p->expressions, RPI_OPERATION_ROUNDED, it->expression, 0,
                                 &it->expression);
}

static rp_status write_out(checker *p, rank_state *rank, value written) {
    int part = current(rank)->part;
    if (wanted(p, rank->schedule->rank, part) == RPI_FROM_NOBODY)
        return FAIL_HERE(rank, "the rank has no such output");
    if (rank->out[part].present) return FAIL_HERE(rank, "writes OUT twice");
    RP_TRY(round_value(p, &written));
    rank->out[part] = written;
    return RP_OK;
}

static rp_status write_slot(checker *p, rank_state *rank, value written) {
    const rpi_step *step = current(rank);
    if (step->into == RPI_SLOT_OUT) return write_out(p, rank, written);
    if (step->into >= RPI_SLOT_ENCODED) {
        rank->wire[step->into - RPI_SLOT_ENCODED] = written;
        return RP_OK;
    }
    if (rank->sum[step->part].unread && step->kind != RPI_STEP_ADD)
        return FAIL_HERE(rank, "overwrites a sum");
    written.unread = true;
    rank->sum[step->part] = written;
    return RP_OK;
}

/* A finished sum leaves the accumulator for everybody. */
static rp_status check_finished(const checker *p, const rank_state *rank, const value *sum) {
    if (!is_finished(p, rank, sum)) return FAIL_HERE(rank, "takes an unfinished sum");
    if (!sum->own && (!p->kind->mixes || rank->keeps))
        return FAIL_HERE(rank, "the owner's own contribution was encoded");
    return RP_OK;
}

static rp_status encode_lossily(checker *p, rank_state *rank, value *it) {
    int part = current(rank)->part;
    if (rank->encoded[part]) return FAIL_HERE(rank, "encodes the part a second time");
    rank->encoded[part] = true;
    it->own = false;
    it->depth++;
    return rpi_expression_number(&p->expressions, RPI_OPERATION_ENCODED, it->expression,
                                 rank->first_step + rank->at, &it->expression);
}

static rp_status run_encode(checker *p, rank_state *rank) {
    const rpi_step *step = current(rank);
    value it = {0};
    RP_TRY(read_slot(p, rank, &it));
    if (step->role == RPI_ROLE_OWNER) {
        if (step->from != RPI_SLOT_SUM) return FAIL_HERE(rank, "an owner encodes only sums");
        RP_TRY(check_finished(p, rank, &it));
    } else if (p->kind->reduces && p->world > 1 && is_finished(p, rank, &it)) {
        return FAIL_HERE(rank, "encodes a finished sum in the role of a sender");
    }
    bool exact = p->algorithm->exact || step->level == RPI_LEVEL_HOST;
    RP_TRY(exact ? round_value(p, &it) : encode_lossily(p, rank, &it));
    it.level = step->level;
    return write_slot(p, rank, it);
}

static rp_status run_decode(checker *p, rank_state *rank) {
    value it = {0};
    RP_TRY(read_slot(p, rank, &it));
    return write_slot(p, rank, it);
}

static rp_status run_copy(checker *p, rank_state *rank) {
    const rpi_step *step = current(rank);
    value it = {0};
    RP_TRY(read_slot(p, rank, &it));
    RP_TRY(weigh(p, step, &it));
    if (step->from == RPI_SLOT_SUM && step->into == RPI_SLOT_OUT)
        RP_TRY(check_finished(p, rank, &it));
    return write_slot(p, rank, it);
}

/* Is b's one rank behind all of a's? */
static bool follows(const checker *p, const value *a, const value *b) {
    return a->in_rank_order && rpi_combination_is_single(&p->combinations, b->contributions) &&
           rpi_combination_lowest(&p->combinations, b->contributions) >
               rpi_combination_highest(&p->combinations, a->contributions);
}

static rp_status run_add(checker *p, rank_state *rank) {
    const rpi_step *step = current(rank);
    value sum = rank->sum[step->part], it = {0};
    RP_TRY(read_slot(p, rank, &it));
    if (!sum.present) return FAIL_HERE(rank, "adds to a sum that was never written");
    RP_TRY(weigh(p, step, &it));
    it.in_rank_order = follows(p, &sum, &it);
    RP_TRY(rpi_combine_add(&p->combinations, sum.contributions, it.contributions,
                           &it.contributions));
    it.own |= sum.own;
    it.depth = it.depth > sum.depth ? it.depth : sum.depth;
    RP_TRY(rpi_expression_number(&p->expressions, RPI_OPERATION_ADDED, sum.expression,
                                 it.expression, &it.expression));
    return write_slot(p, rank, it);
}

static rp_status run_send(checker *p, rank_state *rank) {
    const rpi_step *step = current(rank);
    frame *link = &p->links[rank->schedule->rank * p->world + step->peer];
    frame sent = {.present = true, .token = step->from == RPI_SLOT_RTR, .heard = rank->heard};
    if (link->present) return RP_PENDING;
    if (!sent.token) RP_TRY(read_slot(p, rank, &sent.value));
    if (sent.value.level == RPI_LEVEL_HOST &&
        !rpi_same_host(p->request, rank->schedule->rank, step->peer))
        return FAIL_HERE(rank, "bytes that are for this host go to rank %d", step->peer);
    *link = sent;
    return RP_OK;
}

static rp_status run_recv(checker *p, rank_state *rank) {
    const rpi_step *step = current(rank);
    frame *link = &p->links[step->peer * p->world + rank->schedule->rank];
    if (!link->present) return RP_PENDING;
    if (link->token != (step->into == RPI_SLOT_RTR))
        return FAIL_HERE(rank, "a token meets a part");
    link->present = false;
    /* Only tokens are ordered before what follows them, whatever it touches. */
    if (link->token)
        return rpi_combine_unite(&p->combinations, rank->heard, link->heard, &rank->heard);
    if (rpi_collective_received_as(p->kind, p->world, link->value.part) != step->part)
        return FAIL_HERE(rank, "rank %d sends part %d here", step->peer, link->value.part);
    if (link->value.level != step->level)
        return FAIL_HERE(rank, "rank %d sends bytes of another level", step->peer);
    link->value.part = step->part;
    link->value.own = false;
    return write_slot(p, rank, link->value);
}

static rp_status run_fence(checker *p, rank_state *rank) {
    (void)p;
    (void)rank;
    return RP_OK;
}

static rp_status (*const run_step[RPI_STEP_KINDS])(checker *, rank_state *) = {
    [RPI_STEP_ENCODE] = run_encode, [RPI_STEP_SEND] = run_send, [RPI_STEP_RECV] = run_recv,
    [RPI_STEP_DECODE] = run_decode, [RPI_STEP_ADD] = run_add,   [RPI_STEP_COPY] = run_copy,
    [RPI_STEP_FENCE] = run_fence,
};

/* As far as a rank gets: RP_OK at its end, RP_PENDING when it has to wait. */
static rp_status advance(checker *p, rank_state *rank, bool *in_out_moved) {
    while (rank->at < rank->schedule->count) {
        RP_TRY(run_step[current(rank)->kind](p, rank));
        rank->at++;
        *in_out_moved = true;
    }
    return RP_OK;
}

static rp_status run_all(checker *p) {
    int waiting;
    bool moved;
    do {
        waiting = -1;
        moved = false;
        for (int r = 0; r < p->world; r++) {
            rp_status status = advance(p, &p->ranks[r], &moved);
            if (status == RP_PENDING)
                waiting = r;
            else if (status != RP_OK)
                return status;
        }
    } while (waiting >= 0 && moved);
    if (waiting < 0) return RP_OK;
    return FAIL_HERE(&p->ranks[waiting], "waits for rank %d for ever",
                     current(&p->ranks[waiting])->peer);
}

static rp_status check_links(const checker *p) {
    for (int from = 0; from < p->world; from++)
        for (int to = 0; to < p->world; to++)
            if (p->links[from * p->world + to].present)
                return rpi_schedule_fail(p->ranks[from].schedule, -1,
                                         "rank %d never receives the last frame", to);
    return RP_OK;
}

/* What the part ends with, in words where it is not what it should be. */
static rp_status check_contributions(const checker *p, int rank, int part, int want) {
    const value *got = &p->ranks[rank].out[part];
    if (p->kind->mixes && is_finished(p, &p->ranks[rank], got)) return RP_OK;
    bool all = want == RPI_FROM_ALL;
    int first = all ? 0 : want, last = all ? p->world - 1 : want;
    if (want == RPI_FROM_NOBODY
            ? !got->present
            : !p->kind->mixes &&
                  rpi_combination_is(&p->combinations, got->contributions, first, last,
                                     all ? result_weight(p) : (rpi_fraction){1, 1}))
        return RP_OK;
    char text[160];
    return rpi_schedule_fail(
        p->ranks[rank].schedule, -1, "part %d ends with contributions of %s, not of %s", part,
        rpi_combination_text(&p->combinations, got->contributions, text, sizeof text),
        want == RPI_FROM_NOBODY ? "nobody"
        : p->kind->mixes        ? "its neighbours by their weights"
        : all                   ? "all, each once"
                                : "its one rank");
}

static rp_status check_output(const checker *p, int rank, int part) {
    int want = wanted(p, rank, part);
    RP_TRY(check_contributions(p, rank, part, want));
    if (want == RPI_FROM_NOBODY || p->world == 1) return RP_OK;
    if (p->algorithm->rank_order && !p->ranks[rank].out[part].in_rank_order)
        return rpi_schedule_fail(p->ranks[rank].schedule, -1,
                                 "part %d is not summed in rank order", part);
    return RP_OK;
}

/* Whoever has a part that others have too holds the same bits: what it was computed by is the
 * same. */
static rp_status check_replica(const checker *p, int rank, int part) {
    bool but_root = p->kind->replicas == RPI_REPLICAS_BUT_THE_ROOT;
    if (p->kind->replicas == RPI_REPLICAS_NONE || p->world == 1 ||
        (but_root && rank == p->root))
        return RP_OK;
    int first = but_root ? (p->root + 1) % p->world : 0;
    if (p->ranks[rank].out[part].expression == p->ranks[first].out[part].expression)
        return RP_OK;
    return rpi_schedule_fail(p->ranks[rank].schedule, -1,
                             "part %d is not decoded from the encoding that rank %d has", part,
                             first);
}

static rp_status check_sums(const checker *p, int rank) {
    const rpi_schedule *schedule = p->ranks[rank].schedule;
    for (int part = 0; part < schedule->parts; part++)
        if (p->ranks[rank].sum[part].unread)
            return rpi_schedule_fail(schedule, -1, "nobody reads the sum of part %d", part);
    return RP_OK;
}

/* Are two ranks on one host, where encodings may be exact? */
static bool has_neighbours(const rpi_plan_request *request) {
    for (int a = 0; a < request->world; a++)
        for (int b = 0; b < a; b++)
            if (rpi_same_host(request, a, b)) return true;
    return false;
}

static rp_status check_outputs(const checker *p) {
    int depth = 0, claimed = p->algorithm->quantisations;
    for (int rank = 0; rank < p->world; rank++) {
        for (int part = 0; part < p->ranks[rank].schedule->parts; part++) {
            RP_TRY(check_output(p, rank, part));
            RP_TRY(check_replica(p, rank, part));
            int got = p->ranks[rank].out[part].depth;
            if (got > depth) depth = got;
        }
        RP_TRY(check_sums(p, rank));
    }
    bool fewer = depth < claimed && (p->kind->mixes || has_neighbours(p->request));
    if (claimed >= 0 && p->world > 1 && depth != claimed && !fewer)
        return rpi_schedule_fail(p->ranks[0].schedule, -1,
                                 "elements are encoded up to %d times, not %d", depth, claimed);
    return RP_OK;
}

static rp_status check_barrier(const checker *p) {
    for (int rank = 0; rank < p->world; rank++) {
        char text[160];
        rpi_combination heard = p->ranks[rank].heard;
        if (rpi_combination_is(&p->combinations, heard, 0, p->world - 1, (rpi_fraction){1, 1}))
            continue;
        return rpi_schedule_fail(
            p->ranks[rank].schedule, -1, "ends having heard of %s only",
            rpi_combination_text(&p->combinations, heard, text, sizeof text));
    }
    return RP_OK;
}

/* Every step of the sender that touches data must come after its token's RECV in the order of
 * plan.h, not just in the list: walk the graph from there. */
static rp_status check_token_first(const rpi_schedule *sender) {
    bool *after = NULL;
    RP_TRY(rpi_alloc_array((size_t)sender->count, sizeof *after, "steps reached", &after));
    rp_status status = RP_OK;
    for (int i = 0; i < sender->count && status == RP_OK; i++) {
        const rpi_step *step = &sender->steps[i];
        if (step->kind == RPI_STEP_RECV && step->into == RPI_SLOT_RTR)
            after[i] = true;
        else if (step->kind != RPI_STEP_FENCE && !after[i])
            status = rpi_schedule_fail(sender, i, "may run before the receiver is ready");
        for (int k = sender->next_first[i]; after[i] && k < sender->next_first[i + 1]; k++)
            after[sender->next[k]] = true;
    }
    rpi_free(after);
    return status;
}

/* Nobody can pass a block on without knowing how long it is. */
static rp_status check_blocks(const checker *p) {
    for (int rank = 0; rank < p->world; rank++) {
        const rpi_schedule *schedule = p->ranks[rank].schedule;
        for (int i = 0; i < schedule->count; i++) {
            int part = schedule->steps[i].part;
            if (!has_input(p, rank, part) && wanted(p, rank, part) == RPI_FROM_NOBODY)
                return rpi_schedule_fail(schedule, i, "the block is not one of this rank's");
        }
    }
    return RP_OK;
}

static rp_status prove(checker *p) {
    if (p->kind->has_blocks) RP_TRY(check_blocks(p));
    RP_TRY(run_all(p));
    RP_TRY(check_links(p));
    RP_TRY(check_outputs(p));
    if (p->kind->tokens_only) RP_TRY(check_barrier(p));
    if (p->kind->token_first) RP_TRY(check_token_first(p->ranks[0].schedule));
    return RP_OK;
}

/* The row of a rank as a combination. */
static rp_status add_to_row(checker *p, rank_state *rank, int source, rpi_fraction weight) {
    rpi_combination one, weighed;
    RP_TRY(rpi_combine_one(&p->combinations, source, &one));
    RP_TRY(rpi_combine_weigh(&p->combinations, one, weight, &weighed));
    return rpi_combine_add(&p->combinations, rank->row, weighed, &rank->row);
}

static rp_status open_row(checker *p, rank_state *rank) {
    int self = rank->schedule->rank;
    rpi_edges in = rpi_mixing_in(p->request->mixing, self);
    const rpi_edge *own = rpi_mixing_own(p->request->mixing, self).list;
    for (int i = 0; i < in.count; i++)
        RP_TRY(add_to_row(p, rank, in.list[i].rank, in.list[i].weight));
    rank->keeps = own->weight.times != 0;
    return rank->keeps ? add_to_row(p, rank, self, own->weight) : RP_OK;
}

static rp_status rank_open(checker *p, rank_state *rank, const rpi_schedule *schedule,
                           int first_step) {
    size_t parts = (size_t)schedule->parts, encoded_slots = (size_t)schedule->encoded_slots;
    *rank = (rank_state){.schedule = schedule, .first_step = first_step};
    RP_TRY(rpi_combine_one(&p->combinations, schedule->rank, &rank->self));
    rank->heard = rank->self;
    if (p->kind->mixes) RP_TRY(open_row(p, rank));
    RP_TRY(rpi_alloc_array(parts, sizeof *rank->out, "outputs to prove", &rank->out));
    RP_TRY(rpi_alloc_array(parts, sizeof *rank->sum, "sums to prove", &rank->sum));
    RP_TRY(rpi_alloc_array(encoded_slots, sizeof *rank->wire, "encoded slots to prove",
                           &rank->wire));
    return rpi_alloc_array(parts, sizeof *rank->encoded, "parts to prove", &rank->encoded);
}

static void checker_close(checker *p) {
    for (int r = 0; p->ranks && r < p->world; r++) {
        rpi_free(p->ranks[r].out);
        rpi_free(p->ranks[r].sum);
        rpi_free(p->ranks[r].wire);
        rpi_free(p->ranks[r].encoded);
    }
    rpi_free(p->ranks);
    rpi_free(p->links);
    rpi_combinations_free(&p->combinations);
    rpi_expressions_free(&p->expressions);
}

static rp_status checker_open(checker *p, const rpi_schedule *schedules,
                              const rpi_plan_request *request) {
    size_t ranks = (size_t)request->world;
    int steps = 0;
    *p = (checker){.algorithm = schedules[0].algorithm,
                   .kind = rpi_collective_kind_of(schedules[0].algorithm->collective),
                   .request = request,
                   .world = request->world,
                   .root = schedules[0].root};
    RP_TRY(rpi_alloc_array(ranks, sizeof *p->ranks, "ranks to prove", &p->ranks));
    RP_TRY(rpi_alloc_array(ranks * ranks, sizeof *p->links, "links to prove", &p->links));
    for (int r = 0; r < request->world; r++) {
        RP_TRY(rank_open(p, &p->ranks[r], &schedules[r], steps));
        steps += schedules[r].count;
    }
    return RP_OK;
}

static rp_status check_family(const rpi_schedule *schedules, const rpi_plan_request *request) {
    const rpi_algorithm *algorithm = schedules[0].algorithm;
    if (rpi_collective_kind_of(algorithm->collective)->mixes && !algorithm->fits(request))
        return rpi_schedule_fail(&schedules[0], -1, "the request has another mixing, or none");
    for (int r = 0; r < request->world; r++) {
        const rpi_schedule *it = &schedules[r];
        RP_TRY(rpi_schedule_check_shape(it));
        if (it->rank != r || it->world != request->world || it->mean != request->mean ||
            it->algorithm != schedules[0].algorithm || it->root != schedules[0].root ||
            it->parts != schedules[0].parts)
            return rpi_schedule_fail(it, -1, "ranks have schedules of different collectives");
    }
    return RP_OK;
}

static rp_status check_world(int world) {
    if (world >= 1 && world <= RPI_PLAN_CHECK_WORLD) return RP_OK;
    return RP_FAIL(UNSUPPORTED, "worlds of 1 to %d can be proved, not of %d",
                   RPI_PLAN_CHECK_WORLD, world);
}

rp_status rpi_plan_check_schedules(const rpi_schedule *schedules,
                                   const rpi_plan_request *request) {
    RP_TRY(check_world(request->world));
    RP_TRY(check_family(schedules, request));
    checker p;
    rp_status status = checker_open(&p, schedules, request);
    if (status == RP_OK) status = prove(&p);
    checker_close(&p);
    return status;
}

rp_status rpi_plan_check(const rpi_algorithm *algorithm, const rpi_plan_request *request) {
    rpi_schedule *schedules = NULL;
    int built = 0;
    RP_TRY(check_world(request->world));
    RP_TRY(rpi_alloc_array((size_t)request->world, sizeof *schedules, "schedules to prove",
                           &schedules));
    rp_status status = RP_OK;
    for (; built < request->world && status == RP_OK; built++) {
        rpi_plan_request own = *request;
        own.rank = built;
        status = rpi_schedule_build(algorithm, &own, &schedules[built]);
    }
    if (status == RP_OK) status = rpi_plan_check_schedules(schedules, request);
    for (int r = 0; r < built; r++) rpi_schedule_destroy(&schedules[r]);
    rpi_free(schedules);
    return status;
}
