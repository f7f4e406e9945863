/* Does a training fit into the memory of its hosts? All ranks check it together before anything
 * large is allocated. */
#include "base/memory.h"
#include "base/memory_limit.h"
#include "base/status.h"
#include "comm/core/communicator.h"
#include "train/memory_remedies.h"
#include "train/parallel/node_costs.h"
#include "train/parallel/rank_account.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The numbers that a rank tells the others. */
enum { NEED, LIMIT, LARGEST, LARGEST_BYTES, NUMBERS };

rp_status rpi_trainer_backend(const rpi_trainer *t, const rpi_backend **out_backend,
                              rp_dtype *out_compute) {
    *out_backend = rpi_backend_default();
    *out_compute = RP_F32;
    if (t->options->backend) RP_TRY(rpi_backend_find(t->options->backend, out_backend));
    return t->options->dtype ? rpi_compute_parse(t->options->dtype, out_compute) : RP_OK;
}

/* The options of a rank at this place, with this network, or this stage of it. */
static rp_status options_of(const rpi_trainer *t, const rpi_train_options *o,
                            const rpi_train_place *place, const rpi_network *network,
                            const rpi_model_stage *stage, rpi_rank_account_options *out) {
    int64_t batch = 0;
    RP_TRY(rpi_train_global_batch(o, place->workers, &batch));
    int64_t share = batch / place->workers;
    int64_t micro = share / rpi_train_micro_batches(o, place->workers, batch);
    bool lossy = place->holders > 1 && !rp_codec_is_exact(&t->codec.codec, RP_F32);
    *out = (rpi_rank_account_options){.network = network,
                                      .stage = stage,
                                      .recompute = o->recompute,
                                      .micro_batch = micro,
                                      .micro_batches = (int)((share + micro - 1) / micro),
                                      .slots = t->optimizer.kind->slot_count,
                                      .zero = (int)o->zero,
                                      .sharers = place->holders,
                                      .bucket_bytes = (int64_t)(o->bucket_mb * 1048576.0),
                                      .whole_tensors = t->optimizer.kind->whole_tensors,
                                      .host_ranks = rpi_trainer_host_ranks(t),
                                      .feeds_back = lossy && o->error_feedback,
                                      .activations = t->activations.codec};
    return rpi_trainer_backend(t, &out->backend, &out->compute);
}

/* ---- a bound that costs nothing: no two values share memory ---- */

static double bytes_of(const rpi_rank_account_options *o, rpi_value_id value) {
    return value == RPI_NO_VALUE
               ? 0
               : (double)rpi_stage_crossing(o->network, value, o->micro_batch) * sizeof(float);
}

/* An upper bound: activations, gradients, saved data, and workspace as large as any of them. */
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
    int host;    /* of the hosts that do not fit, the one that lacks most; -1: all fit */
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

/* Stands for infinity, which cannot be added up. */
#define NO_LIMIT 1e30

/* An unknown limit is above all needs. */
static double limit_here(const rpi_trainer *t) {
    if (t->options->memory_bytes > 0) return t->options->memory_bytes;
    return fmin(rpi_memory_limit(""), NO_LIMIT);
}

static rp_status try_account(tally *y, const rpi_rank_account_options *o) {
    rpi_rank_account account;
    RP_TRY(rpi_rank_account_make(o, &account));
    rpi_held_kind largest = rpi_rank_account_largest(&account);
    const double own[NUMBERS] = {account.all + rpi_memory_resident(), limit_here(y->t), largest,
                                 account.bytes[largest]};
    RP_TRY(gather(y, own));
    judge(y);
    return RP_OK;
}

static rp_status try_bound(tally *y, const rpi_rank_account_options *o) {
    const double own[NUMBERS] = {bound_of(o) + rpi_memory_resident(), limit_here(y->t)};
    RP_TRY(gather(y, own));
    judge(y);
    return RP_OK;
}

/* ---- what would fit ---- */

/* A rank's place in another layout, and what it would have of the model. */
typedef struct standing {
    rpi_train_place place;
    rpi_network network; /* with layers cut in another way; zeros: the trainer's own */
    rpi_model_stage stage;
} standing;

static void close_standing(standing *s) {
    rpi_stage_close(&s->stage);
    rpi_network_close(&s->network);
}

static rp_status cut_layers(const rpi_trainer *t, standing *s) {
    const rpi_loss_options loss = {.smoothing = t->options->label_smoothing,
                                   .mixes = t->options->mixup > 0};
    int ranks = s->place.grid.size[RPI_AXIS_TENSOR];
    const rpi_tensor_split split = {
        .ranks = ranks,
        .rank = rpi_grid_place_of(&s->place.grid, s->place.rank).at[RPI_AXIS_TENSOR],
        .context = {.ranks = s->place.grid.size[RPI_AXIS_CONTEXT]}};
    if (ranks == t->place.grid.size[RPI_AXIS_TENSOR] &&
        split.context.ranks == t->network.context_ranks)
        return RP_OK;
    return rpi_network_build_split(t->options->model, &t->source.shape, &loss, &split,
                                   &s->network);
}

/* Cut by operations, as before anything is measured. */
static rp_status cut_stages(const rpi_train_options *o, const rpi_network *network,
                            standing *s) {
    const rpi_pipeline_kind *schedule = NULL;
    double *costs = NULL;
    int stages = s->place.grid.size[RPI_AXIS_STAGE];
    bool is_open = !o->schedule || strcmp(o->schedule, "auto") == 0;
    if (stages == 1) return RP_OK;
    RP_TRY(rpi_pipeline_kind_find(is_open ? "1f1b" : o->schedule, &schedule));
    RP_TRY(rpi_node_costs(network, &costs));
    rp_status status = rpi_stage_open(
        network, costs, schedule, stages,
        rpi_grid_place_of(&s->place.grid, s->place.rank).at[RPI_AXIS_STAGE], &s->stage);
    rpi_free(costs);
    return status;
}

/* Activations are counted once for all stages of ZeRO. */
static rp_status count_needs(rpi_rank_account_options *o, double out[RPI_ZERO_STAGES]) {
    rpi_rank_account account;
    RP_TRY(rpi_rank_account_make(o, &account));
    for (o->zero = 0; o->zero < RPI_ZERO_STAGES; o->zero++) {
        RP_TRY(rpi_rank_account_share(o, &account));
        out[o->zero] = account.all + rpi_memory_resident();
    }
    return RP_OK;
}

static rp_status count_changed(const rpi_trainer *t, const rpi_train_options *o, standing *s,
                               double out[RPI_ZERO_STAGES]) {
    rpi_rank_account_options options;
    rpi_grid model;
    RP_TRY(rpi_train_grid(o, &model));
    RP_TRY(rpi_train_place_open(&model, t->place.rank, t->place.world, t->place.servers,
                                &s->place));
    RP_TRY(cut_layers(t, s));
    const rpi_network *network = s->network.graph ? &s->network : &t->network;
    RP_TRY(cut_stages(o, network, s));
    const rpi_model_stage *stage = s->stage.parts ? &s->stage : NULL;
    RP_TRY(options_of(t, o, &s->place, network, stage, &options));
    return count_needs(&options, out);
}

static void need_changed(void *context, const rpi_train_options *o,
                         double out[RPI_ZERO_STAGES]) {
    const tally *y = context;
    standing s = {0};
    if (count_changed(y->t, o, &s, out) != RP_OK)
        for (int zero = 0; zero < RPI_ZERO_STAGES; zero++) out[zero] = NO_LIMIT;
    close_standing(&s);
}

static rp_status fits_changed(void *context, double need, bool *out_fits) {
    tally *y = context;
    const double own[NUMBERS] = {need, limit_here(y->t)};
    RP_TRY(gather(y, own));
    judge(y);
    *out_fits = y->host < 0;
    return RP_OK;
}

static rp_status find_remedy(tally *y, char *text, size_t bytes) {
    const rpi_remedy_search search = {
        .options = y->t->options,
        .world = y->t->place.world,
        .repeats = y->t->network.memory_count == 0,
        .together = y->t->micro_batch,
        .runs = rpi_train_micro_batches(y->t->options, y->t->place.workers, y->t->global_batch),
        .need = need_changed,
        .fits = fits_changed,
        .context = y};
    return rpi_remedy_find(&search, text, bytes);
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

static rp_status refuse(tally *y) {
    char place[RPI_GRID_TEXT], fits[160];
    int rank = neediest(y), ranks = ranks_of_host(y);
    const double *its = y->all + (size_t)rank * NUMBERS;
    double need = its[NEED], largest = its[LARGEST_BYTES], lacks = y->lacks, has = y->has;
    rpi_held_kind kind = (rpi_held_kind)its[LARGEST];
    RP_TRY(find_remedy(y, fits, sizeof fits));
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
    double room = limit_here(y->t) / ranks_of_host(y) - rpi_memory_resident() - account.all +
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
    if (y->host >= 0) return refuse(y);
    return out_room ? find_room(y, o, out_room) : RP_OK;
}

rp_status rpi_trainer_check_memory(const rpi_trainer *t, const rpi_model_stage *stage,
                                   double *out_room) {
    tally y = {.t = t};
    rpi_rank_account_options options;
    if (!t->options->memory_check || !t->comm) return RP_OK;
    RP_TRY(options_of(t, t->options, &t->place, &t->network, stage, &options));
    RP_TRY(rpi_alloc_array((size_t)t->place.world * NUMBERS, sizeof *y.all, "what ranks need",
                           &y.all));
    rp_status status = check(&y, &options, out_room);
    rpi_free(y.all);
    return status;
}
