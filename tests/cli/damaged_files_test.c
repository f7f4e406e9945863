/* Files that a run reads, damaged at random: each is refused with its name, or read as it was.
 *
 * Trials run in a child with little memory and a deadline for each, so that a crash, a hang or
 * a file that asks for gigabytes is a failure of the test with the trial's number.
 * REDPOLL_TEST_SEED and REDPOLL_TEST_TRIAL replay one; REDPOLL_TEST_KEEP keeps its file. */
#include "cli/config.h"
#include "damage.h"
#include "harness/check.h"
#include "net/bytes/frame.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/run_settings.h"
#include "train/checkpoint/safetensors.h"
#include "train/data/idx_file.h"
#include "train/data/token_file.h"
#include "train/huggingface/hf_config.h"
#include "train/metrics.h"
#include "train/tokenizers/tokenizer.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
/* Of a child, before it has read anything, a few. Sanitizers need more of everything. */
enum { MOST_MB = SANITIZED ? 1500 : 400, DEADLINE_S = SANITIZED ? 60 : 20, ROOM = 1 << 17 };

/* LeakSanitizer's, where it is linked. NOLINTNEXTLINE(bugprone-reserved-identifier) */
__attribute__((weak)) int __lsan_do_recoverable_leak_check(void);

/* A file and its reader. */
typedef struct kind {
    const char *name;
    const char *file; /* in the test's folder */
    /* The sound file, in data; its length. */
    size_t (*make)(uint8_t *data);
    /* Read the file. What was read goes into a digest, where one is promised. */
    rp_status (*read)(const char *path, uint32_t *out_digest);
    /* Make the checksum right again, so that what lies behind it is reached; NULL: there is
     * none to be made. Such a file may be read as anything. */
    void (*reseal)(damage_bytes *bytes);
    bool is_sealed; /* no damage goes unnoticed */
    bool is_packed; /* put into a gzip after the damage */
} kind;

static char path[600];

static void put(const char *name, const void *data, size_t bytes) {
    snprintf(path, sizeof path, "%s/%s", check_folder(), name);
    unlink(path); /* some file systems wait for the disk when a file is written over */
    FILE *stream = fopen(path, "wb");
    if (!stream) return;
    fwrite(data, 1, bytes, stream);
    fclose(stream);
}

static size_t get(const char *name, uint8_t *data) {
    snprintf(path, sizeof path, "%s/%s", check_folder(), name);
    FILE *stream = fopen(path, "rb");
    size_t bytes = stream ? fread(data, 1, ROOM / 2, stream) : 0;
    if (stream) fclose(stream);
    return bytes;
}

static void reseal(uint8_t *from, size_t bytes, uint8_t *text, size_t text_bytes) {
    char *digits = rpi_checksum_digits((char *)text, text_bytes);
    uint32_t old;
    if (digits && rpi_checksum_take(digits, &old))
        rpi_checksum_write(digits, rpi_crc32c(0, from, bytes));
}

/* ---- a checkpoint, through the trainer ---- */

static rp_comm *comm;
static rpi_trainer trainer;

static rpi_train_options train_options(void) {
    return (rpi_train_options){.model = "mlp:hidden=4",
                               .data = "synthetic",
                               .train_images = 16,
                               .test_images = 16,
                               .steps = 2,
                               .global_batch_size = 8,
                               .seed = 1,
                               .optimizer = "sgd",
                               .lr = 0.05,
                               .momentum = 0.9,
                               .decay = "all",
                               .lr_schedule = "constant",
                               .strategy = "single",
                               .codec = "fp32",
                               .bucket_mb = 1,
                               .backend = "reference",
                               .checkpoint = true};
}

static rp_status open_trainer(void) {
    static rpi_train_options options;
    if (comm) return RP_OK;
    options = train_options();
    RP_TRY(rp_comm_create(NULL, 0, 1, &(rp_comm_options)RP_COMM_OPTIONS(), &comm));
    return rpi_trainer_open(&trainer, &options, comm);
}

static size_t make_checkpoint(uint8_t *data) {
    CHECK_OK(open_trainer());
    CHECK_OK(rpi_checkpoint_save(&trainer, check_folder()));
    return get("model.safetensors", data);
}

static rp_status read_checkpoint(const char *file, uint32_t *out_digest) {
    (void)file;
    char note[1024];
    RP_TRY(rpi_checkpoint_load(&trainer, check_folder(), note, sizeof note));
    size_t bytes = (size_t)rpi_weights_count(trainer.weights) * sizeof(float);
    uint32_t crc = rpi_crc32c(0, rpi_weights_values(trainer.weights), bytes);
    crc = rpi_crc32c(crc, trainer.optimizer.slots[0], bytes);
    *out_digest = rpi_crc32c(crc, &trainer.step, sizeof trainer.step);
    return RP_OK;
}

static void reseal_safetensors(damage_bytes *b) {
    if (b->count > 8) reseal(b->data, b->count, b->data + 8, b->count - 8);
}

/* ---- a safetensors file of another writer ---- */

static size_t make_foreign(uint8_t *data) {
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"weight\":{\"dtype\":\"F32\",\"shape\":[4,8],"
        "\"data_offsets\":[0,128]},\"step\":{\"dtype\":\"I64\",\"shape\":[],"
        "\"data_offsets\":[128,136]},\"half\":{\"dtype\":\"BF16\",\"shape\":[3],"
        "\"data_offsets\":[136,142]}}   ";
    size_t length = sizeof header - 1;
    memset(data, 0, 8);
    data[0] = (uint8_t)length;
    data[1] = (uint8_t)(length >> 8);
    memcpy(data + 8, header, length);
    for (int i = 0; i < 142; i++) data[8 + length + (size_t)i] = (uint8_t)i;
    return 8 + length + 142;
}

static rp_status read_safetensors(const char *file_path, uint32_t *out_digest) {
    rpi_safetensors *file = NULL;
    RP_TRY(rpi_safetensors_open(file_path, &file));
    rp_status status = RP_OK;
    *out_digest = 0;
    for (int i = 0; i < rpi_safetensors_count(file) && status == RP_OK; i++) {
        static char buffer[ROOM];
        const rpi_named_tensor *tensor = rpi_safetensors_at(file, i);
        size_t bytes = (size_t)rpi_shape_count(&tensor->shape) * rp_dtype_bytes(tensor->dtype);
        CHECK(bytes <= sizeof buffer); /* no more than the file has */
        if (bytes > sizeof buffer) break;
        status =
            rpi_safetensors_read(file, tensor->name, tensor->dtype, &tensor->shape, buffer);
    }
    rpi_safetensors_close(file);
    return status;
}

/* ---- IDX files, plain and in a gzip ---- */

enum { IMAGES = 6, SIDE = 9 };

static size_t make_images(uint8_t *data) {
    static const uint8_t header[16] = {0, 0, 8, 3,    0, 0, 0, IMAGES,
                                       0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static const uint8_t labels[8 + IMAGES] = {0, 0, 8, 1, 0, 0, 0, IMAGES, 0, 1, 2, 3, 4, 5};
    put("labels", labels, sizeof labels);
    memcpy(data, header, sizeof header);
    for (int i = 0; i < IMAGES * SIDE * SIDE; i++)
        data[sizeof header + (size_t)i] = (uint8_t)(i * 7);
    return sizeof header + IMAGES * SIDE * SIDE;
}

static size_t pack(uint8_t *data, size_t bytes) {
    static uint8_t packed[ROOM];
    z_stream z = {.next_in = data,
                  .avail_in = (uInt)bytes,
                  .next_out = packed,
                  .avail_out = sizeof packed};
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    size_t count = z.total_out;
    deflateEnd(&z);
    memcpy(data, packed, count);
    return count;
}

static size_t make_packed_images(uint8_t *data) {
    return pack(data, make_images(data));
}

static rp_status read_images(const char *images_path, uint32_t *out_digest) {
    char labels_path[600];
    rpi_images images;
    snprintf(labels_path, sizeof labels_path, "%s/labels", check_folder());
    RP_TRY(rpi_idx_read(images_path, labels_path, &images));
    size_t bytes = (size_t)images.count * (size_t)images.channels * (size_t)images.height *
                   (size_t)images.width;
    uint32_t crc = rpi_crc32c(0, images.pixels, bytes);
    *out_digest = rpi_crc32c(crc, images.labels, (size_t)images.count);
    rpi_free(images.pixels);
    rpi_free(images.labels);
    return RP_OK;
}

static size_t make_labels(uint8_t *data) {
    size_t bytes = make_images(data);
    put("images", data, bytes);
    return get("labels", data);
}

static rp_status read_labels(const char *labels_path, uint32_t *out_digest) {
    char images_path[600];
    rpi_images images;
    snprintf(images_path, sizeof images_path, "%s/images", check_folder());
    RP_TRY(rpi_idx_read(images_path, labels_path, &images));
    *out_digest = rpi_crc32c(0, images.labels, (size_t)images.count);
    rpi_free(images.pixels);
    rpi_free(images.labels);
    return RP_OK;
}

/* ---- settings, as YAML and as JSON ---- */

typedef struct settings {
    int64_t steps, chunk;
    double lr, timeout_s;
    bool eval, feedback;
    const char *model;
} settings;

#define FIELD(field) offsetof(settings, field)
static const rpi_option table[] = {
    {"steps", NULL, "tokens.train_steps", RPI_OPTION_COUNT, FIELD(steps), "100", 0, 1e12, "N",
     "", NULL},
    {"chunk", NULL, "network.chunk", RPI_OPTION_BYTES, FIELD(chunk), "64K", 0, 1e9, "BYTES", "",
     NULL},
    {"lr", NULL, "optimizer.lr", RPI_OPTION_REAL, FIELD(lr), "0.05", 0, 1e30, "RATE", "", NULL},
    {"timeout", NULL, "network.timeout", RPI_OPTION_SECONDS, FIELD(timeout_s), "10min", 0.001,
     1e9, "TIME", "", NULL},
    {"eval", NULL, "eval", RPI_OPTION_FLAG, FIELD(eval), "true", 0, 0, NULL, "", NULL},
    {"feedback", NULL, "feedback", RPI_OPTION_FLAG, FIELD(feedback), "on", 0, 0, "on|off", "",
     NULL},
    {"model", NULL, "model.name", RPI_OPTION_TEXT, FIELD(model), "mlp", 0, 0, "NAME", "", NULL},
    {0},
};

static uint32_t digest_of(const settings *s) {
    uint32_t crc = rpi_crc32c(0, s, offsetof(settings, eval));
    crc = rpi_crc32c(crc, &s->eval, sizeof s->eval);
    crc = rpi_crc32c(crc, &s->feedback, sizeof s->feedback);
    return s->model ? rpi_crc32c(crc, s->model, strlen(s->model)) : crc;
}

static size_t make_yaml(uint8_t *data) {
    static const char text[] = "# settings\n"
                               "tokens: {train_steps: 400}\n"
                               "network:\n  chunk: 64KiB\n  timeout: 10min # long\n"
                               "optimizer:\n  lr: &rate 0.05\n"
                               "eval: true\nfeedback: \"off\"\n"
                               "model:\n  name: 'resnet18:width=16'\n...\n";
    memcpy(data, text, sizeof text - 1);
    return sizeof text - 1;
}

static rp_status read_yaml(const char *file_path, uint32_t *out_digest) {
    settings s = {0};
    rpi_config *config = NULL;
    CHECK_OK(rpi_options_defaults(table, &s));
    RP_TRY(rpi_config_read(file_path, table, &s, &config));
    *out_digest = digest_of(&s);
    rpi_config_free(config);
    return RP_OK;
}

/* As nanotron writes it, with stages and a merge. */
static size_t make_nanotron(uint8_t *data) {
    static const char text[] =
        "general: {seed: 42, project: p}\n"
        "common: &c {hidden_size: 16, num_attention_heads: 4}\n"
        "model:\n  init_method: {std: 0.02}\n"
        "  model_config: {<<: *c, is_llama_config: true, vocab_size: 1_000, moe_config: ~}\n"
        "tokens: {train_steps: 010, sequence_length: 0x10, limit_val_batches: 1}\n"
        "data_stages:\n"
        "- {name: b, start_training_step: 5, data: {dataset: {dataset_folder: [y]}}}\n"
        "- {name: a, start_training_step: 1, data: {seed: 1, dataset: {dataset_folder: x}}}\n"
        "profiler: {profiler_export_path: null, wait: 1}\nlighteval: null\n";
    memcpy(data, text, sizeof text - 1);
    return sizeof text - 1;
}

/* Our table here has not all of its keys. */
static rp_status read_nanotron(const char *file_path, uint32_t *out_digest) {
    rpi_config *config = NULL;
    *out_digest = 0;
    RP_TRY(rpi_config_open(file_path, &config));
    rpi_config_free(config);
    return RP_OK;
}

/* Of a Hugging Face folder. */
static size_t make_config(uint8_t *data) {
    static const char text[] =
        "{\"model_type\":\"gpt2\",\"num_hidden_layers\":2,\"n_layer\":1,\"n_embd\":4,"
        "\"n_head\":2,\"vocab_size\":8,\"n_positions\":6,\"resid_pdrop\":0.1,"
        "\"activation_function\":\"gelu_new\",\"layer_norm_epsilon\":1e-05,"
        "\"tie_word_embeddings\":true,\"eos_token_id\":[7,1]}";
    memcpy(data, text, sizeof text - 1);
    return sizeof text - 1;
}

static rp_status read_config(const char *file_path, uint32_t *out_digest) {
    char folder[700], model[RPI_MODEL_TEXT] = "";
    const rpi_hf_family *family = NULL;
    rpi_hf_ends ends;
    *out_digest = 0;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(file_path, '/') - file_path),
             file_path);
    RP_TRY(rpi_hf_config_ends(folder, &ends));
    return rpi_hf_config_read(folder, model, &family);
}

static size_t make_settings(uint8_t *data) {
    settings s = {0};
    CHECK_OK(rpi_options_defaults(table, &s));
    s.lr = 0.1 + 0.2;
    s.model = "mlp:hidden=48";
    rpi_train_options options = {.table = table, .given = &s, .out = check_folder()};
    CHECK_OK(rpi_run_settings_write(&options, 2));
    return get("settings.json", data);
}

static rp_status read_settings(const char *file, uint32_t *out_digest) {
    (void)file;
    settings s = {0};
    rpi_run_settings *recorded = NULL;
    CHECK_OK(rpi_options_defaults(table, &s));
    RP_TRY(rpi_run_settings_read(check_folder(), &recorded));
    rp_status status = rpi_run_settings_apply(recorded, table, &s);
    if (status == RP_OK) *out_digest = digest_of(&s);
    rpi_run_settings_free(recorded);
    return status;
}

static void reseal_settings(damage_bytes *b) {
    if (b->count > 1) reseal(b->data, b->count - 1, b->data, b->count - 1);
}

/* ---- metrics.jsonl, to which a run that goes on adds ---- */

static size_t make_metrics(uint8_t *data) {
    size_t at = 0;
    for (int step = 1; step < 40; step++)
        at +=
            (size_t)snprintf((char *)data + at, 200,
                             "{\"step\":%d,\"loss\":%.9g,\"lr\":0.05,\"wire_bytes\":123456}\n",
                             step, 1.0 / step);
    return at;
}

/* Whole lines stay as they are, and what is added is a line of its own. */
static rp_status read_metrics(const char *file, uint32_t *out_digest) {
    static uint8_t before[ROOM], after[ROOM];
    (void)file;
    *out_digest = 0;
    size_t bytes = get("metrics.jsonl", before), lines = bytes;
    rpi_metrics *metrics = NULL;
    RP_TRY(rpi_metrics_open(check_folder(), true, &metrics));
    CHECK_OK(
        rpi_metrics_evaluation(metrics, 77, &(rpi_evaluation){.count = 1, .unit = "images"}));
    CHECK_OK(rpi_metrics_close(metrics));
    while (lines > 0 && before[lines - 1] != '\n') lines--;
    size_t now = get("metrics.jsonl", after);
    static const char added[] = "{\"evaluated_step\":77,";
    CHECK(now > lines && memcmp(before, after, lines) == 0);
    size_t last = now - 1;
    while (last > 0 && after[last - 1] != '\n') last--;
    CHECK(after[now - 1] == '\n' && memcmp(after + last, added, sizeof added - 1) == 0);
    return RP_OK;
}

/* ---- trials ---- */

/* ---- tokens, and a tokenizer ---- */

enum { TOKENS = 12 };

static size_t copy(uint8_t *data, const void *from, size_t bytes) {
    memcpy(data, from, bytes);
    return bytes;
}

static void make_nanoset(void) {
    static const uint8_t tokens[2 * TOKENS] = {1, 0, 2, 0, 3, 0};
    static const uint8_t ends[24] = {4, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, TOKENS};
    put("tokens.ds", tokens, sizeof tokens);
    put("tokens.ds.index", ends, sizeof ends);
    put("tokens.ds.metadata", "byte|2\n12\n12", 12);
}

static size_t make_metadata(uint8_t *data) {
    make_nanoset();
    return get("tokens.ds.metadata", data);
}

static size_t make_index(uint8_t *data) {
    make_nanoset();
    return get("tokens.ds.index", data);
}

/* What is opened can be read to its end, or names the token that cannot. */
static rp_status read_tokens(const char *file_path, uint32_t *out_digest) {
    static uint32_t ids[ROOM];
    char name[600];
    snprintf(name, sizeof name, "%s", file_path);
    char *suffix = strstr(name, ".ds.");
    if (suffix) suffix[3] = '\0';
    rpi_token_file *file = NULL;
    RP_TRY(rpi_token_file_open(name, &file));
    CHECK(file->count <= ROOM && file->documents >= 1);
    rp_status status = RP_OK;
    if (file->count <= ROOM) status = rpi_token_file_read(file, 0, file->count, ids);
    rpi_token_file_close(file);
    *out_digest = 0;
    return status;
}

static size_t make_megatron(uint8_t *data) {
    static const uint8_t tokens[2 * TOKENS] = {1};
    static const uint8_t index[] = {
        'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0, 0, 0, 0,
        0,   2,   0,   0,   0,   0,   0,   0, 0, 5, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        10,  0,   0,   0,   0,   0,   0,   0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
    put("indexed.bin", tokens, sizeof tokens);
    return copy(data, index, sizeof index);
}

static size_t make_llmc(uint8_t *data) {
    memset(data, 0, 1024 + 2 * TOKENS);
    static const uint8_t header[] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0, TOKENS};
    memcpy(data, header, sizeof header);
    return 1024 + 2 * TOKENS;
}

static size_t make_tokenizer(uint8_t *data) {
    static const char json[] =
        "{\"added_tokens\":[{\"id\":4,\"content\":\"<e>\",\"special\":true}],\"normalizer\":"
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Replace\","
        "\"pattern\":{\"String\":\" "
        "\"},\"content\":\"_\"}]},\"pre_tokenizer\":{\"type\":\"Split\","
        "\"pattern\":{\"Regex\":\"[^\\\\s]+|\\\\s\"},\"behavior\":\"Isolated\"},\"post_"
        "processor\":"
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<e>\"}},"
        "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<e>\":{\"ids\":[4]}}},"
        "\"decoder\":"
        "{\"type\":\"Strip\",\"content\":\"_\",\"start\":1,\"stop\":0},\"model\":{\"type\":"
        "\"BPE\","
        "\"unk_token\":\"_\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"_\":3},\"merges\":[\"a "
        "b\"]}}";
    return copy(data, json, sizeof json - 1);
}

static rp_status use_tokenizer(rpi_encoder *encoder, rpi_ids *ids, rpi_text *text) {
    RP_TRY(rpi_encode(encoder, "ab <e>\xc3\xa9 b a", 12, RPI_ENCODE_ADD_SPECIAL, ids, NULL));
    return rpi_decode(encoder, ids->at, ids->count, 0, text);
}

/* What is opened works: an expression may be one that this text is too much for. */
static rp_status read_tokenizer(const char *file_path, uint32_t *out_digest) {
    rpi_tokenizer *tokenizer = NULL;
    rpi_encoder *encoder = NULL;
    rpi_ids ids = {0};
    rpi_text text = {0};
    RP_TRY(rpi_tokenizer_open(file_path, &tokenizer));
    rp_status status = rpi_encoder_create(tokenizer, &encoder);
    if (status == RP_OK) status = use_tokenizer(encoder, &ids, &text);
    if (status != RP_OK) (void)rpi_fail_context(status, "%s: ", file_path);
    rpi_ids_free(&ids);
    rpi_text_free(&text);
    rpi_encoder_destroy(encoder);
    rpi_tokenizer_close(tokenizer);
    *out_digest = 0;
    return status;
}

static const kind kinds[] = {
    {"a checkpoint", "model.safetensors", make_checkpoint, read_checkpoint, NULL, true, false},
    {"a checkpoint with a right checksum", "model.safetensors", make_checkpoint,
     read_checkpoint, reseal_safetensors, false, false},
    {"a safetensors file of another writer", "foreign.safetensors", make_foreign,
     read_safetensors, NULL, false, false},
    {"images in a gzip", "images.gz", make_packed_images, read_images, NULL, true, false},
    {"damaged images in a sound gzip", "images.gz", make_images, read_images, NULL, false,
     true},
    {"labels", "labels", make_labels, read_labels, NULL, false, false},
    {"a YAML file", "config.yaml", make_yaml, read_yaml, NULL, false, false},
    {"a YAML file of nanotron", "nanotron.yaml", make_nanotron, read_nanotron, NULL, false,
     false},
    {"a config.json", "config.json", make_config, read_config, NULL, false, false},
    {"settings.json", "settings.json", make_settings, read_settings, NULL, true, false},
    {"settings.json with a right checksum", "settings.json", make_settings, read_settings,
     reseal_settings, false, false},
    {"metrics.jsonl", "metrics.jsonl", make_metrics, read_metrics, NULL, false, false},
    {"metadata of tokens", "tokens.ds.metadata", make_metadata, read_tokens, NULL, false,
     false},
    {"an index of tokens", "tokens.ds.index", make_index, read_tokens, NULL, false, false},
    {"Megatron's index", "indexed.idx", make_megatron, read_tokens, NULL, false, false},
    {"tokens of llm.c", "llmc.bin", make_llmc, read_tokens, NULL, false, false},
    {"a tokenizer.json", "tokenizer.json", make_tokenizer, read_tokenizer, NULL, false, false},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* What a child tells of itself, also when it dies. */
typedef struct report {
    long trial, refused, read;
} report;

static void try_one(const kind *k, int index, long trial, const damage_bytes *sound,
                    uint32_t wanted, report *told) {
    static uint8_t data[ROOM];
    damage_bytes bytes = {data, sound->count, sizeof data - 4096};
    rpi_rng rng =
        rpi_rng_make(check_seed(), RPI_RNG_TEST, (uint64_t)index << 48 | (uint64_t)trial);
    memcpy(data, sound->data, sound->count);
    damage(&bytes, &rng);
    if (k->reseal) k->reseal(&bytes);
    if (k->is_packed) bytes.count = pack(data, bytes.count);
    put(k->file, data, bytes.count);
    uint32_t digest = 0;
    rp_status status = k->read(path, &digest);
    if (status != RP_OK) {
        told->refused++;
        CHECK_MSG(strstr(rp_last_error()->message, k->file), "trial %ld: '%s' names no %s",
                  trial, rp_last_error()->message, k->file);
        return;
    }
    told->read++;
    bool same = !k->is_sealed || digest == wanted;
    CHECK_MSG(same, "trial %ld: damage goes unnoticed", trial);
}

static long used_mb(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

/* Trials from `first` on, until the time is over; the child's end. */
static void run_trials(const kind *k, int index, long first, double seconds, report *told) {
    static uint8_t sound_data[ROOM];
    int64_t end_ns = rpi_deadline_ns(seconds);
    int failures = check_failures();
    damage_bytes sound = {sound_data, k->make(sound_data), ROOM};
    uint32_t wanted = 0;
    put(k->file, sound.data, k->is_packed ? pack(sound.data, sound.count) : sound.count);
    CHECK_OK(k->read(path, &wanted));
    if (k->is_packed) sound.count = k->make(sound_data);
    struct rlimit limit = {(rlim_t)2 * MOST_MB << 20, (rlim_t)2 * MOST_MB << 20};
    if (!SANITIZED) setrlimit(RLIMIT_AS, &limit);
    const char *only = getenv("REDPOLL_TEST_TRIAL");
    if (only) first = atol(only);
    for (long trial = first; check_failures() == failures; trial++) {
        told->trial = trial;
        alarm(DEADLINE_S);
        try_one(k, index, trial, &sound, wanted, told);
        CHECK_MSG(used_mb() < MOST_MB, "trial %ld has taken %ld MB", trial, used_mb());
        if (only || rpi_now_ns() > end_ns) break;
    }
    alarm(0);
    if (__lsan_do_recoverable_leak_check)
        CHECK_MSG(__lsan_do_recoverable_leak_check() == 0, "memory is leaked");
    fflush(NULL);
    _exit(check_failures() > failures);
}

static void damage_is_refused_or_does_no_harm(void) {
    double seconds = check_seconds(15, 600) / KINDS;
    (void)check_seed();
    for (int i = 0; i < KINDS; i++) {
        report *told =
            mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        REQUIRE(told != MAP_FAILED);
        (void)check_folder();
        fflush(NULL);
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) run_trials(&kinds[i], i, 0, seconds, told);
        int status = 0;
        while (waitpid(child, &status, 0) < 0) {
        }
        printf("%s: %ld refused, %ld read\n", kinds[i].name, told->refused, told->read);
        CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                  "%s, trial %ld: %s %d; replay with REDPOLL_TEST_TRIAL=%ld", kinds[i].name,
                  told->trial, WIFSIGNALED(status) ? "killed by signal" : "exit code",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), told->trial);
        CHECK(told->refused + told->read > 0);
        munmap(told, sizeof *told);
    }
}

CASES({"damage is refused or does no harm", damage_is_refused_or_does_no_harm})
