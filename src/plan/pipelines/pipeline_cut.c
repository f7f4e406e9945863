#include "plan/pipelines/pipeline_cut.h"

#include "base/memory.h"
#include "base/status.h"
#include "plan/stage_cut.h"

enum { FORWARD, INPUTS, WEIGHTS, WHOLE, KEPT, KEPT_FOR_WEIGHTS, NUMBERS };

static rp_status make_layers(const rpi_pipeline_layer *layers, int count,
                             rpi_stage_layer **out) {
    rpi_stage_layer *costs;
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *costs, "layers", &costs));
    for (int i = 0; i < count; i++)
        costs[i] = (rpi_stage_layer){.name = layers[i].name,
                                     .tie = layers[i].tie,
                                     .cost = layers[i].forward_s + layers[i].inputs_s +
                                             layers[i].weights_s};
    *out = costs;
    return RP_OK;
}

static void add_up(const rpi_pipeline_layer *layers, rpi_pipeline_cut *cut, int part) {
    double sums[NUMBERS] = {0};
    for (int i = cut->first[part]; i < cut->first[part + 1]; i++) {
        sums[FORWARD] += layers[i].forward_s;
        sums[INPUTS] += layers[i].inputs_s;
        sums[WEIGHTS] += layers[i].weights_s;
        sums[WHOLE] += layers[i].whole_s > 0 ? layers[i].whole_s
                                             : layers[i].inputs_s + layers[i].weights_s;
        sums[KEPT] += layers[i].kept_bytes;
        sums[KEPT_FOR_WEIGHTS] += layers[i].weights_bytes;
    }
    for (int n = 0; n < NUMBERS; n++) cut->numbers[n * cut->parts + part] = sums[n];
}

bool rpi_pipeline_cut_move(const rpi_pipeline_layer *layers, rpi_pipeline_cut *cut, int part,
                           int by) {
    int to = part > 0 && part < cut->parts ? cut->first[part] + by : 0;
    if (to == 0 || to <= cut->first[part - 1] || to >= cut->first[part + 1]) return false;
    cut->first[part] = to;
    add_up(layers, cut, part - 1);
    add_up(layers, cut, part);
    return true;
}

static rp_status make_cut(const rpi_pipeline_layer *layers, int count, rpi_pipeline_cut *cut) {
    size_t parts = (size_t)cut->parts;
    rpi_stage_layer *costs = NULL;
    RP_TRY(rpi_alloc_array(parts + 1, sizeof *cut->first, "a cut", &cut->first));
    RP_TRY(rpi_alloc_array(NUMBERS * parts, sizeof *cut->numbers, "a cut", &cut->numbers));
    RP_TRY(make_layers(layers, count, &costs));
    rp_status status = rpi_stage_cut(costs, count, cut->parts, cut->first);
    rpi_free(costs);
    for (int part = 0; status == RP_OK && part < cut->parts; part++) add_up(layers, cut, part);
    return status;
}

rp_status rpi_pipeline_cut_make(const rpi_pipeline_layer *layers, int count, int parts,
                                rpi_pipeline_cut *out) {
    rpi_pipeline_cut cut = {.parts = parts};
    rp_status status = make_cut(layers, count, &cut);
    if (status != RP_OK) rpi_pipeline_cut_free(&cut);
    *out = cut;
    return status;
}

void rpi_pipeline_cut_free(rpi_pipeline_cut *cut) {
    rpi_free(cut->first);
    rpi_free(cut->numbers);
    *cut = (rpi_pipeline_cut){0};
}

void rpi_pipeline_cut_apply(const rpi_pipeline_cut *cut, rpi_pipeline_model *model) {
    const double *numbers = cut->numbers;
    model->entries = cut->parts;
    model->forward_s = numbers + FORWARD * cut->parts;
    model->inputs_s = numbers + INPUTS * cut->parts;
    model->weights_s = numbers + WEIGHTS * cut->parts;
    model->whole_s = numbers + WHOLE * cut->parts;
    model->kept_bytes = numbers + KEPT * cut->parts;
    model->weights_bytes = numbers + KEPT_FOR_WEIGHTS * cut->parts;
}

rp_status rpi_pipeline_ties(const rpi_pipeline_layer *layers, int count,
                            const rpi_pipeline_cut *cut, const rpi_pipeline_orders *orders,
                            rpi_pipeline_tie *out_ties, int most, int *out_count) {
    rpi_stage_layer *costs = NULL;
    rpi_stage_tie *ties = NULL;
    RP_TRY(make_layers(layers, count, &costs));
    rp_status status = rpi_alloc_array((size_t)count, sizeof *ties, "ties", &ties);
    int found = 0;
    if (status == RP_OK) {
        int all = rpi_stage_ties(costs, count, cut->first, cut->parts, ties, count);
        for (int i = 0; i < all; i++) {
            int first =
                rpi_pipeline_stage(orders->kind, orders->shape.stages, ties[i].first_part);
            int last =
                rpi_pipeline_stage(orders->kind, orders->shape.stages, ties[i].last_part);
            if (first == last) continue;
            if (found < most) out_ties[found] = (rpi_pipeline_tie){ties[i].tie, first, last};
            found++;
        }
    }
    rpi_free(costs);
    rpi_free(ties);
    if (status == RP_OK) *out_count = found;
    return status;
}
