/* The model transformer-xl against PyTorch in double precision, by the paper's equations
 * (tools/make_transformer_xl_golden.py): logits of a third segment, its loss by clusters and
 * all gradients, on every backend; the losses of 50 steps of training. */
#include "golden.h"
#include "harness/check.h"
#include "train/data/token_writer.h"
#include "train/trainer.h"
#include "train_ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 3, LENGTH = 7, STEPS = 50, VOCABULARY = 257, SEGMENT = 2 };
#define SIZES                                                                                  \
    "transformer-xl:layers=2,hidden=16,heads=2,head=6,inner=20,memory=10,clamp=12,"            \
    "vocabulary=257,dropout=0,"
#define BY_CLUSTERS SIZES "cutoffs=100:180"
#define PLAIN       SIZES "cutoffs=none"

static void load(const golden *file, const rpi_network *network, rpi_weights *weights) {
    for (int p = 0; p < network->parameter_count; p++) {
        rpi_tensor tensor;
        REQUIRE_OK(golden_tensor(file, &tensor, "initial/%s", network->parameters[p].name));
        REQUIRE(rpi_shape_equal(&tensor.shape, &network->parameters[p].shape));
        memcpy(rpi_network_elements(network, weights, p), tensor.data,
               (size_t)rpi_shape_count(&tensor.shape) * sizeof(float));
    }
    rpi_weights_changed(weights, 0, rpi_weights_count(weights));
}

/* ---- one segment ---- */

typedef struct model {
    rpi_network network;
    rpi_weights *weights;
    rpi_program_set programs;
    rpi_memories memories;
    rpi_instance *instance;
} model;

static void open_model(const golden *file, const char *text, const rpi_backend *backend,
                       bool training, model *m) {
    *m = (model){0};
    rpi_data_shape shape = {.sequence = LENGTH};
    REQUIRE_OK(rpi_network_build(text, &shape, &m->network));
    REQUIRE_OK(rpi_weights_create(m->network.graph, m->network.loss, &m->weights));
    load(file, &m->network, m->weights);
    if (!training) m->network.plain_correct = m->network.logits; /* to be read */
    REQUIRE_OK(
        rpi_program_set_open(&m->network, m->weights, backend, NULL, RP_F32, &m->programs));
    REQUIRE_OK(rpi_memories_open(&m->network, ROWS, &m->memories));
    REQUIRE_OK(rpi_program_set_get(&m->programs, training, ROWS, &m->instance));
}

static void close_model(model *m) {
    rpi_memories_close(&m->memories);
    rpi_program_set_close(&m->programs);
    rpi_weights_destroy(m->weights);
    rpi_network_close(&m->network);
}

static void run_segments(const golden *file, model *m) {
    static const float scale = 1.0f / (ROWS * LENGTH);
    int32_t inputs[ROWS * LENGTH], labels[ROWS * LENGTH];
    rpi_tensor tokens;
    REQUIRE_OK(golden_tensor(file, &tokens, "tokens"));
    for (int step = 0; step <= SEGMENT; step++) {
        const void *all[RPI_NETWORK_INPUTS] = {inputs, labels, &scale};
        for (int i = 0; i < ROWS * LENGTH; i++) {
            const int32_t *at = (const int32_t *)tokens.data +
                                (i / LENGTH * STEPS + step) * LENGTH + i % LENGTH;
            inputs[i] = at[0], labels[i] = at[1];
        }
        rpi_memories_inputs(&m->memories, 0, all);
        REQUIRE_OK(rpi_instance_run(m->instance, &(rpi_run_options){.inputs = all}));
        REQUIRE_OK(rpi_memories_take(&m->memories, m->instance, 0, ROWS));
        rpi_memories_turn(&m->memories);
    }
}

static void check_logits(const golden *file, const rpi_backend *backend) {
    model m;
    rpi_tensor wanted, got = {0};
    open_model(file, PLAIN, backend, false, &m);
    run_segments(file, &m);
    REQUIRE_OK(golden_tensor(file, &wanted, "logits"));
    REQUIRE_OK(rpi_instance_result(m.instance, m.network.logits, &got));
    REQUIRE(rpi_shape_equal(&got.shape, &wanted.shape));
    double most = 0;
    for (int64_t i = 0; i < rpi_shape_count(&wanted.shape); i++)
        most = fmax(most,
                    fabs((double)((float *)got.data)[i] - (double)((float *)wanted.data)[i]));
    CHECK_MSG(most <= 1e-4, "%s: logits differ by %g", backend->name, most);
    close_model(&m);
}

static void check_gradients(const golden *file, const rpi_backend *backend) {
    model m;
    rpi_tensor wanted, loss;
    open_model(file, BY_CLUSTERS, backend, true, &m);
    run_segments(file, &m);
    REQUIRE_OK(golden_tensor(file, &wanted, "loss"));
    REQUIRE_OK(rpi_instance_result(m.instance, m.network.loss, &loss));
    CHECK_NEAR((double)*(float *)loss.data, (double)*(float *)wanted.data, 1e-5);
    for (int p = 0; p < m.network.parameter_count; p++) {
        const char *name = m.network.parameters[p].name;
        const rpi_weight *weight = rpi_weights_find(m.weights, name);
        REQUIRE_OK(golden_tensor(file, &wanted, "gradient/%s", name));
        double error = golden_distance(rpi_weights_gradients(m.weights) + weight->first,
                                       wanted.data, weight->count);
        CHECK_MSG(error <= 1e-4, "%s: gradient of %s is off by %.2e", backend->name, name,
                  error);
    }
    close_model(&m);
}

static void segments_equal_pytorch(void) {
    golden file;
    REQUIRE_OK(golden_open("transformer_xl", &file));
    for (int b = 0; rpi_backend_at(b); b++) {
        check_logits(&file, rpi_backend_at(b));
        check_gradients(&file, rpi_backend_at(b));
    }
    golden_close(&file);
}

/* ---- training ---- */

typedef struct training {
    const golden *file;
    rpi_train_options options;
    double part[ROWS][STEPS]; /* of the loss, of each rank */
} training;

/* The text as a file of tokens. */
static void write_tokens(const golden *file, const char *path) {
    rpi_tensor tokens;
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    REQUIRE_OK(golden_tensor(file, &tokens, "tokens"));
    REQUIRE_OK(rpi_tokenizer_open("byte", &tokenizer));
    REQUIRE_OK(rpi_token_writer_open(path, tokenizer, &writer));
    CHECK_OK(rpi_token_writer_add(writer, tokens.data, (size_t)tokens.shape.size[0]));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
}

static rp_status take_steps(void *context, rp_comm *comm) {
    training *run = context;
    rpi_trainer t;
    rpi_step_metrics metrics;
    rp_status status = rpi_trainer_open(&t, &run->options, comm);
    if (status == RP_OK) load(run->file, &t.network, t.weights);
    for (int i = 0; i < STEPS && status == RP_OK; i++) {
        status = rpi_trainer_step(&t, &metrics);
        run->part[t.place.rank][i] = metrics.loss;
    }
    rpi_trainer_close(&t);
    return status;
}

static void check_training(const golden *file, const char *data, int world) {
    training run = {.file = file, .options = ranks_options()};
    rpi_tensor wanted;
    run.options.model = BY_CLUSTERS;
    run.options.data = data;
    run.options.train_images = run.options.test_images = 0;
    run.options.seq_length = LENGTH;
    run.options.global_batch_size = ROWS;
    run.options.optimizer = "adamw";
    run.options.lr = 2e-3;
    run.options.weight_decay = 0.01;
    run.options.clip = 0.25;
    run.options.steps = STEPS;
    run.options.lr_schedule = "constant";
    REQUIRE_OK(ranks_run(world, take_steps, &run));
    REQUIRE_OK(golden_tensor(file, &wanted, "losses"));
    for (int i = 0; i < STEPS; i++) {
        double loss = 0, right = (double)((float *)wanted.data)[i];
        for (int rank = 0; rank < world; rank++) loss += run.part[rank][i];
        CHECK_MSG(fabs(loss - right) <= 1e-3, "%d ranks: step %d: the loss is %g, not %g",
                  world, i + 1, loss, right);
    }
}

static void fifty_steps_equal_pytorch(void) {
    golden file;
    char path[700], data[1500];
    REQUIRE_OK(golden_open("transformer_xl", &file));
    snprintf(path, sizeof path, "%s/text", check_folder());
    snprintf(data, sizeof data, "tokens:%s,validation=%s", path, path);
    write_tokens(&file, path);
    check_training(&file, data, 1);
    check_training(&file, data, ROWS);
    golden_close(&file);
}

CASES({"segments_equal_pytorch", segments_equal_pytorch},
      {"fifty_steps_equal_pytorch", fifty_steps_equal_pytorch})
