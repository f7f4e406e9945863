#include "train/trainer.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "methods/vector_memory.h"

#include <string.h>

static rp_status load_data(rpi_trainer *t) {
    const rpi_train_options *o = t->options;
    RP_TRY(rpi_train_global_batch(o, t->place.workers, &t->global_batch));
    int64_t runs = rpi_train_micro_batches(o, t->place.workers, t->global_batch);
    t->micro_batch = t->global_batch / t->place.workers / runs;
    rpi_source_options options = {.data = o->data,
                                  .folder = o->data_dir,
                                  .seed = (uint64_t)o->seed,
                                  .train_count = o->train_images,
                                  .test_count = o->test_images,
                                  .sequence = o->seq_length,
                                  .pictures = o->pictures,
                                  .global_batch = t->global_batch,
                                  .most = t->global_batch / t->place.workers,
                                  .rank = t->place.worker,
                                  .world = t->place.workers};
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(o->model, &choice));
    options.continues = rpi_model_memory(&choice) > 0;
    RP_TRY(rpi_split_parse(o->split, &options.split));
    return rpi_source_open(&options, &t->source);
}

static rp_status take_travelling(void *context, size_t bytes, const char *what,
                                 void **out_memory) {
    const rpi_trainer *t = context;
    return rpi_vector_alloc(t->comm, bytes, what, out_memory);
}

/* Gradients that are encoded are read by this rank only. */
static bool others_read_gradients(const rpi_trainer *t) {
    bool may_be_exact = t->codec.fastest || rp_codec_is_exact(&t->codec.codec, RP_F32);
    return t->strategy->sends_gradients && may_be_exact;
}

/* What owners gather at the end of a step. */
static bool others_read_values(const rpi_trainer *t) {
    return t->options->zero && t->place.holders > 1 &&
           rp_codec_is_exact(&t->weights_codec, RP_F32);
}

static rpi_weights_memory memory_of(const rpi_trainer *t, const rpi_arena_memory *travelling) {
    rpi_weights_memory memory = {&rpi_arena_memory_own, &rpi_arena_memory_own};
    if (others_read_values(t)) memory.values = travelling;
    if (others_read_gradients(t) && rpi_train_place_is_alone(&t->place))
        memory.gradients = travelling;
    if (rpi_trainer_passes_values(t)) memory.values = NULL;
    if (rpi_trainer_passes_gradients(t)) memory.gradients = NULL;
    return memory;
}

static rp_status create_weights(rpi_trainer *t) {
    const rpi_arena_memory travelling = {
        .take = take_travelling, .give = rpi_vector_free, .context = t};
    const rpi_weights_memory memory = memory_of(t, &travelling);
    if (rpi_trainer_is_staged(t)) return rpi_trainer_open_stage(t, &memory);
    RP_TRY(rpi_trainer_check_memory(t, NULL, NULL));
    const rpi_weights_source source = {.graph = t->network.graph, .loss = t->network.loss};
    return rpi_weights_create_with(&source, 1, &memory, &t->weights);
}

static rp_status build_network(rpi_trainer *t) {
    const rpi_loss_options loss = {.smoothing = t->options->label_smoothing,
                                   .mixes = t->options->mixup > 0};
    rpi_tensor_split split;
    RP_TRY(rpi_trainer_open_split(t, &split));
    RP_TRY(rpi_trainer_open_context(t, &split.context));
    RP_TRY(rpi_network_build_split(t->options->model, &t->source.shape, &loss, &split,
                                   &t->network));
    RP_TRY(rpi_mixup_open(t->options->mixup, &t->source.shape,
                          t->global_batch / t->place.workers, &t->mixup));
    const rpi_shape *logits = &rpi_graph_value(t->network.graph, t->network.logits)->shape;
    rpi_source_limit(&t->source, t->network.whole_logits ? t->network.whole_logits
                                                         : logits->size[logits->dims - 1]);
    RP_TRY(create_weights(t));
    RP_TRY(rpi_trainer_open_tensor_sums(t));
    rpi_network_initialise(&t->network, t->weights, (uint64_t)t->options->seed);
    RP_TRY(rpi_memories_open(&t->network, t->global_batch / t->place.workers, &t->memories));
    const rpi_backend *backend = NULL;
    rpi_backend_options options = {.threads = (int)t->options->threads};
    rp_dtype compute = RP_F32;
    RP_TRY(rpi_trainer_backend(t, &backend, &compute));
    RP_TRY(rpi_program_set_open(&t->network, t->weights, backend, &options, compute,
                                &t->programs));
    t->programs.recompute = t->options->recompute;
    t->programs.in_flight = rpi_trainer_is_staged(t);
    t->programs.halves = rpi_trainer_is_staged(t) && t->stage.schedule->splits;
    return RP_OK;
}

static bool feeds_back(const rpi_trainer *t) {
    const rpi_strategy *strategy = t->strategy;
    return !strategy->feeds_back ||
           strategy->feeds_back(rpi_strategy_options(t->options->strategy));
}

static int64_t bucket_bytes(const rpi_trainer *t) {
    return (int64_t)(t->options->bucket_mb * 1048576.0);
}

static bool keeps_values(const rpi_trainer *t) {
    if (rpi_trainer_passes_values(t)) return true;
    return t->ownership.count && !rp_codec_is_exact(&t->weights_codec, RP_F32);
}

/* Copies that all ranks of a layer have are cut alike on all of them, if none has more than it
 * owns, so that they can compare them. */
static void number_copies(const rpi_trainer *t, int *ties) {
    bool are_cut = rpi_trainer_is_split(t) && rpi_trainer_passes_values(t);
    for (int i = 0; are_cut && i < t->network.parameter_count; i++) {
        const rpi_parameter *p = &t->network.parameters[i];
        const rpi_weight *weight = rpi_weights_find(t->weights, p->name);
        if (weight && !weight->is_state && p->shard.kind == RPI_SHARD_WHOLE)
            ties[weight->index] = t->stage.tie_count + i + 1;
    }
}

/* Of each parameter its number among the model's ties, from 1 on. */
static void number_ties(const rpi_trainer *t, int *ties) {
    number_copies(t, ties);
    for (int i = 0; i < t->stage.tie_count; i++) {
        const char *name = t->network.parameters[t->stage.ties[i].parameter].name;
        const rpi_weight *weight = rpi_weights_find(t->weights, name);
        if (weight) ties[weight->index] = i + 1;
    }
}

static rp_status share_optimizer(rpi_trainer *t) {
    int *ties = NULL;
    if (!t->options->zero || t->place.holders == 1) return RP_OK;
    RP_TRY(rpi_alloc_array((size_t)rpi_weights_parameter_count(t->weights), sizeof *ties,
                           "ties", &ties));
    number_ties(t, ties);
    const rpi_ownership_options options = {
        .weights = t->weights,
        .ranks = t->place.holders,
        .bucket_bytes = bucket_bytes(t),
        .granule = rpi_ownership_granule(&t->codec, &t->weights_codec),
        .whole_tensors = t->optimizer.kind->whole_tensors,
        .ties = ties};
    rp_status status = rpi_ownership_cut(&options, &t->ownership);
    rpi_free(ties);
    return status;
}

static rp_status open_optimizer_of(rpi_trainer *t, const rpi_arena_range *owned, int count) {
    const rpi_train_options *o = t->options;
    const rpi_optimizer_state_options options = {.kind = t->optimizer.kind,
                                                 .network = &t->network,
                                                 .weights = t->weights,
                                                 .rates = rpi_train_rates(o),
                                                 .decays_all = strcmp(o->decay, "all") == 0,
                                                 .clip = o->clip,
                                                 .threads = (int)o->threads,
                                                 .owned = owned,
                                                 .owned_count = count,
                                                 .keeps_values = keeps_values(t),
                                                 .keeps_gradients =
                                                     rpi_trainer_passes_gradients(t)};
    return rpi_optimizer_state_open(&options, &t->optimizer);
}

/* Initialises a run of elements in the whole tensor, and in this rank's part of it: those that
 * it owns. */
static rp_status initialise_run(void *context, const rpi_parameter *parameter,
                                const rpi_shard_run *run) {
    const rpi_trainer *t = context;
    const rpi_weight *weight = rpi_weights_find(t->weights, parameter->name);
    const rpi_arena_range has = {weight->first + run->local, run->count};
    rpi_arena_range owned = {0};
    while (rpi_optimizer_state_next(&t->optimizer, has, &owned))
        rpi_parameter_initialise(parameter, (uint64_t)t->options->seed,
                                 run->whole + (owned.first - has.first), owned.count,
                                 rpi_optimizer_state_values(&t->optimizer, owned.first));
    return RP_OK;
}

/* Parameters without an arena begin where they are owned. Records were checked when they were
 * declared, so that their runs cannot fail. */
static void initialise_owned(rpi_trainer *t) {
    for (int i = 0; i < t->network.parameter_count; i++) {
        const rpi_weight *weight = rpi_weights_find(t->weights, t->network.parameters[i].name);
        if (weight && !weight->is_state)
            (void)rpi_network_runs(&t->network, i, initialise_run, t);
    }
    t->optimizer.has_values = true;
}

static rp_status open_optimizer(rpi_trainer *t) {
    rpi_arena_range *owned = NULL;
    int count = 0;
    RP_TRY(share_optimizer(t));
    if (t->ownership.count)
        RP_TRY(rpi_ownership_ranges(&t->ownership, t->place.holder, &owned, &count));
    rp_status status = open_optimizer_of(t, owned, count);
    rpi_free(owned);
    if (status == RP_OK && rpi_trainer_passes_values(t)) initialise_owned(t);
    return status;
}

static rp_status allocate(rpi_trainer *t) {
    size_t parameters = (size_t)rpi_weights_count(t->weights);
    RP_TRY(open_optimizer(t));
    bool lossy = t->place.holders > 1 && !rp_codec_is_exact(&t->codec.codec, RP_F32);
    if (lossy && t->codec.every)
        RP_TRY(rpi_alloc((size_t)t->network.parameter_count, "bits of tensors", &t->levels));
    t->lossy_from = RPI_LOSSY_UNKNOWN;
    if (lossy && t->options->error_feedback && feeds_back(t))
        RP_TRY(rpi_alloc_array(parameters, sizeof(float), "error feedback", &t->residual));
    if (rpi_trainer_has_part(t) && t->options->out) RP_TRY(rpi_step_picture_open(&t->picture));
    return t->options->trace ? rpi_timeline_create(1 << 18, &t->timeline) : RP_OK;
}

static rp_status choose_rates(rpi_trainer *t) {
    const rpi_train_options *o = t->options;
    int64_t per_epoch = rpi_source_steps_per_epoch(&t->source);
    t->total_steps = o->steps ? o->steps : per_epoch * (o->epochs ? o->epochs : 1);
    t->lr = (rpi_lr_options){.peak = o->lr,
                             .minimum = o->lr_min,
                             .gamma = o->lr_gamma,
                             .warmup_steps = o->lr_warmup_steps,
                             .drop_every = o->lr_drop_every,
                             .decay_start = o->lr_decay_start,
                             .decay_steps = o->lr_decay_steps,
                             .total_steps = t->total_steps};
    RP_TRY(rpi_lr_schedule_find(o->lr_schedule, &t->schedule));
    RP_TRY(rpi_lr_check(t->schedule, &t->lr));
    RP_TRY(rp_adaptive_codec_parse(o->codec, &t->codec));
    if (o->weights_codec) RP_TRY(rp_codec_parse(o->weights_codec, &t->weights_codec));
    return rpi_optimizer_find(o->optimizer, &t->optimizer.kind);
}

void rpi_trainer_update(rpi_trainer *t, int64_t first, int64_t count) {
    rpi_optimizer_state_step(&t->optimizer, (uint64_t)t->step, t->learning_rate,
                             (rpi_arena_range){first, count});
}

void rpi_trainer_update_apart(const rpi_trainer *t, const rpi_strategy_update *u) {
    rpi_optimizer_step step = {.range = {u->first, u->count},
                               .updates = u->updates,
                               .learning_rate =
                                   u->rate_scale * rpi_lr_at(t->schedule, &t->lr, u->step),
                               .gradient_scale = u->gradient_scale,
                               .values = u->values,
                               .gradient = u->gradient};
    rpi_optimizer_state_step_apart(&t->optimizer, &step);
}

static void update(void *context, int64_t first, int64_t count) {
    rpi_trainer *t = context;
    int64_t start_ns = rpi_now_ns();
    rpi_trainer_update(t, first, count);
    rpi_profile_add(t->profile, "update", t->optimizer.kind->name, rpi_now_ns() - start_ns);
}

/* What has parts on other ranks of the replica is measured when all parts are there. */
static void measure(void *context, int64_t first, int64_t count) {
    rpi_trainer *t = context;
    if (rpi_trainer_has_part(t)) return;
    int64_t start_ns = rpi_now_ns();
    rpi_optimizer_state_measure(&t->optimizer, (rpi_arena_range){first, count});
    rpi_profile_add(t->profile, "update", "gradient norm", rpi_now_ns() - start_ns);
}

/* Sums what the replicas of this rank have measured over all ranks of a replica. */
static rp_status sum_over_replica(rpi_trainer *t) {
    if (t->options->clip <= 0) return RP_OK;
    if (t->comms.stages) RP_TRY(rpi_optimizer_state_sum(&t->optimizer, t->comms.stages));
    return t->comms.tensor ? rpi_optimizer_state_sum(&t->optimizer, t->comms.tensor) : RP_OK;
}

static rp_status measured(void *context, rp_comm *parts) {
    rpi_trainer *t = context;
    int64_t start_ns = rpi_now_ns();
    if (rpi_trainer_has_part(t)) {
        RP_TRY(rpi_partial_sums_tie(&t->sums, &t->optimizer));
        if (t->options->clip > 0) rpi_partial_sums_measure(&t->sums, &t->optimizer);
    }
    if (parts) RP_TRY(rpi_optimizer_state_sum(&t->optimizer, parts));
    if (rpi_trainer_has_part(t)) {
        RP_TRY(sum_over_replica(t));
        int64_t end_ns = rpi_now_ns();
        t->waited_ns += end_ns - start_ns;
        if (t->comms.stages)
            rpi_step_picture_add(&t->picture, RPI_PICTURE_STAGES, 0, -1, start_ns, end_ns);
    }
    if (t->options->clip > 0) rpi_optimizer_state_clip(&t->optimizer);
    return RP_OK;
}

static void waited_for_replicas(void *context, int64_t start_ns, int64_t end_ns) {
    rpi_trainer *t = context;
    rpi_step_picture_add(&t->picture, RPI_PICTURE_REPLICAS, 0, -1, start_ns, end_ns);
}

static void chose(void *context, const char *line) {
    rpi_trainer *t = context;
    snprintf(t->choice, sizeof t->choice, "%s", line);
}

static void note(void *context, const char *line) {
    rpi_trainer_note(context, line);
}

static double rate(void *context) {
    const rpi_trainer *t = context;
    return t->learning_rate;
}

/* Copies on tensor ranks need the same sums on all of them, whatever else is in their buckets:
 * sums in the order of ranks, which are not chosen by default over several hosts. */
static const char *algorithm_of(const rpi_trainer *t) {
    const char *said = t->options->algorithm;
    bool is_any = said || !rpi_trainer_is_split(t) || t->place.holders < 3;
    return is_any ? said : "sra";
}

/* Notes options that are honoured but of little use. */
static void note_sharing(rpi_trainer *t) {
    if (rpi_trainer_passes_gradients(t) && rpi_trainer_is_staged(t))
        rpi_trainer_note(
            t, rpi_trainer_passes_values(t)
                   ? "--zero 3 with --pp: a stage gathers its parameters and hands on its "
                     "gradients in each micro-batch; --zero 1 does once a step"
                   : "--zero 2 with --pp: a stage hands on its gradients in each micro-batch; "
                     "--zero 1 does once a step");
}

rp_status rpi_trainer_open_strategy(rpi_trainer *t) {
    const rpi_train_options *o = t->options;
    bool waits_for_all = o->clip > 0 || rpi_trainer_is_staged(t);
    rpi_strategy_setup setup = {.comm = rpi_trainer_replicas(t),
                                .workers = t->place.servers ? t->place.workers : 0,
                                .may_return = o->returns != NULL,
                                .first_ranks = t->losses.first_ranks,
                                .network = &t->network,
                                .weights = t->weights,
                                .codec = t->codec.codec,
                                .codec_every = t->levels ? t->codec.every : 0,
                                .levels = t->levels,
                                .lossy_from = t->codec.fastest ? &t->lossy_from : NULL,
                                .options = rpi_strategy_options(o->strategy),
                                .algorithm = algorithm_of(t),
                                .seed = (uint64_t)o->seed,
                                .bucket_bytes = bucket_bytes(t),
                                .warmup_exact = o->warmup_exact,
                                .clip = o->clip,
                                .residual = t->residual,
                                .optimizer = &t->optimizer,
                                .weights_codec = t->weights_codec,
                                .ownership = t->ownership.count ? &t->ownership : NULL,
                                .timeline = t->timeline,
                                .update = update,
                                .measure = waits_for_all ? measure : NULL,
                                .measured = measured,
                                .waited = waited_for_replicas,
                                .rate = rate,
                                .chose = chose,
                                .note = note,
                                .context = t};
    RP_TRY(rpi_trainer_open_hosts(t));
    setup.host = t->comms.hosts;
    note_sharing(t);
    rpi_trainer_count_from_here(t);
    rpi_step_reports_open(t->comm, o->log_every, t->strategy->replicas_differ, &t->reports);
    return t->strategy->open(&setup, &t->strategy_self);
}

static rp_status take_role(rpi_trainer *t) {
    const char *text = t->options->strategy, *chosen = rpi_strategy_options(text);
    RP_TRY(rpi_strategy_find(text, &t->strategy));
    int servers = t->strategy->servers ? t->strategy->servers(chosen) : 0;
    rpi_grid model;
    RP_TRY(rpi_train_grid(t->options, &model));
    RP_TRY(rpi_train_place_open(&model, t->place.rank, t->place.world, servers, &t->place));
    return rpi_losses_open(&t->losses, t->strategy, chosen, t->place.world);
}

static rp_status open_own(rpi_trainer *t) {
    RP_TRY(rpi_train_check(t->options, t->place.world));
    RP_TRY(take_role(t));
    RP_TRY(rpi_activation_codec_open(t->options->activations_codec, &t->activations));
    if (t->comm) RP_TRY(rpi_grid_comms_open(t->comm, &t->place, &t->comms));
    RP_TRY(load_data(t));
    RP_TRY(choose_rates(t));
    RP_TRY(build_network(t));
    RP_TRY(allocate(t));
    return rpi_trainer_open_replica(t);
}

rp_status rpi_trainer_open_apart(rpi_trainer *t, const rpi_train_options *options, int rank,
                                 int world) {
    *t = (rpi_trainer){.options = options, .place = {.rank = rank, .world = world}};
    return open_own(t);
}

rp_status rpi_trainer_open(rpi_trainer *t, const rpi_train_options *options, rp_comm *comm) {
    *t = (rpi_trainer){.options = options,
                       .comm = comm,
                       .place = {.rank = rp_comm_rank(comm), .world = rp_comm_world(comm)}};
    RP_TRY(open_own(t));
    return rpi_trainer_open_strategy(t);
}

void rpi_trainer_close_strategy(rpi_trainer *t) {
    rpi_step_reports_close(&t->reports);
    if (t->strategy_self) t->strategy->close(t->strategy_self);
    t->strategy_self = NULL;
}

void rpi_trainer_close(rpi_trainer *t) {
    rpi_trainer_close_strategy(t);
    rpi_timeline_destroy(t->timeline);
    rpi_step_picture_close(&t->picture);
    if (t->replica_self) t->replica->close(t->replica_self);
    rpi_program_set_close(&t->programs);
    rpi_optimizer_state_close(&t->optimizer);
    rpi_ownership_close(&t->ownership);
    rpi_free(t->residual);
    rpi_free(t->levels);
    rpi_weights_destroy(t->weights);
    rpi_memories_close(&t->memories);
    rpi_mixup_close(&t->mixup);
    rpi_trainer_close_sums(t);
    rpi_network_close(&t->network);
    rpi_trainer_close_split(t);
    rpi_trainer_close_context(t);
    rpi_source_close(&t->source);
    rpi_losses_close(&t->losses);
    rpi_stage_close(&t->stage);
    rpi_free(t->stage_record);
    rpi_grid_comms_close(&t->comms);
    rpi_activation_codec_close(&t->activations);
    *t = (rpi_trainer){0};
}
