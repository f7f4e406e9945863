/* What a model costs, counted: parameters, operations and memory, in all and by layer. */
#include "engine/backend.h"
#include "harness/check.h"
#include "train/model_account.h"
#include "train/program_set.h"

#include <stdio.h>
#include <string.h>

static const rpi_data_shape small_pictures = {
    .channels = 1, .height = 28, .width = 28, .classes = 10};

static void check_layer(const char *node, const char *wanted) {
    char layer[RPI_LAYER_NAME];
    rpi_layer_of(node, layer);
    CHECK_MSG(strcmp(layer, wanted) == 0, "%s is of layer %s, not %s", node, layer, wanted);
}

static void layers_are_named_by_their_number(void) {
    check_layer("h.3.attn.c_attn", "h.3");
    check_layer("model.layers.11.mlp", "model.layers.11");
    check_layer("layer1.0.conv1", "layer1.0");
    check_layer("encoder.layers.encoder_layer_2.ln_1", "encoder.layers.encoder_layer_2");
    check_layer("features.28", "features.28");
    check_layer("bert.embeddings.LayerNorm", "bert.embeddings");
    check_layer("conv1", "conv1");
    check_layer("wte", "wte");
}

static const rpi_layer_account *find(const rpi_model_account *account, const char *name) {
    for (int i = 0; i < account->layer_count; i++)
        if (strcmp(account->layers[i].name, name) == 0) return &account->layers[i];
    CHECK_MSG(false, "there is no layer %s", name);
    return &account->layers[0];
}

/* 784 x 256 and 256 x 10 by hand; nobody needs the gradient of the pictures. */
static void a_perceptron_by_hand(void) {
    rpi_model_account account;
    rpi_account_options options = {.batch = 5, .shape = small_pictures, .compute = RP_F32};
    REQUIRE_OK(rpi_model_account_make("mlp", &options, &account));
    const rpi_layer_account *first = find(&account, "fc1"), *last = find(&account, "fc2");
    CHECK_EQ(first->parameters, 785 * 256);
    CHECK_EQ(last->parameters, 257 * 10);
    CHECK_EQ(account.parameters, 785 * 256 + 257 * 10);
    CHECK_EQ(account.states, 0);
    const int64_t products = 2 * 5 * 784 * 256;
    CHECK_EQ(first->facts.forward_flops, products);
    CHECK_EQ(first->facts.backward_flops, products);
    CHECK(last->facts.backward_flops >= 2 * 2 * 5 * 256 * 10);
    CHECK_EQ((int64_t)first->facts.output_bytes, 5 * 256 * 4);
    rpi_model_account_free(&account);
    CHECK(account.layers == NULL);
}

static void sum_layers(const rpi_model_account *account, rpi_layer_account *out) {
    *out = (rpi_layer_account){0};
    for (int i = 0; i < account->layer_count; i++) {
        out->parameters += account->layers[i].parameters;
        out->facts.forward_flops += account->layers[i].facts.forward_flops;
        out->facts.backward_flops += account->layers[i].facts.backward_flops;
    }
}

/* Against the program of a run. */
static void check_against_a_run(const char *model, const rpi_account_options *options) {
    rpi_model_account account;
    rpi_network network;
    rpi_weights *weights = NULL;
    rpi_program_set set;
    rpi_program *program = NULL;
    rpi_backend_options usual = {0};
    rpi_layer_account sum;
    REQUIRE_OK(rpi_model_account_make(model, options, &account));
    REQUIRE_OK(rpi_network_build(model, &options->shape, &network));
    REQUIRE_OK(rpi_weights_create(network.graph, network.loss, &weights));
    REQUIRE_OK(
        rpi_program_set_open(&network, weights, rpi_backend_default(), &usual, RP_F32, &set));
    REQUIRE_OK(rpi_program_set_compile(&set, true, options->batch, &program));
    rpi_program_facts facts = rpi_program_get_facts(program);
    sum_layers(&account, &sum);
    CHECK_EQ(account.parameters, rpi_weights_count(weights));
    CHECK_EQ(account.states, rpi_weights_states_count(weights));
    CHECK_EQ(sum.parameters, account.parameters);
    CHECK_EQ(account.facts.forward_flops, facts.forward_flops);
    CHECK_EQ(sum.facts.forward_flops, facts.forward_flops);
    CHECK_EQ(sum.facts.backward_flops, facts.backward_flops);
    CHECK_EQ(account.facts.memory_bytes, facts.memory_bytes);
    CHECK_EQ(account.facts.workspace_bytes, facts.workspace_bytes);
    rpi_program_destroy(program);
    rpi_program_set_close(&set);
    rpi_weights_destroy(weights);
    rpi_network_close(&network);
    rpi_model_account_free(&account);
}

static void what_a_run_has_is_what_was_counted(void) {
    rpi_account_options pictures = {.batch = 3, .shape = small_pictures, .compute = RP_F32};
    rpi_account_options text = {.batch = 2, .shape = {.sequence = 16}, .compute = RP_F32};
    check_against_a_run("resnet20", &pictures);
    check_against_a_run("gpt2:layers=2,hidden=32,heads=2,vocabulary=64", &text);
    check_against_a_run("bert:layers=1,hidden=32,heads=2,vocabulary=64", &text);
    check_against_a_run("transformer-xl:layers=2,hidden=24,heads=2,head=8,inner=32,"
                        "vocabulary=257",
                        &text);
}

/* Layers that are alike count alike, and a model that no memory here would hold is counted. */
static void a_large_model_is_counted_without_its_memory(void) {
    rpi_model_account account;
    rpi_account_options options = {.batch = 1, .shape = {.sequence = 8}, .compute = RP_F32};
    REQUIRE_OK(rpi_model_account_make("llama:7b", &options, &account));
    CHECK_EQ(account.parameters, 6738415616);
    const rpi_layer_account *first = find(&account, "model.layers.0"),
                            *last = find(&account, "model.layers.31");
    CHECK_EQ(first->parameters, last->parameters);
    CHECK_EQ(first->facts.forward_flops, last->facts.forward_flops);
    CHECK_EQ(last->parameters, 202383360);
    rpi_model_account_free(&account);
}

static void refused(void) {
    rpi_model_account account;
    rpi_account_options options = {.batch = 1, .shape = {.sequence = 4000}, .compute = RP_F32};
    CHECK_FAILS(rpi_model_account_make("gpt2", &options, &account), INVALID, "positions");
    CHECK_FAILS(rpi_model_account_make("gpt3", &options, &account), INVALID, "gpt2");
    options = (rpi_account_options){.batch = 0, .shape = small_pictures, .compute = RP_F32};
    CHECK_FAILS(rpi_model_account_make("mlp", &options, &account), INVALID, "batch");
}

/* What a tensor rank holds and computes of it, beside the whole: h^2 and what is as long as a
 * part of the vocabulary are cut; activations between layers are not. */
static void a_tensor_rank(void) {
    const char *model = "gpt2:layers=2,hidden=64,heads=4,vocabulary=512,positions=32";
    rpi_account_options options = {
        .batch = 2, .shape = {.sequence = 32, .vocabulary = 512}, .compute = RP_F32};
    rpi_model_account whole, part;
    REQUIRE_OK(rpi_model_account_make(model, &options, &whole));
    const int64_t h = 64, cut = 2 * (12 * h * h + 7 * h) + 512 * h, kept = 32 * h + 10 * h;
    CHECK_EQ(whole.parameters, cut + kept + 4 * h);
    options.tensor_ranks = 4;
    for (int rank = 0; rank < 4; rank++) {
        options.tensor_rank = rank;
        REQUIRE_OK(rpi_model_account_make(model, &options, &part));
        CHECK_EQ(part.parameters, cut / 4 + kept + (rank ? 0 : 4 * h));
        CHECK(part.facts.forward_flops < whole.facts.forward_flops / 3);
        CHECK(part.facts.in_flight_bytes < whole.facts.in_flight_bytes / 2);
        rpi_model_account_free(&part);
    }
    options.tensor_ranks = 3;
    options.tensor_rank = 0;
    CHECK_FAILS(rpi_model_account_make(model, &options, &part), INVALID,
                "heads=4 over 3 tensor ranks: they divide over 1, 2, 4");
    rpi_model_account_free(&whole);
}

CASES({"a tensor rank", a_tensor_rank},
      {"layers_are_named_by_their_number", layers_are_named_by_their_number},
      {"a_perceptron_by_hand", a_perceptron_by_hand},
      {"what_a_run_has_is_what_was_counted", what_a_run_has_is_what_was_counted},
      {"a_large_model_is_counted_without_its_memory",
       a_large_model_is_counted_without_its_memory},
      {"refused", refused})
