#include "train/divergence.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/finite.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FAULT = sizeof(rpi_step_fault) / sizeof(double), TEXT = 512, ADVICE = 2560 };

/* ---- finding ---- */

static int record_named(const rpi_network *network, const char *name) {
    int record = 0;
    while (strcmp(network->parameters[record].name, name) != 0) record++;
    return network->parameters[record].index;
}

/* The record of the tensor that holds element `at` of the arena of parameters, or of states.
 * Record numbers mean the same on ranks that hold other tensors. */
static int tensor_at(const rpi_trainer *t, bool states, int64_t at) {
    const rpi_weights *weights = t->weights;
    int count =
        states ? rpi_weights_state_count(weights) : rpi_weights_parameter_count(weights);
    for (int i = 0; i < count; i++) {
        const rpi_weight *w =
            states ? rpi_weights_state(weights, i) : rpi_weights_parameter(weights, i);
        if (at >= w->first && at < w->first + w->count)
            return record_named(&t->network, w->name);
    }
    return -1;
}

/* Checks [first, first + count) of an arena; true: a fault was noted. */
static bool look(const rpi_trainer *t, int kind, const float *arena, int64_t first,
                 int64_t count, rpi_step_fault *fault) {
    int64_t at = arena ? rpi_first_nonfinite(arena + first, count) : -1;
    if (at < 0) return false;
    bool states = kind == RPI_FAULT_STATE || kind == RPI_FAULT_MEAN_STATE;
    *fault = (rpi_step_fault){.kind = kind,
                              .index = tensor_at(t, states, first + at),
                              .value = (double)arena[first + at]};
    return true;
}

void rpi_divergence_watch(rpi_trainer *t, int64_t first, int64_t count) {
    if (t->fault.kind != RPI_FAULT_NONE) return;
    for (int i = 0; i < rpi_weights_parameter_count(t->weights); i++) {
        const rpi_weight *weight = rpi_weights_parameter(t->weights, i);
        if (weight->first < first || weight->first >= first + count) continue;
        const float *gradient = rpi_weights_gradient_at(t->weights, i);
        int64_t at = rpi_first_nonfinite(gradient, weight->count);
        if (at < 0) continue;
        t->fault = (rpi_step_fault){.kind = RPI_FAULT_GRADIENT,
                                    .index = record_named(&t->network, weight->name),
                                    .value = (double)gradient[at]};
        return;
    }
}

/* Checks the state of what this rank owns; no other rank has it. */
static bool look_at_slot(const rpi_trainer *t, int slot, int kind, rpi_step_fault *fault) {
    const rpi_optimizer_state *optimizer = &t->optimizer;
    for (int i = 0; i < optimizer->owned_count; i++) {
        rpi_arena_range owned = optimizer->owned[i];
        const float *values = rpi_optimizer_state_slot(optimizer, slot, owned.first);
        int64_t at = rpi_first_nonfinite(values, owned.count);
        if (at < 0) continue;
        *fault = (rpi_step_fault){.kind = kind,
                                  .index = tensor_at(t, false, owned.first + at),
                                  .value = (double)values[at]};
        return true;
    }
    return false;
}

/* If ranks have only the values that they own, checks these. */
static bool look_at_parameters(const rpi_trainer *t, rpi_step_fault *fault) {
    if (rpi_trainer_passes_values(t))
        return look_at_slot(t, t->optimizer.kind->slot_count, RPI_FAULT_PARAMETER, fault);
    return look(t, RPI_FAULT_PARAMETER, rpi_weights_values(t->weights), 0,
                rpi_weights_count(t->weights), fault);
}

static int node_named(const rpi_graph *graph, const char *name) {
    for (int i = 0; i < rpi_graph_node_count(graph); i++)
        if (rpi_graph_node(graph, i)->name == name) return i;
    return -1;
}

static rp_status trace_outputs(rpi_trainer *t, rpi_instance *instance,
                               const rpi_run_options *run, double loss) {
    const char *name = NULL;
    /* Layers, or keys, that are gathered run on all ranks at the same time, or on none. */
    if (!rpi_trainer_passes_values(t) && !rpi_trainer_shares_sequences(t))
        RP_TRY(rpi_instance_find_nonfinite(instance, run, &name));
    if (name)
        t->fault = (rpi_step_fault){.kind = RPI_FAULT_OUTPUT,
                                    .index = node_named(t->network.graph, name)};
    else if (!isfinite(loss))
        t->fault = (rpi_step_fault){.kind = RPI_FAULT_LOSS, .value = loss};
    return RP_OK;
}

/* Ranks that share layers have the same loss. They run again together, or not at all: if none
 * of them has parameters that explain the fault. */
static rp_status trace_together(rpi_trainer *t, rpi_instance *instance,
                                const rpi_run_options *run, double loss) {
    if (isfinite(loss)) return RP_OK;
    RP_TRY(rpi_trainer_complete(t));
    int32_t found = look_at_parameters(t, &t->fault);
    const rp_segment any = {.data = &found, .count = 1, .dtype = RP_I32};
    RP_TRY(rp_all_reduce(t->comms.tensor, &any, 1,
                         &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.reduce = RP_MAX)));
    return found ? RP_OK : trace_outputs(t, instance, run, loss);
}

rp_status rpi_divergence_trace(rpi_trainer *t, rpi_instance *instance,
                               const rpi_run_options *run, double loss) {
    if (rpi_trainer_is_split(t)) return trace_together(t, instance, run, loss);
    if (isfinite(loss) && t->fault.kind == RPI_FAULT_NONE) {
        look(t, RPI_FAULT_STATE, rpi_weights_states(t->weights), 0,
             rpi_weights_states_count(t->weights), &t->fault);
        return RP_OK;
    }
    RP_TRY(rpi_trainer_complete(t));
    return look_at_parameters(t, &t->fault) ? RP_OK : trace_outputs(t, instance, run, loss);
}

static bool look_at_state(const rpi_trainer *t, const float *mean_states,
                          rpi_step_fault *fault) {
    rpi_weights *weights = t->weights;
    int64_t count = rpi_weights_count(weights), states = rpi_weights_states_count(weights);
    for (int s = 0; s < t->optimizer.kind->slot_count; s++)
        if (look_at_slot(t, s, RPI_FAULT_SLOT + s, fault)) return true;
    return look(t, RPI_FAULT_RESIDUAL, t->residual, 0, count, fault) ||
           look(t, RPI_FAULT_STATE, rpi_weights_states(weights), 0, states, fault) ||
           look(t, RPI_FAULT_MEAN_STATE, mean_states, 0, states, fault);
}

rp_status rpi_divergence_check(rpi_trainer *t, const float *mean_states) {
    rpi_step_fault fault = {0};
    RP_TRY(rpi_trainer_complete(t));
    if (!look_at_parameters(t, &fault)) look_at_state(t, mean_states, &fault);
    if (t->place.world == 1)
        return rpi_divergence_report(t, &fault.kind, FAULT, t->step, t->step);
    double *faults = NULL;
    RP_TRY(rpi_alloc_array((size_t)t->place.world * FAULT, sizeof *faults, "faults", &faults));
    rp_status status = rp_all_gather(t->comm, &fault.kind, faults, FAULT, RP_F64, NULL, NULL);
    if (status == RP_OK) status = rpi_divergence_report(t, faults, FAULT, t->step, t->step);
    rpi_free(faults);
    return status;
}

/* ---- telling ---- */

/* A rank may be told about a tensor of which it has no part. */
static const char *tensor_name(const rpi_trainer *t, const rpi_step_fault *fault) {
    int index = (int)fault->index;
    for (int i = 0; i < t->network.parameter_count; i++)
        if (t->network.parameters[i].index == index) return t->network.parameters[i].name;
    return "a tensor of another rank";
}

static void tell_output(const rpi_trainer *t, const rpi_step_fault *fault, char *text) {
    int index = (int)fault->index;
    if (index < 0 || index >= rpi_graph_node_count(t->network.graph)) {
        snprintf(text, TEXT, "an activation is not finite");
        return;
    }
    const rpi_node *node = rpi_graph_node(t->network.graph, index);
    snprintf(text, TEXT, "the output of %s (%s) is not finite, first of the forward pass,",
             node->name, node->op->name);
}

static void tell_where(const rpi_trainer *t, const rpi_step_fault *fault, int64_t updates,
                       char *text) {
    const char *name = tensor_name(t, fault), *value = isnan(fault->value) ? "NaN" : "infinity";
    int kind = (int)fault->kind;
    switch (kind) {
    case RPI_FAULT_OUTPUT: tell_output(t, fault, text); return;
    case RPI_FAULT_LOSS: snprintf(text, TEXT, "the loss is %s", value); return;
    case RPI_FAULT_GRADIENT:
        snprintf(text, TEXT, "the gradient of %s holds %s", name, value);
        return;
    case RPI_FAULT_PARAMETER:
        snprintf(text, TEXT, "%s holds %s since the update of step %lld", name, value,
                 (long long)updates);
        return;
    case RPI_FAULT_RESIDUAL:
        snprintf(text, TEXT, "the error feedback of %s holds %s", name, value);
        return;
    case RPI_FAULT_STATE: snprintf(text, TEXT, "%s holds %s", name, value); return;
    case RPI_FAULT_MEAN_STATE:
        snprintf(text, TEXT, "the mean of %s over the ranks is %s", name, value);
        return;
    default:
        snprintf(text, TEXT, "the %s of %s holds %s",
                 t->optimizer.kind->slot_names[kind - RPI_FAULT_SLOT], name, value);
    }
}

/* What a strategy has noted about its options comes before the learning rate. */
static void tell_what_to_do(const rpi_trainer *t, char *text) {
    const char *cause =
        t->strategy && t->strategy->suspect ? t->strategy->suspect(t->strategy_self) : NULL;
    int used = snprintf(text, ADVICE,
                        "nothing of this is saved. %s%s%s smaller --lr or a warm-up "
                        "(--lr-warmup-steps); ",
                        cause ? "The cause may be: " : "", cause ? cause : "",
                        cause ? ". Else try a" : "Try a");
    if (used >= ADVICE) used = ADVICE - 1;
    if (t->good_folder[0])
        snprintf(
            text + used, ADVICE - (size_t)used,
            "the last good checkpoint is that of step %lld: go on from it with --resume %s",
            (long long)t->good_step, t->good_folder);
    else
        snprintf(text + used, ADVICE - (size_t)used,
                 "there is no checkpoint to go on from: --checkpoint-every N saves one every N "
                 "steps");
}

/* The message is that of the lowest rank with a fault. */
rp_status rpi_divergence_report(const rpi_trainer *t, const double *faults, int stride,
                                int64_t step, int64_t updates) {
    rpi_step_fault first = {0};
    int rank = -1, alike = 0;
    for (int r = t->place.world - 1; r >= 0; r--) {
        rpi_step_fault fault;
        memcpy(&fault, faults + (ptrdiff_t)r * stride, sizeof fault);
        if (fault.kind == RPI_FAULT_NONE) continue;
        /* All ranks have the mean, and one of them has the state that spoiled it. */
        if (rank >= 0 && fault.kind == RPI_FAULT_MEAN_STATE && first.kind != fault.kind)
            continue;
        alike =
            rank >= 0 && fault.kind == first.kind && fault.index == first.index ? alike + 1 : 1;
        first = fault;
        rank = r;
    }
    if (rank < 0) return RP_OK;
    /* All ranks must know before the first one gives up: a rank that still waited for the
     * faults would report a dead peer instead. */
    (void)rp_barrier(t->comm);
    char where[TEXT], advice[ADVICE], who[RPI_GRID_TEXT + 8], place[RPI_GRID_TEXT];
    tell_where(t, &first, updates, where);
    tell_what_to_do(t, advice);
    snprintf(who, sizeof who, "on %s", rpi_train_place_text(&t->place, rank, place));
    if (alike == t->place.world && t->place.world > 1)
        snprintf(who, sizeof who, "on every rank");
    return RP_FAIL(CORRUPT, RPI_DIVERGED "%lld: %s %s; %s", (long long)step, where, who,
                   advice);
}
