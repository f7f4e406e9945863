/* What tensor ranks save, others load, however many they are; and folders of Hugging Face. */
#include "harness/check.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/network_piece.h"
#include "train/huggingface/hf_config.h"
#include "train/huggingface/hf_weights.h"
#include "train_ranks.h"

#include <sys/stat.h>

enum { SAVED = 5, OTHER = 6, STEP = 7 };

static const rpi_data_shape data = {
    .sequence = 12, .vocabulary = 67, .channels = 3, .height = 32, .width = 32, .classes = 10};

/* ---- what a rank has ---- */

typedef struct holding {
    rpi_network network;
    rpi_weights *weights;
} holding;

static rp_status open_holding(const char *model, const rpi_data_shape *shape, int ranks,
                              int rank, uint64_t seed, holding *h) {
    static const rpi_loss_options plain;
    const rpi_tensor_split split = {.ranks = ranks, .rank = rank};
    *h = (holding){0};
    RP_TRY(rpi_network_build_split(model, shape, &plain, &split, &h->network));
    RP_TRY(rpi_weights_create(h->network.graph, h->network.loss, &h->weights));
    rpi_network_initialise(&h->network, h->weights, seed);
    return RP_OK;
}

static void close_holding(holding *h) {
    rpi_weights_destroy(h->weights);
    rpi_network_close(&h->network);
}

typedef struct elements {
    const float *whole, *own;
    int64_t same;
} elements;

static rp_status compare_run(void *context, const rpi_parameter *parameter,
                             const rpi_shard_run *run) {
    elements *e = context;
    bool same =
        !memcmp(e->whole + run->whole, e->own + run->local, (size_t)run->count * sizeof(float));
    CHECK_MSG(same, "%s from %lld on", parameter->name, (long long)run->whole);
    e->same += run->count;
    return RP_OK;
}

/* Each of its elements is that of the whole. */
static void compare(const holding *whole, const holding *part) {
    int64_t compared = 0;
    for (int i = 0; i < part->network.parameter_count; i++) {
        const rpi_weight *weight =
            rpi_weights_find(whole->weights, part->network.parameters[i].name);
        REQUIRE(weight);
        elements e = {.whole = rpi_weights_value_at(whole->weights, weight->index),
                      .own = rpi_network_elements(&part->network, part->weights, i)};
        CHECK_OK(rpi_network_runs(&part->network, i, compare_run, &e));
        compared += e.same;
    }
    CHECK_EQ(compared, rpi_weights_count(part->weights));
}

/* ---- pieces ---- */

static void save_rank(const char *folder, const char *model, int ranks, int rank) {
    holding h;
    rpi_piece_list list = {0};
    const char *text = NULL;
    char path[RPI_CHECKPOINT_PATH], part[64];
    const rpi_grid grid = {{ranks, 1, 1, 1}};
    const rpi_piece_saver saver = {.grid = &grid, .rank = rank};
    REQUIRE_OK(open_holding(model, &data, ranks, rank, SAVED, &h));
    for (int i = 0; i < h.network.parameter_count; i++) {
        rpi_tensor_piece piece = rpi_network_piece(&h.network, i);
        REQUIRE_OK(rpi_piece_list_share(&list, &piece, &saver,
                                        rpi_network_elements(&h.network, h.weights, i)));
    }
    REQUIRE_OK(rpi_piece_list_text(&list, &text));
    rpi_checkpoint_rank_path(folder, rank, ranks, STEP, path);
    rpi_checkpoint_part_text(rank, ranks, STEP, part, sizeof part);
    const rpi_metadata metadata[] = {{"part", part}, {RPI_PIECES_KEY, text}};
    REQUIRE_OK(rpi_safetensors_write(path, list.tensors, list.count, metadata, 2));
    rpi_piece_list_close(&list);
    close_holding(&h);
}

static const char *save_model(const char *name, const char *model, int ranks) {
    char text[16];
    const float nothing = 0;
    const char *folder = ranks_folder(name);
    const rpi_named_tensor states = {"states", RP_F32, {1, {1}}, &nothing};
    const rpi_metadata metadata[] = {{"step", "7"}, {RPI_PIECE_RANKS_KEY, text}};
    (void)mkdir(folder, 0700);
    for (int rank = 0; rank < ranks; rank++) save_rank(folder, model, ranks, rank);
    snprintf(text, sizeof text, "%d", ranks);
    CHECK_OK(rpi_safetensors_write(ranks_path(folder, "model.safetensors"), &states, 1,
                                   metadata, 2));
    return folder;
}

static void load_in(const char *folder, const char *model, int ranks) {
    rpi_safetensors *file = NULL;
    rpi_piece_files *files = NULL;
    holding whole, part;
    REQUIRE_OK(open_holding(model, &data, 1, 0, SAVED, &whole));
    REQUIRE_OK(rpi_safetensors_open(ranks_path(folder, "model.safetensors"), &file));
    REQUIRE_OK(rpi_piece_files_open(file, folder, &files));
    for (int rank = 0; rank < ranks; rank++) {
        REQUIRE_OK(open_holding(model, &data, ranks, rank, OTHER, &part));
        CHECK_OK(rpi_network_read(&part.network, files, part.weights));
        compare(&whole, &part);
        close_holding(&part);
    }
    rpi_piece_files_close(files);
    rpi_safetensors_close(file);
    close_holding(&whole);
}

/* Models, and ranks that save and load each: all pairs of them. */
static const struct saved_row {
    const char *model;
    int ranks[4];
} saved[] = {
    {"gpt2:layers=1,hidden=24,heads=6,vocabulary=67,positions=16", {1, 2, 3, 6}},
    {"llama:layers=1,hidden=24,heads=6,kv-heads=2,intermediate=34,head=4,vocabulary=67,"
     "qk-norm=on,attention-bias=on",
     {1, 2, 6}},
    {"bert:layers=1,hidden=24,heads=6,vocabulary=67,positions=16", {1, 3}},
    {"vit:layers=1,hidden=24,heads=6", {2, 3}},
};

static void pieces_fit_any_ranks(void) {
    char name[32];
    for (size_t m = 0; m < sizeof saved / sizeof saved[0]; m++)
        for (int i = 0; i < 4 && saved[m].ranks[i]; i++) {
            snprintf(name, sizeof name, "model%zu-%d", m, saved[m].ranks[i]);
            const char *folder = save_model(name, saved[m].model, saved[m].ranks[i]);
            for (int k = 0; k < 4 && saved[m].ranks[k]; k++)
                load_in(folder, saved[m].model, saved[m].ranks[k]);
        }
}

/* ---- folders of Hugging Face ---- */

static const rpi_data_shape of_folders = {
    .sequence = 12, .channels = 3, .height = 12, .width = 12, .classes = 10};

static const struct golden_row {
    const char *name;
    int ranks[3];
} golden[] = {
    {"gpt2", {2, 4}}, {"llama", {2, 4}}, {"qwen2", {2, 4}}, {"qwen3", {2, 4}},
    {"mistral", {2}}, {"bert", {2}},     {"vit", {2, 4}},
};

static void load_golden(const struct golden_row *row) {
    char folder[600], model[RPI_MODEL_TEXT], note[4096];
    const rpi_hf_family *family = NULL;
    holding whole, part;
    snprintf(folder, sizeof folder, "%s/%s", HUGGINGFACE_GOLDEN, row->name);
    REQUIRE_OK(rpi_hf_config_read(folder, model, &family));
    REQUIRE_OK(open_holding(model, &of_folders, 1, 0, SAVED, &whole));
    REQUIRE_OK(rpi_hf_load(folder, &whole.network, whole.weights, true, note, sizeof note));
    for (int i = 0; i < 3 && row->ranks[i]; i++)
        for (int rank = 0; rank < row->ranks[i]; rank++) {
            char other[4096];
            REQUIRE_OK(open_holding(model, &of_folders, row->ranks[i], rank, SAVED, &part));
            CHECK_OK(
                rpi_hf_load(folder, &part.network, part.weights, true, other, sizeof other));
            CHECK_MSG(strcmp(other, rank ? "" : note) == 0, "%s", other);
            compare(&whole, &part);
            close_holding(&part);
        }
    close_holding(&whole);
}

static void hugging_face_folders(void) {
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) load_golden(&golden[i]);
}

CASES({"pieces fit any ranks", pieces_fit_any_ranks},
      {"hugging face folders", hugging_face_folders})
