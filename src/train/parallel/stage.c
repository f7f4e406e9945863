#include "train/parallel/stage.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"
#include "plan/stage_cut.h"

#include <stdio.h>
#include <string.h>

/* ---- which parts there are ---- */

static rp_status check_parts(const rpi_model_layers *layers, const rpi_network *network,
                             const rpi_model_stage *s) {
    int parts = s->stages * s->chunks;
    if (layers->count > RPI_STAGE_LAYERS || parts <= layers->count) return RP_OK;
    char chunks[32] = "", would[64];
    if (s->chunks > 1) snprintf(chunks, sizeof chunks, " x %d chunks", s->chunks);
    if (layers->count / s->chunks > 1)
        snprintf(would, sizeof would, "--pp %d would fit", layers->count / s->chunks);
    else
        snprintf(would, sizeof would, "%s",
                 s->chunks > 1 ? "--schedule 1f1b needs fewer" : "it is for one rank");
    return RP_FAIL(INVALID, "--pp %d%s: the model %s can be cut into %d parts; %s", s->stages,
                   chunks, network->text, layers->count, would);
}

static rpi_network_part part_at(const rpi_model_layers *layers, const int *first, int parts,
                                int part) {
    int begin = first[part], end = first[part + 1];
    bool is_last = part == parts - 1;
    return (rpi_network_part){.part = part,
                              .first_node = layers->first_node[begin],
                              .end_node = layers->first_node[end],
                              .given = begin ? layers->crossing[begin - 1] : RPI_NO_VALUE,
                              .seed = is_last ? RPI_NO_VALUE : layers->crossing[end - 1]};
}

/* ---- who holds a parameter ---- */

bool rpi_network_part_reads(const rpi_network *network, const rpi_network_part *part,
                            int record) {
    rpi_value_id value = network->parameters[record].value;
    for (int n = part->first_node; n < part->end_node; n++) {
        const rpi_node *node = rpi_graph_node(network->graph, n);
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] == value) return true;
    }
    return false;
}

static rp_status add_tie(const rpi_network *network, int record, int first, int last,
                         rpi_model_stage *s) {
    if (s->tie_count == RPI_STAGE_TIES)
        return RP_FAIL(UNSUPPORTED, "--pp: more than %d tables of %s are on two stages",
                       RPI_STAGE_TIES, network->text);
    s->ties[s->tie_count++] = (rpi_stage_tied){record, {first, last}};
    return RP_OK;
}

/* The stages that read a record; RP_UNSUPPORTED: more than two do. */
static rp_status look_at(const rpi_network *network, const rpi_network_part *all, int parts,
                         int record, rpi_model_stage *s) {
    int first = -1, last = -1, own = 0;
    for (int p = 0; p < parts; p++) {
        if (!rpi_network_part_reads(network, &all[p], record)) continue;
        int stage = rpi_pipeline_stage(s->schedule, s->stages, p);
        own += stage == s->stage;
        if (first < 0) first = stage;
        if (stage != first && last >= 0 && stage != last)
            return RP_FAIL(UNSUPPORTED,
                           "--pp %d: %s is read on three stages; two can share a table",
                           s->stages, network->parameters[record].name);
        if (stage != first) last = stage;
    }
    s->shares |= own > 1;
    if (last < 0) return RP_OK;
    return add_tie(network, record, first < last ? first : last, first < last ? last : first,
                   s);
}

static double cost_of(const rpi_stage_cut_plan *plan, int first, int end) {
    double sum = 0;
    for (int i = first; i < end; i++) sum += plan->costs[i];
    return sum;
}

/* Describes in a line which part has which layers. */
static void tell_parts(const rpi_network *network, const rpi_stage_cut_plan *plan,
                       const rpi_network_part *all, rpi_model_stage *s) {
    double sum = cost_of(plan, 0, plan->layers->count);
    rpi_append(s->text, sizeof s->text, "%s over %d stages:", s->schedule->name, s->stages);
    for (int p = 0; p < s->stages * s->chunks; p++) {
        char first[RPI_LAYER_NAME], last[RPI_LAYER_NAME], stage[32] = "";
        const rpi_network_part *part = &all[p];
        rpi_model_layer_name(network->graph, part->first_node, first);
        rpi_model_layer_name(network->graph, part->end_node - 1, last);
        if (s->chunks > 1)
            snprintf(stage, sizeof stage, " on stage %d",
                     rpi_pipeline_stage(s->schedule, s->stages, p));
        double share = sum > 0 ? cost_of(plan, plan->first[p], plan->first[p + 1]) / sum : 0;
        rpi_append(s->text, sizeof s->text, "%s %s to %s%s (%.0f %%%s%s)", p ? "," : "", first,
                   last, stage, 100 * share, p ? "" : " of the ", p ? "" : plan->measure);
    }
}

static rp_status take_parts(const rpi_network *network, const rpi_stage_cut_plan *plan,
                            rpi_model_stage *s) {
    int parts = s->stages * s->chunks;
    RP_TRY(rpi_alloc_array((size_t)s->chunks, sizeof *s->parts, "parts", &s->parts));
    RP_TRY(rpi_alloc_array((size_t)parts, sizeof *s->all, "parts", &s->all));
    rpi_network_part *all = s->all;
    for (int p = 0; p < parts; p++) all[p] = part_at(plan->layers, plan->first, parts, p);
    for (int k = 0; k < s->chunks; k++)
        s->parts[k] = all[rpi_pipeline_part(s->schedule, s->stages, s->stage, k)];
    tell_parts(network, plan, all, s);
    rp_status status = RP_OK;
    for (int i = 0; i < network->parameter_count && status == RP_OK; i++)
        status = look_at(network, all, parts, i, s);
    return status;
}

static rp_status make(const rpi_pipeline_kind *schedule, int stages, int stage,
                      rpi_model_stage *s) {
    rpi_pipeline_shape shape;
    RP_TRY(rpi_pipeline_shape_make(schedule, stages, 1, 0, &shape));
    *s = (rpi_model_stage){
        .schedule = schedule, .stages = stages, .stage = stage, .chunks = shape.chunks};
    return RP_OK;
}

rp_status rpi_stage_open_at(const rpi_network *network, const rpi_stage_cut_plan *plan,
                            int stages, int stage, rpi_model_stage *out_stage) {
    rpi_model_stage s;
    RP_TRY(make(plan->schedule, stages, stage, &s));
    rp_status status = check_parts(plan->layers, network, &s);
    if (status == RP_OK) status = take_parts(network, plan, &s);
    if (status == RP_OK)
        *out_stage = s;
    else
        rpi_stage_close(&s);
    return status;
}

rp_status rpi_stage_cut_counted(const rpi_network *network, const rpi_model_layers *layers,
                                const double *costs, const rpi_pipeline_kind *schedule,
                                int stages, int **out_first) {
    rpi_model_stage s;
    rpi_stage_layer *list = NULL;
    int *first = NULL;
    RP_TRY(make(schedule, stages, 0, &s));
    RP_TRY(check_parts(layers, network, &s));
    RP_TRY(rpi_alloc_array((size_t)layers->count, sizeof *list, "layers", &list));
    for (int i = 0; i < layers->count; i++)
        list[i] = (rpi_stage_layer){.name = layers->names[i], .cost = costs[i]};
    size_t parts = (size_t)stages * (size_t)s.chunks;
    rp_status status = rpi_alloc_array(parts + 1, sizeof *first, "parts", &first);
    if (status == RP_OK) status = rpi_stage_cut(list, layers->count, (int)parts, first);
    rpi_free(list);
    if (status == RP_OK)
        *out_first = first;
    else
        rpi_free(first);
    return status;
}

static rp_status open_counted(const rpi_network *network, const rpi_model_layers *layers,
                              const double *node_costs, const rpi_pipeline_kind *schedule,
                              int stages, int stage, rpi_model_stage *out_stage) {
    double *costs = NULL;
    int *first = NULL;
    RP_TRY(rpi_model_layers_costs(layers, node_costs, &costs));
    rp_status status = rpi_stage_cut_counted(network, layers, costs, schedule, stages, &first);
    const rpi_stage_cut_plan plan = {schedule, layers, first, costs, "operations"};
    if (status == RP_OK) status = rpi_stage_open_at(network, &plan, stages, stage, out_stage);
    rpi_free(first);
    rpi_free(costs);
    return status;
}

rp_status rpi_stage_open(const rpi_network *network, const double *costs,
                         const rpi_pipeline_kind *schedule, int stages, int stage,
                         rpi_model_stage *out_stage) {
    rpi_model_layers layers = {0};
    RP_TRY(rpi_model_layers_find(network, &layers));
    rp_status status =
        open_counted(network, &layers, costs, schedule, stages, stage, out_stage);
    rpi_model_layers_free(&layers);
    return status;
}

void rpi_stage_close(rpi_model_stage *s) {
    rpi_free(s->parts);
    rpi_free(s->all);
    *s = (rpi_model_stage){0};
}

bool rpi_stage_ends(const rpi_model_stage *s) {
    for (int k = 0; k < s->chunks; k++)
        if (s->parts[k].seed == RPI_NO_VALUE) return true;
    return false;
}

static const rpi_stage_tied *tie_of(const rpi_model_stage *s, int record) {
    for (int i = 0; i < s->tie_count; i++)
        if (s->ties[i].parameter == record) return &s->ties[i];
    return NULL;
}

bool rpi_stage_holds(const rpi_model_stage *s, const rpi_network *network, int record,
                     int *out_first_stage, int *out_last_stage) {
    const rpi_stage_tied *tie = tie_of(s, record);
    bool holds = false;
    for (int k = 0; k < s->chunks && !holds; k++)
        holds = rpi_network_part_reads(network, &s->parts[k], record);
    *out_first_stage = tie ? tie->stages[0] : s->stage;
    *out_last_stage = tie ? tie->stages[1] : s->stage;
    return holds;
}

bool rpi_stage_counts(const rpi_model_stage *s, int record) {
    const rpi_stage_tied *tie = tie_of(s, record);
    return !tie || tie->stages[0] == s->stage;
}

/* ---- its memory ---- */

/* The gradients of the last chunk are final first, so that they come first in the arena. */
rp_status rpi_stage_weights(const rpi_model_stage *s, const rpi_network *network,
                            const rpi_weights_memory *memory, rpi_weights **out_weights) {
    rpi_weights_source *sources = NULL;
    RP_TRY(rpi_alloc_array((size_t)s->chunks, sizeof *sources, "parts", &sources));
    for (int k = 0; k < s->chunks; k++) {
        const rpi_network_part *part = &s->parts[s->chunks - 1 - k];
        bool is_last = part->seed == RPI_NO_VALUE;
        sources[k] = (rpi_weights_source){.graph = network->graph,
                                          .loss = is_last ? network->loss : RPI_NO_VALUE,
                                          .given = &part->given,
                                          .given_count = part->given != RPI_NO_VALUE,
                                          .seeds = &part->seed,
                                          .seed_count = !is_last};
    }
    rp_status status = memory
                           ? rpi_weights_create_with(sources, s->chunks, memory, out_weights)
                           : rpi_weights_create_shared_table(sources, s->chunks, out_weights);
    rpi_free(sources);
    return status;
}

int64_t rpi_stage_crossing(const rpi_network *network, rpi_value_id value, int64_t samples) {
    const rpi_shape *shape = &rpi_graph_value(network->graph, value)->shape;
    int64_t sizes[RPI_DIMENSIONS] = {0}, count = 1;
    for (int i = 0; i < rpi_graph_dimension_count(network->graph); i++) {
        const char *name = rpi_graph_dimension_name(network->graph, i);
        sizes[i] = strcmp(name, "batch") == 0 ? samples : network->shape.sequence;
    }
    for (int d = 0; d < shape->dims; d++) {
        int64_t size = 0;
        if (!rpi_dimension_bind(shape->size[d], sizes, &size)) return 0;
        count *= size;
    }
    return count;
}
