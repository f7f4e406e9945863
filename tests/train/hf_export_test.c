/* A run as a Hugging Face folder: names, transposes, and nothing half-written. */
#include "train/huggingface/hf_export.h"

#include "harness/check.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "train/checkpoint/safetensors.h"
#include "train/data/token_writer.h"
#include "train/huggingface/hf_config.h"
#include "train/huggingface/hf_pictures.h"
#include "train_ranks.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LAYERS = 2, HIDDEN = 8, VOCABULARY = 257, POSITIONS = 20 };
static const char model[] = "gpt2:layers=2,hidden=8,heads=2,vocabulary=257,positions=20";

static const char *text_data(void) {
    static char data[700];
    char path[600];
    if (data[0]) return data;
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    uint32_t ids[400];
    for (uint32_t i = 0; i < 400; i++) ids[i] = (i * i) % 256;
    snprintf(path, sizeof path, "%s/text", check_folder());
    CHECK_OK(rpi_tokenizer_open("byte", &tokenizer));
    CHECK_OK(rpi_token_writer_open(path, tokenizer, &writer));
    CHECK_OK(rpi_token_writer_add(writer, ids, 400));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
    snprintf(data, sizeof data, "tokens:%s", path);
    return data;
}

static rpi_train_options small(void) {
    rpi_train_options options = ranks_options();
    options.model = model;
    options.data = text_data();
    options.train_images = options.test_images = 0;
    options.seq_length = 16;
    options.global_batch_size = 4;
    options.optimizer = "adamw";
    options.steps = 1;
    options.eval = false;
    return options;
}

/* A run of one step. */
static const char *gpt2_run(void) {
    static char folder[600];
    if (folder[0]) return folder;
    rpi_train_options options = small();
    snprintf(folder, sizeof folder, "%s", ranks_folder("run"));
    options.out = folder;
    CHECK_OK(ranks_train(&options, 1, NULL));
    return folder;
}

static float *elements(const rpi_safetensors *file, const char *name, rpi_shape shape) {
    float *values = calloc((size_t)rpi_shape_count(&shape), sizeof *values);
    if (values) CHECK_OK(rpi_safetensors_read(file, name, RP_F32, &shape, values));
    return values;
}

static void open_both(const char *to, rpi_safetensors **run, rpi_safetensors **exported) {
    CHECK_OK(rpi_safetensors_open(ranks_path(gpt2_run(), "model.safetensors"), run));
    CHECK_OK(rpi_safetensors_open(ranks_path(to, "model.safetensors"), exported));
}

static void names_and_transposes_are_those_of_transformers(void) {
    const char *to = ranks_folder("hf");
    rpi_hf_exported done;
    rpi_safetensors *run = NULL, *exported = NULL;
    REQUIRE_OK(rpi_hf_export(gpt2_run(), to, false, &done));
    CHECK(strcmp(done.architecture, "GPT2LMHeadModel") == 0);
    CHECK_EQ(done.step, 1);
    CHECK_EQ(done.parameters, HIDDEN * (VOCABULARY + POSITIONS) + 2 * HIDDEN +
                                  LAYERS * (12 * HIDDEN * HIDDEN + 13 * HIDDEN));
    open_both(to, &run, &exported);
    REQUIRE(run && exported);
    CHECK_EQ(rpi_safetensors_count(exported), 4 + 12 * LAYERS); /* no head, no optimizer */
    CHECK(strcmp(rpi_safetensors_metadata(exported, "format"), "pt") == 0);
    float *ours = elements(run, "h.1.attn.c_attn.weight", (rpi_shape){2, {3 * HIDDEN, HIDDEN}});
    float *theirs = elements(exported, "transformer.h.1.attn.c_attn.weight",
                             (rpi_shape){2, {HIDDEN, 3 * HIDDEN}});
    for (int out = 0; out < 3 * HIDDEN; out++)
        for (int in = 0; in < HIDDEN; in++)
            CHECK_NEAR(theirs[in * 3 * HIDDEN + out], ours[out * HIDDEN + in], 0);
    float *table = elements(run, "wte.weight", (rpi_shape){2, {VOCABULARY, HIDDEN}});
    float *same =
        elements(exported, "transformer.wte.weight", (rpi_shape){2, {VOCABULARY, HIDDEN}});
    for (int i = 0; i < VOCABULARY * HIDDEN; i++) CHECK_NEAR(same[i], table[i], 0);
    free(ours), free(theirs), free(table), free(same);
    rpi_safetensors_close(run);
    rpi_safetensors_close(exported);
}

static void the_config_gives_the_model_back(void) {
    rpi_hf_exported done;
    char back[RPI_MODEL_TEXT];
    const rpi_hf_family *family = NULL;
    const char *to = ranks_folder("config");
    REQUIRE_OK(rpi_hf_export(gpt2_run(), to, false, &done));
    REQUIRE_OK(rpi_hf_config_read(to, back, &family));
    CHECK_MSG(strcmp(back, model) == 0, "%s", back);
    CHECK(strstr(done.note, "no tokenizer.json: the tokens are bytes, which need none"));
}

/* The family that a model has, and what is read of the config.json that it writes. */
static rp_status there_and_back(const char *text, char type[32], char back[RPI_MODEL_TEXT]) {
    rpi_model_choice choice;
    const rpi_hf_family *family = NULL;
    char folder[600], *written = NULL;
    RP_TRY(rpi_model_parse(text, &choice));
    RP_TRY(rpi_hf_family_of_model(&choice, &family));
    RP_TRY(rpi_hf_config_text(family, &choice, (rpi_hf_text_ends){-1, -1}, (rpi_hf_pictures){0},
                              &written));
    snprintf(type, 32, "%s", family->model_type);
    snprintf(folder, sizeof folder, "%s", ranks_folder("there"));
    mkdir(folder, 0777);
    FILE *stream = fopen(ranks_path(folder, "config.json"), "w");
    if (stream) fputs(written, stream), fclose(stream);
    rpi_free(written);
    return rpi_hf_config_read(folder, back, &family);
}

#define LLAMA                                                                                  \
    "llama:layers=1,hidden=16,heads=2,kv-heads=1,head=6,intermediate=8,vocabulary=9,"          \
    "positions=4"

static void variants_of_llama_come_back(void) {
    static const struct {
        const char *type, *more;
    } rows[] = {
        {"llama", ""},
        {"llama", ",attention-bias=on,mlp-bias=on"},
        {"llama", ",rope-factor=2"},
        {"llama", ",rope-factor=8,rope-original=64,rope-low=2,rope-high=5"},
        {"llama", ",rope-factor=4,rope-original=64,rope-yarn=on"},
        {"llama", ",rope-factor=4,rope-original=64,rope-yarn=on,rope-low=2,rope-high=5,"
                  "rope-truncate=off,rope-attention=1.5"},
        {"mistral", ",window=3"},
        {"mistral", ",window=3,rope-factor=2"},
        {"qwen2", ",qkv-bias=on"},
        {"qwen2", ",qkv-bias=on,window=3"},
        {"qwen3", ",qk-norm=on"},
        {"qwen3", ",attention-bias=on,qk-norm=on,window=3,rope-factor=2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[RPI_MODEL_TEXT], type[32], back[RPI_MODEL_TEXT];
        snprintf(text, sizeof text, "%s%s", LLAMA, rows[i].more);
        CHECK_OK(there_and_back(text, type, back));
        CHECK_MSG(strcmp(type, rows[i].type) == 0 && strcmp(back, text) == 0, "%s: %s of %s",
                  back, type, text);
    }
}

/* What transformers keeps in config.json stays what it is, and is not said where it follows. */
static void shapes_of_blocks_come_back(void) {
    static const struct {
        const char *text, *back; /* NULL: the same */
    } rows[] = {
        {"gpt2:layers=1,hidden=8,heads=2,vocabulary=9,positions=4,intermediate=7,"
         "norm-epsilon=0.001,activation=silu",
         NULL},
        {"gpt2:layers=1,hidden=8,heads=2,vocabulary=9,positions=4,activation=relu", NULL},
        {"gpt2:layers=1,hidden=8,heads=2,vocabulary=9,positions=4,intermediate=32",
         "gpt2:layers=1,hidden=8,heads=2,vocabulary=9,positions=4"},
        {"bert:layers=1,hidden=8,heads=2,intermediate=7,vocabulary=9,positions=4,"
         "norm-epsilon=0.001,activation=gelu-tanh",
         NULL},
        {"bert:layers=1,hidden=8,heads=2,intermediate=32,vocabulary=9,positions=4,"
         "activation=relu,pre-ln=on",
         NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char type[32], back[RPI_MODEL_TEXT];
        CHECK_OK(there_and_back(rows[i].text, type, back));
        CHECK_MSG(strcmp(back, rows[i].back ? rows[i].back : rows[i].text) == 0, "%s of %s",
                  back, rows[i].text);
    }
}

static void variants_without_a_name_are_refused(void) {
    char type[32], back[RPI_MODEL_TEXT];
    CHECK_FAILS(there_and_back(LLAMA ",attention-bias=on,window=3", type, back), INVALID,
                "attention-bias=on: Hugging Face's mistral, which the model is by its other "
                "options, has");
    CHECK_FAILS(there_and_back(LLAMA ",qkv-bias=on,qk-norm=on", type, back), INVALID,
                "qkv-bias=on: Hugging Face's qwen3, which");
    CHECK_FAILS(there_and_back(LLAMA ",window=3,mlp-bias=on", type, back), INVALID,
                "mlp-bias=on: Hugging Face's mistral, which");
}

/* ---- pictures ---- */

enum { WIDTH = 8 };

static const char *vit_run(void) {
    static char folder[600];
    rpi_train_options options = ranks_options();
    options.model = "vit:layers=1,hidden=8,heads=2,patch=7";
    options.steps = 1;
    options.eval = false;
    snprintf(folder, sizeof folder, "%s", ranks_folder("vit"));
    options.out = folder;
    CHECK_OK(ranks_train(&options, 1, NULL));
    return folder;
}

/* Queries, keys and values: three matrices there, one behind the other in ours. */
static void check_thirds(const rpi_safetensors *run, const rpi_safetensors *exported) {
    static const char *const names[] = {"query", "key", "value"};
    float *ours = elements(run, "encoder.layers.encoder_layer_0.self_attention.in_proj_weight",
                           (rpi_shape){2, {3 * WIDTH, WIDTH}});
    for (int part = 0; ours && part < 3; part++) {
        char name[128];
        snprintf(name, sizeof name, "vit.encoder.layer.0.attention.attention.%s.weight",
                 names[part]);
        float *theirs = elements(exported, name, (rpi_shape){2, {WIDTH, WIDTH}});
        CHECK(theirs && memcmp(theirs, ours + (size_t)part * WIDTH * WIDTH,
                               WIDTH * WIDTH * sizeof *ours) == 0);
        free(theirs);
    }
    free(ours);
}

static void vit_goes_there_and_back(void) {
    const char *from = vit_run();
    char to[600], back[RPI_MODEL_TEXT], *text = NULL;
    const rpi_hf_family *family = NULL;
    rpi_hf_exported done;
    rpi_safetensors *run = NULL, *exported = NULL;
    size_t bytes = 0;
    snprintf(to, sizeof to, "%s", ranks_folder("hf-vit"));
    REQUIRE_OK(rpi_hf_export(from, to, false, &done));
    CHECK(strcmp(done.architecture, "ViTForImageClassification") == 0 && !done.note[0]);
    REQUIRE_OK(rpi_hf_config_read(to, back, &family));
    CHECK_MSG(strcmp(back, "vit:layers=1,hidden=8,heads=2,patch=7,image=28") == 0, "%s", back);
    REQUIRE_OK(rpi_regular_file_read(ranks_path(to, "config.json"), 1 << 20, &text, &bytes));
    CHECK_MSG(strstr(text, "\"LABEL_9\":\t9") && !strstr(text, "LABEL_10") &&
                  strstr(text, "\"num_channels\":\t1") && strstr(text, "_size\":\t32"),
              "%s", text);
    rpi_free(text);
    CHECK_OK(rpi_safetensors_open(ranks_path(from, "model.safetensors"), &run));
    CHECK_OK(rpi_safetensors_open(ranks_path(to, "model.safetensors"), &exported));
    check_thirds(run, exported);
    rpi_safetensors_close(run);
    rpi_safetensors_close(exported);
}

/* Images in memory have no files that another program would show as we do. */
static void normalization_is_compared(void) {
    static const char half[] = "{\"image_mean\":[0.5,0.5,0.5],\"image_std\":[0.5,0.5,0.5]}";
    static const char other[] = "{\"image_mean\":[0.1,0.5,0.5],\"image_std\":[0.5,0.5,0.5]}";
    char folder[600];
    snprintf(folder, sizeof folder, "%s", ranks_folder("scale"));
    mkdir(folder, 0777);
    CHECK_OK(rpi_hf_pictures_check(folder, "images:x"));
    FILE *stream = fopen(ranks_path(folder, "preprocessor_config.json"), "w");
    if (stream) fputs(half, stream), fclose(stream);
    CHECK_OK(rpi_hf_pictures_check(folder, "images:x,normalize=half"));
    CHECK_OK(rpi_hf_pictures_check(folder, "cifar10:x"));
    CHECK_FAILS(rpi_hf_pictures_check(folder, "images:x,validation=5%"), INVALID,
                "preprocessor_config.json: its pictures were normalized otherwise: write "
                "normalize=half");
    CHECK_FAILS(rpi_hf_pictures_check(folder, "images:x,normalize=haf"), INVALID,
                "did you mean 'half'?");
    stream = fopen(ranks_path(folder, "preprocessor_config.json"), "w");
    if (stream) fputs(other, stream), fclose(stream);
    CHECK_FAILS(rpi_hf_pictures_check(folder, "images:x"), INVALID,
                "'image_mean' is [0.1,0.5,0.5]");
}

/* ---- the tokenizer of a run that learnt hidden tokens ---- */

static const char wordpiece[] =
    "{\"added_tokens\":[{\"id\":4,\"content\":\"[MASK]\",\"special\":true}],"
    "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"model\":{\"type\":\"WordPiece\","
    "\"unk_token\":\"[UNK]\",\"vocab\":{\"[PAD]\":0,\"[UNK]\":1,\"[CLS]\":2,\"[SEP]\":3,"
    "\"[MASK]\":4,\"a\":5,\"b\":6,\".\":7}}}";

static const char *masked_run(void) {
    static char data[700], folder[600];
    rpi_tokenizer *tokenizer = NULL;
    rpi_token_writer *writer = NULL;
    uint32_t ids[400];
    for (uint32_t i = 0; i < 400; i++) ids[i] = 5 + i * i % 3;
    snprintf(data, sizeof data, "masked:%s/words", check_folder());
    CHECK_OK(rpi_tokenizer_parse("words", wordpiece, sizeof wordpiece - 1, &tokenizer));
    CHECK_OK(rpi_token_writer_open(data + 7, tokenizer, &writer));
    CHECK_OK(rpi_token_writer_add(writer, ids, 400));
    CHECK_OK(rpi_token_writer_close(writer, RP_OK));
    rpi_tokenizer_close(tokenizer);
    rpi_train_options options = small();
    options.model = "bert:layers=1,hidden=8,heads=2,vocabulary=8,positions=20";
    options.data = data;
    snprintf(folder, sizeof folder, "%s", ranks_folder("masked"));
    options.out = folder;
    CHECK_OK(ranks_train(&options, 1, NULL));
    return folder;
}

static void the_tokenizer_of_hidden_tokens_goes_along(void) {
    rpi_hf_exported done;
    char *text = NULL;
    size_t bytes = 0;
    const char *to = ranks_folder("bert");
    REQUIRE_OK(rpi_hf_export(masked_run(), to, false, &done));
    CHECK_MSG(done.has_tokenizer, "%s", done.note);
    REQUIRE_OK(rpi_regular_file_read(ranks_path(to, "tokenizer.json"), 1 << 20, &text, &bytes));
    CHECK(bytes == sizeof wordpiece - 1 && memcmp(text, wordpiece, bytes) == 0);
    rpi_free(text);
    REQUIRE_OK(
        rpi_regular_file_read(ranks_path(to, "tokenizer_config.json"), 1 << 20, &text, &bytes));
    static const char *const wanted[] = {
        "\"unk_token\":\"[UNK]\"",
        "\"pad_token\":\"[PAD]\"",
        "\"cls_token\":\"[CLS]\"",
        "\"sep_token\":\"[SEP]\"",
        "\"mask_token\":\"[MASK]\"",
        "\"model_input_names\":[\"input_ids\",\"token_type_ids\",\"attention_mask\"]"};
    for (int i = 0; i < 6; i++) CHECK_MSG(strstr(text, wanted[i]), "%s", text);
    rpi_free(text);
}

static void no_entry_is_left(const char *folder) {
    char command[1400];
    snprintf(command, sizeof command, "ls -d '%s' '%s'.partial-* 2>/dev/null | grep -q .",
             folder, folder);
    CHECK_MSG(system(command) != 0, "something is left of %s", folder);
}

static void what_cannot_be_exported_is_told(void) {
    rpi_hf_exported done;
    const char *to = ranks_folder("none");
    CHECK_FAILS(rpi_hf_export(ranks_folder("nowhere"), to, false, &done), NOT_FOUND,
                "nowhere/model.safetensors is missing: there is no run");
    CHECK_FAILS(rpi_hf_export("hf:out", to, false, &done), INVALID,
                "--model hf:out: the folder of a run is wanted, and this is an export already");
    rpi_train_options options = ranks_options();
    options.steps = 1;
    options.out = ranks_folder("mlp");
    REQUIRE_OK(ranks_train(&options, 1, NULL));
    CHECK_FAILS(rpi_hf_export(options.out, to, false, &done), INVALID,
                "model mlp has no names in Hugging Face folders; there are: gpt2");
    no_entry_is_left(to);
}

static void put(const char *folder, const char *name) {
    mkdir(folder, 0777);
    FILE *stream = fopen(ranks_path(folder, name), "w");
    if (stream) fputs("mine", stream), fclose(stream);
}

static void a_folder_that_holds_something_is_kept(void) {
    rpi_hf_exported done;
    char to[600], mine[600];
    snprintf(to, sizeof to, "%s", ranks_folder("kept"));
    put(to, "config.json");
    put(to, "notes.txt");
    CHECK_FAILS(rpi_hf_export(gpt2_run(), to, false, &done), INVALID,
                "kept holds something already: choose another folder, or replace its files "
                "with --overwrite");
    CHECK(access(ranks_path(to, "model.safetensors"), F_OK) != 0);
    CHECK_OK(rpi_hf_export(gpt2_run(), to, true, &done));
    const rpi_hf_family *family = NULL;
    CHECK_OK(rpi_hf_config_read(to, mine, &family));
    CHECK(access(ranks_path(to, "notes.txt"), F_OK) == 0);
    CHECK(access(ranks_path(to, "model.safetensors"), F_OK) == 0);
    snprintf(mine, sizeof mine, "%s/", ranks_folder("empty"));
    mkdir(mine, 0777);
    CHECK_OK(rpi_hf_export(gpt2_run(), mine, false, &done));
    CHECK(access(ranks_path(mine, "config.json"), F_OK) == 0);
}

static void a_full_disk_leaves_nothing(void) {
    if (access("/dev/full", W_OK) != 0) {
        check_skip("no /dev/full here");
        return;
    }
    rpi_hf_exported done;
    char to[600], aside[700];
    snprintf(to, sizeof to, "%s", ranks_folder("full"));
    snprintf(aside, sizeof aside, "%s.partial-%ld", to, (long)getpid());
    REQUIRE(mkdir(aside, 0777) == 0);
    REQUIRE(symlink("/dev/full", ranks_path(aside, "model.safetensors.tmp")) == 0);
    CHECK_FAILS(rpi_hf_export(gpt2_run(), to, false, &done), IO, "model.safetensors");
    no_entry_is_left(to);
}

/* Two folders, which two ranks are given. */
static rp_status train_from(void *context, rp_comm *comm) {
    char(*folders)[600] = context;
    rpi_train_options options = small();
    rpi_train_result result;
    options.weights = folders[rp_comm_rank(comm)];
    return rpi_train(&options, comm, NULL, &result);
}

static void ranks_start_from_the_same_weights(void) {
    static char folders[2][600];
    rpi_hf_exported done;
    rpi_train_options options = small();
    options.seed = 2;
    options.out = ranks_folder("other-run");
    REQUIRE_OK(ranks_train(&options, 1, NULL));
    for (int i = 0; i < 2; i++) {
        snprintf(folders[i], sizeof folders[i], "%s", ranks_folder(i ? "second" : "first"));
        REQUIRE_OK(rpi_hf_export(i ? options.out : gpt2_run(), folders[i], false, &done));
    }
    CHECK_FAILS(ranks_run(2, train_from, folders), MISMATCH, "rank 1 differs from rank 0 in ");
    snprintf(folders[1], sizeof folders[1], "%s", folders[0]);
    CHECK_OK(ranks_run(2, train_from, folders));
}

CASES({"names and transposes are those of transformers",
       names_and_transposes_are_those_of_transformers},
      {"the config gives the model back", the_config_gives_the_model_back},
      {"variants of LLaMA come back", variants_of_llama_come_back},
      {"shapes of blocks come back", shapes_of_blocks_come_back},
      {"variants without a name are refused", variants_without_a_name_are_refused},
      {"ViT goes there and back", vit_goes_there_and_back},
      {"normalization is compared", normalization_is_compared},
      {"the tokenizer of hidden tokens goes along", the_tokenizer_of_hidden_tokens_goes_along},
      {"what cannot be exported is told", what_cannot_be_exported_is_told},
      {"a folder that holds something is kept", a_folder_that_holds_something_is_kept},
      {"ranks start from the same weights", ranks_start_from_the_same_weights},
      {"a full disk leaves nothing", a_full_disk_leaves_nothing})
