#include "train/optimizer_state.h"

#include "base/memory.h"
#include "base/status.h"

#include <float.h>
#include <math.h>
#include <string.h>

static int64_t end_of(rpi_arena_range range) {
    return range.first + range.count;
}

/* The intersection of two ranges; count 0: it is empty. */
static rpi_arena_range shared(rpi_arena_range a, rpi_arena_range b) {
    int64_t first = a.first > b.first ? a.first : b.first;
    int64_t end = end_of(a) < end_of(b) ? end_of(a) : end_of(b);
    return (rpi_arena_range){first, end > first ? end - first : 0};
}

/* ---- opening ---- */

static rp_status list_parameters(const rpi_optimizer_state_options *o, rpi_optimizer_state *s) {
    const rpi_network *network = o->network;
    RP_TRY(rpi_alloc_array((size_t)network->parameter_count, sizeof *s->parameters,
                           "an optimizer's parameters", &s->parameters));
    for (int i = 0; i < network->parameter_count; i++) {
        const rpi_parameter *parameter = &network->parameters[i];
        if (parameter->is_state) continue;
        const rpi_weight *weight = rpi_weights_find(o->weights, parameter->name);
        if (!weight) continue; /* another rank has it */
        s->parameters[s->parameter_count++] = (rpi_optimized){
            .range = {weight->first, weight->count},
            .decays = o->decays_all || parameter->decay_group == RPI_DECAY_WEIGHT};
    }
    return RP_OK;
}

static rp_status check_cut(const rpi_optimizer_state *s, rpi_arena_range owned) {
    for (int i = 0; i < s->parameter_count && s->kind->whole_tensors; i++) {
        rpi_arena_range part = shared(s->parameters[i].range, owned);
        if (part.count && part.count != s->parameters[i].range.count)
            return RP_FAIL(UNSUPPORTED,
                           "%s steps a tensor by what all of its elements are, so no rank can "
                           "own a part of one",
                           s->kind->name);
    }
    return RP_OK;
}

static rp_status list_owned(const rpi_optimizer_state_options *o, rpi_optimizer_state *s,
                            int64_t *out_elements) {
    int64_t elements = rpi_weights_count(o->weights), end = 0, place = 0;
    const rpi_arena_range all = {0, elements}, *owned = o->owned ? o->owned : &all;
    size_t count = o->owned ? (size_t)o->owned_count : 1;
    RP_TRY(rpi_alloc_array(count, sizeof *s->owned, "owned ranges", &s->owned));
    RP_TRY(rpi_alloc_array(count, sizeof *s->places, "owned ranges", &s->places));
    for (size_t i = 0; i < count; i++) {
        if (owned[i].first < end || owned[i].count < 0 || end_of(owned[i]) > elements)
            return RP_FAIL(INVALID,
                           "elements %lld to %lld are no range behind %lld of an arena of %lld",
                           (long long)owned[i].first, (long long)end_of(owned[i]),
                           (long long)end, (long long)elements);
        RP_TRY(check_cut(s, owned[i]));
        end = end_of(owned[i]);
        s->places[s->owned_count] = place;
        s->owned[s->owned_count++] = owned[i];
        place += owned[i].count;
    }
    *out_elements = place;
    return RP_OK;
}

static rp_status open_parts(const rpi_optimizer_state_options *o, rpi_optimizer_state *s) {
    int64_t elements = 0;
    RP_TRY(list_parameters(o, s));
    RP_TRY(list_owned(o, s, &elements));
    s->slot_count = s->kind->slot_count + s->keeps_values;
    for (int i = 0; i < s->slot_count; i++)
        RP_TRY(
            rpi_alloc_array((size_t)elements, sizeof(float), "optimizer state", &s->slots[i]));
    if (!o->keeps_gradients) return RP_OK;
    return rpi_alloc_array((size_t)elements, sizeof(float), "gradients", &s->gradients);
}

rp_status rpi_optimizer_state_open(const rpi_optimizer_state_options *o,
                                   rpi_optimizer_state *out_state) {
    rpi_optimizer_state state = {.kind = o->kind,
                                 .weights = o->weights,
                                 .rates = o->rates,
                                 .clip = o->clip,
                                 .threads = o->threads,
                                 .keeps_values = o->keeps_values};
    rp_status status = open_parts(o, &state);
    if (status != RP_OK) {
        rpi_optimizer_state_close(&state);
        return status;
    }
    rpi_optimizer_state_begin(&state);
    *out_state = state;
    return RP_OK;
}

void rpi_optimizer_state_close(rpi_optimizer_state *s) {
    for (int i = 0; i < s->slot_count; i++) rpi_free(s->slots[i]);
    rpi_free(s->gradients);
    rpi_free(s->parameters);
    rpi_free(s->owned);
    rpi_free(s->places);
    *s = (rpi_optimizer_state){0};
}

/* Where element `first` of the arena is in an array of owned elements; NULL: it is not owned.
 */
static float *find_owned(const rpi_optimizer_state *s, float *array, int64_t first) {
    for (int i = 0; i < s->owned_count; i++)
        if (first >= s->owned[i].first && first < end_of(s->owned[i]))
            return array + s->places[i] + (first - s->owned[i].first);
    return NULL;
}

float *rpi_optimizer_state_slot(const rpi_optimizer_state *s, int slot, int64_t first) {
    return find_owned(s, s->slots[slot], first);
}

float *rpi_optimizer_state_values(const rpi_optimizer_state *s, int64_t first) {
    if (s->keeps_values) return rpi_optimizer_state_slot(s, s->kind->slot_count, first);
    return rpi_weights_values(s->weights) + first;
}

float *rpi_optimizer_state_gradients(const rpi_optimizer_state *s, int64_t first) {
    if (s->gradients) return find_owned(s, s->gradients, first);
    return rpi_weights_gradients(s->weights) + first;
}

const char *rpi_optimizer_state_slot_name(const rpi_optimizer_state *s, int slot) {
    return slot < s->kind->slot_count ? s->kind->slot_names[slot] : "value";
}

bool rpi_optimizer_state_is_part(const rpi_optimizer_state *s) {
    int64_t owned = 0;
    for (int i = 0; i < s->owned_count; i++) owned += s->owned[i].count;
    return owned < rpi_weights_count(s->weights);
}

bool rpi_optimizer_state_next(const rpi_optimizer_state *s, rpi_arena_range range,
                              rpi_arena_range *run) {
    int64_t behind = end_of(*run), end = end_of(range);
    int64_t first = behind > range.first ? behind : range.first;
    for (int i = 0; i < s->owned_count && first < end; i++) {
        *run = shared(s->owned[i], (rpi_arena_range){first, end - first});
        if (run->count) return true;
    }
    return false;
}

/* ---- the norm ---- */

void rpi_optimizer_state_begin(rpi_optimizer_state *s) {
    s->squares = (rpi_square_sum){0};
    s->norm = NAN;
    s->scale = 0;
}

void rpi_optimizer_state_measure(rpi_optimizer_state *s, rpi_arena_range range) {
    rpi_kernel_run run = {.threads = s->threads > 1 ? s->threads : 1, .isa = rpi_cpu_isa()};
    rpi_arena_range part = {0};
    while (rpi_optimizer_state_next(s, range, &part))
        rpi_kernel_square_sum(&run, rpi_optimizer_state_gradients(s, part.first), part.count,
                              &s->squares);
}

rp_status rpi_optimizer_state_sum(rpi_optimizer_state *s, rp_comm *comm) {
    const rp_segment sums = {
        .data = &s->squares, .count = sizeof s->squares / sizeof(int64_t), .dtype = RP_I64};
    return rp_all_reduce(comm, &sums, 1, NULL);
}

/* As PyTorch's clip_grad_norm_. A norm that is not finite clips nothing: the step is then found
 * to have diverged, and is not saved. */
void rpi_optimizer_state_clip(rpi_optimizer_state *s) {
    static const double epsilon = 1e-6;
    s->norm = sqrt(rpi_square_sum_value(&s->squares));
    double scale = s->clip / (s->norm + epsilon);
    s->scale = scale < 1 ? fmaxf((float)scale, FLT_MIN) : 0;
}

/* ---- a step ---- */

/* Updates elements of one parameter in one owned range. */
static void step_part(const rpi_optimizer_state *s, const rpi_optimizer_step *u, bool decays,
                      rpi_arena_range part, int64_t place) {
    rpi_optimizer_rates rates = s->rates;
    float *slots[RPI_OPTIMIZER_SLOTS] = {0};
    rates.learning_rate = (float)u->learning_rate;
    rates.gradient_scale = u->gradient_scale;
    if (!decays) rates.weight_decay = 0;
    for (int i = 0; i < s->kind->slot_count; i++) slots[i] = s->slots[i] + place;
    s->kind->update(&rates, u->updates, part.count, u->values + (part.first - u->range.first),
                    u->gradient + (part.first - u->range.first), slots);
}

void rpi_optimizer_state_step_apart(const rpi_optimizer_state *s, const rpi_optimizer_step *u) {
    for (int p = 0; p < s->parameter_count; p++) {
        rpi_arena_range asked = shared(s->parameters[p].range, u->range);
        for (int i = 0; asked.count && i < s->owned_count; i++) {
            rpi_arena_range part = shared(asked, s->owned[i]);
            if (part.count)
                step_part(s, u, s->parameters[p].decays, part,
                          s->places[i] + (part.first - s->owned[i].first));
        }
    }
}

void rpi_optimizer_state_keep_values(rpi_optimizer_state *s) {
    if (!s->keeps_values || s->has_values) return;
    const float *values = rpi_weights_values(s->weights);
    for (int i = 0; i < s->owned_count; i++)
        memcpy(s->slots[s->kind->slot_count] + s->places[i], values + s->owned[i].first,
               (size_t)s->owned[i].count * sizeof *values);
    s->has_values = true;
}

/* Updates owned elements, run by run, wherever they and their gradients lie. */
static void step_runs(rpi_optimizer_state *s, rpi_optimizer_step u) {
    rpi_arena_range run = {0}, all = u.range;
    rpi_optimizer_state_keep_values(s);
    while (rpi_optimizer_state_next(s, all, &run)) {
        u.range = run;
        u.values = rpi_optimizer_state_values(s, run.first);
        u.gradient = rpi_optimizer_state_gradients(s, run.first);
        rpi_optimizer_state_step_apart(s, &u);
    }
}

/* The weights get kept values from an all-gather. */
void rpi_optimizer_state_step(rpi_optimizer_state *s, uint64_t updates, double learning_rate,
                              rpi_arena_range range) {
    rpi_optimizer_step u = {.range = range,
                            .updates = updates,
                            .learning_rate = learning_rate,
                            .gradient_scale = s->scale};
    step_runs(s, u);
    if (!s->keeps_values) rpi_weights_changed(s->weights, range.first, range.count);
}
