/* Hugging Face folders that are read: names, element types, shards, and what is wrong with
 * them. */
#include "train/huggingface/hf_config.h"
#include "train/huggingface/hf_weights.h"

#include "base/regular_file.h"
#include "harness/check.h"
#include "train/checkpoint/safetensors.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HIDDEN = 4, VOCABULARY = 8, POSITIONS = 6, MOST = HIDDEN * 4 * HIDDEN, TENSORS = 16 };

static const char config[] =
    "{\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"gpt2\",\"n_layer\":1,"
    "\"n_embd\":4,\"n_head\":2,\"vocab_size\":8,\"n_positions\":6}";
#define SIZES "gpt2:layers=1,hidden=4,heads=2,vocabulary=8,positions=6"
#define WITH                                                                                   \
    ",dropout=0.1,attention-dropout=0.1" /* what the file means that does not say it           \
                                          */
static const char model[] = SIZES WITH;

static const struct {
    const char *name;
    rpi_shape shape;
} contents[TENSORS] = {
    {"wte.weight", {2, {VOCABULARY, HIDDEN}}},
    {"wpe.weight", {2, {POSITIONS, HIDDEN}}},
    {"h.0.ln_1.weight", {1, {HIDDEN}}},
    {"h.0.ln_1.bias", {1, {HIDDEN}}},
    {"h.0.attn.c_attn.weight", {2, {HIDDEN, 3 * HIDDEN}}},
    {"h.0.attn.c_attn.bias", {1, {3 * HIDDEN}}},
    {"h.0.attn.c_proj.weight", {2, {HIDDEN, HIDDEN}}},
    {"h.0.attn.c_proj.bias", {1, {HIDDEN}}},
    {"h.0.ln_2.weight", {1, {HIDDEN}}},
    {"h.0.ln_2.bias", {1, {HIDDEN}}},
    {"h.0.mlp.c_fc.weight", {2, {HIDDEN, 4 * HIDDEN}}},
    {"h.0.mlp.c_fc.bias", {1, {4 * HIDDEN}}},
    {"h.0.mlp.c_proj.weight", {2, {4 * HIDDEN, HIDDEN}}},
    {"h.0.mlp.c_proj.bias", {1, {HIDDEN}}},
    {"ln_f.weight", {1, {HIDDEN}}},
    {"ln_f.bias", {1, {HIDDEN}}},
};

/* Elements that every type holds exactly, others in each tensor. */
static float element(int tensor, int index) {
    return (float)(8 * tensor + index % 61) / 4;
}

/* A folder of this test. */
static const char *folder_of(const char *name) {
    static char path[700];
    snprintf(path, sizeof path, "%s/%s", check_folder(), name);
    mkdir(path, 0777);
    return path;
}

static void write_text(const char *folder, const char *name, const char *text) {
    char path[900];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *stream = fopen(path, "w");
    if (stream) fputs(text, stream), fclose(stream);
}

static void fill(rp_dtype dtype, int tensor, void *out) {
    for (int i = 0; i < MOST; i++) {
        float value = element(tensor, i);
        switch (dtype) {
        case RP_F16: ((uint16_t *)out)[i] = rp_f32_to_f16(value); break;
        case RP_BF16: ((uint16_t *)out)[i] = rp_f32_to_bf16(value); break;
        case RP_F64: ((double *)out)[i] = (double)value; break;
        default: ((float *)out)[i] = value; break;
        }
    }
}

/* The tensors [first, end) of the model, in one file; with a prefix, and another tensor. */
typedef struct file_plan {
    const char *name, *prefix;
    int first, end;
    rp_dtype dtype;
    const char *extra;
} file_plan;

static void write_file(const char *folder, file_plan plan) {
    static double memory[TENSORS][MOST];
    static char names[TENSORS][200];
    rpi_named_tensor tensors[TENSORS + 1];
    char path[900];
    int count = 0;
    for (int t = plan.first; t < plan.end; t++, count++) {
        fill(plan.dtype, t, memory[t]);
        snprintf(names[t], sizeof names[t], "%s%s", plan.prefix, contents[t].name);
        tensors[count] = (rpi_named_tensor){names[t], plan.dtype, contents[t].shape, memory[t]};
    }
    if (plan.extra)
        tensors[count++] = (rpi_named_tensor){plan.extra, plan.dtype, {1, {4}}, memory[0]};
    snprintf(path, sizeof path, "%s/%s", folder, plan.name);
    CHECK_OK(rpi_safetensors_write(path, tensors, count, NULL, 0));
}

static const char single[] = "model.safetensors", prefix[] = "transformer.";

typedef struct opened {
    rpi_network network;
    rpi_weights *weights;
    char note[4096];
} opened;

static rp_status load(const char *folder, opened *o) {
    rpi_data_shape shape = {.sequence = 4};
    RP_TRY(rpi_network_build(model, &shape, &o->network));
    RP_TRY(rpi_weights_create(o->network.graph, o->network.loss, &o->weights));
    return rpi_hf_load(folder, &o->network, o->weights, true, o->note, sizeof o->note);
}

static void close_opened(opened *o) {
    rpi_weights_destroy(o->weights);
    rpi_network_close(&o->network);
}

static bool is_linear(const char *name) {
    return strstr(name, "c_") && strstr(name, "weight");
}

static void check_tensor(const opened *o, int t) {
    const rpi_weight *weight = rpi_weights_find(o->weights, contents[t].name);
    REQUIRE(weight);
    const float *values = rpi_weights_values(o->weights) + weight->first;
    int rows = (int)contents[t].shape.size[0], columns = (int)contents[t].shape.size[1];
    for (int i = 0; i < weight->count; i++) {
        int from = is_linear(contents[t].name) ? i % rows * columns + i / rows : i;
        CHECK_NEAR(values[i], element(t, from), 0);
    }
}

static void check_loaded(const char *folder) {
    opened o = {0};
    CHECK_OK(load(folder, &o));
    if (check_failures() == 0) {
        CHECK_MSG(!o.note[0], "%s", o.note);
        for (int t = 0; t < TENSORS; t++) check_tensor(&o, t);
    }
    close_opened(&o);
}

static void check_refused(const char *folder, rp_status wanted, const char *part) {
    opened o = {0};
    CHECK_EQ(load(folder, &o), wanted);
    CHECK_MSG(strstr(rp_last_error()->message, part), "'%s' lacks '%s'",
              rp_last_error()->message, part);
    close_opened(&o);
}

static void every_type_is_read(void) {
    static const rp_dtype dtypes[] = {RP_F32, RP_F16, RP_BF16, RP_F64};
    for (int i = 0; i < 4; i++) {
        const char *folder = folder_of(rp_dtype_name(dtypes[i]));
        write_text(folder, "config.json", config);
        write_file(folder, (file_plan){single, prefix, 0, TENSORS, dtypes[i], NULL});
        check_loaded(folder);
    }
}

/* Files of the bare model, and of an old writer who kept masks. */
static void other_names_are_read(void) {
    const char *folder = folder_of("bare");
    write_text(folder, "config.json", config);
    write_file(folder, (file_plan){single, "", 0, TENSORS, RP_F32, "h.0.attn.bias"});
    check_loaded(folder);
}

static void what_is_missing_or_left_over_is_told(void) {
    opened o = {0};
    const char *folder = folder_of("partial");
    write_text(folder, "config.json", config);
    write_file(folder, (file_plan){single, prefix, 0, TENSORS, RP_F32, "score.weight"});
    CHECK_OK(load(folder, &o));
    CHECK_MSG(strstr(o.note, "of no use to model gpt2 are 1 in "), "%s", o.note);
    CHECK_MSG(strstr(o.note, "/partial: score.weight"), "%s", o.note);
    close_opened(&o);
    write_file(folder, (file_plan){single, prefix, 1, 15, RP_F32, NULL}); /* no head of any */
    check_refused(folder, RP_CORRUPT, "2 of 16 tensors are missing in ");
    check_refused(folder, RP_CORRUPT,
                  "/partial: transformer.wte.weight, transformer.ln_f.bias");
    write_file(folder, (file_plan){single, "bert.", 0, TENSORS, RP_F32, NULL});
    check_refused(folder, RP_CORRUPT,
                  "holds no tensor of model gpt2, such as transformer.wte.weight; there is "
                  "bert.h.0.attn.c_attn.bias");
}

/* ---- shards ---- */

static const char index_name[] = "model.safetensors.index.json";

/* `named`: the file that holds the second half, by the index. */
static void write_index(const char *folder, const char *named) {
    char text[4096] = "{\"metadata\":{\"total_size\":1},\"weight_map\":{";
    for (int t = 0; t < TENSORS; t++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s\"transformer.%s\":\"%s\"", t ? "," : "",
                 contents[t].name, t < 8 ? "a.safetensors" : named);
    }
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "}}");
    write_text(folder, index_name, text);
}

static void shards_are_read_by_their_index(void) {
    const char *folder = folder_of("shards");
    write_text(folder, "config.json", config);
    check_refused(folder, RP_NOT_FOUND, "has neither model.safetensors nor");
    write_text(folder, "q4.gguf", "");
    check_refused(folder, RP_NOT_FOUND, "save its q4.gguf once more");
    write_text(folder, "pytorch_model.bin", "");
    check_refused(folder, RP_NOT_FOUND, "save its pytorch_model.bin once more");
    write_index(folder, "b.safetensors");
    write_file(folder, (file_plan){"a.safetensors", prefix, 0, 8, RP_F32, NULL});
    check_refused(folder, RP_NOT_FOUND,
                  "b.safetensors is missing, which "); /* before anything is read */
    write_file(folder, (file_plan){"b.safetensors", prefix, 9, TENSORS, RP_F32, NULL});
    check_refused(folder, RP_CORRUPT, "b.safetensors holds no transformer.h.0.ln_2.weight");
    write_file(folder, (file_plan){"b.safetensors", prefix, 8, TENSORS, RP_BF16, NULL});
    check_loaded(folder);
    write_index(folder, "../b.safetensors");
    check_refused(folder, RP_CORRUPT, "no file beside it is named for transformer.h.0.ln_2");
    write_index(folder, "");
    check_refused(folder, RP_CORRUPT, "no file beside it is named for transformer.h.0.ln_2");
    char long_name[300] = "";
    memset(long_name, 'x', 256);
    write_index(folder, long_name);
    check_refused(folder, RP_CORRUPT, "no file beside it is named for transformer.h.0.ln_2");
    long_name[255] = '\0';
    write_index(folder, long_name); /* no file system has longer ones */
    check_refused(folder, RP_NOT_FOUND, "xxx is missing, which ");
    write_text(folder, index_name, "{\"weight_map\":{\"a\":1}}");
    check_refused(folder, RP_CORRUPT, "no file beside it is named for a");
    write_text(folder, index_name, "{\"weight_map\":[]}");
    check_refused(folder, RP_CORRUPT, "'weight_map' is missing");
    write_text(folder, index_name, "{\"weight_map\":{}}");
    check_refused(folder, RP_CORRUPT, "'weight_map' is missing or names nothing");
    write_text(folder, index_name, "{");
    check_refused(folder, RP_CORRUPT, "index.json is no JSON");
}

/* The second file has one of the first's, which the index does not ask it for. */
static void one_tensor_of_two_files_is_told(void) {
    const char *folder = folder_of("twice");
    write_text(folder, "config.json", config);
    write_index(folder, "b.safetensors");
    write_file(folder, (file_plan){"a.safetensors", prefix, 0, 8, RP_F32, NULL});
    write_file(folder, (file_plan){"b.safetensors", prefix, 7, TENSORS, RP_F32, NULL});
    check_refused(folder, RP_CORRUPT, "safetensors are the same tensor");
    CHECK(strstr(rp_last_error()->message, " of a.safetensors") &&
          strstr(rp_last_error()->message, " of b.safetensors"));
}

static void paths_that_are_too_long_are_told(void) {
    static char path[RPI_PATH_BYTES + 1];
    memset(path, 'x', sizeof path - 1);
    CHECK_FAILS(rpi_hf_check(path), INVALID, "a path longer than ");
    path[RPI_PATH_BYTES] = '\0';
    path[RPI_PATH_BYTES - 1] = '\0'; /* the longest */
    CHECK(rpi_hf_check(path) != RP_OK && !strstr(rp_last_error()->message, "a path longer"));
}

/* Six are named, and more are more. */
static void many_names_are_cut(void) {
    const char *folder = folder_of("many");
    write_text(folder, "config.json", config);
    write_file(folder, (file_plan){single, prefix, 6, TENSORS, RP_F32, NULL});
    check_refused(folder, RP_CORRUPT, "6 of 16 tensors are missing in ");
    CHECK_MSG(!strstr(rp_last_error()->message, "..."), "%s", rp_last_error()->message);
    write_file(folder, (file_plan){single, prefix, 8, TENSORS, RP_F32, NULL});
    check_refused(folder, RP_CORRUPT, "8 of 16 tensors are missing in ");
    const char *dots = strstr(rp_last_error()->message, ", ...");
    CHECK_MSG(dots && !dots[5], "%s", rp_last_error()->message);
}

/* ---- what is wrong ---- */

static void a_bad_config_is_told(void) {
    static const char sizes[] = "\"n_layer\":1,\"n_embd\":4,\"n_head\":2,\"vocab_size\":8,";
    static const struct {
        const char *begin, *end, *part; /* of the message; of a good one what follows sizes */
        rp_status status;
    } rows[] = {
        {"{", "", "config.json is no JSON", RP_CORRUPT},
        {"[", "1]", "config.json is no JSON", RP_CORRUPT},
        {"{", "\"n_positions\":6}", "config.json: 'model_type' is missing", RP_CORRUPT},
        {"{\"model_type\":\"mamba\",", "\"n_positions\":6}",
         "config.json: model_type 'mamba' is not known; there are: gpt2", RP_INVALID},
        {"{\"model_type\":\"gpt2\",", "\"x\":6}", "config.json: 'n_positions' is missing",
         RP_CORRUPT},
        {"{\"model_type\":\"gpt2\",", "\"n_positions\":\"6\"}",
         "config.json: 'n_positions' is no whole number above 0", RP_CORRUPT},
        {"{\"model_type\":\"gpt2\",", "\"n_positions\":1.5}", "is no whole number", RP_CORRUPT},
        {"{\"model_type\":\"gpt2\",", "\"n_positions\":9e8}",
         "'n_positions' is 900000000, which is too large: ", RP_INVALID},
        {"{\"model_type\":\"gpt2\",", "\"n_positions\":2147483647}",
         "'n_positions' is 2147483647, which is too large: ", RP_INVALID},
        {"{\"model_type\":\"gpt2\",", "\"n_positions\":1e400}",
         "which is too large: ", RP_INVALID},
        {"{\"model_type\":\"gpt2\",\"layer_norm_epsilon\":1e400,", "\"n_positions\":6}",
         "'layer_norm_epsilon' is inf, which is too large", RP_INVALID},
        {"{\"model_type\":\"gpt2\",\"activation_function\":\"gelu_fast\",",
         "\"n_positions\":6}",
         "'activation_function' is \"gelu_fast\"; there are gelu, gelu_new,", RP_INVALID},
        {"{\"model_type\":\"gpt2\",\"activation_function\":3,", "\"n_positions\":6}",
         "'activation_function' is 3; there are gelu, gelu_new,", RP_INVALID},
        {"{\"model_type\":\"gpt2\",\"activation_function\":\"gelu\",", "\"n_positions\":6}",
         WITH ",activation=gelu", RP_OK},
        {"{\"model_type\":\"gpt2\",\"activation_function\":\"swish\",", "\"n_positions\":6}",
         WITH ",activation=silu", RP_OK},
        {"{\"model_type\":\"gpt2\",\"activation_function\":\"gelu_pytorch_tanh\",",
         "\"n_positions\":6}", WITH, RP_OK},
        {"{\"model_type\":\"gpt2\",\"n_inner\":8,\"layer_norm_epsilon\":1e-6,",
         "\"n_positions\":6}", WITH ",intermediate=8,norm-epsilon=1e-06", RP_OK},
        {"{\"model_type\":\"gpt2\",\"n_inner\":0,", "\"n_positions\":6}",
         "'n_inner' is no whole number above 0", RP_CORRUPT},
        {"{\"model_type\":\"gpt2\",\"n_inner\":null,", "\"n_positions\":6}", WITH, RP_OK},
        {"{\"model_type\":\"gpt2\",\"tie_word_embeddings\":false,", "\"n_positions\":6}",
         "'tie_word_embeddings' is false; model gpt2 has only true", RP_INVALID},
        {"{\"model_type\":\"gpt2\",\"n_inner\":16,", "\"n_positions\":6}", WITH, RP_OK},
        {"{\"model_type\":\"gpt2\",\"layer_norm_epsilon\":0.00001,", "\"n_positions\":6}", WITH,
         RP_OK},
        {"{\"model_type\":\"gpt2\",\"resid_pdrop\":0.2,\"attn_pdrop\":0.0,",
         "\"n_positions\":6}", ",dropout=0.2", RP_OK},
        {"{\"model_type\":\"gpt2\",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":"
         "4},",
         "\"n_positions\":6}", "config.json: the weights are quantized (gptq)", RP_INVALID},
        {"{\"model_type\":\"gpt2\",\"quantization_config\":null,", "\"n_positions\":6}", WITH,
         RP_OK},
        {"{\"model_type\":\"gpt2\",\"attn_pdrop\":1.0,", "\"n_positions\":6}",
         "attention-dropout", RP_INVALID},
        /* GPT-2's other spelling, which counts before the first. */
        {"{\"model_type\":\"gpt2\",", "\"max_position_embeddings\":6}", WITH, RP_OK},
        {"{\"model_type\":\"gpt2\",\"hidden_size\":null,\"num_hidden_layers\":1,",
         "\"max_position_embeddings\":6,\"n_positions\":7}", WITH, RP_OK},
        {"{\"model_type\":\"gpt2\",\"hidden_size\":\"wide\",", "\"n_positions\":6}",
         "'hidden_size' is no whole number above 0", RP_CORRUPT},
        {"{\"model_type\":\"gpt2\",\"n_positions\":5,", "\"n_positions\":6}", WITH, RP_OK},
    };
    const char *folder = folder_of("config");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[600], found[RPI_MODEL_TEXT], wanted[RPI_MODEL_TEXT];
        const rpi_hf_family *family = NULL;
        snprintf(text, sizeof text, "%s%s%s", rows[i].begin, sizes, rows[i].end);
        snprintf(wanted, sizeof wanted, "%s%s", SIZES, rows[i].part ? rows[i].part : "");
        write_text(folder, "config.json", text);
        rp_status status = rpi_hf_config_read(folder, found, &family);
        CHECK_MSG(status == rows[i].status, "row %zu: %s", i, rp_status_name(status));
        if (status == RP_OK)
            CHECK_MSG(strcmp(found, wanted) == 0, "%s", found);
        else if (rows[i].part)
            CHECK_MSG(strstr(rp_last_error()->message, rows[i].part), "'%s' lacks '%s'",
                      rp_last_error()->message, rows[i].part);
    }
    CHECK_FAILS(rpi_hf_config_read("nowhere", (char[RPI_MODEL_TEXT]){0},
                                   &(const rpi_hf_family *){NULL}),
                NOT_FOUND, "nowhere/config.json is missing: a Hugging Face folder has");
}

/* What the config.json of LLaMA may say: of releases before transformers 5 and since, and what
 * our model is not. */
static void llama_configs_are_read(void) {
    static const char sizes[] =
        "\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":48,"
        "\"num_attention_heads\":6,\"vocab_size\":100,\"max_position_embeddings\":64";
    static const char plain[] = "llama:layers=2,hidden=48,heads=6,";
#define YARN ",\"intermediate_size\":128,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4"
#define BASE "intermediate=128,vocabulary=100,positions=64,norm-epsilon=1e-06,"
    static const struct {
        const char *more, *wanted; /* wanted: behind `plain`; or a part of the message */
        rp_status status;
    } rows[] = {
        {",\"intermediate_size\":128",
         "intermediate=128,vocabulary=100,positions=64,norm-epsilon=1e-06", RP_OK},
        {",\"intermediate_size\":128,\"num_key_value_heads\":3,\"head_dim\":8,"
         "\"rope_theta\":500000.0,\"rms_norm_eps\":1e-05,\"tie_word_embeddings\":true,"
         "\"hidden_act\":\"silu\",\"rope_scaling\":null,\"attention_bias\":false,"
         "\"torch_dtype\":\"bfloat16\"",
         "kv-heads=3,intermediate=128,vocabulary=100,positions=64,rope-base=500000,"
         "tied=on",
         RP_OK},
        {",\"intermediate_size\":128,\"attention_dropout\":0.1",
         "intermediate=128,vocabulary=100,positions=64,norm-epsilon=1e-06,"
         "attention-dropout=0.1",
         RP_OK},
        {",\"intermediate_size\":128,\"head_dim\":null,\"num_key_value_heads\":null,"
         "\"rope_parameters\":{\"rope_theta\":100000,\"rope_type\":\"default\"}",
         "intermediate=128,vocabulary=100,positions=64,rope-base=100000,norm-epsilon=1e-06",
         RP_OK},
        {"", "'intermediate_size' is missing", RP_CORRUPT},
        {",\"intermediate_size\":128,\"head_dim\":7",
         "7 a head; rotary positions need an even number", RP_INVALID},
        {",\"intermediate_size\":128,\"num_key_value_heads\":4",
         "kv-heads=4 is no divisor of heads=6", RP_INVALID},
        {",\"intermediate_size\":128,\"hidden_act\":\"gelu\"",
         "'hidden_act' is \"gelu\"; model llama has only \"silu\"", RP_INVALID},
        {",\"intermediate_size\":128,\"attention_bias\":true,\"mlp_bias\":true",
         BASE "attention-bias=on,mlp-bias=on", RP_OK},
        /* LLaMA-3.1's, as releases before transformers 5 have it, and since. */
        {",\"intermediate_size\":128,\"rope_theta\":500,\"rope_scaling\":{\"factor\":8.0,"
         "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
         "\"original_max_position_embeddings\":32,\"rope_type\":\"llama3\"}",
         "intermediate=128,vocabulary=100,positions=64,rope-base=500,norm-epsilon=1e-06,"
         "rope-factor=8,rope-original=32,rope-low=1,rope-high=4",
         RP_OK},
        {",\"intermediate_size\":128,\"rope_theta\":5,\"rope_parameters\":{\"factor\":8.0,"
         "\"low_freq_factor\":2.0,\"high_freq_factor\":3.0,\"rope_theta\":500,"
         "\"rope_type\":\"llama3\"}",
         "intermediate=128,vocabulary=100,positions=64,rope-base=500,norm-epsilon=1e-06,"
         "rope-factor=8,rope-original=64,rope-low=2,rope-high=3",
         RP_OK},
        {",\"intermediate_size\":128,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}",
         BASE "rope-factor=2", RP_OK},
        {",\"intermediate_size\":128,\"rope_scaling\":{\"rope_type\":\"default\"}",
         "intermediate=128,vocabulary=100,positions=64,norm-epsilon=1e-06", RP_OK},
        {",\"intermediate_size\":128,\"rope_scaling\":{\"rope_type\":\"llama3\"}",
         "'rope_scaling.factor' is missing", RP_CORRUPT},
        {",\"intermediate_size\":128,\"rope_scaling\":{\"rope_type\":\"llama3\","
         "\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4}",
         "rope-high=4 is not above rope-low=4", RP_INVALID},
        {",\"intermediate_size\":128,\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}",
         "rope-factor", RP_INVALID},
        {",\"intermediate_size\":128,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}",
         "intermediate=128,vocabulary=100,positions=64,norm-epsilon=1e-06", RP_OK},
        {",\"intermediate_size\":128,\"rope_scaling\":{\"type\":\"dynamic\"}",
         "'rope_scaling.factor' is missing", RP_CORRUPT},
        {",\"intermediate_size\":128,\"rope_scaling\":2", "'rope_scaling' is 2; model llama",
         RP_INVALID},
        {",\"intermediate_size\":128,\"rope_parameters\":{\"full_attention\":{\"rope_theta\":5}"
         "}",
         "'rope_parameters' is {\"full_attention\":{\"rope_theta\":5}}; model llama knows",
         RP_INVALID},
        {",\"intermediate_size\":128,\"rope_parameters\":{\"rope_type\":\"longrope\"}",
         "'rope_parameters' is {\"rope_type\":\"longrope\"}; model llama knows rope_type",
         RP_INVALID},
        /* An object rope_scaling is all that counts, and its base before that outside. */
        {",\"intermediate_size\":128,\"rope_theta\":5,\"rope_parameters\":{\"rope_theta\":6},"
         "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2,\"rope_theta\":700}",
         "intermediate=128,vocabulary=100,positions=64,rope-base=700,norm-epsilon=1e-06,"
         "rope-factor=2",
         RP_OK},
        {",\"intermediate_size\":128,\"rope_theta\":5,\"rope_parameters\":{\"rope_theta\":6},"
         "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2}",
         "intermediate=128,vocabulary=100,positions=64,rope-base=5,norm-epsilon=1e-06,"
         "rope-factor=2",
         RP_OK},
        {",\"intermediate_size\":128,\"original_max_position_embeddings\":24,"
         "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
         "\"high_freq_factor\":4,\"original_max_position_embeddings\":32}",
         BASE "rope-factor=8,rope-original=24,rope-low=1,rope-high=4", RP_OK},
        /* YaRN, as Qwen's cards say it, and with all that transformers reads. */
        {YARN "}", BASE "rope-factor=4,rope-original=64,rope-yarn=on", RP_OK},
        {YARN ",\"original_max_position_embeddings\":32}",
         BASE "rope-factor=4,rope-original=32,rope-yarn=on", RP_OK},
        {YARN ",\"beta_fast\":16,\"beta_slow\":2,\"truncate\":false,\"attention_factor\":1.25,"
              "\"mscale\":1,\"mscale_all_dim\":1}",
         BASE "rope-factor=4,rope-original=64,rope-yarn=on,rope-low=2,rope-high=16,"
              "rope-truncate=off,rope-attention=1.25",
         RP_OK},
        {YARN ",\"mscale\":0.5,\"mscale_all_dim\":0.5,\"beta_fast\":null,\"truncate\":null}",
         BASE "rope-factor=4,rope-original=64,rope-yarn=on,rope-truncate=off,"
              "rope-attention=1",
         RP_OK},
        {YARN ",\"mscale\":0.5,\"mscale_all_dim\":0,\"beta_slow\":0,\"truncate\":true}",
         BASE "rope-factor=4,rope-original=64,rope-yarn=on", RP_OK},
        {",\"intermediate_size\":128,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":null,"
         "\"original_max_position_embeddings\":16}",
         BASE "rope-factor=4,rope-original=16,rope-yarn=on", RP_OK},
        {",\"intermediate_size\":128,\"rope_scaling\":{\"rope_type\":\"yarn\"}",
         "'rope_scaling.factor' is missing", RP_CORRUPT},
        {YARN ",\"attention_factor\":0}", "'rope_scaling.attention_factor' is 0; above 0",
         RP_CORRUPT},
        {YARN ",\"truncate\":1}", "'rope_scaling.truncate' is no true or false", RP_CORRUPT},
        {YARN ",\"beta_fast\":\"32\"}", "'rope_scaling.beta_fast' is no number", RP_CORRUPT},
        {YARN ",\"original_max_position_embeddings\":4e9}",
         "'rope_scaling.original_max_position_embeddings' is 4000000000, which is too large",
         RP_INVALID},
        {YARN ",\"beta_fast\":1}", "rope-high=1 is not above rope-low=1", RP_INVALID},
        {YARN ",\"original_max_position_embeddings\":0.5}",
         "'rope_scaling.original_max_position_embeddings' is no whole number", RP_CORRUPT},
        {",\"intermediate_size\":128,\"partial_rotary_factor\":0.5",
         "'partial_rotary_factor' is 0.5; model llama has only 1", RP_INVALID},
        {",\"intermediate_size\":128,\"rope_theta\":\"high\"", "'rope_theta' is no number",
         RP_CORRUPT},
        {",\"intermediate_size\":128,\"rope_theta\":0.5", "rope-base", RP_INVALID},
        {",\"intermediate_size\":128,\"tie_word_embeddings\":1",
         "'tie_word_embeddings' is no true or false", RP_CORRUPT},
    };
    const char *folder = folder_of("llama-config");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1200], found[RPI_MODEL_TEXT], wanted[RPI_MODEL_TEXT];
        const rpi_hf_family *family = NULL;
        rpi_network network = {0};
        snprintf(text, sizeof text, "{%s%s}", sizes, rows[i].more);
        write_text(folder, "config.json", text);
        rp_status status = rpi_hf_config_read(folder, found, &family);
        if (status == RP_OK)
            status = rpi_network_build(found, &(rpi_data_shape){.sequence = 4}, &network);
        rpi_network_close(&network);
        CHECK_MSG(status == rows[i].status, "row %zu: %s", i, rp_status_name(status));
        snprintf(wanted, sizeof wanted, "%s%s", plain, rows[i].wanted);
        if (status == RP_OK)
            CHECK_MSG(strcmp(found, wanted) == 0, "row %zu: %s", i, found);
        else
            CHECK_MSG(strstr(rp_last_error()->message, rows[i].wanted), "'%s' lacks '%s'",
                      rp_last_error()->message, rows[i].wanted);
    }
}

/* Its relatives: what they mean that do not say how many keys and values there are. */
static void relatives_of_llama_are_read(void) {
#define WINDOWS "\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":7"
    static const char sizes[] = "\"num_hidden_layers\":2,\"hidden_size\":64,"
                                "\"num_attention_heads\":32,\"intermediate_size\":8,"
                                "\"vocab_size\":9,\"max_position_embeddings\":4";
    static const char begin[] = "llama:layers=2,hidden=64,heads=32",
                      end[] = ",intermediate=8,vocabulary=9,positions=4,norm-epsilon=1e-06";
    static const struct {
        const char *more, *middle, *last; /* or NULL, and a part of the message */
    } rows[] = {
        {"\"model_type\":\"mistral\"", ",kv-heads=8", ",window=4096"},
        {"\"model_type\":\"mistral\",\"sliding_window\":null", ",kv-heads=8", ""},
        {"\"model_type\":\"mistral\",\"num_key_value_heads\":null,\"sliding_window\":4096", "",
         ",window=4096"},
        {"\"model_type\":\"qwen2\",\"num_key_value_heads\":4,\"use_sliding_window\":false,"
         "\"sliding_window\":4096,\"max_window_layers\":28",
         ",kv-heads=4", ",qkv-bias=on"},
        {"\"model_type\":\"qwen2\"", "", ",qkv-bias=on"},
        {"\"model_type\":\"qwen3\"", ",head=128", ",qk-norm=on"},
        {"\"model_type\":\"qwen3\",\"head_dim\":6,\"attention_bias\":true", ",head=6",
         ",attention-bias=on,qk-norm=on"},
        {"\"model_type\":\"qwen4\"", NULL, "model_type 'qwen4' is not known; there are: gpt2"},
        /* Two layers, each with a window or without. */
        {WINDOWS, "", ",qkv-bias=on"}, /* max_window_layers is 28 */
        {WINDOWS ",\"max_window_layers\":2", "", ",qkv-bias=on"},
        {WINDOWS ",\"max_window_layers\":0", "", ",qkv-bias=on,window=7"},
        {WINDOWS ",\"max_window_layers\":4e9", NULL,
         "'max_window_layers' is 4000000000, which"},
        {WINDOWS ",\"max_window_layers\":1", NULL, "'max_window_layers' is 1; model llama has"},
        {WINDOWS ",\"layer_types\":[\"full_attention\",\"full_attention\"]", "",
         ",qkv-bias=on"},
        {WINDOWS ",\"layer_types\":[\"sliding_attention\",\"sliding_attention\"]", "",
         ",qkv-bias=on,window=7"},
        {WINDOWS ",\"layer_types\":[\"sliding_attention\",\"full_attention\"]", NULL,
         "'layer_types' is [\"sliding_attention\",\"full_attention\"]; model llama has windows "
         "in all layers or in none"},
        {WINDOWS ",\"layer_types\":[\"sliding_attention\"]", NULL, "'layer_types' is ["},
        {WINDOWS ",\"layer_types\":[\"chunked\",\"chunked\"]", NULL, "'layer_types' is ["},
        {WINDOWS ",\"layer_types\":2", NULL, "'layer_types' is 2"},
        {"\"model_type\":\"qwen2\",\"layer_types\":[\"sliding_attention\","
         "\"sliding_attention\"]",
         NULL, "'layer_types' is ["}, /* of how many tokens? */
        {"\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":null", "",
         ",qkv-bias=on"},
    };
#undef WINDOWS
    const char *folder = folder_of("relatives");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[800], found[RPI_MODEL_TEXT], wanted[RPI_MODEL_TEXT];
        const rpi_hf_family *family = NULL;
        snprintf(text, sizeof text, "{%s,%s}", sizes, rows[i].more);
        write_text(folder, "config.json", text);
        if (!rows[i].middle) {
            CHECK_FAILS(rpi_hf_config_read(folder, found, &family), INVALID, rows[i].last);
            continue;
        }
        CHECK_OK(rpi_hf_config_read(folder, found, &family));
        snprintf(wanted, sizeof wanted, "%s%s%s%s", begin, rows[i].middle, end, rows[i].last);
        CHECK_MSG(strcmp(found, wanted) == 0, "row %zu: %s, not %s", i, found, wanted);
    }
}

/* One tensor in a file of its own. */
static void write_one(const char *folder, rp_dtype dtype, rpi_shape shape, const void *data) {
    char path[900];
    snprintf(path, sizeof path, "%s/%s", folder, single);
    rpi_named_tensor tensor = {"transformer.h.0.mlp.c_fc.weight", dtype, shape, data};
    CHECK_OK(rpi_safetensors_write(path, &tensor, 1, NULL, 0));
}

static void a_bad_tensor_is_told(void) {
    static float values[MOST];
    const char *folder = folder_of("tensors");
    write_text(folder, "config.json", config);
    write_one(folder, RP_F32, (rpi_shape){2, {4 * HIDDEN, HIDDEN}}, values); /* ours */
    check_refused(folder, RP_MISMATCH,
                  "model.safetensors: transformer.h.0.mlp.c_fc.weight is ");
    write_one(folder, RP_I32, (rpi_shape){2, {HIDDEN, 4 * HIDDEN}}, values);
    check_refused(folder, RP_MISMATCH, "c_fc.weight is i32; f32, bf16, f16 and f64 can be");
    values[5] = NAN;
    write_one(folder, RP_F32, (rpi_shape){2, {HIDDEN, 4 * HIDDEN}}, values);
    check_refused(folder, RP_CORRUPT, "element 5 of transformer.h.0.mlp.c_fc.weight is NaN");
    values[4] = -INFINITY;
    write_one(folder, RP_F32, (rpi_shape){2, {HIDDEN, 4 * HIDDEN}}, values);
    check_refused(folder, RP_CORRUPT, "element 4 of transformer.h.0.mlp.c_fc.weight is inf");
    write_text(folder, single, "short");
    check_refused(folder, RP_CORRUPT, "model.safetensors is no safetensors file");
}

CASES({"every type is read", every_type_is_read},
      {"other names are read", other_names_are_read},
      {"what is missing or left over is told", what_is_missing_or_left_over_is_told},
      {"shards are read by their index", shards_are_read_by_their_index},
      {"one tensor of two files is told", one_tensor_of_two_files_is_told},
      {"paths that are too long are told", paths_that_are_too_long_are_told},
      {"many names are cut", many_names_are_cut},
      {"a bad config is told", a_bad_config_is_told},
      {"LLaMA's configs are read", llama_configs_are_read},
      {"relatives of LLaMA are read", relatives_of_llama_are_read},
      {"a bad tensor is told", a_bad_tensor_is_told})
