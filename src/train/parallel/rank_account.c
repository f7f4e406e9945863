#include "train/parallel/rank_account.h"

#include "base/memory.h"
#include "base/status.h"
#include "plan/pipelines/pipeline_orders.h"
#include "train/parallel/activation_codec.h"
#include "train/parallel/context_nodes.h"
#include "train/program_set.h"
#include "train/shared_account.h"

#include <math.h>

const char *rpi_held_name(rpi_held_kind kind) {
    static const char *const names[] = {
        "parameters",         "gradients",
        "optimizer's state",  "running statistics",
        "error feedback",     "activations and their gradients",
        "messages of stages", "workspace of the largest kernel"};
    return names[kind];
}

rpi_held_kind rpi_rank_account_largest(const rpi_rank_account *account) {
    int largest = 0;
    for (int k = 1; k < RPI_HELD_KINDS; k++)
        if (account->bytes[k] > account->bytes[largest]) largest = k;
    return (rpi_held_kind)largest;
}

/* ---- elements ---- */

static bool holds(const rpi_rank_account_options *o, int record) {
    int first, last;
    return !o->stage || rpi_stage_holds(o->stage, o->network, record, &first, &last);
}

static void count_elements(const rpi_rank_account_options *o, rpi_rank_account *a) {
    for (int i = 0; i < o->network->parameter_count; i++) {
        const rpi_parameter *p = &o->network->parameters[i];
        if (!holds(o, i)) continue;
        int64_t count = rpi_shape_count(&rpi_graph_value(o->network->graph, p->value)->shape);
        *(p->is_state ? &a->states : &a->parameters) += count;
    }
}

/* The table of what this rank holds, without elements. */
static rp_status open_table(const rpi_rank_account_options *o, rpi_weights **out_weights) {
    if (o->stage) return rpi_stage_weights(o->stage, o->network, NULL, out_weights);
    return rpi_weights_create_table(o->network->graph, o->network->loss, out_weights);
}

static rp_status count_shared(const rpi_rank_account_options *o, rpi_shared_account *out) {
    rpi_weights *weights = NULL;
    RP_TRY(open_table(o, &weights));
    const rpi_shared_account_options options = {.network = o->network,
                                                .weights = weights,
                                                .zero = o->zero,
                                                .sharers = o->sharers,
                                                .bucket_bytes = o->bucket_bytes,
                                                .whole_tensors = o->whole_tensors,
                                                .host_ranks = o->host_ranks};
    rp_status status = rpi_shared_account_make(&options, out);
    rpi_weights_destroy(weights);
    return status;
}

/* The largest table that this stage shares with another one, or what a rank owns of it. */
static double tie_bytes(const rpi_rank_account_options *o) {
    int64_t most = 0;
    for (int i = 0; o->stage && i < o->stage->tie_count; i++) {
        const rpi_stage_tied *tie = &o->stage->ties[i];
        rpi_value_id value = o->network->parameters[tie->parameter].value;
        int64_t count = rpi_shape_count(&rpi_graph_value(o->network->graph, value)->shape);
        bool is_ours = tie->stages[0] == o->stage->stage || tie->stages[1] == o->stage->stage;
        if (is_ours && count > most) most = count;
    }
    bool is_shared = o->zero && o->sharers > 1 && !o->whole_tensors;
    return (double)most * sizeof(float) / (is_shared ? o->sharers : 1);
}

static rp_status count_arenas(const rpi_rank_account_options *o, rpi_rank_account *a) {
    rpi_shared_account shared;
    RP_TRY(count_shared(o, &shared));
    a->bytes[RPI_HELD_PARAMETERS] = (double)shared.values * sizeof(float);
    a->bytes[RPI_HELD_GRADIENTS] = (double)shared.gradients * sizeof(float);
    a->bytes[RPI_HELD_OPTIMIZER] = (double)shared.owned * sizeof(float) * o->slots;
    a->bytes[RPI_HELD_STATES] = (double)a->states * sizeof(float);
    a->bytes[RPI_HELD_RESIDUAL] = o->feeds_back ? (double)a->parameters * sizeof(float) : 0;
    a->bytes[RPI_HELD_MESSAGES] += tie_bytes(o) - a->tie_bytes;
    a->tie_bytes = tie_bytes(o);
    return RP_OK;
}

/* ---- programs ---- */

typedef struct counted {
    rpi_weights *weights; /* without elements */
    rpi_program_set set;
} counted;

static rp_status open_counted(const rpi_rank_account_options *o, counted *it) {
    static const rpi_backend_options usual;
    const rpi_backend *backend = o->backend ? o->backend : rpi_backend_default();
    RP_TRY(rpi_weights_create_table(o->network->graph, o->network->loss, &it->weights));
    RP_TRY(
        rpi_program_set_open(o->network, it->weights, backend, &usual, o->compute, &it->set));
    it->set.recompute = o->recompute;
    it->set.in_flight = o->stage != NULL;
    it->set.halves = o->stage && o->stage->schedule->splits;
    return RP_OK;
}

static void close_counted(counted *it) {
    rpi_program_set_close(&it->set);
    rpi_weights_destroy(it->weights);
}

static void add_flops(const rpi_rank_account_options *o, const rpi_program_facts *facts,
                      rpi_rank_account *a) {
    a->forward_flops += (double)facts->forward_flops * o->micro_batches;
    a->backward_flops += (double)facts->backward_flops * o->micro_batches;
    a->bytes[RPI_HELD_WORKSPACE] =
        fmax(a->bytes[RPI_HELD_WORKSPACE], (double)facts->workspace_bytes);
}

static rp_status count_whole(const rpi_rank_account_options *o, const counted *it,
                             rpi_rank_account *a) {
    rpi_program *program = NULL;
    RP_TRY(rpi_program_set_compile(&it->set, true, o->micro_batch, &program));
    rpi_program_facts facts = rpi_program_get_facts(program);
    rpi_program_destroy(program);
    add_flops(o, &facts, a);
    a->in_flight = 1;
    a->bytes[RPI_HELD_ACTIVATIONS] = (double)facts.memory_bytes;
    return RP_OK;
}

/* ---- stages ---- */

/* The most runs of a chunk at a time: from forward to the end of backward, from forward to the
 * first half of backward, and between the two halves. */
typedef struct in_flight {
    int runs, before, between;
} in_flight;

static void raise(int now, int *most) {
    if (now > *most) *most = now;
}

static in_flight most_of(const rpi_pipeline_orders *orders, int stage, int chunk) {
    const rpi_pipeline_pass *passes = orders->passes + (ptrdiff_t)stage * orders->each;
    in_flight now = {0}, most = {0};
    for (int i = 0; i < orders->each; i++) {
        int kind = passes[i].kind;
        if (passes[i].chunk != chunk) continue;
        now.runs += kind == RPI_PASS_FORWARD;
        now.before += kind == RPI_PASS_FORWARD;
        now.between += kind == RPI_PASS_INPUTS;
        raise(now.runs, &most.runs);
        raise(now.before, &most.before);
        raise(now.between, &most.between);
        now.before -= kind == RPI_PASS_INPUTS || kind == RPI_PASS_BACKWARD;
        now.between -= kind == RPI_PASS_WEIGHTS;
        now.runs -= kind == RPI_PASS_WEIGHTS || kind == RPI_PASS_BACKWARD;
    }
    return most;
}

static double crossing_bytes(const rpi_rank_account_options *o, rpi_value_id value) {
    if (value == RPI_NO_VALUE) return 0;
    return (double)rpi_stage_crossing(o->network, value, o->micro_batch) * sizeof(float);
}

/* Is a value sent to another stage, or received from there, at the border of that part? */
static bool crosses(const rpi_rank_account_options *o, rpi_value_id value, int part) {
    const rpi_model_stage *s = o->stage;
    return value != RPI_NO_VALUE &&
           rpi_pipeline_stage(s->schedule, s->stages, part) != s->stage;
}

/* Bytes of a message of elements that are handed on in this dtype. */
static double wire_bytes(const rpi_rank_account_options *o, rpi_value_id value,
                         rp_dtype dtype) {
    int64_t count = rpi_stage_crossing(o->network, value, o->micro_batch);
    if (!rp_codec_is_exact(&o->activations, RP_F32))
        return (double)rpi_activation_codec_bytes(&o->activations, count);
    return (double)count * (double)rp_dtype_bytes(dtype == RP_BF16 ? RP_BF16 : RP_F32);
}

/* A slot has room for what it receives, and sends from where the activations lie. If messages
 * are encoded it also has room for the encoding, both ways. */
static void add_messages(const rpi_rank_account_options *o, rpi_value_id value, int part,
                         rp_dtype arrives, rp_dtype leaves, int slots, rpi_rank_account *a) {
    double whole = crossing_bytes(o, value);
    a->bytes[RPI_HELD_MESSAGES] += slots * whole;
    if (!crosses(o, value, part)) return;
    double in = wire_bytes(o, value, arrives), out = wire_bytes(o, value, leaves);
    a->sent_bytes += o->micro_batches * out;
    a->bytes[RPI_HELD_MESSAGES] += slots * ((in != whole ? in : 0) + (out != whole ? out : 0));
}

/* There is one slot more than runs in flight, which receives ahead. */
static void add_chunk(const rpi_rank_account_options *o, const rpi_network_part *part,
                      const in_flight *most, const rpi_program_facts *facts,
                      rpi_rank_account *a) {
    double apart = (double)facts->memory_bytes - (double)facts->passing_bytes;
    double run = (double)facts->in_flight_bytes + (double)facts->between_bytes - apart;
    double before = (double)facts->in_flight_bytes - run;
    double between = (double)facts->between_bytes - run;
    int slots = most->runs < o->micro_batches ? most->runs + 1 : o->micro_batches;
    a->bytes[RPI_HELD_ACTIVATIONS] +=
        run * most->runs + before * most->before + between * most->between;
    add_messages(o, part->given, part->part - 1, part->given_as.value, part->given_as.gradient,
                 slots, a);
    add_messages(o, part->seed, part->part + 1, part->seed_as.gradient, part->seed_as.value,
                 slots, a);
    raise(most->runs, &a->in_flight);
}

static rp_status count_chunks(const rpi_rank_account_options *o, const counted *it,
                              const rpi_pipeline_orders *orders, rpi_rank_account *a) {
    double passing = 0;
    for (int k = 0; k < o->stage->chunks; k++) {
        const rpi_network_part *part = &o->stage->parts[k];
        rpi_program *program = NULL;
        RP_TRY(rpi_program_set_compile_part(&it->set, part, true, o->micro_batch, &program));
        rpi_program_facts facts = rpi_program_get_facts(program);
        rpi_program_destroy(program);
        const in_flight most = most_of(orders, o->stage->stage, k);
        add_flops(o, &facts, a);
        add_chunk(o, part, &most, &facts, a);
        passing = fmax(passing, (double)facts.passing_bytes);
    }
    a->bytes[RPI_HELD_ACTIVATIONS] += passing;
    return RP_OK;
}

static rp_status count_stage(const rpi_rank_account_options *o, const counted *it,
                             rpi_rank_account *a) {
    rpi_pipeline_shape shape;
    rpi_pipeline_orders orders;
    RP_TRY(rpi_pipeline_shape_make(o->stage->schedule, o->stage->stages, o->micro_batches, 0,
                                   &shape));
    RP_TRY(rpi_pipeline_orders_build(o->stage->schedule, &shape, &orders));
    rp_status status = count_chunks(o, it, &orders, a);
    rpi_pipeline_orders_destroy(&orders);
    return status;
}

static void add_up(rpi_rank_account *a) {
    a->all = 0;
    for (int k = 0; k < RPI_HELD_KINDS; k++) a->all += a->bytes[k];
}

rp_status rpi_rank_account_make(const rpi_rank_account_options *o, rpi_rank_account *out) {
    counted it = {0};
    rpi_rank_account a = {0};
    count_elements(o, &a);
    a.bytes[RPI_HELD_MESSAGES] =
        rpi_context_nodes_bytes((double)o->micro_batch, (double)rpi_network_tokens(o->network),
                                (double)o->network->gathered_keys);
    RP_TRY(count_arenas(o, &a));
    rp_status status = open_counted(o, &it);
    if (status == RP_OK) status = o->stage ? count_stage(o, &it, &a) : count_whole(o, &it, &a);
    close_counted(&it);
    RP_TRY(status);
    add_up(&a);
    *out = a;
    return RP_OK;
}

rp_status rpi_rank_account_share(const rpi_rank_account_options *o, rpi_rank_account *account) {
    RP_TRY(count_arenas(o, account));
    add_up(account);
    return RP_OK;
}
