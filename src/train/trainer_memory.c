/* Does a training fit into the memory of its hosts? Looked at before anything of its size is
 * allocated, by all ranks together. */
#include "base/append.h"
#include "base/memory.h"
#include "base/memory_limit.h"
#include "base/status.h"
#include "comm/core/communicator.h"
#include "train/parallel/rank_account.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>

/* What a rank tells the others. */
enum { NEED, LIMIT, LARGEST, LARGEST_BYTES, NUMBERS };

/* What a user could change, one after the other, and all of it. */
typedef struct remedy {
    const char *name;
    bool (*helps)(const rpi_trainer *t);
    void (*apply)(rpi_rank_account_options *options);
} remedy;

static bool could_share(const rpi_trainer *t) {
    return t->place.holders > 1 && !t->options->zero && t->strategy->shares_optimizer;
}
static void share(rpi_rank_account_options *o) {
    o->zero = 1;
}
static bool could_repeat(const rpi_trainer *t) {
    return !t->options->recompute && t->network.memory_count == 0;
}
static void repeat(rpi_rank_account_options *o) {
    o->recompute = true;
}
static bool could_run_less(const rpi_trainer *t) {
    return t->micro_batch > 1;
}
static void run_less(rpi_rank_account_options *o) {
    o->micro_batches *= (int)o->micro_batch;
    o->micro_batch = 1;
}

static const remedy remedies[] = {
    {"--zero 1", could_share, share},
    {"--recompute", could_repeat, repeat},
    {"--micro-batch-size 1", could_run_less, run_less},
};
enum { REMEDIES = sizeof remedies / sizeof remedies[0] };

rp_status rpi_trainer_backend(const rpi_trainer *t, const rpi_backend **out_backend,
                              rp_dtype *out_compute) {
    *out_backend = rpi_backend_default();
    *out_compute = RP_F32;
    if (t->options->backend) RP_TRY(rpi_backend_find(t->options->backend, out_backend));
    return t->options->dtype ? rpi_compute_parse(t->options->dtype, out_compute) : RP_OK;
}

static rp_status options_of(const rpi_trainer *t, const rpi_model_stage *stage,
                            rpi_rank_account_options *out) {
    int64_t share = t->global_batch / t->place.workers;
    bool lossy = t->place.holders > 1 && !rp_codec_is_exact(&t->codec.codec, RP_F32);
    *out = (rpi_rank_account_options){.network = &t->network,
                                      .stage = stage,
                                      .recompute = t->options->recompute,
                                      .micro_batch = t->micro_batch,
                                      .micro_batches =
                                          (int)((share + t->micro_batch - 1) / t->micro_batch),
                                      .slots = t->optimizer.kind->slot_count,
                                      .zero = (int)t->options->zero,
                                      .sharers = t->place.holders,
                                      .feeds_back = lossy && t->options->error_feedback};
    return rpi_trainer_backend(t, &out->backend, &out->compute);
}

/* ---- a bound that costs nothing: no two values share memory ---- */

static double bytes_of(const rpi_rank_account_options *o, rpi_value_id value) {
    return value == RPI_NO_VALUE
               ? 0
               : (double)rpi_stage_crossing(o->network, value, o->micro_batch) * sizeof(float);
}

/* With gradients, what is saved besides, and workspace as large as any of it. */
static double bound_of(const rpi_rank_account_options *o) {
    enum { COPIES = 4 };
    const rpi_graph *graph = o->network->graph;
    double values = 0, parameters = 0;
    for (int n = 0; n < rpi_graph_node_count(graph); n++) {
        const rpi_node *node = rpi_graph_node(graph, n);
        for (int i = 0; i < node->output_count; i++) values += bytes_of(o, node->outputs[i]);
    }
    for (int i = 0; i < o->network->parameter_count; i++)
        parameters += bytes_of(o, o->network->parameters[i].value);
    int in_flight = o->stage ? o->micro_batches : 1;
    return COPIES * values * in_flight + parameters * (3 + o->slots);
}

/* ---- all ranks together ---- */

typedef struct tally {
    const rpi_trainer *t;
    double *all; /* [world][NUMBERS] */
    int host;    /* of those that do not fit, the one that lacks most; -1: all fit */
    double lacks, has;
} tally;

static int host_of(const rpi_trainer *t, int rank) {
    return t->comm->hosts ? t->comm->hosts[rank] : 0;
}

static rp_status gather(tally *y, const double own[NUMBERS]) {
    int world = y->t->place.world;
    size_t count = (size_t)world * NUMBERS;
    for (size_t i = 0; i < count; i++) y->all[i] = 0;
    for (int i = 0; i < NUMBERS; i++) y->all[y->t->place.rank * NUMBERS + i] = own[i];
    rp_segment sums = {.data = y->all, .count = count, .dtype = RP_F64};
    return rp_all_reduce(y->t->comm, &sums, 1, NULL);
}

static void judge(tally *y) {
    int world = y->t->place.world;
    y->host = -1;
    y->lacks = 0;
    for (int first = 0; first < world; first++) {
        double need = 0, limit = INFINITY;
        for (int rank = 0; rank < world; rank++) {
            if (host_of(y->t, rank) != host_of(y->t, first)) continue;
            need += y->all[rank * NUMBERS + NEED];
            limit = fmin(limit, y->all[rank * NUMBERS + LIMIT]);
        }
        if (!(need - limit > y->lacks)) continue;
        y->lacks = need - limit;
        y->has = limit;
        y->host = host_of(y->t, first);
    }
}

/* A limit that is not known is above all; infinity does not add up. */
static double limit_here(void) {
    return fmin(rpi_memory_limit(""), 1e30);
}

static rp_status try_account(tally *y, const rpi_rank_account_options *o) {
    rpi_rank_account account;
    RP_TRY(rpi_rank_account_make(o, &account));
    rpi_held_kind largest = rpi_rank_account_largest(&account);
    const double own[NUMBERS] = {account.all + rpi_memory_resident(), limit_here(), largest,
                                 account.bytes[largest]};
    RP_TRY(gather(y, own));
    judge(y);
    return RP_OK;
}

static rp_status try_bound(tally *y, const rpi_rank_account_options *o) {
    const double own[NUMBERS] = {bound_of(o) + rpi_memory_resident(), limit_here()};
    RP_TRY(gather(y, own));
    judge(y);
    return RP_OK;
}

/* ---- what would fit ---- */

static rp_status list_remedies(tally *y, const rpi_rank_account_options *usual, char *text,
                               size_t bytes) {
    rpi_rank_account_options all = *usual;
    char together[96] = "";
    int fitting = 0, tried = 0;
    text[0] = '\0';
    for (int i = 0; i < REMEDIES; i++) {
        rpi_rank_account_options one = *usual;
        if (!remedies[i].helps(y->t)) continue;
        remedies[i].apply(&one);
        remedies[i].apply(&all);
        rpi_append(together, sizeof together, "%s%s", tried++ ? " and " : "", remedies[i].name);
        RP_TRY(try_account(y, &one));
        if (y->host < 0)
            rpi_append(text, bytes, "%s%s", fitting++ ? " or " : "", remedies[i].name);
    }
    if (fitting || tried < 2) return RP_OK;
    RP_TRY(try_account(y, &all));
    if (y->host < 0) rpi_append(text, bytes, "%s", together);
    return RP_OK;
}

static int neediest(const tally *y) {
    int most = -1;
    for (int rank = 0; rank < y->t->place.world; rank++) {
        if (host_of(y->t, rank) != y->host) continue;
        if (most < 0 || y->all[rank * NUMBERS + NEED] > y->all[most * NUMBERS + NEED])
            most = rank;
    }
    return most;
}

static int ranks_of_host(const tally *y) {
    int count = 0;
    for (int rank = 0; rank < y->t->place.world; rank++)
        count += host_of(y->t, rank) == y->host;
    return count;
}

static rp_status refuse(tally *y, const rpi_rank_account_options *o) {
    char place[RPI_GRID_TEXT], fits[160];
    int rank = neediest(y), ranks = ranks_of_host(y);
    const double *its = y->all + (size_t)rank * NUMBERS;
    double need = its[NEED], largest = its[LARGEST_BYTES], lacks = y->lacks, has = y->has;
    rpi_held_kind kind = (rpi_held_kind)its[LARGEST];
    RP_TRY(list_remedies(y, o, fits, sizeof fits));
    return RP_FAIL(
        NOMEM,
        "%s needs %.3f GB, of which %.3f GB for %s; the %d rank%s of its host need "
        "%.3f GB more than the %.3f GB that are there: %s%smore ranks on more hosts "
        "hold less each (--pp, --tp, --cp, --zero); --no-memory-check starts all the same",
        rpi_train_place_text(&y->t->place, rank, place), 1e-9 * need, 1e-9 * largest,
        rpi_held_name(kind), ranks, ranks == 1 ? "" : "s", 1e-9 * lacks, 1e-9 * has, fits,
        fits[0] ? " would fit; " : "");
}

/* ---- room ---- */

static rp_status find_room(tally *y, const rpi_rank_account_options *o, double *out_room) {
    rpi_rank_account account;
    RP_TRY(rpi_rank_account_make(o, &account));
    y->host = host_of(y->t, y->t->place.rank);
    double room = limit_here() / ranks_of_host(y) - rpi_memory_resident() - account.all +
                  account.bytes[RPI_HELD_ACTIVATIONS];
    rp_segment least = {.data = &room, .count = 1, .dtype = RP_F64};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = RP_MIN);
    RP_TRY(rp_all_reduce(y->t->comm, &least, 1, &options));
    *out_room = room;
    return RP_OK;
}

static rp_status check(tally *y, const rpi_rank_account_options *o, double *out_room) {
    RP_TRY(try_bound(y, o));
    if (y->host >= 0) RP_TRY(try_account(y, o));
    if (y->host >= 0) return refuse(y, o);
    return out_room ? find_room(y, o, out_room) : RP_OK;
}

rp_status rpi_trainer_check_memory(const rpi_trainer *t, const rpi_model_stage *stage,
                                   double *out_room) {
    tally y = {.t = t};
    rpi_rank_account_options options;
    if (!t->options->memory_check || !t->comm) return RP_OK;
    RP_TRY(options_of(t, stage, &options));
    RP_TRY(rpi_alloc_array((size_t)t->place.world * NUMBERS, sizeof *y.all, "what ranks need",
                           &y.all));
    rp_status status = check(&y, &options, out_room);
    rpi_free(y.all);
    return status;
}
