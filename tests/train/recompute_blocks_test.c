/* --recompute: blocks whose activations are made again give the same bits for less memory. */
#include "harness/check.h"

#include "base/memory.h"
#include "train/data/token_writer.h"
#include "train/models/layer_names.h"
#include "train/tokenizers/tokenizer.h"
#include "train/trainer.h"
#include "train_ranks.h"

#define GPT2   "gpt2:layers=4,hidden=32,heads=4,vocabulary=257,positions=32,dropout=0.1"
#define RESNET "resnet20:width=4"

static int blocks_of(const char *model, const rpi_data_shape *shape) {
    rpi_network network = {0};
    rpi_segment *blocks = NULL;
    int count = 0;
    CHECK_OK(rpi_network_build(model, shape, &network));
    rp_status status = network.graph ? rpi_blocks_of(network.graph, &blocks, &count) : RP_OK;
    if (status != RP_OK) count = -1;
    rpi_free(blocks);
    rpi_network_close(&network);
    return count;
}

static void every_model_has_its_blocks(void) {
    const rpi_data_shape tokens = {.sequence = 16};
    const rpi_data_shape images = {.channels = 1, .height = 28, .width = 28, .classes = 10};
    CHECK_EQ(blocks_of(GPT2, &tokens), 4);
    CHECK_EQ(blocks_of("llama:layers=3,hidden=32,heads=4,kv-heads=2,intermediate=64", &tokens),
             3);
    CHECK_EQ(blocks_of("bert:layers=2,hidden=32,heads=4", &tokens), 2);
    CHECK_EQ(blocks_of("transformer-xl:layers=2,hidden=24,heads=2,head=8,inner=32", &tokens),
             2);
    CHECK_EQ(blocks_of("vit:layers=5,hidden=16,heads=2,patch=7", &images), 5);
    CHECK_EQ(blocks_of("resnet20", &images), 9);
    CHECK_EQ(blocks_of("resnet50", &images), 16);
    CHECK_EQ(blocks_of("mlp", &images), -1);
}

/* ---- the same run ---- */

typedef struct measured {
    const rpi_train_options *options;
    size_t memory;
} measured;

static rp_status measure(void *context, rp_comm *comm) {
    measured *it = context;
    rpi_trainer t;
    rpi_instance *instance = NULL;
    rp_status status = rpi_trainer_open(&t, it->options, comm);
    if (status == RP_OK) status = rpi_program_set_get(&t.programs, true, 8, &instance);
    if (status == RP_OK)
        it->memory = rpi_program_get_facts(t.programs.entries[0].program).memory_bytes;
    rpi_trainer_close(&t);
    return status;
}

static size_t memory_of(const rpi_train_options *options) {
    measured it = {.options = options};
    CHECK_OK(ranks_run(1, measure, &it));
    return it.memory;
}

static void same_run(rpi_train_options options, const char *name) {
    rpi_train_result result[2] = {{0}};
    size_t memory[2] = {0};
    for (int again = 0; again < 2; again++) {
        char folder[64];
        snprintf(folder, sizeof folder, "%s-%d", name, again);
        options.recompute = again;
        options.out = ranks_folder(folder);
        CHECK_OK(ranks_train(&options, 2, &result[again]));
        options.out = NULL;
        memory[again] = memory_of(&options);
    }
    CHECK_EQ(result[0].last_loss, result[1].last_loss);
    CHECK_EQ(result[0].test.loss, result[1].test.loss);
    char kept[64], made[64];
    snprintf(kept, sizeof kept, "%s-0", name);
    snprintf(made, sizeof made, "%s-1", name);
    CHECK_MSG(ranks_same_file(ranks_path(ranks_folder(kept), "model.safetensors"),
                              ranks_path(ranks_folder(made), "model.safetensors")),
              "%s learns otherwise", name);
    CHECK_MSG(memory[1] < memory[0] * 3 / 4, "%s: %zu of %zu bytes", name, memory[1],
              memory[0]);
}

static const char *some_tokens(void) {
    static char data[600];
    uint32_t ids[400];
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    for (uint32_t i = 0; i < 400; i++) ids[i] = i * i % 101;
    snprintf(data, sizeof data, "tokens:%s", ranks_folder("tokens"));
    CHECK_OK(rpi_tokenizer_open("byte", &tokenizer));
    CHECK_OK(rpi_token_writer_open(data + strlen("tokens:"), tokenizer, &writer));
    CHECK_OK(rpi_token_writer_add(writer, ids, 400));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
    return data;
}

/* Dropout drops the same, statistics of a batch move once. */
static void the_same_bits_for_less_memory(void) {
    rpi_train_options options = ranks_options();
    options.global_batch_size = 8;
    options.steps = 3;
    options.train_images = 16;
    options.test_images = 8;
    options.model = RESNET;
    same_run(options, "resnet");
    options.model = GPT2;
    options.seq_length = 32;
    options.train_images = options.test_images = 0;
    options.data = some_tokens();
    same_run(options, "gpt2");
}

static void a_model_without_blocks_is_refused(void) {
    rpi_train_options options = ranks_options();
    rpi_train_result result;
    options.recompute = true;
    CHECK_EQ(ranks_train(&options, 1, &result), RP_INVALID);
    CHECK_MSG(strstr(ranks_message(0), "no blocks whose activations could be made again"), "%s",
              ranks_message(0));
}

CASES({"every_model_has_its_blocks", every_model_has_its_blocks},
      {"the_same_bits_for_less_memory", the_same_bits_for_less_memory},
      {"a_model_without_blocks_is_refused", a_model_without_blocks_is_refused})
