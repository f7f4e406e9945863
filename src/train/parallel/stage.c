#include "train/parallel/stage.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"
#include "plan/stage_cut.h"
#include "train/models/layer_names.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- where a graph can be cut ---- */

/* Of each value: does a parameter have a part in it? Only such values cross. */
static void find_made(const rpi_graph *graph, bool *made) {
    for (int v = 0; v < rpi_graph_value_count(graph); v++)
        made[v] = rpi_graph_value(graph, v)->kind == RPI_VALUE_PARAMETER;
    for (int n = 0; n < rpi_graph_node_count(graph); n++) {
        const rpi_node *node = rpi_graph_node(graph, n);
        bool from = false;
        for (int i = 0; i < node->input_count; i++)
            from |= node->inputs[i] != RPI_NO_VALUE && made[node->inputs[i]];
        for (int i = 0; i < node->output_count; i++) made[node->outputs[i]] = from;
    }
}

/* Behind nodes [0, end): the one activation that nodes further on read; RPI_NO_VALUE: there is
 * none, or there are several. */
static rpi_value_id crossing_at(const rpi_graph *graph, const bool *made, int end) {
    rpi_value_id crossing = RPI_NO_VALUE;
    for (int n = end; n < rpi_graph_node_count(graph); n++) {
        const rpi_node *node = rpi_graph_node(graph, n);
        for (int i = 0; i < node->input_count; i++) {
            rpi_value_id id = node->inputs[i];
            if (id == RPI_NO_VALUE || !made[id]) continue;
            const rpi_value *value = rpi_graph_value(graph, id);
            if (value->kind != RPI_VALUE_ACTIVATION || value->producer >= end) continue;
            if (value->dtype != RP_F32 || (crossing != RPI_NO_VALUE && crossing != id))
                return RPI_NO_VALUE;
            crossing = id;
        }
    }
    return crossing;
}

/* Places where the model can be cut, in order. */
typedef struct cuts {
    int *ends;              /* nodes before each */
    rpi_value_id *crossing; /* what goes on from there */
    int count;
} cuts;

static void close_cuts(cuts *c) {
    rpi_free(c->ends);
    rpi_free(c->crossing);
}

static int node_named(const rpi_graph *graph, const char *name) {
    int node = 0;
    while (strcmp(rpi_graph_node(graph, node)->name, name) != 0) node++;
    return node;
}

static void note_cuts(const rpi_graph *graph, const bool *made, const rpi_segment *blocks,
                      int block_count, cuts *c) {
    for (int b = 0; b < block_count; b++) {
        int end = node_named(graph, blocks[b].last) + 1;
        rpi_value_id crossing = crossing_at(graph, made, end);
        if (crossing == RPI_NO_VALUE) continue;
        /* An activation that goes past a whole stretch would be handed on by a part that does
         * not make it. */
        int before = c->count ? c->ends[c->count - 1] : 0;
        if (rpi_graph_value(graph, crossing)->producer < before) continue;
        c->ends[c->count] = end;
        c->crossing[c->count++] = crossing;
    }
}

static rp_status find_cuts(const rpi_network *network, cuts *c) {
    const rpi_graph *graph = network->graph;
    rpi_segment *blocks = NULL;
    bool *made = NULL;
    int count = 0;
    rp_status status = rpi_blocks_of(graph, &blocks, &count);
    if (status == RP_INVALID)
        return RP_FAIL(INVALID,
                       "--pp: the model %s has no blocks between which it could be cut into "
                       "stages",
                       network->text);
    if (status == RP_OK)
        status =
            rpi_alloc_array((size_t)rpi_graph_value_count(graph), sizeof *made, "cuts", &made);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)count + 1, sizeof *c->ends, "cuts", &c->ends);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)count + 1, sizeof *c->crossing, "cuts", &c->crossing);
    if (status == RP_OK) {
        find_made(graph, made);
        note_cuts(graph, made, blocks, count, c);
    }
    rpi_free(made);
    rpi_free(blocks);
    return status;
}

/* ---- which parts there are ---- */

static double cost_of(const double *costs, int first, int end) {
    double sum = 0;
    for (int n = first; n < end; n++) sum += costs[n];
    return sum;
}

static rp_status choose(const cuts *c, const rpi_network *network, const double *costs,
                        int parts, int *out_first) {
    int layers = c->count + 1;
    rpi_stage_layer *list = NULL;
    RP_TRY(rpi_alloc_array((size_t)layers, sizeof *list, "layers", &list));
    for (int i = 0; i < layers; i++) {
        int first = i ? c->ends[i - 1] : 0;
        int end = i < c->count ? c->ends[i] : rpi_graph_node_count(network->graph);
        list[i] = (rpi_stage_layer){.name = rpi_graph_node(network->graph, first)->name,
                                    .cost = cost_of(costs, first, end)};
    }
    rp_status status = rpi_stage_cut(list, layers, parts, out_first);
    rpi_free(list);
    return status;
}

static rp_status check_parts(const cuts *c, const rpi_network *network,
                             const rpi_model_stage *s) {
    int layers = c->count + 1, parts = s->stages * s->chunks;
    if (layers > RPI_STAGE_LAYERS || parts <= layers) return RP_OK;
    char chunks[32] = "", would[64];
    if (s->chunks > 1) snprintf(chunks, sizeof chunks, " x %d chunks", s->chunks);
    if (layers / s->chunks > 1)
        snprintf(would, sizeof would, "--pp %d would fit", layers / s->chunks);
    else
        snprintf(would, sizeof would, "%s",
                 s->chunks > 1 ? "--schedule 1f1b needs fewer" : "it is for one rank");
    return RP_FAIL(INVALID, "--pp %d%s: the model %s can be cut into %d parts; %s", s->stages,
                   chunks, network->text, layers, would);
}

static rpi_network_part part_at(const cuts *c, const rpi_network *network, const int *first,
                                int parts, int part) {
    int begin = first[part], end = first[part + 1];
    bool is_last = part == parts - 1;
    return (rpi_network_part){.part = part,
                              .first_node = begin ? c->ends[begin - 1] : 0,
                              .end_node = is_last ? rpi_graph_node_count(network->graph)
                                                  : c->ends[end - 1],
                              .given = begin ? c->crossing[begin - 1] : RPI_NO_VALUE,
                              .seed = is_last ? RPI_NO_VALUE : c->crossing[end - 1]};
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

/* Stages that read a record; RP_UNSUPPORTED: more than two. */
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

/* A node's block, or itself. */
static void name_layer(const rpi_graph *graph, int node, char name[RPI_LAYER_NAME]) {
    const char *own = rpi_graph_node(graph, node)->name;
    rpi_layer_of(own, name);
    size_t length = strlen(name);
    if (!length || !isdigit((unsigned char)name[length - 1]))
        snprintf(name, RPI_LAYER_NAME, "%s", own);
}

/* Which part has what. */
static void tell_parts(const rpi_network *network, const double *costs,
                       const rpi_network_part *all, rpi_model_stage *s) {
    double sum = cost_of(costs, 0, rpi_graph_node_count(network->graph));
    rpi_append(s->text, sizeof s->text, "%s over %d stages:", s->schedule->name, s->stages);
    for (int p = 0; p < s->stages * s->chunks; p++) {
        char first[RPI_LAYER_NAME], last[RPI_LAYER_NAME], stage[32] = "";
        const rpi_network_part *part = &all[p];
        name_layer(network->graph, part->first_node, first);
        name_layer(network->graph, part->end_node - 1, last);
        if (s->chunks > 1)
            snprintf(stage, sizeof stage, " on stage %d",
                     rpi_pipeline_stage(s->schedule, s->stages, p));
        double share = sum > 0 ? cost_of(costs, part->first_node, part->end_node) / sum : 0;
        rpi_append(s->text, sizeof s->text, "%s %s to %s%s (%.0f %%%s)", p ? "," : "", first,
                   last, stage, 100 * share, p ? "" : " of the operations");
    }
}

static rp_status take_parts(const cuts *c, const rpi_network *network, const double *costs,
                            const int *first, rpi_model_stage *s) {
    int parts = s->stages * s->chunks;
    rpi_network_part *all = NULL;
    RP_TRY(rpi_alloc_array((size_t)s->chunks, sizeof *s->parts, "parts", &s->parts));
    RP_TRY(rpi_alloc_array((size_t)parts, sizeof *all, "parts", &all));
    for (int p = 0; p < parts; p++) all[p] = part_at(c, network, first, parts, p);
    for (int k = 0; k < s->chunks; k++)
        s->parts[k] = all[rpi_pipeline_part(s->schedule, s->stages, s->stage, k)];
    tell_parts(network, costs, all, s);
    rp_status status = RP_OK;
    for (int i = 0; i < network->parameter_count && status == RP_OK; i++)
        status = look_at(network, all, parts, i, s);
    rpi_free(all);
    return status;
}

static rp_status open_parts(const rpi_network *network, const double *costs, const cuts *c,
                            rpi_model_stage *s) {
    int *first = NULL, parts = s->stages * s->chunks;
    RP_TRY(check_parts(c, network, s));
    RP_TRY(rpi_alloc_array((size_t)parts + 1, sizeof *first, "parts", &first));
    rp_status status = choose(c, network, costs, parts, first);
    if (status == RP_OK) status = take_parts(c, network, costs, first, s);
    rpi_free(first);
    return status;
}

rp_status rpi_stage_open(const rpi_network *network, const double *costs,
                         const rpi_pipeline_kind *schedule, int stages, int stage,
                         rpi_model_stage *out_stage) {
    rpi_pipeline_shape shape;
    cuts c = {0};
    RP_TRY(rpi_pipeline_shape_make(schedule, stages, 1, 0, &shape));
    rpi_model_stage s = {
        .schedule = schedule, .stages = stages, .stage = stage, .chunks = shape.chunks};
    rp_status status = find_cuts(network, &c);
    if (status == RP_OK) status = open_parts(network, costs, &c, &s);
    close_cuts(&c);
    if (status == RP_OK)
        *out_stage = s;
    else
        rpi_stage_close(&s);
    return status;
}

void rpi_stage_close(rpi_model_stage *s) {
    rpi_free(s->parts);
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

/* The last chunk's gradients are final first. */
rp_status rpi_stage_weights(const rpi_model_stage *s, const rpi_network *network,
                            rpi_weights **out_weights) {
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
    rp_status status = rpi_weights_create_shared(sources, s->chunks, out_weights);
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
