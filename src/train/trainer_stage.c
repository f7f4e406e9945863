/* Which stage of a pipeline a rank is. Schedule and cut are chosen, by measuring if that is
 * asked for, and are the same on all ranks. */
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/safetensors.h"
#include "train/parallel/border_costs.h"
#include "train/parallel/border_dtypes.h"
#include "train/parallel/layer_times.h"
#include "train/parallel/node_costs.h"
#include "train/parallel/stage_choice.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

/* What the choice is made of. */
typedef struct known {
    rpi_model_layers layers;
    double *costs;             /* operations of layers */
    rpi_pipeline_layer *times; /* NULL: nothing was measured */
    rpi_pipeline_model links;
    int *host_of;
    char record[RPI_STAGE_RECORD]; /* of the run that goes on */
} known;

static void close_known(known *k) {
    rpi_model_layers_free(&k->layers);
    rpi_free(k->costs);
    rpi_free(k->times);
    rpi_free(k->host_of);
}

/* Slices of layers may cost more on one rank than on another; all are cut alike. */
static rp_status agree_on_costs(const rpi_trainer *t, double *costs) {
    if (!rpi_trainer_is_split(t)) return RP_OK;
    size_t nodes = (size_t)rpi_graph_node_count(t->network.graph);
    return rp_broadcast(t->comms.tensor, costs, nodes, RP_F64, NULL);
}

/* The operations of all ranks of a replica for a sample. Operations that each rank which shares
 * layers does by itself are counted on each. */
static void sum_up(rpi_trainer *t, const double *costs) {
    int nodes = rpi_graph_node_count(t->network.graph);
    t->sample_flops = 0;
    for (int n = 0; n < nodes; n++) t->sample_flops += costs[n];
    t->sample_flops *=
        t->place.grid.size[RPI_AXIS_TENSOR] * t->place.grid.size[RPI_AXIS_CONTEXT];
}

static rp_status count_layers(rpi_trainer *t, known *k) {
    double *costs = NULL;
    RP_TRY(rpi_model_layers_find(&t->network, &k->layers));
    RP_TRY(rpi_node_costs(&t->network, &costs));
    rp_status status = agree_on_costs(t, costs);
    if (status == RP_OK) sum_up(t, costs);
    if (status == RP_OK) status = rpi_model_layers_costs(&k->layers, costs, &k->costs);
    rpi_free(costs);
    return status;
}

/* ---- what the run took before ---- */

static void read_record(const char *folder, char record[RPI_STAGE_RECORD]) {
    char path[RPI_PATH_BYTES];
    rpi_safetensors *file = NULL;
    if (rpi_safetensors_open(rpi_checkpoint_path(folder, path, sizeof path), &file) != RP_OK)
        return;
    const char *text = rpi_safetensors_metadata(file, RPI_STAGE_RECORD_KEY);
    snprintf(record, RPI_STAGE_RECORD, "%s", text ? text : "");
    rpi_safetensors_close(file);
}

/* Rank 0's value, whatever other ranks see of the folder. */
static rp_status agree_on_record(const rpi_trainer *t, known *k) {
    if (!t->options->resume) return RP_OK;
    if (t->place.rank == 0) read_record(t->options->resume, k->record);
    return rp_broadcast(t->comm, k->record, sizeof k->record, RP_U8, NULL);
}

/* ---- measuring ---- */

/* The first micro-batch of the first step, as long as any. */
static rp_status measure_layers(rpi_trainer *t, known *k) {
    const void *inputs[RPI_NETWORK_INPUTS] = {NULL};
    static const rpi_loss_scales plain = {1, 1, 0};
    rpi_source_batch batch;
    const rpi_backend *backend = NULL;
    rp_dtype compute = RP_F32;
    const rpi_replica_setup setup = {
        .network = &t->network, .mixup = &t->mixup, .memories = &t->memories};
    RP_TRY(rpi_trainer_backend(t, &backend, &compute));
    RP_TRY(rpi_source_deal(&t->source, 0, &batch));
    if (t->mixup.alpha > 0) rpi_mixup_blend(&t->mixup, (uint64_t)t->options->seed, 0, &batch);
    RP_TRY(rpi_trainer_cut_batch(t, &batch));
    rpi_replica_inputs(&setup, &batch, &plain, 0, inputs);
    int64_t samples = batch.count < t->micro_batch ? batch.count : t->micro_batch;
    const rpi_layer_times_setup times = {.network = &t->network,
                                         .layers = &k->layers,
                                         .backend = backend,
                                         .options = {.threads = (int)t->options->threads},
                                         .compute = compute,
                                         .recompute = t->options->recompute,
                                         .together = rpi_trainer_is_split(t) ||
                                                     rpi_trainer_shares_sequences(t),
                                         .samples = samples > 0 ? samples : 1,
                                         .inputs = inputs};
    return rpi_layer_times_measure(&times, k->times);
}

enum { NUMBERS = 6, LINKS = 4 };

static double *number_of(rpi_pipeline_layer *layer, int which) {
    double *const numbers[NUMBERS] = {&layer->forward_s,  &layer->inputs_s,
                                      &layer->weights_s,  &layer->whole_s,
                                      &layer->kept_bytes, &layer->weights_bytes};
    return numbers[which];
}

/* The least of all ranks, which measure at the same time, as they will compute. */
static rp_status agree_on_times(const rpi_trainer *t, known *k) {
    size_t count = (size_t)k->layers.count * NUMBERS;
    double *all = NULL;
    RP_TRY(rpi_alloc_array(count, sizeof *all, "times of layers", &all));
    for (size_t i = 0; i < count; i++)
        all[i] = *number_of(&k->times[i / NUMBERS], (int)(i % NUMBERS));
    rp_segment least = {.data = all, .count = count, .dtype = RP_F64};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = RP_MIN);
    rp_status status = rp_all_reduce(t->comm, &least, 1, &options);
    for (size_t i = 0; i < count; i++)
        *number_of(&k->times[i / NUMBERS], (int)(i % NUMBERS)) = all[i];
    rpi_free(all);
    return status;
}

/* Rank 0's replica measures, and has the hosts that count; the others take its result. */
static rp_status measure_links(const rpi_trainer *t, known *k) {
    rpi_pipeline_model *m = &k->links;
    int stages = t->place.grid.size[RPI_AXIS_STAGE];
    int64_t crossing = 0;
    for (int i = 0; i + 1 < k->layers.count; i++) {
        int64_t c = rpi_stage_crossing(&t->network, k->layers.crossing[i], t->micro_batch);
        if (c > crossing) crossing = c;
    }
    RP_TRY(rpi_alloc_array((size_t)stages, sizeof(int), "hosts", &k->host_of));
    size_t bytes = rpi_activation_codec_bytes(&t->activations.codec, crossing);
    RP_TRY(rpi_border_costs_measure(t->comms.stages, bytes,
                                    t->place.replica == 0 && t->network.tensor_rank == 0, m));
    for (int s = 0; s < stages; s++) k->host_of[s] = m->host_of ? m->host_of[s] : s;
    m->host_of = k->host_of;
    double links[LINKS] = {m->bytes_per_s, m->latency_s, m->inside_bytes_per_s,
                           m->inside_latency_s};
    RP_TRY(rp_broadcast(t->comm, links, LINKS, RP_F64, NULL));
    RP_TRY(rp_broadcast(t->comm, k->host_of, (size_t)stages, RP_I32, NULL));
    m->bytes_per_s = links[0];
    m->latency_s = links[1];
    m->inside_bytes_per_s = links[2];
    m->inside_latency_s = links[3];
    return RP_OK;
}

static rp_status measure(rpi_trainer *t, known *k) {
    if (!t->comm)
        return RP_FAIL(
            INVALID, "--schedule auto and --stage-cut measured: a rank that comes back cannot "
                     "measure with the others; name a schedule");
    RP_TRY(rpi_alloc_array((size_t)k->layers.count, sizeof *k->times, "times of layers",
                           &k->times));
    RP_TRY(measure_layers(t, k));
    RP_TRY(agree_on_times(t, k));
    return measure_links(t, k);
}

/* ---- choosing ---- */

static rp_status keep_record(rpi_trainer *t, const rpi_stage_request *request,
                             const rpi_stage_choice *choice) {
    RP_TRY(rpi_alloc(RPI_STAGE_RECORD, "a pipeline's record", &t->stage_record));
    rpi_stage_record(request, choice, t->stage_record);
    return RP_OK;
}

static rp_status open_chosen(rpi_trainer *t, const rpi_stage_request *request,
                             const rpi_stage_choice *choice) {
    const rpi_stage_cut_plan plan = {choice->schedule, request->layers, choice->first,
                                     choice->costs, choice->measure};
    int stage = rpi_grid_place_of(&t->place.grid, t->place.rank).at[RPI_AXIS_STAGE];
    snprintf(t->stage_note, sizeof t->stage_note, "%s", choice->note);
    RP_TRY(keep_record(t, request, choice));
    return rpi_stage_open_at(&t->network, &plan, request->stages, stage, &t->stage);
}

/* With the schedule that keeps least, cut by operations: what does not fit even so is refused
 * before layers are run. */
static rp_status find_room(const rpi_trainer *t, rpi_stage_request *request) {
    rpi_stage_request usual = *request;
    rpi_stage_choice choice = {0};
    rpi_model_stage stage = {0};
    int place = rpi_grid_place_of(&t->place.grid, t->place.rank).at[RPI_AXIS_STAGE];
    usual.schedule = "1f1b";
    usual.cut = "counted";
    RP_TRY(rpi_stage_choose(&usual, &choice));
    const rpi_stage_cut_plan plan = {choice.schedule, request->layers, choice.first,
                                     choice.costs, choice.measure};
    rp_status status = rpi_stage_open_at(&t->network, &plan, request->stages, place, &stage);
    if (status == RP_OK) status = rpi_trainer_check_memory(t, &stage, &request->memory_bytes);
    rpi_stage_close(&stage);
    rpi_stage_choice_free(&choice);
    return status;
}

static rp_status choose(rpi_trainer *t, known *k) {
    int64_t share = t->global_batch / t->place.workers;
    rpi_stage_request request = {.network = &t->network,
                                 .layers = &k->layers,
                                 .costs = k->costs,
                                 .stages = t->place.grid.size[RPI_AXIS_STAGE],
                                 .micro_batches =
                                     (int)((share + t->micro_batch - 1) / t->micro_batch),
                                 .schedule = t->options->schedule,
                                 .cut = t->options->stage_cut,
                                 .whole = rpi_trainer_passes_gradients(t),
                                 .record = k->record};
    rpi_stage_choice choice = {0};
    if (rpi_stage_choice_measures(&request)) {
        RP_TRY(find_room(t, &request));
        RP_TRY(measure(t, k));
        request.times = k->times;
        request.links = &k->links;
    }
    rp_status status = rpi_stage_choose(&request, &choice);
    if (status == RP_OK) status = open_chosen(t, &request, &choice);
    rpi_stage_choice_free(&choice);
    return status;
}

static rp_status find_dtypes(rpi_trainer *t) {
    const rpi_backend *backend = NULL;
    rp_dtype compute = RP_F32;
    RP_TRY(rpi_trainer_backend(t, &backend, &compute));
    return rpi_border_dtypes_find(&t->network, backend, compute, t->options->recompute,
                                  t->micro_batch, &t->stage);
}

rp_status rpi_trainer_open_stage(rpi_trainer *t, const rpi_weights_memory *memory) {
    known k = {0};
    rp_status status = count_layers(t, &k);
    bool open = rpi_stage_choice_is_open(t->options->schedule, t->options->stage_cut);
    if (status == RP_OK && open && t->comm) status = agree_on_record(t, &k);
    if (status == RP_OK) status = choose(t, &k);
    close_known(&k);
    RP_TRY(status);
    RP_TRY(find_dtypes(t));
    t->place.counts = rpi_stage_ends(&t->stage) && t->network.tensor_rank == 0;
    RP_TRY(rpi_trainer_check_memory(t, &t->stage, NULL));
    return rpi_stage_weights(&t->stage, &t->network, memory, &t->weights);
}
