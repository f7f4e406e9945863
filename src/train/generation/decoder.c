#include "train/generation/decoder.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/instance.h"
#include "train/generation/cluster_scores.h"
#include "train/segment_memory.h"

#include <string.h>

/* Tokens of a program that reads a text: enough for matrix products at full rate, few enough
 * that their logits stay small. */
enum { AT_ONCE = 128 };

/* The graph compiled for so many tokens. */
typedef struct stretch {
    int64_t tokens; /* 0: not compiled */
    rpi_program *program;
    rpi_instance *instance;
} stretch;

/* One token; AT_ONCE; what is left of a text. */
enum { ONE, MANY, REST, STRETCHES };

struct rpi_decoder {
    rpi_network network;
    rpi_weights *weights; /* NULL: the session is not its own */
    rpi_session *session;
    stretch stretches[STRETCHES];
    int64_t memory;
    int32_t position;      /* tokens in the caches */
    rpi_memories memories; /* of a model that has them, in place of caches */
    float *joined;         /* logits, where the model has clusters; else NULL */
    int input_count;
    const void **inputs; /* of the graph: tokens, position, caches or memories */
    float **caches;      /* as many as inputs; NULL for those that are none */
};

rp_status rpi_decoder_examine(const rpi_trained_model *model, rpi_decoder_facts *out_facts) {
    rpi_network network;
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(model->text, &choice));
    RP_TRY(rpi_network_build_decoder(model->text, &network));
    const rpi_shape *logits = &rpi_graph_value(network.graph, network.logits)->shape;
    *out_facts = (rpi_decoder_facts){.positions = rpi_model_memory(&choice)
                                                      ? INT32_MAX
                                                      : rpi_model_number(&choice, "positions"),
                                     .vocabulary = logits->size[logits->dims - 1]};
    rpi_network_close(&network);
    return RP_OK;
}

/* ---- opening ---- */

static bool is_cache(const rpi_decoder *d, rpi_value_id id) {
    return !d->network.memory_count && id != d->network.inputs[0] && id != d->network.position;
}

/* Room for one text in each cache. */
static rp_status make_caches(rpi_decoder *d) {
    const rpi_graph *graph = d->network.graph;
    d->input_count = rpi_graph_kind_count(graph, RPI_VALUE_INPUT);
    RP_TRY(rpi_alloc_array((size_t)d->input_count, sizeof *d->inputs, "inputs", &d->inputs));
    RP_TRY(rpi_alloc_array((size_t)d->input_count, sizeof *d->caches, "caches", &d->caches));
    for (int i = 0; i < d->input_count; i++) {
        rpi_value_id id = rpi_graph_kind_at(graph, RPI_VALUE_INPUT, i);
        const rpi_shape *shape = &rpi_graph_value(graph, id)->shape;
        if (!is_cache(d, id)) continue;
        RP_TRY(rpi_alloc_array((size_t)(d->memory * shape->size[2]), sizeof(float),
                               "keys and values of a text", &d->caches[i]));
        d->inputs[i] = d->caches[i];
    }
    return RP_OK;
}

static rp_status make_memories(rpi_decoder *d) {
    const rpi_network *n = &d->network;
    RP_TRY(rpi_memories_open(n, 1, &d->memories));
    if (n->adaptive.cutoff_count == 0) return RP_OK;
    return rpi_alloc_array((size_t)rpi_graph_value(n->graph, n->logits)->shape.size[2],
                           sizeof *d->joined, "logits", &d->joined);
}

static rp_status load(const rpi_trained_model *model, const rpi_decoder_options *options,
                      rpi_decoder *d, char *note, size_t note_bytes) {
    const rpi_backend *backend = rpi_backend_default();
    rpi_backend_options backend_options = {.threads = options->threads};
    if (options->backend) RP_TRY(rpi_backend_find(options->backend, &backend));
    RP_TRY(rpi_weights_create(d->network.graph, RPI_NO_VALUE, &d->weights));
    RP_TRY(rpi_trained_model_load(model, &d->network, d->weights, note, note_bytes));
    return rpi_session_create(d->weights, backend, &backend_options, &d->session);
}

static rp_status open_decoder(const rpi_trained_model *model,
                              const rpi_decoder_options *options, rpi_decoder *d, char *note,
                              size_t note_bytes) {
    note[0] = '\0';
    d->memory = options->memory;
    RP_TRY(rpi_network_build_decoder(model->text, &d->network));
    if (options->session)
        d->session = options->session;
    else
        RP_TRY(load(model, options, d, note, note_bytes));
    RP_TRY(make_memories(d));
    return make_caches(d);
}

rp_status rpi_decoder_open(const rpi_trained_model *model, const rpi_decoder_options *options,
                           rpi_decoder **out_decoder, char *note, size_t note_bytes) {
    rpi_decoder *d = NULL;
    RP_TRY(rpi_alloc(sizeof *d, "a decoder", &d));
    rp_status status = open_decoder(model, options, d, note, note_bytes);
    if (status == RP_OK)
        *out_decoder = d;
    else
        rpi_decoder_close(d);
    return status;
}

static void close_stretch(stretch *s) {
    rpi_instance_destroy(s->instance);
    rpi_program_destroy(s->program);
    *s = (stretch){0};
}

void rpi_decoder_close(rpi_decoder *d) {
    if (!d) return;
    rpi_kept_error why;
    rpi_error_keep(&why);
    for (int i = 0; i < STRETCHES; i++) close_stretch(&d->stretches[i]);
    if (d->weights) rpi_session_destroy(d->session);
    rpi_weights_destroy(d->weights);
    for (int i = 0; d->caches && i < d->input_count; i++) rpi_free(d->caches[i]);
    rpi_free(d->caches);
    rpi_free(d->inputs);
    rpi_free(d->joined);
    rpi_memories_close(&d->memories);
    rpi_network_close(&d->network);
    rpi_free(d);
    rpi_error_put_back(&why);
}

/* ---- reading ---- */

static void add_memories(const rpi_network *n, int64_t tokens, rpi_program_options *options) {
    options->dimensions[2] = (rpi_dimension_binding){"memory", n->memory_length};
    options->dimensions[3] = (rpi_dimension_binding){"context", n->memory_length + tokens};
    for (int i = 0; i < n->memory_count; i++)
        options->results[options->result_count++] = n->remembers[i];
}

static rp_status compile(rpi_decoder *d, int64_t tokens, stretch *s) {
    const rpi_network *n = &d->network;
    rpi_program_options options = {
        .dimensions = {{"batch", 1}, {"sequence", tokens}, {"memory", d->memory}},
        .result_count = 1,
        .results = {n->logits}};
    if (n->memory_count) add_memories(n, tokens, &options);
    if (d->joined) options.results[options.result_count++] = n->cluster_scores;
    RP_TRY(rpi_program_compile(d->session, n->graph, RPI_NO_VALUE, &options, &s->program));
    RP_TRY(rpi_instance_create(s->program, &s->instance));
    s->tokens = tokens;
    return RP_OK;
}

static rp_status find_stretch(rpi_decoder *d, int64_t tokens, stretch **out_stretch) {
    stretch *s = &d->stretches[tokens == 1 ? ONE : tokens == AT_ONCE ? MANY : REST];
    *out_stretch = s;
    if (s->tokens == tokens) return RP_OK;
    close_stretch(s);
    rp_status status = compile(d, tokens, s);
    if (status != RP_OK) close_stretch(s);
    return status;
}

rp_status rpi_decoder_prepare(rpi_decoder *d, int64_t count) {
    stretch *s = NULL;
    if (count >= AT_ONCE) RP_TRY(find_stretch(d, AT_ONCE, &s));
    return count % AT_ONCE ? find_stretch(d, count % AT_ONCE, &s) : RP_OK;
}

/* Of the last token that was read. */
static rp_status find_last(const stretch *s, rpi_value_id id, const float **out_row) {
    rpi_tensor rows;
    RP_TRY(rpi_instance_result(s->instance, id, &rows));
    *out_row = (const float *)rows.data + (s->tokens - 1) * rows.shape.size[2];
    return RP_OK;
}

static rp_status find_logits(rpi_decoder *d, const stretch *s, const float **out_logits) {
    const rpi_network *n = &d->network;
    const float *clusters = NULL;
    RP_TRY(find_last(s, n->logits, out_logits));
    if (!d->joined) return RP_OK;
    RP_TRY(find_last(s, n->cluster_scores, &clusters));
    int64_t vocabulary = rpi_graph_value(n->graph, n->logits)->shape.size[2];
    memcpy(d->joined, *out_logits, (size_t)vocabulary * sizeof *d->joined);
    rpi_cluster_scores_join(&n->adaptive, clusters, vocabulary, d->joined);
    *out_logits = d->joined;
    return RP_OK;
}

static rp_status read_some(rpi_decoder *d, const int32_t *tokens, int64_t count,
                           const float **out_logits) {
    stretch *s = NULL;
    const rpi_graph *graph = d->network.graph;
    RP_TRY(find_stretch(d, count, &s));
    d->inputs[rpi_graph_value(graph, d->network.inputs[0])->index] = tokens;
    d->inputs[rpi_graph_value(graph, d->network.position)->index] = &d->position;
    rpi_memories_inputs(&d->memories, 0, d->inputs);
    RP_TRY(rpi_instance_forward(s->instance, &(rpi_run_options){.inputs = d->inputs}));
    RP_TRY(rpi_memories_take(&d->memories, s->instance, 0, 1));
    rpi_memories_turn(&d->memories);
    RP_TRY(find_logits(d, s, out_logits));
    d->position += (int32_t)count;
    return RP_OK;
}

rp_status rpi_decoder_read(rpi_decoder *d, const int32_t *tokens, int64_t count,
                           const float **out_logits) {
    if (count < 1 || d->position + count > d->memory)
        return RP_FAIL(INVALID, "%lld tokens behind %d; there is memory for %lld",
                       (long long)count, (int)d->position, (long long)d->memory);
    for (int64_t done = 0, some; done < count; done += some) {
        some = count - done < AT_ONCE ? count - done : AT_ONCE;
        RP_TRY(read_some(d, tokens + done, some, out_logits));
    }
    return RP_OK;
}
