#include "train/program_set.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/models/layer_names.h"

#include <string.h>

rp_status rpi_program_set_open(const rpi_network *network, rpi_weights *weights,
                               const rpi_backend *backend, const rpi_backend_options *options,
                               rp_dtype compute, rpi_program_set *out_set) {
    rpi_program_set set = {.network = network, .compute = compute};
    RP_TRY(rpi_session_create(weights, backend, options, &set.session));
    *out_set = set;
    return RP_OK;
}

/* The entry used last stands first. */
static void move_to_front(rpi_program_set *set, int index) {
    rpi_program_entry moved = set->entries[index];
    for (; index > 0; index--) set->entries[index] = set->entries[index - 1];
    set->entries[0] = moved;
}

static void close_entry(rpi_program_entry *entry) {
    rpi_instance_destroy(entry->instance);
    rpi_program_destroy(entry->program);
}

static void add_memories(const rpi_network *network, rpi_program_options *options) {
    options->dimensions[2] = (rpi_dimension_binding){"memory", network->memory_length};
    options->dimensions[3] =
        (rpi_dimension_binding){"context", network->memory_length + network->shape.sequence};
    for (int i = 0; i < network->memory_count; i++)
        options->results[options->result_count++] = network->remembers[i];
}

static bool has_sequence(const rpi_graph *graph) {
    for (int i = 0; i < rpi_graph_dimension_count(graph); i++)
        if (strcmp(rpi_graph_dimension_name(graph, i), "sequence") == 0) return true;
    return false;
}

static void add_sample_results(const rpi_network *network, rpi_program_options *options) {
    const rpi_value_id results[] = {network->label_loss, network->sample_loss,
                                    network->sample_correct};
    for (int i = 0; i < 3; i++) options->results[options->result_count++] = results[i];
}

static rp_status compile(const rpi_program_set *set, rpi_value_id loss,
                         rpi_program_options *options, rpi_program **out_program) {
    const rpi_network *n = set->network;
    rpi_segment *blocks = NULL;
    if (options->training && set->recompute) {
        RP_TRY(rpi_blocks_of(n->graph, &blocks, &options->recompute_count));
        options->recompute = blocks;
    }
    rp_status status = rpi_program_compile(set->session, n->graph, loss, options, out_program);
    rpi_free(blocks);
    return status;
}

static rpi_program_options options_of(const rpi_program_set *set, bool training,
                                      int64_t batch) {
    rpi_program_options options = {.training = training,
                                   .compute = set->compute,
                                   .shares_passing = set->in_flight,
                                   .halves_apart = set->halves && training,
                                   .dimensions = {{"batch", batch}}};
    if (has_sequence(set->network->graph))
        options.dimensions[1] =
            (rpi_dimension_binding){"sequence", set->network->shape.sequence};
    return options;
}

/* The results that are read of the network's end. */
static void add_results(const rpi_network *n, rpi_program_options *options) {
    options->results[options->result_count++] =
        options->training ? n->correct : n->plain_correct;
    if (n->task->sample_metric) add_sample_results(n, options);
    if (n->task->judges_logits && !options->training)
        options->results[options->result_count++] = n->logits;
    if (n->memory_count) add_memories(n, options);
}

rp_status rpi_program_set_compile(const rpi_program_set *set, bool training, int64_t batch,
                                  rpi_program **out_program) {
    const rpi_network *n = set->network;
    rpi_program_options options = options_of(set, training, batch);
    add_results(n, &options);
    return compile(set, training ? n->loss : n->plain_loss, &options, out_program);
}

rp_status rpi_program_set_compile_part(const rpi_program_set *set, const rpi_network_part *part,
                                       bool training, int64_t batch,
                                       rpi_program **out_program) {
    const rpi_network *n = set->network;
    rpi_program_options options = options_of(set, training, batch);
    rpi_value_id loss = training ? n->loss : n->plain_loss;
    if (training) options.given_dtypes[0] = part->given_as.value;
    if (part->given != RPI_NO_VALUE) options.given[options.given_count++] = part->given;
    if (part->seed == RPI_NO_VALUE) {
        add_results(n, &options);
        return compile(set, loss, &options, out_program);
    }
    options.results[options.result_count++] = part->seed;
    if (training) options.seeds[options.seed_count++] = part->seed;
    return compile(set, RPI_NO_VALUE, &options, out_program);
}

static rp_status add(rpi_program_set *set, bool training, int64_t batch) {
    rpi_program *program = NULL;
    rpi_instance *instance = NULL;
    RP_TRY(rpi_program_set_compile(set, training, batch, &program));
    rp_status status = rpi_instance_create(program, &instance);
    if (status != RP_OK) {
        rpi_program_destroy(program);
        return status;
    }
    int index = set->count < RPI_PROGRAM_SET ? set->count++ : RPI_PROGRAM_SET - 1;
    close_entry(&set->entries[index]);
    set->entries[index] = (rpi_program_entry){program, instance, batch, training};
    move_to_front(set, index);
    return RP_OK;
}

rp_status rpi_program_set_get(rpi_program_set *set, bool training, int64_t batch,
                              rpi_instance **out_instance) {
    int index = 0;
    while (index < set->count &&
           (set->entries[index].batch != batch || set->entries[index].training != training))
        index++;
    if (index < set->count)
        move_to_front(set, index);
    else
        RP_TRY(add(set, training, batch));
    *out_instance = set->entries[0].instance;
    return RP_OK;
}

void rpi_program_set_close(rpi_program_set *set) {
    for (int i = 0; i < set->count; i++) close_entry(&set->entries[i]);
    rpi_session_destroy(set->session);
    *set = (rpi_program_set){0};
}
