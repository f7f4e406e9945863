/* Small transformers against PyTorch in double precision, on every backend: loss and all
 * gradients of one step, and the loss in evaluation. tools/golden_transformers.py has the
 * same models in PyTorch. */
#include "golden.h"
#include "harness/check.h"
#include "op_fixture.h"

#include "engine/layers.h"

enum { BATCH = 3, LENGTH = 13, VOCABULARY = 61, POSITIONS = 16 };
enum { PICTURE = 12, PATCH = 4, PATCHES = (PICTURE / PATCH) * (PICTURE / PATCH), CLASSES = 10 };
enum { HIDDEN = 32, HEADS = 4, KV_HEADS = 2, LAYERS = 2, HEAD = HIDDEN / HEADS };

/* What programs compute in, and how near they are: gradients by relative L2 of each tensor. */
typedef struct precision {
    rp_dtype compute;
    double gradient, loss;
} precision;
static const precision precisions[] = {{RP_F32, 1e-4, 1e-5}, {RP_BF16, 3e-2, 3e-3}};
enum { PRECISIONS = sizeof precisions / sizeof precisions[0] };

/* ---- layers: a name, a value, widths; parameters are named as PyTorch's ---- */

typedef struct model {
    rpi_graph *graph;
    rpi_value_id tokens, documents, images, labels, scale;
} model;

static const char *name_of(char text[96], const char *layer, const char *what) {
    snprintf(text, 96, "%s%s%s", layer, *what ? "." : "", what);
    return text;
}

static rpi_value_id parameter(const model *m, const char *layer, const char *what,
                              rpi_shape shape) {
    char text[96];
    return rpi_graph_parameter(m->graph, name_of(text, layer, what), shape);
}

static rpi_value_id linear(const model *m, const char *name, rpi_value_id x, int64_t inputs,
                           int64_t outputs, bool biased) {
    rpi_value_id weight = parameter(m, name, "weight", SHAPE(outputs, inputs));
    rpi_value_id bias = biased ? parameter(m, name, "bias", SHAPE(outputs)) : RPI_NO_VALUE;
    return rpi_linear(m->graph, name, x, weight, bias);
}

static rpi_value_id layer_norm(const model *m, const char *name, rpi_value_id x,
                               float epsilon) {
    rpi_value_id scale = parameter(m, name, "weight", SHAPE(HIDDEN));
    rpi_value_id shift = parameter(m, name, "bias", SHAPE(HIDDEN));
    return rpi_layer_norm(m->graph, name, x, scale, shift, (rpi_norm_attributes){epsilon});
}

static rpi_value_id rms_norm(const model *m, const char *name, rpi_value_id x) {
    return rpi_rms_norm(m->graph, name, x, parameter(m, name, "weight", SHAPE(HIDDEN)),
                        (rpi_norm_attributes){0});
}

static rpi_value_id add(const model *m, const char *layer, const char *what, rpi_value_id a,
                        rpi_value_id b) {
    char text[96];
    return rpi_add(m->graph, name_of(text, layer, what), a, b);
}

/* Names below one layer: N(layer, "mlp.c_fc"). */
#define N(layer, what) name_of((char[96]){0}, layer, what)

/* ---- GPT-2 ---- */

static rpi_value_id gpt2_block(const model *m, const char *name, rpi_value_id x) {
    rpi_value_id y = layer_norm(m, N(name, "ln_1"), x, 0);
    y = linear(m, N(name, "attn.c_attn"), y, HIDDEN, 3 * HIDDEN, true);
    y = rpi_self_attention(m->graph, N(name, "attn"), y, RPI_NO_VALUE,
                           (rpi_attention_attributes){.heads = HEADS, .causal = true});
    y = linear(m, N(name, "attn.c_proj"), y, HIDDEN, HIDDEN, true);
    x = add(m, name, "attn.sum", x, y);
    y = layer_norm(m, N(name, "ln_2"), x, 0);
    y = linear(m, N(name, "mlp.c_fc"), y, HIDDEN, 4 * HIDDEN, true);
    y = rpi_gelu(m->graph, N(name, "mlp.gelu"), y, RPI_GELU_TANH);
    y = linear(m, N(name, "mlp.c_proj"), y, 4 * HIDDEN, HIDDEN, true);
    return add(m, name, "mlp.sum", x, y);
}

static rpi_value_id gpt2(const model *m) {
    rpi_value_id table = parameter(m, "wte", "weight", SHAPE(VOCABULARY, HIDDEN));
    rpi_value_id x = rpi_embedding(m->graph, "wte", m->tokens, table);
    x = rpi_position_embedding(m->graph, "wpe", x,
                               parameter(m, "wpe", "weight", SHAPE(POSITIONS, HIDDEN)));
    x = gpt2_block(m, "h.0", x);
    x = gpt2_block(m, "h.1", x);
    x = layer_norm(m, "ln_f", x, 0);
    x = rpi_linear(m->graph, "head", x, table, RPI_NO_VALUE);
    return rpi_softmax_cross_entropy(m->graph, "loss", x, m->labels, m->scale);
}

/* ---- LLaMA ---- */

static rpi_value_id turned(const model *m, const char *name, rpi_value_id x, int heads) {
    x = linear(m, name, x, HIDDEN, (int64_t)heads * HEAD, false);
    return rpi_rope(m->graph, N(name, "rope"), x, (rpi_rope_attributes){.heads = heads});
}

static rpi_value_id llama_block(const model *m, const char *name, rpi_value_id x) {
    rpi_value_id y = rms_norm(m, N(name, "input_layernorm"), x);
    rpi_value_id q = turned(m, N(name, "self_attn.q_proj"), y, HEADS);
    rpi_value_id k = turned(m, N(name, "self_attn.k_proj"), y, KV_HEADS);
    rpi_value_id v =
        linear(m, N(name, "self_attn.v_proj"), y, HIDDEN, (int64_t)KV_HEADS * HEAD, false);
    y = rpi_attention(
        m->graph, N(name, "self_attn"), q, k, v, m->documents,
        (rpi_attention_attributes){.heads = HEADS, .kv_heads = KV_HEADS, .causal = true});
    y = linear(m, N(name, "self_attn.o_proj"), y, HIDDEN, HIDDEN, false);
    x = add(m, name, "self_attn.sum", x, y);
    y = rms_norm(m, N(name, "post_attention_layernorm"), x);
    rpi_value_id gate = linear(m, N(name, "mlp.gate_proj"), y, HIDDEN, 3 * HIDDEN, false);
    rpi_value_id up = linear(m, N(name, "mlp.up_proj"), y, HIDDEN, 3 * HIDDEN, false);
    y = rpi_swiglu(m->graph, N(name, "mlp.swiglu"), gate, up);
    y = linear(m, N(name, "mlp.down_proj"), y, 3 * HIDDEN, HIDDEN, false);
    return add(m, name, "mlp.sum", x, y);
}

static rpi_value_id llama(const model *m) {
    rpi_value_id x =
        rpi_embedding(m->graph, "embed_tokens", m->tokens,
                      parameter(m, "embed_tokens", "weight", SHAPE(VOCABULARY, HIDDEN)));
    x = llama_block(m, "layers.0", x);
    x = llama_block(m, "layers.1", x);
    x = linear(m, "lm_head", rms_norm(m, "norm", x), HIDDEN, VOCABULARY, false);
    return rpi_softmax_cross_entropy_with(m->graph, "loss", x, m->labels, m->scale,
                                          (rpi_cross_entropy_attributes){.smoothing = 0.1f});
}

/* ---- BERT ---- */

#define BERT_EPSILON 1e-12f

static rpi_value_id bert_block(const model *m, const char *name, rpi_value_id x) {
    rpi_value_id q = linear(m, N(name, "query"), x, HIDDEN, HIDDEN, true);
    rpi_value_id k = linear(m, N(name, "key"), x, HIDDEN, HIDDEN, true);
    rpi_value_id v = linear(m, N(name, "value"), x, HIDDEN, HIDDEN, true);
    rpi_value_id y = rpi_attention(m->graph, N(name, "attention"), q, k, v, RPI_NO_VALUE,
                                   (rpi_attention_attributes){.heads = HEADS});
    y = linear(m, N(name, "attention_output"), y, HIDDEN, HIDDEN, true);
    y = add(m, name, "attention_sum", x, y);
    x = layer_norm(m, N(name, "attention_norm"), y, BERT_EPSILON);
    y = linear(m, N(name, "intermediate"), x, HIDDEN, 4 * HIDDEN, true);
    y = rpi_gelu(m->graph, N(name, "gelu"), y, RPI_GELU_ERF);
    y = linear(m, N(name, "output"), y, 4 * HIDDEN, HIDDEN, true);
    return layer_norm(m, N(name, "output_norm"), add(m, name, "output_sum", x, y),
                      BERT_EPSILON);
}

static rpi_value_id bert(const model *m) {
    rpi_value_id table = parameter(m, "words", "weight", SHAPE(VOCABULARY, HIDDEN));
    rpi_value_id x = rpi_embedding(m->graph, "words", m->tokens, table);
    x = rpi_position_embedding(m->graph, "positions", x,
                               parameter(m, "positions", "weight", SHAPE(POSITIONS, HIDDEN)));
    rpi_value_id types = rpi_embedding(m->graph, "types", m->documents,
                                       parameter(m, "types", "weight", SHAPE(2, HIDDEN)));
    x = layer_norm(m, "norm", rpi_add(m->graph, "sum", x, types), BERT_EPSILON);
    x = bert_block(m, "layers.0", x);
    x = bert_block(m, "layers.1", x);
    x = linear(m, "transform", x, HIDDEN, HIDDEN, true);
    x = layer_norm(m, "transform_norm", rpi_gelu(m->graph, "gelu", x, RPI_GELU_ERF),
                   BERT_EPSILON);
    x = rpi_linear(m->graph, "decoder", x, table, parameter(m, "bias", "", SHAPE(VOCABULARY)));
    return rpi_softmax_cross_entropy(m->graph, "loss", x, m->labels, m->scale);
}

/* ---- ViT ---- */

#define VIT_EPSILON 1e-6f

static rpi_value_id vit_block(const model *m, const char *name, rpi_value_id x) {
    rpi_value_id y = layer_norm(m, N(name, "ln_1"), x, VIT_EPSILON);
    y = linear(m, N(name, "in_proj"), y, HIDDEN, 3 * HIDDEN, true);
    y = rpi_self_attention(m->graph, N(name, "attention"), y, RPI_NO_VALUE,
                           (rpi_attention_attributes){.heads = HEADS});
    y = linear(m, N(name, "out_proj"), y, HIDDEN, HIDDEN, true);
    x = add(m, name, "attention_sum", x, y);
    y = layer_norm(m, N(name, "ln_2"), x, VIT_EPSILON);
    y = linear(m, N(name, "fc1"), y, HIDDEN, 4 * HIDDEN, true);
    y = rpi_gelu(m->graph, N(name, "gelu"), y, RPI_GELU_ERF);
    y = linear(m, N(name, "fc2"), y, 4 * HIDDEN, HIDDEN, true);
    return add(m, name, "mlp_sum", x, y);
}

static rpi_value_id vit(const model *m) {
    rpi_value_id x = rpi_conv2d(
        m->graph, "conv_proj", m->images,
        parameter(m, "conv_proj", "weight", SHAPE(HIDDEN, 3, PATCH, PATCH)),
        parameter(m, "conv_proj", "bias", SHAPE(HIDDEN)), (rpi_conv2d_attributes){PATCH, 0});
    x = rpi_image_tokens(m->graph, "tokens", x, parameter(m, "class_token", "", SHAPE(HIDDEN)));
    x = rpi_position_embedding(m->graph, "positions", x,
                               parameter(m, "pos_embedding", "", SHAPE(PATCHES + 1, HIDDEN)));
    x = vit_block(m, "layers.0", x);
    x = vit_block(m, "layers.1", x);
    x = rpi_select_token(m->graph, "class", layer_norm(m, "ln", x, VIT_EPSILON), 0);
    x = linear(m, "head", x, HIDDEN, CLASSES, true);
    return rpi_softmax_cross_entropy(m->graph, "loss", x, m->labels, m->scale);
}

/* ---- one step ---- */

typedef struct step {
    golden file;
    model m;
    rpi_value_id loss;
    rpi_weights *weights;
    float scale;
    int activated, losses; /* fused units of the forward pass */
} step;

static void count_fused(void *context, const rpi_step_report *report) {
    step *s = context;
    if (report->pass != RPI_FORWARD) return;
    s->activated += !strcmp(report->what, "linear+gelu");
    s->losses += !strcmp(report->what, "linear+softmax_cross_entropy");
}

static void load(step *s) {
    for (int i = 0; i < rpi_weights_parameter_count(s->weights); i++) {
        const rpi_weight *w = rpi_weights_parameter(s->weights, i);
        rpi_tensor tensor;
        REQUIRE_OK(golden_tensor(&s->file, &tensor, "initial/%s", w->name));
        REQUIRE(rpi_shape_equal(&tensor.shape, &w->shape));
        memcpy(rpi_weights_values(s->weights) + w->first, tensor.data,
               (size_t)w->count * sizeof(float));
    }
    rpi_weights_changed(s->weights, 0, rpi_weights_count(s->weights));
}

static void open_step(const char *name, rpi_value_id (*build)(const model *m), step *s) {
    *s = (step){0};
    REQUIRE_OK(golden_open(name, &s->file));
    REQUIRE_OK(rpi_graph_create(&s->m.graph));
    rpi_graph *g = s->m.graph;
    int64_t batch = rpi_graph_dimension(g, "batch");
    rpi_shape text = SHAPE(batch, rpi_graph_dimension(g, "length"));
    bool of_images = build == vit;
    s->m.tokens = rpi_graph_input(g, "tokens", RP_I32, text);
    s->m.documents = rpi_graph_input(g, "documents", RP_I32, text);
    s->m.images = rpi_graph_input(g, "images", RP_F32, SHAPE(batch, 3, PICTURE, PICTURE));
    s->m.labels = rpi_graph_input(g, "labels", RP_I32, of_images ? SHAPE(batch) : text);
    s->m.scale = rpi_graph_input(g, "scale", RP_F32, (rpi_shape){0});
    s->loss = build(&s->m);
    REQUIRE_OK(rpi_weights_create(g, s->loss, &s->weights));
    load(s);
}

static void close_step(step *s) {
    golden_close(&s->file);
    rpi_weights_destroy(s->weights);
    rpi_graph_destroy(s->m.graph);
}

/* The inputs by name, those that the file has; 1 / valid labels. */
static void take_inputs(step *s, const void *inputs[5]) {
    static const char *const names[] = {"tokens", "documents", "images", "labels"};
    rpi_tensor tensor = {0};
    int valid = 0;
    for (int i = 0; i < 4; i++)
        inputs[i] =
            golden_tensor(&s->file, &tensor, "%s", names[i]) == RP_OK ? tensor.data : NULL;
    REQUIRE(inputs[3]);
    for (int64_t i = 0; i < rpi_shape_count(&tensor.shape); i++)
        valid += ((const int32_t *)inputs[3])[i] >= 0;
    s->scale = 1.0f / (float)valid;
    inputs[4] = &s->scale;
}

static void run_step(step *s, const rpi_backend *backend, const precision *p, bool training) {
    rpi_tensor losses, loss;
    rpi_instance *instance = NULL;
    rpi_program_options options = {.training = training,
                                   .compute = p->compute,
                                   .dimensions = {{"batch", BATCH}, {"length", LENGTH}}};
    const void *inputs[5];
    REQUIRE_OK(golden_tensor(&s->file, &losses, "losses"));
    take_inputs(s, inputs);
    REQUIRE_OK(solo_open(s->m.graph, s->weights, s->loss, backend, &options, &instance));
    CHECK_OK(rpi_instance_run(
        instance, &(rpi_run_options){.inputs = inputs, .on_step = count_fused, .context = s}));
    REQUIRE_OK(rpi_instance_result(instance, s->loss, &loss));
    double wanted = (double)*(float *)losses.data;
    CHECK_MSG(fabs((double)*(float *)loss.data - wanted) <= p->loss * wanted,
              "%s, %s, %s: the loss is %.7g, not %.7g", backend->name,
              rp_dtype_name(p->compute), training ? "training" : "evaluation",
              (double)*(float *)loss.data, wanted);
    solo_close(instance);
}

static void check_precision(const char *name, rpi_value_id (*build)(const model *m),
                            const rpi_backend *backend, const precision *p) {
    step s;
    open_step(name, build, &s);
    REQUIRE(s.weights);
    run_step(&s, backend, p, false);
    run_step(&s, backend, p, true);
    for (int i = 0; i < rpi_weights_parameter_count(s.weights); i++) {
        const rpi_weight *w = rpi_weights_parameter(s.weights, i);
        rpi_tensor wanted;
        REQUIRE_OK(golden_tensor(&s.file, &wanted, "gradient/%s", w->name));
        double error =
            golden_distance(rpi_weights_gradients(s.weights) + w->first, wanted.data, w->count);
        CHECK_MSG(error <= p->gradient, "%s, %s, %s: gradient of %s is off by %.2e", name,
                  backend->name, rp_dtype_name(p->compute), w->name, error);
    }
    close_step(&s);
}

static void check_model(const char *name, rpi_value_id (*build)(const model *m)) {
    for (int b = 0; rpi_backend_at(b); b++)
        for (int i = 0; i < PRECISIONS; i++)
            if (rpi_backend_check_compute(rpi_backend_at(b), precisions[i].compute) == RP_OK)
                check_precision(name, build, rpi_backend_at(b), &precisions[i]);
}

static void check_gpt2(void) {
    check_model("gpt2", gpt2);
}

static void check_vit(void) {
    check_model("vit", vit);
}

/* What a backend can fuse it does: else only the time would tell. */
static void fuses_where_it_can(void) {
    for (int b = 0; rpi_backend_at(b); b++) {
        step s;
        if (!rpi_backend_at(b)->fuse) continue;
        open_step("gpt2", gpt2, &s);
        REQUIRE(s.weights);
        run_step(&s, rpi_backend_at(b), &precisions[0], true);
        CHECK_EQ(s.activated, LAYERS);
        CHECK_EQ(s.losses, 1);
        close_step(&s);
    }
}

static void check_llama(void) {
    check_model("llama", llama);
}

static void check_bert(void) {
    check_model("bert", bert);
}

CASES({"gpt2", check_gpt2}, {"llama", check_llama}, {"bert", check_bert}, {"vit", check_vit},
      {"fuses where it can", fuses_where_it_can})
