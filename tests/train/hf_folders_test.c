/* What stands in Hugging Face folders that people have, family by family: matrices under two
 * names, names behind a wrapper's, heads that are not there. A row says what is done to a
 * whole folder, and what then is read or said. */
#include "train/huggingface/hf_config.h"
#include "train/huggingface/hf_weights.h"

#include "harness/check.h"
#include "train/checkpoint/safetensors.h"

#include <stdlib.h>
#include <sys/stat.h>

enum { TENSORS = 64, MOST = 1 << 12, EDITS = 3 };

/* What is done to the tensors of the folder. */
typedef enum deed { NOTHING, RENAME, DROP, COPY, CHANGED_COPY, WRAP, STRIP } deed;
typedef struct edit {
    deed how;
    const char *name, *to; /* WRAP: what stands before every name; STRIP: what does not */
} edit;

typedef struct row {
    const char *what, *family, *more; /* more: members of config.json */
    edit edits[EDITS];
    rp_status status;
    const char *part; /* of the message, or of the note; "": there is none */
    bool evaluates;   /* all must be there, as in `redpoll eval` */
} row;

#define TRANSFORMERS "{\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
#define MORE         "\"vocab_size\":12,\"max_position_embeddings\":6,\"intermediate_size\":16"
static const struct {
    const char *name, *config;
} families[] = {
    {"gpt2", TRANSFORMERS "\"model_type\":\"gpt2\",\"vocab_size\":12,\"n_positions\":6"},
    {"llama", TRANSFORMERS "\"model_type\":\"llama\",\"tie_word_embeddings\":true," MORE},
    {"untied", TRANSFORMERS "\"model_type\":\"llama\",\"tie_word_embeddings\":false," MORE},
    {"qwen2", TRANSFORMERS "\"model_type\":\"qwen2\",\"tie_word_embeddings\":true,"
                           "\"num_key_value_heads\":2," MORE},
    {"bert", TRANSFORMERS "\"model_type\":\"bert\"," MORE},
    {"megatron", TRANSFORMERS "\"model_type\":\"megatron-bert\"," MORE},
};

#define GPT2_TABLE  "transformer.wte.weight"
#define LLAMA_TABLE "model.embed_tokens.weight"
#define BERT_TABLE  "bert.embeddings.word_embeddings.weight"
#define HEAD        "lm_head.weight"
#define DECODER     "cls.predictions.decoder."
#define LORA        "transformer.h.0.attn.c_attn.lora_A.default.weight"

static const row rows[] = {
    {"as it is", "gpt2", "", {{0}}, RP_OK, "", true},
    {"as it is", "llama", "", {{0}}, RP_OK, "", true},
    {"as it is", "bert", "", {{0}}, RP_OK, "", true},
    /* One matrix of two names. */
    {"both, alike", "gpt2", "", {{COPY, GPT2_TABLE, HEAD}}, RP_OK, "", true},
    {"both, alike", "llama", "", {{COPY, LLAMA_TABLE, HEAD}}, RP_OK, "", true},
    {"both, alike",
     "bert",
     "",
     {{COPY, BERT_TABLE, DECODER "weight"}, {COPY, "cls.predictions.bias", DECODER "bias"}},
     RP_OK,
     "",
     true},
    {"the second only", "gpt2", "", {{RENAME, GPT2_TABLE, HEAD}}, RP_OK, "", true},
    {"the second only", "llama", "", {{RENAME, LLAMA_TABLE, HEAD}}, RP_OK, "", true},
    {"the second only", "qwen2", "", {{RENAME, LLAMA_TABLE, HEAD}}, RP_OK, "", true},
    {"the second only",
     "bert",
     "",
     {{RENAME, BERT_TABLE, DECODER "weight"}, {RENAME, "cls.predictions.bias", DECODER "bias"}},
     RP_OK,
     "",
     true},
    {"the second only", "megatron", "", {{RENAME, BERT_TABLE, DECODER "weight"}}, RP_OK, "", 1},
    {"the second only, in training", "llama", "", {{RENAME, LLAMA_TABLE, HEAD}}, RP_OK, "", 0},
    {"two that differ",
     "gpt2",
     "",
     {{CHANGED_COPY, GPT2_TABLE, HEAD}},
     RP_INVALID,
     "lm_head.weight and transformer.wte.weight differ; model gpt2 has one for both",
     false},
    {"two that differ",
     "bert",
     "",
     {{CHANGED_COPY, BERT_TABLE, DECODER "weight"}},
     RP_INVALID,
     "cls.predictions.decoder.weight and bert.embeddings.word_embeddings.weight differ",
     false},
    {"two that differ",
     "bert",
     "",
     {{CHANGED_COPY, "cls.predictions.bias", DECODER "bias"}},
     RP_INVALID,
     "cls.predictions.decoder.bias and cls.predictions.bias differ",
     false},
    {"two that differ",
     "llama",
     "",
     {{CHANGED_COPY, LLAMA_TABLE, HEAD}},
     RP_OK,
     "lm_head.weight and model.embed_tokens.weight differ in ",
     true},
    {"two that differ",
     "qwen2",
     "",
     {{CHANGED_COPY, LLAMA_TABLE, HEAD}, {WRAP, "module.", NULL}},
     RP_OK,
     "whatever tie_word_embeddings says: they stay two",
     true},
    {"neither", "gpt2", "", {{DROP, GPT2_TABLE, NULL}}, RP_CORRUPT, "missing", false},
    {"neither",
     "llama",
     "",
     {{DROP, LLAMA_TABLE, NULL}},
     RP_CORRUPT,
     "1 of 11 tensors are missing in ",
     false},
    {"no head, and none is tied",
     "untied",
     "",
     {{DROP, HEAD, NULL}},
     RP_CORRUPT,
     ": lm_head.weight",
     false},
    {"the head is no table",
     "untied",
     "",
     {{DROP, LLAMA_TABLE, NULL}},
     RP_CORRUPT,
     ": model.embed_tokens.weight",
     false},
    /* What a family's files may lack. */
    {"the bare model",
     "untied",
     "",
     {{DROP, HEAD, NULL}, {STRIP, "model.", NULL}},
     RP_OK,
     "1 of 12 tensors are missing in ",
     false},
    {"the bare model is no whole one",
     "untied",
     "",
     {{DROP, HEAD, NULL}, {STRIP, "model.", NULL}},
     RP_CORRUPT,
     ": lm_head.weight",
     true},
    {"the bare model", "gpt2", "", {{STRIP, "transformer.", NULL}}, RP_OK, "", true},
    {"no pooler and no order",
     "bert",
     "",
     {{DROP, "bert.pooler.", NULL}, {DROP, "cls.seq_relationship.", NULL}},
     RP_OK,
     "start anew: bert.pooler.dense.weight, bert.pooler.dense.bias, cls.seq_relationship.",
     false},
    {"half a head",
     "bert",
     "",
     {{DROP, "cls.predictions.transform.dense.bias", NULL}},
     RP_CORRUPT,
     "missing in ",
     false},
    {"no layer",
     "bert",
     "",
     {{DROP, "bert.encoder.layer.0.output.dense.bias", NULL}},
     RP_CORRUPT,
     "missing in ",
     false},
    /* Wrappers. */
    {"DistributedDataParallel", "gpt2", "", {{WRAP, "module.", NULL}}, RP_OK, "'module.', ", 1},
    {"torch.compile", "llama", "", {{WRAP, "_orig_mod.", NULL}}, RP_OK, "'_orig_mod.', ", true},
    {"PEFT", "bert", "", {{WRAP, "base_model.model.", NULL}}, RP_OK, "'base_model.model.'", 1},
    {"both",
     "llama",
     "",
     {{WRAP, "module._orig_mod.", NULL}},
     RP_OK,
     " begin with 'module._orig_mod.', which is passed over",
     true},
    {"and the second name only",
     "llama",
     "",
     {{RENAME, LLAMA_TABLE, HEAD}, {WRAP, "module.", NULL}},
     RP_OK,
     "'module.'",
     true},
    {"a block of its own",
     "untied",
     "",
     {{RENAME, "model.norm.weight", "model._orig_mod.norm.weight"}},
     RP_OK,
     "",
     true},
    {"one tensor twice",
     "gpt2",
     "",
     {{COPY, "transformer.ln_f.bias", "module.transformer.ln_f.bias"}},
     RP_CORRUPT,
     "transformer.ln_f.bias of model.safetensors are the same tensor",
     false},
    {"a wrapper that nobody knows",
     "gpt2",
     "",
     {{WRAP, "net.", NULL}},
     RP_CORRUPT,
     "no tensor of model gpt2, such as transformer.wte.weight; there is net.transformer.h.0.",
     false},
    {"an adapter that was not merged",
     "gpt2",
     "",
     {{COPY, "transformer.ln_f.bias", LORA}},
     RP_INVALID,
     "a LoRA adapter that was not merged into its model; PEFT's merge_and_unload()",
     false},
    {"its other half",
     "gpt2",
     "",
     {{COPY, "transformer.ln_f.bias", "transformer.h.0.attn.c_attn.lora_B.default.weight"}},
     RP_INVALID,
     "lora_B.default.weight: a LoRA adapter that was not merged",
     false},
    {"its embedding",
     "gpt2",
     "",
     {{COPY, "transformer.ln_f.bias", "transformer.wte.lora_embedding_A.default"}},
     RP_INVALID,
     "lora_embedding_A.default: a LoRA adapter that was not merged",
     false},
};

/* ---- a whole folder of a family ---- */

typedef struct whole {
    int count;
    char names[TENSORS][RPI_HF_NAME];
    rpi_named_tensor tensors[TENSORS];
    float values[TENSORS][MOST];
} whole;

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

static float element(int tensor, int64_t index) {
    return (float)(tensor * 101 + index % 97) / 16;
}

static void add(whole *w, const char *name, rpi_shape shape, int as, float change) {
    REQUIRE(w->count < TENSORS && rpi_shape_count(&shape) <= MOST);
    int at = w->count++;
    snprintf(w->names[at], sizeof w->names[at], "%s", name);
    for (int64_t i = 0; i < rpi_shape_count(&shape); i++)
        w->values[at][i] = element(as, i) + change;
    w->tensors[at] = (rpi_named_tensor){w->names[at], RP_F32, shape, w->values[at]};
}

static int find(const whole *w, const char *name) {
    for (int i = 0; i < w->count; i++)
        if (strcmp(w->names[i], name) == 0) return i;
    return -1;
}

static rp_status build(const char *folder, const rpi_hf_family **family, rpi_network *network) {
    char model[RPI_MODEL_TEXT];
    RP_TRY(rpi_hf_config_read(folder, model, family));
    return rpi_network_build(model, &(rpi_data_shape){.sequence = 4}, network);
}

/* Every tensor that the model has, under names and in shapes of theirs. */
static void make_whole(const char *folder, whole *w) {
    rpi_network network = {0};
    const rpi_hf_family *family = NULL;
    char theirs[RPI_HF_NAME];
    w->count = 0;
    REQUIRE_OK(build(folder, &family, &network));
    for (int i = 0; i < network.parameter_count; i++) {
        rpi_shape shape = network.parameters[i].shape;
        const rpi_hf_tensor *named =
            rpi_hf_tensor_find(family, network.parameters[i].name, NULL, theirs);
        REQUIRE(named && !named->parts);
        if (named->transposed) shape = (rpi_shape){2, {shape.size[1], shape.size[0]}};
        add(w, theirs, shape, i, 0);
    }
    rpi_network_close(&network);
}

/* ---- what a row does to it ---- */

static void drop(whole *w, const char *begin) {
    int kept = 0;
    for (int i = 0; i < w->count; i++) {
        if (strncmp(w->names[i], begin, strlen(begin)) == 0) continue;
        if (kept != i) {
            w->tensors[kept] = w->tensors[i];
            memmove(w->names[kept], w->names[i], sizeof w->names[0]);
            memmove(w->values[kept], w->values[i], sizeof w->values[0]);
            w->tensors[kept].name = w->names[kept];
            w->tensors[kept].data = w->values[kept];
        }
        kept++;
    }
    w->count = kept;
}

static void rename_all(whole *w, const edit *e) {
    for (int i = 0; i < w->count; i++) {
        char before[RPI_HF_NAME];
        size_t strip = strlen(e->name);
        snprintf(before, sizeof before, "%s", w->names[i]);
        if (e->how == WRAP)
            snprintf(w->names[i], sizeof w->names[i], "%s%.150s", e->name, before);
        else if (strncmp(before, e->name, strip) == 0)
            snprintf(w->names[i], sizeof w->names[i], "%s", before + strip);
    }
}

static void change(whole *w, const edit *e, const whole *base) {
    if (e->how == DROP) drop(w, e->name);
    if (e->how == WRAP || e->how == STRIP) rename_all(w, e);
    if (e->how != COPY && e->how != CHANGED_COPY && e->how != RENAME) return;
    int from = find(base, e->name), at = find(w, e->name);
    REQUIRE(from >= 0 && at >= 0);
    if (e->how == RENAME)
        snprintf(w->names[at], sizeof w->names[at], "%s", e->to);
    else
        add(w, e->to, base->tensors[from].shape, from, e->how == COPY ? 0 : 0.25f);
}

/* ---- what is read then ---- */

/* Theirs are 0 where the model started anew. */
static void check_parameter(const rpi_hf_family *family, const rpi_parameter *parameter,
                            const float *values, const whole *base, const row *r) {
    char theirs[RPI_HF_NAME];
    const rpi_hf_tensor *named = rpi_hf_tensor_find(family, parameter->name, NULL, theirs);
    int at = find(base, theirs);
    float more = at < 0 ? 0.25f : 0; /* a changed copy of the table */
    if (at < 0) at = find(base, LLAMA_TABLE);
    int64_t count = rpi_shape_count(&parameter->shape), wrong = 0;
    int64_t lines = parameter->shape.size[0], columns = count / lines;
    for (int64_t i = 0; i < count; i++) {
        int64_t from = named->transposed ? i % columns * lines + i / columns : i;
        wrong += values[i] != element(at, from) + more;
    }
    bool is_new = wrong == count && strstr(r->part, "start anew");
    CHECK_MSG(wrong == 0 || is_new || strstr(r->part, "1 of 12"), "%s of %s: %s has %lld wrong",
              r->what, r->family, theirs, (long long)wrong);
}

static void check_row(const row *r, const char *folder, const whole *base) {
    rpi_network network = {0};
    rpi_weights *weights = NULL;
    const rpi_hf_family *family = NULL;
    char note[4096] = "";
    REQUIRE_OK(build(folder, &family, &network));
    REQUIRE_OK(rpi_weights_create(network.graph, network.loss, &weights));
    rp_status status = rpi_hf_load(folder, &network, weights, !r->evaluates, note, sizeof note);
    const char *said = status == RP_OK ? note : rp_last_error()->message;
    CHECK_MSG(status == r->status, "%s of %s: %s", r->what, r->family, said);
    CHECK_MSG(*r->part ? strstr(said, r->part) != NULL : !*said, "%s of %s: '%s' lacks '%s'",
              r->what, r->family, said, r->part);
    for (int i = 0; status == RP_OK && i < network.parameter_count; i++)
        check_parameter(family, &network.parameters[i],
                        rpi_network_elements(&network, weights, i), base, r);
    rpi_weights_destroy(weights);
    rpi_network_close(&network);
}

static const char *config_of(const char *family) {
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i].name, family) == 0) return families[i].config;
    return "";
}

static void every_row_is_read_or_told(void) {
    static whole base, changed;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const row *r = &rows[i];
        char name[32], text[600], path[900];
        snprintf(name, sizeof name, "row-%zu", i);
        const char *folder = folder_of(name);
        snprintf(text, sizeof text, "%s%s}", config_of(r->family), r->more);
        write_text(folder, "config.json", text);
        make_whole(folder, &base);
        make_whole(folder, &changed);
        for (int e = 0; e < EDITS; e++) change(&changed, &r->edits[e], &base);
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        REQUIRE_OK(rpi_safetensors_write(path, changed.tensors, changed.count, NULL, 0));
        if (r->status == RP_INVALID && strstr(r->part, "LoRA"))
            CHECK_FAILS(rpi_hf_check(folder), INVALID, r->part);
        else
            check_row(r, folder, &base);
    }
}

/* ---- folders that hold something else ---- */

static void pointers_of_git_lfs_are_named(void) {
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n"
                                  "oid sha256:0123456789abcdef\nsize 548118077\n";
    static const char index[] =
        "{\"weight_map\":{\"transformer.wte.weight\":\"model-00001-of-00001.safetensors\"}}";
    char model[RPI_MODEL_TEXT], text[600];
    const rpi_hf_family *family = NULL;
    const char *folder = folder_of("lfs");
    write_text(folder, "config.json", pointer);
    CHECK_FAILS(rpi_hf_config_read(folder, model, &family), CORRUPT,
                "config.json is a pointer of Git LFS, not the file itself: fetch it with 'git "
                "lfs pull'");
    snprintf(text, sizeof text, "%s}", config_of("gpt2"));
    write_text(folder, "config.json", text);
    write_text(folder, "model.safetensors.index.json", pointer);
    CHECK_FAILS(rpi_hf_check(folder), CORRUPT, "index.json is a pointer of Git LFS");
    write_text(folder, "model.safetensors.index.json", index);
    write_text(folder, "model-00001-of-00001.safetensors", pointer);
    CHECK_FAILS(rpi_hf_check(folder), CORRUPT,
                "/model-00001-of-00001.safetensors is a pointer of Git LFS");
    write_text(folder, "model.safetensors", pointer);
    CHECK_FAILS(rpi_hf_check(folder), CORRUPT, "/model.safetensors is a pointer of Git LFS");
    write_text(folder, "generation_config.json", pointer);
    CHECK_FAILS(rpi_hf_config_ends(folder, &(rpi_hf_ends){0}), CORRUPT,
                "/generation_config.json is a pointer of Git LFS");
}

static void adapters_are_named(void) {
    char model[RPI_MODEL_TEXT];
    const rpi_hf_family *family = NULL;
    const char *folder = folder_of("adapter");
    write_text(folder, "adapter_config.json",
               "{\"base_model_name_or_path\":\"gpt2-medium\",\"peft_type\":\"LORA\"}");
    CHECK_FAILS(rpi_hf_config_read(folder, model, &family), INVALID,
                "adapter_config.json is there: the folder is an adapter (LoRA) of gpt2-medium, "
                "not a model");
    write_text(folder, "adapter_config.json", "{");
    CHECK_FAILS(rpi_hf_config_read(folder, model, &family), INVALID, "of another model");
    write_text(folder, "adapter_config.json", "{\"peft_type\":\"LORA\"}");
    CHECK_FAILS(rpi_hf_config_read(folder, model, &family), INVALID, "of another model");
    folder = folder_of("adapter-old");
    write_text(folder, "adapter_model.bin", "");
    CHECK_FAILS(rpi_hf_config_read(folder, model, &family), INVALID,
                "adapter_model.bin is there: the folder is an adapter (LoRA)");
    folder = folder_of("adapter-alone");
    write_text(folder, "adapter_model.safetensors", "");
    CHECK_FAILS(rpi_hf_config_read(folder, model, &family), INVALID,
                "adapter_model.safetensors is there: the folder is an adapter (LoRA)");
}

CASES({"every row is read or told", every_row_is_read_or_told},
      {"pointers of Git LFS are named", pointers_of_git_lfs_are_named},
      {"adapters are named", adapters_are_named})
