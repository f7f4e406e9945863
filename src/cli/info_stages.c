#include "cli/info_stages.h"

#include "base/memory.h"
#include "base/memory_limit.h"
#include "base/status.h"
#include "base/wrap.h"
#include "train/parallel/activation_codec.h"
#include "train/parallel/border_dtypes.h"
#include "train/parallel/node_costs.h"
#include "train/parallel/stage_choice.h"

#include <math.h>
#include <stdio.h>

/* ---- numbers that fit together ---- */

/* It was checked before that the ranks make whole replicas. */
static rp_status take_ranks(const rpi_info_stages_request *asked, rpi_info_stages *s) {
    int64_t tensor = asked->tensor_ranks > 1 ? asked->tensor_ranks : 1;
    int64_t context = asked->context_ranks > 1 ? asked->context_ranks : 1;
    int64_t model = asked->stages * tensor * context;
    int64_t ranks = asked->ranks > 1 ? asked->ranks : model;
    s->stages = (int)asked->stages;
    s->ranks = (int)ranks;
    s->replicas = (int)(ranks / model);
    s->micro_batch = asked->micro_batch ? asked->micro_batch : asked->batch;
    s->micro_batches = (int)(asked->batch / s->micro_batch);
    if (asked->batch % s->micro_batch == 0) return RP_OK;
    return RP_FAIL(INVALID, "--batch-size %lld is not made of micro-batches of %lld",
                   (long long)asked->batch, (long long)s->micro_batch);
}

/* ---- stage by stage ---- */

typedef struct work {
    const rpi_info_stages_request *asked;
    const rpi_account_options *options;
    const rpi_optimizer *optimizer;
    rpi_network network;
    double *costs; /* of nodes */
    rpi_model_layers layers;
    double *layer_costs;
    rpi_stage_choice choice;
    rp_codec activations;
} work;

static rp_status account_for(const work *w, int stage, rpi_info_stages *s) {
    rpi_model_stage part = {0};
    const rpi_stage_cut_plan plan = {w->choice.schedule, &w->layers, w->choice.first,
                                     w->choice.costs, w->choice.measure};
    RP_TRY(rpi_stage_open_at(&w->network, &plan, s->stages, stage, &part));
    const rpi_rank_account_options options = {.network = &w->network,
                                              .stage = &part,
                                              .compute = w->options->compute,
                                              .recompute = w->options->recompute,
                                              .micro_batch = s->micro_batch,
                                              .micro_batches = s->micro_batches,
                                              .slots = w->optimizer->slot_count,
                                              .zero = (int)w->asked->zero,
                                              .whole_tensors = w->optimizer->whole_tensors,
                                              .sharers = s->replicas * w->network.context_ranks,
                                              .activations = w->activations};
    rp_status status = rpi_border_dtypes_find(&w->network, NULL, w->options->compute,
                                              w->options->recompute, s->micro_batch, &part);
    if (status == RP_OK) status = rpi_rank_account_make(&options, &s->each[stage]);
    snprintf(s->text, sizeof s->text, "%s", part.text);
    rpi_stage_close(&part);
    return status;
}

/* What has to be measured first is not known here. */
static rp_status cut_model(work *w, const rpi_info_stages *s) {
    const char *schedule = w->asked->schedule ? w->asked->schedule : "1f1b";
    const char *cut = w->asked->cut ? w->asked->cut : "counted";
    const rpi_pipeline_kind *kind = NULL;
    RP_TRY(rpi_pipeline_kind_find(schedule, &kind));
    if (rpi_stage_choice_is_open(schedule, cut))
        return RP_FAIL(
            INVALID,
            "--stage-cut %s: only redpoll train measures layers; its note names those "
            "that stages begin with, which can be said here: --stage-cut h.2,h.5",
            cut);
    RP_TRY(rpi_model_layers_find(&w->network, &w->layers));
    RP_TRY(rpi_model_layers_costs(&w->layers, w->costs, &w->layer_costs));
    const rpi_stage_request request = {.network = &w->network,
                                       .layers = &w->layers,
                                       .costs = w->layer_costs,
                                       .stages = s->stages,
                                       .micro_batches = s->micro_batches,
                                       .schedule = schedule,
                                       .cut = cut};
    return rpi_stage_choose(&request, &w->choice);
}

static rp_status account_for_all(work *w, const char *model, rpi_info_stages *s) {
    static const rpi_loss_options plain;
    const rpi_tensor_split split = {.ranks = w->options->tensor_ranks,
                                    .tokens = w->options->sequence_parallel,
                                    .context = {.ranks = w->options->context_ranks}};
    RP_TRY(rpi_activation_codec_parse(w->asked->activations_codec, &w->activations));
    RP_TRY(rpi_network_build_split(model, &w->options->shape, &plain, &split, &w->network));
    RP_TRY(rpi_node_costs(&w->network, &w->costs));
    RP_TRY(cut_model(w, s));
    RP_TRY(rpi_alloc_array((size_t)s->stages, sizeof *s->each, "stages", &s->each));
    int ranks_of_stage = s->ranks / s->stages;
    for (int stage = 0; stage < s->stages; stage++) {
        RP_TRY(account_for(w, stage, s));
        s->all_bytes += s->each[stage].all * ranks_of_stage;
    }
    s->host_bytes = rpi_memory_limit("");
    return RP_OK;
}

rp_status rpi_info_stages_make(const rpi_info_stages_request *asked, const char *model,
                               const rpi_account_options *options,
                               const rpi_optimizer *optimizer, rpi_info_stages *out) {
    rpi_info_stages s = {0};
    work w = {.asked = asked, .options = options, .optimizer = optimizer};
    *out = s;
    if (asked->stages <= 1) return RP_OK;
    RP_TRY(take_ranks(asked, &s));
    rp_status status = account_for_all(&w, model, &s);
    rpi_stage_choice_free(&w.choice);
    rpi_model_layers_free(&w.layers);
    rpi_free(w.layer_costs);
    rpi_free(w.costs);
    rpi_network_close(&w.network);
    if (status == RP_OK)
        *out = s;
    else
        rpi_info_stages_free(&s);
    return status;
}

void rpi_info_stages_free(rpi_info_stages *s) {
    rpi_free(s->each);
    *s = (rpi_info_stages){0};
}

/* ---- told ---- */

static void print_stage(const rpi_info_stages *s, int stage) {
    const rpi_rank_account *a = &s->each[stage];
    double held = a->bytes[RPI_HELD_PARAMETERS] + a->bytes[RPI_HELD_GRADIENTS] +
                  a->bytes[RPI_HELD_OPTIMIZER] + a->bytes[RPI_HELD_STATES];
    printf("  %-6d %14lld %13.4g %10d %13.1f %13.1f %11.1f\n", stage, (long long)a->parameters,
           1e-9 * (a->forward_flops + a->backward_flops), a->in_flight, 1e-6 * held,
           1e-6 * (a->all - held), 1e-6 * a->all);
}

void rpi_info_stages_print(const rpi_info_stages *s) {
    if (!s->stages) return;
    printf("\n");
    rpi_print_wrapped(stdout, s->text, 0, 2);
    printf("%d rank%s, %d replica%s; %d micro-batch%s of %lld in a step\n\n", s->ranks,
           s->ranks == 1 ? "" : "s", s->replicas, s->replicas == 1 ? "" : "s", s->micro_batches,
           s->micro_batches == 1 ? "" : "es", (long long)s->micro_batch);
    printf("  %-6s %14s %13s %10s %13s %13s %11s\n", "stage", "parameters", "step, GFLOP",
           "in flight", "model, MB", "passes, MB", "memory, MB");
    for (int stage = 0; stage < s->stages; stage++) print_stage(s, stage);
    printf(
        "  memory: of a rank of it; model: parameters, gradients, optimizer's state; passes:\n"
        "  activations of micro-batches in flight, messages, workspace\n");
    printf("sent in a step to other stages by a rank of each, MB:");
    for (int stage = 0; stage < s->stages; stage++)
        printf(" %.3f", 1e-6 * s->each[stage].sent_bytes);
    printf("\nall %d ranks: %.1f MB", s->ranks, 1e-6 * s->all_bytes);
    if (isfinite(s->host_bytes))
        printf(", on this host, which has %.1f MB: they %s", 1e-6 * s->host_bytes,
               s->all_bytes <= s->host_bytes ? "fit" : "do not fit");
    printf("\n");
}

static cJSON *stage_json(const rpi_rank_account *a) {
    cJSON *row = cJSON_CreateObject();
    cJSON_AddNumberToObject(row, "parameters", (double)a->parameters);
    cJSON_AddNumberToObject(row, "forward_flops", a->forward_flops);
    cJSON_AddNumberToObject(row, "backward_flops", a->backward_flops);
    cJSON_AddNumberToObject(row, "in_flight", a->in_flight);
    cJSON_AddNumberToObject(row, "parameters_bytes", a->bytes[RPI_HELD_PARAMETERS]);
    cJSON_AddNumberToObject(row, "gradients_bytes", a->bytes[RPI_HELD_GRADIENTS]);
    cJSON_AddNumberToObject(row, "optimizer_bytes", a->bytes[RPI_HELD_OPTIMIZER]);
    cJSON_AddNumberToObject(row, "states_bytes", a->bytes[RPI_HELD_STATES]);
    cJSON_AddNumberToObject(row, "activations_bytes", a->bytes[RPI_HELD_ACTIVATIONS]);
    cJSON_AddNumberToObject(row, "messages_bytes", a->bytes[RPI_HELD_MESSAGES]);
    cJSON_AddNumberToObject(row, "workspace_bytes", a->bytes[RPI_HELD_WORKSPACE]);
    cJSON_AddNumberToObject(row, "memory_bytes", a->all);
    cJSON_AddNumberToObject(row, "sent_bytes", a->sent_bytes);
    return row;
}

void rpi_info_stages_add_json(const rpi_info_stages *s, cJSON *object) {
    if (!s->stages) return;
    cJSON *list = cJSON_AddArrayToObject(object, "by_stage");
    for (int stage = 0; stage < s->stages; stage++)
        cJSON_AddItemToArray(list, stage_json(&s->each[stage]));
    cJSON_AddNumberToObject(object, "all_ranks_bytes", s->all_bytes);
    if (!isfinite(s->host_bytes)) return;
    cJSON_AddNumberToObject(object, "host_bytes", s->host_bytes);
    cJSON_AddBoolToObject(object, "fits", s->all_bytes <= s->host_bytes);
}
