#include "cli/info_model.h"

#include "base/memory.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/info_stages.h"
#include "engine/backend.h"
#include "engine/optimizer.h"
#include "train/huggingface/hf_config.h"
#include "train/model_account.h"
#include "train/trainer.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

enum { USUAL_SEQUENCE = 128, CHANNELS_MAX = 64, SIDE_MAX = 2048, COUNT_TEXT = 32 };

typedef struct account {
    rpi_info_stages stages;
    const rpi_info_model *asked;
    const rpi_optimizer *optimizer;
    const char *task;
    char model[RPI_MODEL_TEXT];
    rpi_account_options options;
    rpi_model_account found;
    rpi_model_account *ranks; /* of tensor ranks that share its layers; NULL: none do */
    int64_t whole;            /* parameters of all of them together */
} account;

/* ---- what was asked for ---- */

static rp_status parse_image(const char *text, rpi_data_shape *out_shape) {
    int used = 0;
    rpi_data_shape s = {0};
    if (sscanf(text, "%5dx%5dx%5d%n", &s.channels, &s.height, &s.width, &used) != 3 ||
        text[used] || s.channels < 1 || s.height < 1 || s.width < 1 ||
        s.channels > CHANNELS_MAX || s.height > SIDE_MAX || s.width > SIDE_MAX)
        return RP_FAIL(INVALID,
                       "'%s' is no size of images: CHANNELSxHEIGHTxWIDTH, as 3x224x224, "
                       "at most %dx%dx%d",
                       text, CHANNELS_MAX, SIDE_MAX, SIDE_MAX);
    *out_shape = s;
    return RP_OK;
}

rp_status rpi_check_image(const char *text) {
    rpi_data_shape shape;
    return parse_image(text, &shape);
}

static int64_t sequence_of(const rpi_info_model *asked, const rpi_model_choice *choice) {
    int64_t positions = rpi_model_number(choice, "positions");
    if (asked->sequence) return asked->sequence;
    return positions > 0 && positions < USUAL_SEQUENCE ? positions : USUAL_SEQUENCE;
}

/* Refuses a part that no training has. Replicas share what --zero says. */
static rp_status read_layout(account *it) {
    const rpi_info_model *asked = it->asked;
    const rpi_train_options layout = {.model = it->model,
                                      .optimizer = asked->optimizer,
                                      .zero = asked->zero,
                                      .stages = asked->stages,
                                      .tensor_ranks = asked->tensor_ranks,
                                      .context_ranks = asked->context_ranks,
                                      .seq_length = it->options.shape.sequence,
                                      .schedule = asked->schedule};
    rpi_grid grid;
    RP_TRY(rpi_train_check_layout(&layout, asked->ranks > 1 ? (int)asked->ranks : 0));
    RP_TRY(rpi_train_grid(&layout, &grid));
    int replicas = asked->ranks > 1 ? (int)asked->ranks / rpi_grid_world(&grid) : 1;
    it->options.zero = (int)asked->zero;
    it->options.sharers = asked->zero ? replicas * grid.size[RPI_AXIS_CONTEXT] : 1;
    it->options.context_ranks = grid.size[RPI_AXIS_CONTEXT];
    it->options.tensor_ranks = asked->tensor_ranks > 1 ? (int)asked->tensor_ranks : 0;
    it->options.sequence_parallel = asked->sequence_parallel;
    return RP_OK;
}

static rp_status read_options(account *it) {
    const rpi_info_model *asked = it->asked;
    rpi_model_choice choice;
    const char *folder = NULL;
    rpi_data_shape *shape = &it->options.shape;
    RP_TRY(rpi_hf_model_of(asked->model, it->model, &folder));
    RP_TRY(rpi_model_parse(it->model, &choice));
    it->task = rpi_model_task(&choice);
    if (strcmp(it->task, "classification") == 0) {
        RP_TRY(parse_image(asked->image, shape));
        shape->classes = (int)asked->classes;
    } else {
        shape->sequence = (int)sequence_of(asked, &choice);
    }
    it->options.batch = asked->batch;
    it->options.recompute = asked->recompute;
    RP_TRY(rpi_compute_parse(asked->dtype, &it->options.compute));
    RP_TRY(rpi_optimizer_find(asked->optimizer, &it->optimizer));
    it->options.whole_tensors = it->optimizer->whole_tensors;
    return read_layout(it);
}

/* ---- memory of a rank ---- */

typedef struct memory {
    double parameters, gradients, optimizer, states, activations, workspace, travelling, all;
} memory;

static memory memory_of(const account *it, const rpi_model_account *found) {
    memory m = {.parameters = (double)found->values * sizeof(float),
                .gradients = (double)found->gradients * sizeof(float),
                .optimizer = (double)found->owned * sizeof(float) * it->optimizer->slot_count,
                .states = (double)found->states * sizeof(float),
                .activations = (double)found->facts.memory_bytes,
                .workspace = (double)found->facts.workspace_bytes,
                .travelling = found->travelling};
    m.all = m.parameters + m.gradients + m.optimizer + m.states + m.activations + m.workspace +
            m.travelling;
    return m;
}

/* ---- as text ---- */

/* 124,439,808 */
static const char *count_text(int64_t value, char text[COUNT_TEXT]) {
    char digits[COUNT_TEXT];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)value);
    char *out = text;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}

static void print_samples(const account *it) {
    const rpi_data_shape *s = &it->options.shape;
    printf("a step of %lld ", (long long)it->options.batch);
    if (s->sequence)
        printf("x %d tokens", s->sequence);
    else
        printf("images of %dx%dx%d in %d classes", s->channels, s->height, s->width,
               s->classes);
    printf(", %s: forward %.4g GFLOP, backward %.4g GFLOP (a multiply-add is two)\n",
           it->asked->dtype, 1e-9 * (double)it->found.facts.forward_flops,
           1e-9 * (double)it->found.facts.backward_flops);
}

static void print_context(const account *it) {
    int ranks = it->options.context_ranks, tokens = it->options.shape.sequence;
    const rpi_context_split first = {.ranks = ranks};
    if (ranks > 1)
        printf(
            "%d ranks share each sequence: a rank has %lld of %d tokens of each sequence%s\n",
            ranks, (long long)rpi_context_own(&first, tokens), tokens,
            tokens % (2 * ranks) ? ", at most" : "");
}

static void print_bytes(const char *what, double bytes) {
    printf("  %-34s %10.1f MB\n", what, 1e-6 * bytes);
}

/* "gradients (of 4 ranks)", if ranks share them from a stage of ZeRO on. */
static const char *shared_text(const account *it, int stage, const char *what, char *text,
                               size_t bytes) {
    if (it->options.sharers > 1 && it->options.zero >= stage)
        snprintf(text, bytes, "%s (of %d ranks)", what, it->options.sharers);
    else
        snprintf(text, bytes, "%s", what);
    return text;
}

static void print_memory(const account *it) {
    memory m = memory_of(it, &it->found);
    char what[96];
    printf("\nmemory of a rank\n");
    print_bytes(shared_text(it, 3, "parameters", what, sizeof what), m.parameters);
    print_bytes(shared_text(it, 2, "gradients", what, sizeof what), m.gradients);
    int used = snprintf(what, sizeof what, "optimizer's state (%s", it->optimizer->name);
    if (it->options.sharers > 1)
        used += snprintf(what + used, sizeof what - (size_t)used, ", of %d ranks",
                         it->options.sharers);
    snprintf(what + used, sizeof what - (size_t)used, ")");
    print_bytes(what, m.optimizer);
    if (m.states > 0) print_bytes("running statistics", m.states);
    print_bytes("activations and their gradients", m.activations);
    print_bytes("workspace of the largest kernel", m.workspace);
    if (m.travelling > 0) print_bytes("keys and values that travel", m.travelling);
    print_bytes("all of it", m.all);
    printf(
        "  With a lossy codec error feedback takes as much as the parameters it is for; data,\n"
        "  libraries and packed copies of weights come on top.\n");
}

/* Slices may differ in size, and the first rank has the biases. */
static void print_ranks(const account *it) {
    char parameters[COUNT_TEXT];
    if (!it->ranks) return;
    printf("\n  %-11s %14s %16s %14s\n", "tensor rank", "parameters", "step, GFLOP",
           "memory, MB");
    for (int r = 0; r < it->options.tensor_ranks; r++) {
        const rpi_program_facts *facts = &it->ranks[r].facts;
        printf("  %-11d %14s %16.4g %14.1f\n", r,
               count_text(it->ranks[r].parameters, parameters),
               1e-9 * (double)(facts->forward_flops + facts->backward_flops),
               1e-6 * memory_of(it, &it->ranks[r]).all);
    }
}

static bool are_alike(const rpi_layer_account *a, const rpi_layer_account *b) {
    return a->parameters == b->parameters && a->facts.forward_flops == b->facts.forward_flops &&
           a->facts.backward_flops == b->facts.backward_flops &&
           a->facts.output_bytes == b->facts.output_bytes;
}

static bool is_idle(const rpi_layer_account *layer) {
    return !layer->parameters && !layer->facts.forward_flops && !layer->facts.output_bytes;
}

/* Prints `count` equal layers, beginning with this one. */
static void print_layer(const rpi_layer_account *first, int count) {
    char name[2 * RPI_LAYER_NAME + 8], times[16] = "", parameters[COUNT_TEXT];
    snprintf(name, sizeof name, "%s%s%s", first->name, count > 1 ? " to " : "",
             count > 1 ? first[count - 1].name : "");
    if (count > 1) snprintf(times, sizeof times, "%d x", count);
    printf("  %-32s %5s %14s %9.4g %9.4g %9.4g\n", name, times,
           count_text(first->parameters, parameters), 1e-9 * (double)first->facts.forward_flops,
           1e-9 * (double)first->facts.backward_flops,
           1e-6 * (double)first->facts.output_bytes);
}

static void print_layers(const rpi_model_account *found) {
    printf("\n  %-32s %5s %14s %9s %9s %9s\n", "layer", "", "parameters", "forward,",
           "backward,", "outputs,");
    printf("  %-32s %5s %14s %9s %9s %9s\n", "", "", "", "GFLOP", "GFLOP", "MB");
    for (int i = 0, count; i < found->layer_count; i += count) {
        const rpi_layer_account *first = &found->layers[i];
        for (count = 1; i + count < found->layer_count; count++)
            if (!are_alike(first, &first[count])) break;
        if (!is_idle(first)) print_layer(first, count);
    }
}

static void print_table(const account *it) {
    char parameters[COUNT_TEXT];
    printf("%s (%s): %s parameters\n", it->asked->model, it->task,
           count_text(it->whole, parameters));
    if (it->ranks)
        printf("%d ranks share each layer%s; of the first one, with %s parameters:\n",
               it->options.tensor_ranks,
               it->options.sequence_parallel ? ", and the tokens between them" : "",
               count_text(it->found.parameters, parameters));
    print_context(it);
    print_samples(it);
    if (!it->stages.stages) print_memory(it);
    if (!it->stages.stages) print_ranks(it);
    rpi_info_stages_print(&it->stages);
    print_layers(&it->found);
}

/* ---- as JSON ---- */

static void add_flops(cJSON *object, int64_t forward, int64_t backward) {
    cJSON_AddNumberToObject(object, "forward_flops", (double)forward);
    cJSON_AddNumberToObject(object, "backward_flops", (double)backward);
}

static void add_memory(const account *it, cJSON *object) {
    memory m = memory_of(it, &it->found);
    cJSON_AddNumberToObject(object, "parameters_bytes", m.parameters);
    cJSON_AddNumberToObject(object, "gradients_bytes", m.gradients);
    cJSON_AddNumberToObject(object, "optimizer_bytes", m.optimizer);
    cJSON_AddNumberToObject(object, "states_bytes", m.states);
    cJSON_AddNumberToObject(object, "activations_bytes", m.activations);
    cJSON_AddNumberToObject(object, "workspace_bytes", m.workspace);
    if (m.travelling > 0) cJSON_AddNumberToObject(object, "travelling_bytes", m.travelling);
}

static void add_ranks(const account *it, cJSON *object) {
    if (!it->ranks) return;
    cJSON *list = cJSON_AddArrayToObject(object, "by_tensor_rank");
    for (int r = 0; r < it->options.tensor_ranks; r++) {
        const rpi_model_account *found = &it->ranks[r];
        cJSON *row = cJSON_CreateObject();
        cJSON_AddNumberToObject(row, "parameters", (double)found->parameters);
        add_flops(row, found->facts.forward_flops, found->facts.backward_flops);
        cJSON_AddNumberToObject(row, "memory_bytes", memory_of(it, found).all);
        cJSON_AddItemToArray(list, row);
    }
}

static void print_json(const account *it) {
    const rpi_model_account *found = &it->found;
    const rpi_data_shape *shape = &it->options.shape;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "model", it->model);
    cJSON_AddStringToObject(object, "task", it->task);
    cJSON_AddNumberToObject(object, "parameters", (double)it->whole);
    add_ranks(it, object);
    rpi_info_stages_add_json(&it->stages, object);
    cJSON_AddNumberToObject(object, "batch_size", (double)it->options.batch);
    if (shape->sequence)
        cJSON_AddNumberToObject(object, "seq_length", shape->sequence);
    else
        cJSON_AddStringToObject(object, "image", it->asked->image);
    if (it->options.context_ranks > 1)
        cJSON_AddNumberToObject(object, "context_ranks", it->options.context_ranks);
    cJSON_AddStringToObject(object, "dtype", it->asked->dtype);
    cJSON_AddStringToObject(object, "optimizer", it->optimizer->name);
    add_flops(object, found->facts.forward_flops, found->facts.backward_flops);
    add_memory(it, object);
    cJSON *layers = cJSON_AddArrayToObject(object, "layers");
    for (int i = 0; i < found->layer_count; i++) {
        const rpi_layer_account *layer = &found->layers[i];
        if (is_idle(layer)) continue;
        cJSON *row = cJSON_CreateObject();
        cJSON_AddStringToObject(row, "name", layer->name);
        cJSON_AddNumberToObject(row, "parameters", (double)layer->parameters);
        add_flops(row, layer->facts.forward_flops, layer->facts.backward_flops);
        cJSON_AddNumberToObject(row, "output_bytes", (double)layer->facts.output_bytes);
        cJSON_AddItemToArray(layers, row);
    }
    rpi_command_print_json(object);
}

/* ---- of which ranks ---- */

static rp_status count_whole(account *it) {
    rpi_account_options whole = it->options;
    rpi_model_account found = {0};
    whole.tensor_ranks = 0;
    RP_TRY(rpi_model_account_make(it->model, &whole, &found));
    it->whole = found.parameters;
    rpi_model_account_free(&found);
    return RP_OK;
}

static rp_status count_ranks(account *it) {
    int ranks = it->options.tensor_ranks;
    it->whole = it->found.parameters;
    if (!ranks) return RP_OK;
    RP_TRY(count_whole(it));
    RP_TRY(rpi_alloc_array((size_t)ranks, sizeof *it->ranks, "ranks", &it->ranks));
    for (int r = 0; r < ranks; r++) {
        it->options.tensor_rank = r;
        RP_TRY(rpi_model_account_make(it->model, &it->options, &it->ranks[r]));
    }
    return RP_OK;
}

static void close_account(account *it) {
    for (int r = 0; it->ranks && r < it->options.tensor_ranks; r++)
        rpi_model_account_free(&it->ranks[r]);
    rpi_free(it->ranks);
    rpi_info_stages_free(&it->stages);
    rpi_model_account_free(&it->found);
}

rp_status rpi_info_model_print(const rpi_info_model *info) {
    account it = {.asked = info};
    const rpi_info_stages_request stages = {.stages = info->stages,
                                            .tensor_ranks = info->tensor_ranks,
                                            .context_ranks = info->context_ranks,
                                            .ranks = info->ranks,
                                            .batch = info->batch,
                                            .micro_batch = info->micro_batch,
                                            .zero = info->zero,
                                            .schedule = info->schedule,
                                            .cut = info->stage_cut,
                                            .activations_codec = info->activations_codec};
    RP_TRY(read_options(&it));
    rp_status status = rpi_model_account_make(it.model, &it.options, &it.found);
    if (status == RP_OK) status = count_ranks(&it);
    if (status == RP_OK)
        status = rpi_info_stages_make(&stages, it.model, &it.options, it.optimizer, &it.stages);
    if (status == RP_OK && info->json)
        print_json(&it);
    else if (status == RP_OK)
        print_table(&it);
    close_account(&it);
    return status;
}
