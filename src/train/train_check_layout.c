/* Checks how a replica is arranged, and what its arrangement does not allow. */
#include "base/append.h"
#include "base/status.h"
#include "plan/plan.h"
#include "train/parallel/stage_choice.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

rp_status rpi_train_grid(const rpi_train_options *o, rpi_grid *out_model) {
    if (o->stages < 0 || o->stages > RPI_PIPELINE_STAGES)
        return RP_FAIL(INVALID, "--pp %lld: 1 to %d stages are allowed", (long long)o->stages,
                       RPI_PIPELINE_STAGES);
    if (o->tensor_ranks < 0 || o->tensor_ranks > RPI_TENSOR_RANKS)
        return RP_FAIL(INVALID, "--tp %lld: 1 to %d ranks are allowed",
                       (long long)o->tensor_ranks, RPI_TENSOR_RANKS);
    if (o->context_ranks < 0 || o->context_ranks > RPI_CONTEXT_RANKS)
        return RP_FAIL(INVALID, "--cp %lld: 1 to %d ranks are allowed",
                       (long long)o->context_ranks, RPI_CONTEXT_RANKS);
    if (o->schedule) RP_TRY(rpi_stage_schedule_check(o->schedule));
    *out_model =
        (rpi_grid){{(int)rpi_train_axis(o->tensor_ranks), (int)rpi_train_axis(o->context_ranks),
                    1, (int)rpi_train_axis(o->stages)}};
    return RP_OK;
}

/* "--pp 2", "--tp 2", or "--tp 2 --pp 2": the arrangement of a replica. Returns text. */
static const char *replica_text(const rpi_grid *model, char text[64]) {
    static const struct axis_row {
        const char *name;
        rpi_grid_axis axis;
    } rows[] = {{"tp", RPI_AXIS_TENSOR}, {"cp", RPI_AXIS_CONTEXT}, {"pp", RPI_AXIS_STAGE}};
    text[0] = '\0';
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (model->size[rows[i].axis] > 1)
            rpi_append(text, 64, "%s--%s %d", text[0] ? " " : "", rows[i].name,
                       model->size[rows[i].axis]);
    return text;
}

static rp_status check_ranks(const rpi_train_options *o, const rpi_grid *model, int world) {
    char text[64] = "", fit[32] = "";
    int each = rpi_grid_world(model);
    int fewer = world / each * each;
    if (world && o->replicas && o->replicas * each != world)
        return RP_FAIL(
            INVALID,
            "--dp %lld x %d rank%s a replica is %lld, and there %s %d; -n %lld would fit",
            (long long)o->replicas, each, each == 1 ? "" : "s", (long long)(o->replicas * each),
            world == 1 ? "is" : "are", world, (long long)(o->replicas * each));
    if (world % each == 0) return RP_OK;
    if (fewer) snprintf(fit, sizeof fit, "-n %d or ", fewer);
    return RP_FAIL(INVALID, "%s and %d rank%s: a replica takes %d of them; %s-n %d would fit",
                   replica_text(model, text), world, world == 1 ? "" : "s", each, fit,
                   fewer + each);
}

/* Refuses what a rank with a part of a model cannot do. */
static rp_status check_part(const rpi_train_options *o, const rpi_grid *model,
                            const rpi_strategy *strategy, bool chooses_bits) {
    char text[64] = "";
    rpi_model_choice choice;
    bool is_part = model->size[RPI_AXIS_TENSOR] > 1 || model->size[RPI_AXIS_STAGE] > 1;
    replica_text(model, text);
    if (strategy->replicas_differ || strategy->run)
        return RP_FAIL(INVALID,
                       "%s with --strategy %s: %s hold one model together, whose replicas stay "
                       "equal; --strategy all-reduce is for them",
                       text, strategy->name,
                       model->size[RPI_AXIS_STAGE] > 1 ? "stages" : "ranks");
    if (!is_part) return RP_OK;
    if (chooses_bits)
        return RP_FAIL(INVALID,
                       "%s with --codec %s: bits are chosen by a rank that sees the "
                       "whole model; name a codec, such as q4",
                       text, o->codec);
    if (o->sample_every)
        return RP_FAIL(INVALID,
                       "--sample-every with %s: no rank holds the whole model; redpoll "
                       "generate --model FOLDER reads a checkpoint",
                       text);
    RP_TRY(rpi_model_parse(o->model, &choice));
    if (rpi_model_memory(&choice) > 0)
        return RP_FAIL(INVALID,
                       "%s with %s: its memory of segments is with the rank that holds "
                       "all layers; leave %s out",
                       text, o->model, model->size[RPI_AXIS_STAGE] > 1 ? "--pp" : "--tp");
    return RP_OK;
}

/* The copies of a parameter on tensor ranks must stay equal: sums over three replicas and more
 * must not depend on neighbouring data. */
static rp_status check_tensor_sums(const rpi_train_options *o, int replicas) {
    const rpi_algorithm *algorithm = NULL;
    if (!o->algorithm || replicas < 3) return RP_OK;
    RP_TRY(rpi_algorithm_find(RPI_ALL_REDUCE, o->algorithm, &algorithm));
    if (algorithm->rank_order) return RP_OK;
    return RP_FAIL(INVALID,
                   "--algorithm %s with --tp %lld and %d replicas: it adds up in an order that "
                   "differs from rank to rank, and copies of a norm would drift apart; sra "
                   "adds in the order of ranks",
                   o->algorithm, (long long)o->tensor_ranks, replicas);
}

static rp_status check_tensor(const rpi_train_options *o, int replicas) {
    const rpi_optimizer *optimizer = NULL;
    if (o->tensor_ranks <= 1) return RP_OK;
    rp_status fits = rpi_network_check_split(o->model, (int)o->tensor_ranks);
    if (fits != RP_OK) return rpi_fail_context(fits, "--tp %lld: ", (long long)o->tensor_ranks);
    RP_TRY(rpi_optimizer_find(o->optimizer, &optimizer));
    if (optimizer->whole_tensors)
        return RP_FAIL(INVALID,
                       "--optimizer %s with --tp %lld: it steps a tensor by what all of its "
                       "elements are, and no rank has all of them; adamw steps each by itself",
                       optimizer->name, (long long)o->tensor_ranks);
    return check_tensor_sums(o, replicas);
}

/* If no length is given it is that of the data, which the network checks. */
static rp_status check_context(const rpi_train_options *o) {
    enum { USUAL_SEQUENCE = 256 };
    if (o->context_ranks <= 1) return RP_OK;
    rp_status fits = rpi_network_check_context(o->model, (int)o->context_ranks,
                                               o->seq_length ? o->seq_length : USUAL_SEQUENCE);
    return fits == RP_OK ? RP_OK
                         : rpi_fail_context(fits, "--cp %lld: ", (long long)o->context_ranks);
}

static rp_status check_activations(const rpi_train_options *o, int each) {
    rp_codec codec;
    RP_TRY(rpi_activation_codec_parse(o->activations_codec, &codec));
    if (each > 1 || rp_codec_is_exact(&codec, RP_F32)) return RP_OK;
    return RP_FAIL(INVALID,
                   "--activations-codec %s is of what ranks that hold one model together hand "
                   "each other: with --tp 1 --pp 1 that is nothing; say --pp 2 or --tp 2, too, "
                   "or --activations-codec= to do without",
                   o->activations_codec);
}

rp_status rpi_train_check_replica(const rpi_train_options *o, const rpi_strategy *strategy,
                                  bool chooses_bits, int world) {
    rpi_grid model;
    RP_TRY(rpi_train_grid(o, &model));
    int each = rpi_grid_world(&model);
    RP_TRY(check_tensor(o, world / each * model.size[RPI_AXIS_CONTEXT]));
    RP_TRY(check_context(o));
    RP_TRY(check_activations(o, model.size[RPI_AXIS_TENSOR] * model.size[RPI_AXIS_STAGE]));
    if (each > 1) RP_TRY(check_part(o, &model, strategy, chooses_bits));
    return check_ranks(o, &model, world);
}
