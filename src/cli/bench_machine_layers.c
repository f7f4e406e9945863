/* Steps of small models through the engine, as training runs them: matrix products, attention
 * and the rest of a layer, forward and backward, each by its size; and what becomes of their
 * gradients. A step finds in the caches what the update before it has left there. */
#include "cli/bench_machine.h"
#include "cli/bench_machine_layer_sums.h"
#include "cli/bench_machine_update.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "engine/instance.h"
#include "plan/foresight/layer_time.h"
#include "train/models/network.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Layers of a model, so that the share of a layer is a half: a node may find in a cache what
 * the node before of the same kind has left. */
enum {
    LAYERS = 2,
    SIZES_MOST = 16,
    MATRICES = 4,
    PRODUCTS = 3,
    DTYPES = 2,
    RUNS = 5,
    SUMMED = 2
};
#define LONG_NS (RPI_SECOND_NS / 10)

typedef struct size {
    int samples, sequence, hidden, heads, vocabulary;
} size;

/* Quick: about ten seconds on one core. The first is a layer with almost no work in it. */
static const size sizes[] = {
    {1, 4, 16, 1, 16},      {1, 64, 64, 2, 257},    {4, 64, 128, 4, 1024},
    {2, 128, 256, 4, 257},  {8, 64, 256, 4, 2048},  {1, 128, 512, 8, 1024},
    {4, 128, 384, 6, 4096}, {2, 256, 192, 6, 8192},
};
static const size more_sizes[] = {{2, 128, 768, 12, 8192},
                                  {8, 128, 512, 8, 1024},
                                  {1, 512, 512, 8, 16384},
                                  {4, 256, 768, 12, 2048},
                                  {16, 64, 128, 2, 512}};
enum {
    QUICK = sizeof sizes / sizeof sizes[0],
    MORE = sizeof more_sizes / sizeof more_sizes[0]
};

/* Of a model: products in each dtype, and what fp32 has beside them. */
enum { ITEMS_OF_A_MODEL = DTYPES * MATRICES * PRODUCTS + 9, OTHER_ITEMS = 32 };
_Static_assert((QUICK - 1 + MORE) * ITEMS_OF_A_MODEL + OTHER_ITEMS <= RPI_MACHINE_ITEMS,
               "a machine has room for all that --thorough measures");
_Static_assert((QUICK + MORE) * DTYPES <= RPI_MACHINE_TIMINGS - RPI_MACHINE_ITEMS,
               "and each model for a whole");

/* Kinds of kernels, by what is forecast of them. */
typedef struct spent {
    double matrices[MATRICES][PRODUCTS]; /* forward, backward for inputs and for weights */
    double attention[2], rest[2], head[2];
} spent;

typedef struct model {
    size of;
    rp_dtype compute;
    rpi_network network;
    rpi_weights *weights;
    rpi_session *session;
    rpi_program *program;
    rpi_instance *instance;
    void *inputs[RPI_TASK_INPUTS];
    float scale;
    int matrices[MATRICES][PRODUCTS], attention[2], rest[2], head[2], layer[2]; /* items */
    int whole;
    rpi_machine_update update;
    rpi_machine_layer_sums sums;
    spent spent;
    int phase;       /* of the pass that runs: which product */
    int64_t told_ns; /* when the kernel before has ended */
    const rpi_machine_trainer *trainer;
} model;

typedef struct layers {
    model models[SIZES_MOST * DTYPES];
    int count;
    rpi_machine_trainer trainer;
} layers;

static const char *const matrix_names[MATRICES] = {"attn.c_attn", "attn.c_proj", "mlp.c_fc",
                                                   "mlp.c_proj"};

/* ---- what a kernel belongs to ---- */

/* "h.1.mlp.c_fc" is matrix 2 of a layer. -1: none. */
static int matrix_of(const char *name) {
    const char *part = strchr(name, '.');
    part = part ? strchr(part + 1, '.') : NULL;
    for (int i = 0; part && i < MATRICES; i++)
        if (strcmp(part + 1, matrix_names[i]) == 0) return i;
    return -1;
}

/* Tensor-parallel ranks sum what the second and the fourth product make of their halves, and
 * backward the gradients for what the first and the third have read. */
static bool is_summed(const model *m, const rpi_step_report *report, int matrix) {
    bool is_product = matrix >= 0 && strncmp(report->what, "linear", 6) == 0;
    return is_product && m->phase < 2 && matrix % 2 == (m->phase == 0);
}

/* What is between two kernels is of the second. */
static void add(void *context, const rpi_step_report *report) {
    model *m = context;
    double seconds = rpi_seconds(report->end_ns - m->told_ns);
    m->told_ns = report->end_ns;
    int pass = report->pass == RPI_BACKWARD, matrix = matrix_of(report->name);
    bool in_layer = strncmp(report->name, "h.", 2) == 0;
    if (!in_layer)
        m->spent.head[pass] += seconds;
    else if (matrix >= 0 && strncmp(report->what, "linear", 6) == 0)
        m->spent.matrices[matrix][m->phase] += seconds;
    else if (strstr(report->what, "attention"))
        m->spent.attention[pass] += seconds;
    else
        m->spent.rest[pass] += seconds;
    if (is_summed(m, report, matrix)) rpi_machine_layer_sums_add(&m->sums);
}

/* ---- items ---- */

static rpi_training_layout layout_of(const size *s, rp_dtype compute) {
    rpi_training_layout l = {.model = {.layers = LAYERS,
                                       .hidden = s->hidden,
                                       .heads = s->heads,
                                       .kv_heads = s->heads,
                                       .head = s->hidden / s->heads,
                                       .ffn = 4 * s->hidden,
                                       .vocabulary = s->vocabulary},
                             .sequence = s->sequence,
                             .micro_batch = s->samples,
                             .global_batch = s->samples,
                             .tensor = 1,
                             .pipeline = 1,
                             .context = 1,
                             .data = 1,
                             .interleave = 1,
                             .fused_attention = true};
    /* The names are those of the table, so this does not fail. */
    (void)rpi_precision_find(compute == RP_BF16 ? "amp" : "fp32", &l.precision);
    return l;
}

static rp_status open_products(rpi_machine_bench *b, model *m) {
    const char *dtype = m->compute == RP_BF16 ? "bf16" : "fp32";
    double tokens = m->of.samples * m->of.sequence, h = m->of.hidden;
    const double out[MATRICES] = {3 * h, h, 4 * h, h}, in[MATRICES] = {h, h, h, 4 * h};
    for (int i = 0; i < MATRICES; i++) {
        const double at[PRODUCTS][RPI_RATE_SIDES] = {
            {tokens, out[i], in[i]}, {tokens, in[i], out[i]}, {out[i], in[i], tokens}};
        for (int k = 0; k < PRODUCTS; k++)
            RP_TRY(rpi_machine_item_open(b, RPI_WORK_PRODUCT, 0, dtype, at[k],
                                         2 * tokens * out[i] * in[i], &m->matrices[i][k]));
    }
    return RP_OK;
}

/* Counted as forecasts count them: plan/foresight/step_forecast.c. */
static rp_status open_items(rpi_machine_bench *b, model *m) {
    rpi_training_layout l = layout_of(&m->of, m->compute);
    double tokens = m->of.samples * m->of.sequence, s = m->of.sequence, h = m->of.hidden;
    double bytes = rpi_layer_rest_bytes(&l), v = m->of.vocabulary;
    const double attention[] = {s, h / m->of.heads, m->of.heads * m->of.samples};
    const double head[] = {tokens, v, h};
    if (m->compute == RP_F32)
        RP_TRY(rpi_machine_layer_sums_open(b, (size_t)(tokens * h), &m->sums));
    RP_TRY(rpi_machine_whole_open(b, &m->whole));
    RP_TRY(open_products(b, m));
    if (m->compute == RP_BF16) return RP_OK;
    RP_TRY(rpi_machine_update_open(b, m->weights, &m->update));
    for (int pass = 0; pass < 2; pass++) {
        RP_TRY(rpi_machine_item_open(b, RPI_WORK_ATTENTION, pass, "", attention,
                                     (pass ? 2.5 : 1) * 4 * tokens * s * h,
                                     &m->attention[pass]));
        RP_TRY(
            rpi_machine_item_open(b, RPI_WORK_REST, pass, "", &bytes, bytes, &m->rest[pass]));
        RP_TRY(rpi_machine_item_open(b, RPI_WORK_HEAD, pass, "", head,
                                     (pass + 1) * 2 * tokens * v * h, &m->head[pass]));
    }
    return RP_OK;
}

/* ---- a model ---- */

static rp_status make_inputs(model *m) {
    rpi_rng rng = rpi_rng_make(1, RPI_RNG_SYNTHETIC, 0);
    int tokens = m->of.samples * m->of.sequence;
    for (int i = 0; i < m->network.task->input_count; i++) {
        int32_t *values = NULL;
        bool is_zero = strcmp(m->network.task->inputs[i].name, "documents") == 0;
        RP_TRY(rpi_alloc_array((size_t)tokens, sizeof *values, "an input", &values));
        m->inputs[i] = values;
        for (int k = 0; k < tokens && !is_zero; k++)
            values[k] = (int32_t)rpi_rng_below(&rng, (uint64_t)m->of.vocabulary);
    }
    m->scale = 1.0f / (float)tokens;
    return RP_OK;
}

static rp_status open_model(rpi_machine_bench *b, model *m) {
    char text[RPI_MODEL_TEXT];
    rpi_data_shape shape = {.sequence = m->of.sequence};
    rpi_backend_options threads = {.threads = b->threads};
    snprintf(text, sizeof text, "gpt2:layers=%d,hidden=%d,heads=%d,vocabulary=%d,positions=%d",
             LAYERS, m->of.hidden, m->of.heads, m->of.vocabulary, m->of.sequence);
    RP_TRY(rpi_network_build(text, &shape, &m->network));
    RP_TRY(rpi_weights_create(m->network.graph, m->network.loss, &m->weights));
    rpi_network_initialise(&m->network, m->weights, 1);
    RP_TRY(rpi_session_create(m->weights, rpi_backend_default(), &threads, &m->session));
    rpi_program_options options = {
        .training = true,
        .compute = m->compute,
        .halves_apart = true,
        .dimensions = {{"batch", m->of.samples}, {"sequence", m->of.sequence}}};
    RP_TRY(rpi_program_compile(m->session, m->network.graph, m->network.loss, &options,
                               &m->program));
    RP_TRY(rpi_instance_create(m->program, &m->instance));
    return make_inputs(m);
}

static void close_model(model *m) {
    rpi_machine_update_close(&m->update);
    rpi_machine_layer_sums_close(&m->sums);
    rpi_instance_destroy(m->instance);
    rpi_program_destroy(m->program);
    rpi_session_destroy(m->session);
    rpi_weights_destroy(m->weights);
    rpi_network_close(&m->network);
    for (int i = 0; i < RPI_TASK_INPUTS; i++) rpi_free(m->inputs[i]);
}

static void begin(model *m, int phase) {
    m->phase = phase;
    m->told_ns = rpi_now_ns();
}

static rp_status take(void *context, int64_t first, int64_t count) {
    model *m = context;
    RP_TRY(rpi_machine_update_take(m->trainer, m->weights, first, count, &m->update));
    m->told_ns = rpi_now_ns();
    return RP_OK;
}

static rp_status run_model(model *m) {
    const void *inputs[RPI_NETWORK_INPUTS] = {NULL};
    int count = m->network.task->input_count;
    for (int i = 0; i < count; i++) inputs[i] = m->inputs[i];
    inputs[count] = inputs[count + 1] = &m->scale;
    rpi_run_options run = {
        .inputs = inputs, .on_gradient_final = take, .on_step = add, .context = m};
    m->spent = (spent){0};
    m->update.gradients_s = 0;
    begin(m, 0);
    RP_TRY(rpi_instance_forward(m->instance, &run));
    begin(m, 1);
    RP_TRY(rpi_instance_backward_inputs(m->instance, &run));
    begin(m, 2);
    return rpi_instance_backward_weights(m->instance, &run);
}

/* ---- the part ---- */

/* Measured before any larger model is made, when the process is as large as one that trains
 * this model only. */
static rp_status note_program(rpi_machine_bench *b, model *m) {
    int program;
    double held = 0;
    RP_TRY(rpi_machine_item_open(b, RPI_WORK_PROGRAM, 0, "", NULL, 0, &program));
    RP_TRY(run_model(m));
    held = rpi_memory_most_held();
    if (isfinite(held)) rpi_machine_item_time(b, program, held);
    return RP_OK;
}

static rp_status open_start(rpi_machine_bench *b, model *m) {
    RP_TRY(note_program(b, m));
    for (int pass = 0; pass < 2; pass++)
        RP_TRY(rpi_machine_item_open(b, RPI_WORK_LAYER, pass, "", NULL, 0, &m->layer[pass]));
    return RP_OK;
}

static rp_status add_model(rpi_machine_bench *b, layers *l, const size *of, rp_dtype compute) {
    model *m = &l->models[l->count++];
    *m = (model){.of = *of, .compute = compute};
    m->trainer = &l->trainer;
    RP_TRY(open_model(b, m));
    RP_TRY(rpi_machine_trainer_reach(&l->trainer, rpi_weights_count(m->weights)));
    RP_TRY(of == &sizes[0] ? open_start(b, m) : open_items(b, m));
    rpi_machine_whole_close(b);
    return RP_OK;
}

static rp_status add_sizes(rpi_machine_bench *b, layers *l, rp_dtype compute) {
    int first = compute == RP_F32 ? 0 : 1;
    for (int i = first; i < QUICK; i++) RP_TRY(add_model(b, l, &sizes[i], compute));
    for (int i = 0; i < MORE && b->thorough; i++)
        RP_TRY(add_model(b, l, &more_sizes[i], compute));
    return RP_OK;
}

static void close_layers(void *self) {
    layers *l = self;
    if (!l) return;
    for (int i = 0; i < l->count; i++) close_model(&l->models[i]);
    rpi_machine_trainer_close(&l->trainer);
    rpi_free(l);
}

static rp_status open_layers(rpi_machine_bench *b, void **out_self) {
    layers *l = NULL;
    RP_TRY(rpi_alloc(sizeof *l, "models", &l));
    *out_self = l;
    RP_TRY(rpi_machine_trainer_open(b, &l->trainer));
    RP_TRY(add_sizes(b, l, RP_F32));
    if (rpi_backend_check_compute(rpi_backend_default(), RP_BF16) != RP_OK) return RP_OK;
    return add_sizes(b, l, RP_BF16);
}

static void note(rpi_machine_bench *b, const model *m, double whole_s) {
    const spent *x = &m->spent;
    rpi_machine_item_time(b, m->whole, whole_s);
    for (int i = 0; i < MATRICES; i++)
        for (int k = 0; k < PRODUCTS; k++)
            rpi_machine_item_time(b, m->matrices[i][k], x->matrices[i][k] / LAYERS);
    if (m->compute == RP_BF16) return;
    rpi_machine_update_note(b, &m->update);
    for (int pass = 0; pass < 2; pass++) {
        rpi_machine_item_time(b, m->attention[pass], x->attention[pass] / LAYERS);
        rpi_machine_item_time(b, m->rest[pass], x->rest[pass] / LAYERS);
        rpi_machine_item_time(b, m->head[pass], x->head[pass]);
    }
}

static void note_start(rpi_machine_bench *b, const model *m) {
    const spent *x = &m->spent;
    double seconds[2] = {x->attention[0] + x->rest[0], x->attention[1] + x->rest[1]};
    for (int i = 0; i < MATRICES; i++) {
        seconds[0] += x->matrices[i][0];
        seconds[1] += x->matrices[i][1] + x->matrices[i][2];
    }
    for (int pass = 0; pass < 2; pass++)
        rpi_machine_item_time(b, m->layer[pass], seconds[pass] / LAYERS);
}

static rp_status run_step(const rpi_machine_bench *b, model *m) {
    RP_TRY(run_model(m));
    return rpi_machine_update_run(b, m->trainer, m->weights, &m->update);
}

/* Runs once, so that the caches have what a step before leaves there, and then some times that
 * count. A model that takes long runs once, so that a disturbance meets few of many repeats. */
static rp_status run_often(rpi_machine_bench *b, model *m) {
    int64_t start = rpi_now_ns();
    RP_TRY(run_step(b, m));
    for (int i = 0; i < RUNS && (i == 0 || rpi_now_ns() - start < LONG_NS); i++) {
        int64_t step = rpi_now_ns();
        RP_TRY(run_step(b, m));
        if (m->of.hidden == sizes[0].hidden)
            note_start(b, m);
        else
            note(b, m, rpi_seconds(rpi_now_ns() - step));
    }
    return RP_OK;
}

/* By steps of their own, since ranks that wait for each other find other caches than those that
 * do not. Every rank takes as many. */
static rp_status run_sums(rpi_machine_bench *b, model *m) {
    if (!m->sums.comm) return RP_OK;
    RP_TRY(rp_barrier(b->comm));
    for (int i = 0; i < SUMMED; i++) {
        rpi_machine_layer_sums_begin(&m->sums);
        RP_TRY(run_step(b, m));
        RP_TRY(rpi_machine_layer_sums_end(b, &m->sums));
    }
    return RP_OK;
}

static rp_status run_layers(rpi_machine_bench *b, void *self) {
    layers *l = self;
    for (int i = 0; i < l->count; i++) {
        RP_TRY(rp_barrier(b->comm));
        RP_TRY(run_often(b, &l->models[i]));
        RP_TRY(run_sums(b, &l->models[i]));
    }
    return RP_OK;
}

const rpi_machine_part rpi_machine_layers = {
    .what = "matrix products, attention and the rest of layers, by shape and dtype; AdamW",
    .open = open_layers,
    .run = run_layers,
    .close = close_layers,
};
