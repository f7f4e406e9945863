#include "plan/plan_check.h"

#include "base/memory.h"
#include "plan/schedule.h"

/* What stands for the numbers of one part. */
typedef struct value {
    uint64_t contributions; /* whose inputs are in it; 0: nothing was written here */
    uint64_t unencoded;     /* those that came straight from IN and were never encoded */
    int encoding;           /* which ENCODE it was decoded from, + 1; 0: none */
    int depth;              /* most encodings that any contribution has passed */
    int part;
    bool in_rank_order; /* a fold over single contributions, ranks rising */
    bool divided;       /* for a mean */
} value;

typedef struct frame {
    bool present, token;
    value value;
    uint64_t heard; /* ranks whose beginning precedes this frame */
} frame;

typedef struct rank_state {
    const rpi_schedule *schedule;
    int at;         /* next step */
    int first_step; /* number of its first step among all ranks' */
    uint64_t heard;
    value *out, *sum; /* [parts] */
    value *wire;      /* [wires] */
    bool *spent;      /* [parts]: the finished sum was taken, perhaps divided in place */
    bool *encoded;    /* [parts] */
} rank_state;

typedef struct proof {
    const rpi_algorithm *algorithm;
    int world, root;
    rank_state *ranks; /* [world] */
    frame *links;      /* [from * world + to]: the one frame on its way */
} proof;

static uint64_t bit(int rank) {
    return UINT64_C(1) << rank;
}

static uint64_t all_ranks(int world) {
    return world == 64 ? UINT64_MAX : bit(world) - 1;
}

static const rpi_step *current(const rank_state *rank) {
    return &rank->schedule->steps[rank->at];
}

/* Fail at the step that `rank` is about to do. */
#define FAIL_HERE(rank, ...) rpi_schedule_fail((rank)->schedule, (rank)->at, __VA_ARGS__)

/* Does the collective give the rank this part of IN? */
static bool has_input(const proof *p, int rank, int part) {
    switch (p->algorithm->collective) {
    case RPI_ALL_REDUCE:
    case RPI_REDUCE_SCATTER:
    case RPI_REDUCE: return true;
    case RPI_ALL_GATHER:
    case RPI_GATHER: return part == rank;
    case RPI_BROADCAST:
    case RPI_SCATTER: return rank == p->root;
    case RPI_ALL_TO_ALL: return part < p->world;
    case RPI_SENDRECV: return rank == 0;
    default: return false;
    }
}

/* Part 0 is the rank's own, part world + d comes from the rank d before. */
static uint64_t exchanged(const proof *p, int rank, int part) {
    if (part == 0) return bit(rank);
    int distance = part - p->world;
    return distance > 0 ? bit((rank - distance + p->world) % p->world) : 0;
}

/* The contributions that part of OUT must end with; 0: the rank has no such part. */
static uint64_t wanted(const proof *p, int rank, int part) {
    switch (p->algorithm->collective) {
    case RPI_ALL_REDUCE: return all_ranks(p->world);
    case RPI_REDUCE_SCATTER: return part == rank ? all_ranks(p->world) : 0;
    case RPI_ALL_GATHER: return bit(part);
    case RPI_BROADCAST: return bit(p->root);
    case RPI_SENDRECV: return rank == 1 ? bit(0) : 0;
    case RPI_REDUCE: return rank == p->root ? all_ranks(p->world) : 0;
    case RPI_GATHER: return rank == p->root ? bit(part) : 0;
    case RPI_SCATTER: return part == rank ? bit(p->root) : 0;
    case RPI_ALL_TO_ALL: return exchanged(p, rank, part);
    default: return 0;
    }
}

static bool reduces(const proof *p) {
    return p->algorithm->collective == RPI_ALL_REDUCE ||
           p->algorithm->collective == RPI_REDUCE_SCATTER ||
           p->algorithm->collective == RPI_REDUCE;
}

/* What a sender calls part p, the receiver calls so: blocks of an all-to-all are numbered by
 * distance, those received behind those sent. */
static int received_as(const proof *p, int part) {
    return p->algorithm->collective == RPI_ALL_TO_ALL ? p->world + part : part;
}

static rp_status read_slot(const proof *p, rank_state *rank, value *out_value) {
    const rpi_step *step = current(rank);
    int part = step->part, self = rank->schedule->rank;
    if (step->from >= RPI_SLOT_WIRE) {
        *out_value = rank->wire[step->from - RPI_SLOT_WIRE];
    } else if (step->from == RPI_SLOT_SUM) {
        if (rank->spent[part]) return FAIL_HERE(rank, "reads a sum that was taken before");
        *out_value = rank->sum[part];
    } else {
        if (!has_input(p, self, part)) return FAIL_HERE(rank, "the rank has no such input");
        if (rank->out[part].contributions)
            return FAIL_HERE(rank, "reads IN after OUT was written");
        *out_value = (value){.contributions = bit(self),
                             .unencoded = bit(self),
                             .part = part,
                             .in_rank_order = true};
    }
    if (!out_value->contributions)
        return FAIL_HERE(rank, "reads slot %d before it is written", step->from);
    return RP_OK;
}

static rp_status write_out(const proof *p, rank_state *rank, value written) {
    int part = current(rank)->part;
    if (!wanted(p, rank->schedule->rank, part))
        return FAIL_HERE(rank, "the rank has no such output");
    if (rank->out[part].contributions) return FAIL_HERE(rank, "writes OUT twice");
    rank->out[part] = written;
    return RP_OK;
}

static rp_status write_slot(const proof *p, rank_state *rank, value written) {
    const rpi_step *step = current(rank);
    if (step->into == RPI_SLOT_OUT) return write_out(p, rank, written);
    if (step->into >= RPI_SLOT_WIRE) {
        rank->wire[step->into - RPI_SLOT_WIRE] = written;
        return RP_OK;
    }
    if (rank->spent[step->part]) return FAIL_HERE(rank, "writes a sum that was taken before");
    if (written.divided) return FAIL_HERE(rank, "puts a divided value into a sum");
    if (rank->sum[step->part].contributions && step->kind != RPI_STEP_ADD)
        return FAIL_HERE(rank, "overwrites a sum");
    rank->sum[step->part] = written;
    return RP_OK;
}

/* A finished sum leaves the accumulator, divided where the caller asked for a mean. */
static rp_status take_sum(const proof *p, rank_state *rank, value *sum) {
    if (sum->contributions != all_ranks(p->world))
        return FAIL_HERE(rank, "takes an unfinished sum");
    if (!(sum->unencoded & bit(rank->schedule->rank)))
        return FAIL_HERE(rank, "the owner's own contribution was encoded");
    sum->divided = true;
    rank->spent[current(rank)->part] = true;
    return RP_OK;
}

static rp_status run_encode(proof *p, rank_state *rank) {
    const rpi_step *step = current(rank);
    value it = {0};
    RP_TRY(read_slot(p, rank, &it));
    if (rank->encoded[step->part]) return FAIL_HERE(rank, "encodes the part a second time");
    rank->encoded[step->part] = true;
    if (step->role == RPI_ROLE_OWNER) {
        if (step->from != RPI_SLOT_SUM) return FAIL_HERE(rank, "an owner encodes only sums");
        RP_TRY(take_sum(p, rank, &it));
    }
    it.encoding = rank->first_step + rank->at + 1;
    it.unencoded = 0;
    it.depth++;
    return write_slot(p, rank, it);
}

static rp_status run_decode(proof *p, rank_state *rank) {
    value it = {0};
    RP_TRY(read_slot(p, rank, &it));
    return write_slot(p, rank, it);
}

static rp_status run_copy(proof *p, rank_state *rank) {
    const rpi_step *step = current(rank);
    value it = {0};
    RP_TRY(read_slot(p, rank, &it));
    if (step->from == RPI_SLOT_SUM) RP_TRY(take_sum(p, rank, &it));
    return write_slot(p, rank, it);
}

static rp_status run_add(proof *p, rank_state *rank) {
    value *sum = &rank->sum[current(rank)->part];
    value it = {0};
    RP_TRY(read_slot(p, rank, &it));
    if (!sum->contributions) return FAIL_HERE(rank, "adds to a sum that was never written");
    if (sum->contributions & it.contributions)
        return FAIL_HERE(rank, "adds a contribution a second time");
    bool single = (it.contributions & (it.contributions - 1)) == 0;
    it.in_rank_order = sum->in_rank_order && single && it.contributions > sum->contributions;
    it.contributions |= sum->contributions;
    it.unencoded |= sum->unencoded;
    it.depth = it.depth > sum->depth ? it.depth : sum->depth;
    it.encoding = 0;
    return write_slot(p, rank, it);
}

static rp_status run_send(proof *p, rank_state *rank) {
    const rpi_step *step = current(rank);
    frame *link = &p->links[rank->schedule->rank * p->world + step->peer];
    frame sent = {.present = true, .token = step->from == RPI_SLOT_TOKEN, .heard = rank->heard};
    if (link->present) return RP_PENDING;
    if (!sent.token) RP_TRY(read_slot(p, rank, &sent.value));
    *link = sent;
    return RP_OK;
}

static rp_status run_recv(proof *p, rank_state *rank) {
    const rpi_step *step = current(rank);
    frame *link = &p->links[step->peer * p->world + rank->schedule->rank];
    if (!link->present) return RP_PENDING;
    if (link->token != (step->into == RPI_SLOT_TOKEN))
        return FAIL_HERE(rank, "a token meets a part");
    link->present = false;
    /* Only tokens are ordered before what follows them, whatever it touches. */
    if (link->token) {
        rank->heard |= link->heard;
        return RP_OK;
    }
    if (received_as(p, link->value.part) != step->part)
        return FAIL_HERE(rank, "rank %d sends part %d here", step->peer, link->value.part);
    link->value.part = step->part;
    return write_slot(p, rank, link->value);
}

static rp_status run_fence(proof *p, rank_state *rank) {
    (void)p;
    (void)rank;
    return RP_OK;
}

static rp_status (*const run_step[RPI_STEP_KINDS])(proof *, rank_state *) = {
    [RPI_STEP_ENCODE] = run_encode, [RPI_STEP_SEND] = run_send, [RPI_STEP_RECV] = run_recv,
    [RPI_STEP_DECODE] = run_decode, [RPI_STEP_ADD] = run_add,   [RPI_STEP_COPY] = run_copy,
    [RPI_STEP_FENCE] = run_fence,
};

/* As far as a rank gets: RP_OK at its end, RP_PENDING when it has to wait. */
static rp_status advance(proof *p, rank_state *rank, bool *in_out_moved) {
    while (rank->at < rank->schedule->count) {
        RP_TRY(run_step[current(rank)->kind](p, rank));
        rank->at++;
        *in_out_moved = true;
    }
    return RP_OK;
}

static rp_status run_all(proof *p) {
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

static rp_status check_links(const proof *p) {
    for (int from = 0; from < p->world; from++)
        for (int to = 0; to < p->world; to++)
            if (p->links[from * p->world + to].present)
                return rpi_schedule_fail(p->ranks[from].schedule, -1,
                                         "rank %d never receives the last frame", to);
    return RP_OK;
}

static rp_status check_output(const proof *p, int rank, int part) {
    const value *got = &p->ranks[rank].out[part];
    const rpi_schedule *schedule = p->ranks[rank].schedule;
    uint64_t want = wanted(p, rank, part);
    if (got->contributions != want)
        return rpi_schedule_fail(
            schedule, -1, "part %d ends with contributions %#llx, not %#llx", part,
            (unsigned long long)got->contributions, (unsigned long long)want);
    if (!want || p->world == 1) return RP_OK;
    if (got->divided != reduces(p))
        return rpi_schedule_fail(schedule, -1, "part %d is %sdivided for a mean", part,
                                 got->divided ? "" : "not ");
    if (p->algorithm->rank_order && !got->in_rank_order)
        return rpi_schedule_fail(schedule, -1, "part %d is not summed in rank order", part);
    return RP_OK;
}

/* Whoever has a part that others have too holds the same bits: those of one encoding. */
static rp_status check_replica(const proof *p, int rank, int part) {
    rpi_collective collective = p->algorithm->collective;
    if (collective != RPI_ALL_REDUCE && collective != RPI_ALL_GATHER &&
        collective != RPI_BROADCAST)
        return RP_OK;
    if (p->world == 1 || (collective == RPI_BROADCAST && rank == p->root)) return RP_OK;
    int first = collective == RPI_BROADCAST ? (p->root + 1) % p->world : 0;
    int encoding = p->ranks[rank].out[part].encoding;
    if (!encoding || encoding != p->ranks[first].out[part].encoding)
        return rpi_schedule_fail(p->ranks[rank].schedule, -1,
                                 "part %d is not decoded from the encoding that rank %d has",
                                 part, first);
    return RP_OK;
}

static rp_status check_outputs(const proof *p) {
    int depth = 0, claimed = p->algorithm->quantisations;
    for (int rank = 0; rank < p->world; rank++) {
        for (int part = 0; part < p->ranks[rank].schedule->parts; part++) {
            RP_TRY(check_output(p, rank, part));
            RP_TRY(check_replica(p, rank, part));
            int got = p->ranks[rank].out[part].depth;
            if (got > depth) depth = got;
        }
    }
    if (claimed >= 0 && p->world > 1 && depth != claimed)
        return rpi_schedule_fail(p->ranks[0].schedule, -1,
                                 "elements are encoded up to %d times, not %d", depth, claimed);
    return RP_OK;
}

static rp_status check_barrier(const proof *p) {
    for (int rank = 0; rank < p->world; rank++)
        if (p->ranks[rank].heard != all_ranks(p->world))
            return rpi_schedule_fail(p->ranks[rank].schedule, -1,
                                     "ends having heard of ranks %#llx only",
                                     (unsigned long long)p->ranks[rank].heard);
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
        if (step->kind == RPI_STEP_RECV && step->into == RPI_SLOT_TOKEN)
            after[i] = true;
        else if (step->kind != RPI_STEP_FENCE && !after[i])
            status = rpi_schedule_fail(sender, i, "may run before the receiver is ready");
        for (int k = sender->next_first[i]; after[i] && k < sender->next_first[i + 1]; k++)
            after[sender->next[k]] = true;
    }
    rpi_free(after);
    return status;
}

static bool has_blocks(const proof *p) {
    rpi_collective collective = p->algorithm->collective;
    return collective == RPI_GATHER || collective == RPI_SCATTER ||
           collective == RPI_ALL_TO_ALL;
}

/* Nobody can pass a block on without knowing how long it is. */
static rp_status check_blocks(const proof *p) {
    for (int rank = 0; rank < p->world; rank++) {
        const rpi_schedule *schedule = p->ranks[rank].schedule;
        for (int i = 0; i < schedule->count; i++) {
            int part = schedule->steps[i].part;
            if (!has_input(p, rank, part) && !wanted(p, rank, part))
                return rpi_schedule_fail(schedule, i, "the block is not one of this rank's");
        }
    }
    return RP_OK;
}

static rp_status prove(proof *p) {
    if (has_blocks(p)) RP_TRY(check_blocks(p));
    RP_TRY(run_all(p));
    RP_TRY(check_links(p));
    RP_TRY(check_outputs(p));
    if (p->algorithm->collective == RPI_BARRIER) RP_TRY(check_barrier(p));
    if (p->algorithm->collective == RPI_SENDRECV)
        RP_TRY(check_token_first(p->ranks[0].schedule));
    return RP_OK;
}

static rp_status rank_open(rank_state *rank, const rpi_schedule *schedule, int first_step) {
    size_t parts = (size_t)schedule->parts, wires = (size_t)schedule->wires;
    *rank = (rank_state){.schedule = schedule, .first_step = first_step};
    rank->heard = bit(schedule->rank);
    RP_TRY(rpi_alloc_array(parts, sizeof *rank->out, "outputs to prove", &rank->out));
    RP_TRY(rpi_alloc_array(parts, sizeof *rank->sum, "sums to prove", &rank->sum));
    RP_TRY(rpi_alloc_array(wires, sizeof *rank->wire, "wires to prove", &rank->wire));
    RP_TRY(rpi_alloc_array(parts, sizeof *rank->spent, "sums to prove", &rank->spent));
    return rpi_alloc_array(parts, sizeof *rank->encoded, "parts to prove", &rank->encoded);
}

static void proof_close(proof *p) {
    for (int r = 0; p->ranks && r < p->world; r++) {
        rpi_free(p->ranks[r].out);
        rpi_free(p->ranks[r].sum);
        rpi_free(p->ranks[r].wire);
        rpi_free(p->ranks[r].spent);
        rpi_free(p->ranks[r].encoded);
    }
    rpi_free(p->ranks);
    rpi_free(p->links);
}

static rp_status proof_open(proof *p, const rpi_schedule *schedules, int world) {
    size_t ranks = (size_t)world;
    int steps = 0;
    *p =
        (proof){.algorithm = schedules[0].algorithm, .world = world, .root = schedules[0].root};
    RP_TRY(rpi_alloc_array(ranks, sizeof *p->ranks, "ranks to prove", &p->ranks));
    RP_TRY(rpi_alloc_array(ranks * ranks, sizeof *p->links, "links to prove", &p->links));
    for (int r = 0; r < world; r++) {
        RP_TRY(rank_open(&p->ranks[r], &schedules[r], steps));
        steps += schedules[r].count;
    }
    return RP_OK;
}

static rp_status check_family(const rpi_schedule *schedules, int world) {
    for (int r = 0; r < world; r++) {
        const rpi_schedule *it = &schedules[r];
        RP_TRY(rpi_schedule_check_shape(it));
        if (it->rank != r || it->world != world || it->algorithm != schedules[0].algorithm ||
            it->root != schedules[0].root || it->parts != schedules[0].parts)
            return rpi_schedule_fail(it, -1, "ranks have schedules of different collectives");
    }
    return RP_OK;
}

rp_status rpi_plan_check_schedules(const rpi_schedule *schedules, int world) {
    if (world < 1 || world > RPI_PLAN_CHECK_WORLD)
        return RP_FAIL(UNSUPPORTED, "worlds of 1 to %d can be proved, not of %d",
                       RPI_PLAN_CHECK_WORLD, world);
    RP_TRY(check_family(schedules, world));
    proof p;
    rp_status status = proof_open(&p, schedules, world);
    if (status == RP_OK) status = prove(&p);
    proof_close(&p);
    return status;
}

rp_status rpi_plan_check(const rpi_algorithm *algorithm, int world, int root) {
    rpi_schedule schedules[RPI_PLAN_CHECK_WORLD] = {0};
    if (world > RPI_PLAN_CHECK_WORLD)
        return RP_FAIL(UNSUPPORTED, "worlds of 1 to %d can be proved, not of %d",
                       RPI_PLAN_CHECK_WORLD, world);
    rp_status status = RP_OK;
    int built = 0;
    for (; built < world && status == RP_OK; built++) {
        rpi_plan_request request = {.world = world, .rank = built, .root = root};
        status = rpi_schedule_build(algorithm, &request, &schedules[built]);
    }
    if (status == RP_OK) status = rpi_plan_check_schedules(schedules, world);
    for (int r = 0; r < built; r++) rpi_schedule_destroy(&schedules[r]);
    return status;
}
