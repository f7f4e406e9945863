/* Checkpoints of pieces: what any layout of ranks has saved, any other reads; and what is
 * damaged is named. */
#include "harness/check.h"

#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/piece_files.h"
#include "train_ranks.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- tensors and layouts ---- */

/* A row a kind of tensor. Stages: that hold it where there are two or more. */
typedef struct tensor_row {
    const char *name;
    rpi_shape shape;
    rpi_shard shard;
    int first_stage, last_stage;
} tensor_row;

enum { TENSORS = 11, MOST = 4096 };

static void list_tensors(tensor_row out[TENSORS]) {
    const tensor_row rows[TENSORS] = {
        {"norm", {1, {13}}, {0}, 0, 0},
        {"columns", {2, {24, 10}}, rpi_shard_cut(0, 24), 0, 0},
        {"rows", {2, {10, 24}}, rpi_shard_cut(1, 24), 1, 1},
        {"uneven", {2, {13, 5}}, rpi_shard_cut(0, 13), 1, 1},
        {"bias", {1, {9}}, {.kind = RPI_SHARD_FIRST}, 0, 0},
        {"qkv", {2, {48, 6}}, rpi_shard_qkv(0, 8, 4, 3, false), 0, 0},
        {"qkv.grouped", {2, {48, 6}}, rpi_shard_qkv(0, 8, 4, 3, true), 1, 1},
        {"qkv.shared", {2, {30, 4}}, rpi_shard_qkv(0, 8, 1, 3, false), 0, 0},
        {"qkv.across", {2, {4, 30}}, rpi_shard_qkv(1, 8, 1, 3, false), 1, 1},
        {"gate.up", {3, {2, 32, 3}}, rpi_shard_pair(1, 16), 0, 0},
        {"table", {2, {64, 6}}, rpi_shard_cut(0, 64), 0, 1},
    };
    memcpy(out, rows, sizeof rows);
}

/* A row a layout: tensor x context x data x stage; sliced: replicas save a slice each. */
static const struct layout {
    rpi_grid grid;
    bool sliced;
} layouts[] = {
    {{{1, 1, 1, 1}}, false}, {{{2, 1, 1, 1}}, false}, {{{1, 1, 2, 2}}, true},
    {{{2, 1, 2, 2}}, true},  {{{1, 1, 3, 1}}, true},  {{{1, 1, 8, 1}}, true},
    {{{4, 1, 1, 1}}, false}, {{{8, 1, 1, 1}}, false}, {{{2, 2, 1, 2}}, false},
    {{{4, 1, 2, 2}}, false}, {{{1, 1, 4, 1}}, false}, {{{2, 1, 1, 3}}, true},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0], STEP = 7 };

static int stage_of(const rpi_grid *grid, int stage) {
    int last = grid->size[RPI_AXIS_STAGE] - 1;
    return stage < last ? stage : last;
}

static rpi_piece_saver saver_of(const struct layout *l, const tensor_row *row, int rank) {
    return (rpi_piece_saver){.grid = &l->grid,
                             .rank = rank,
                             .replicas = l->sliced ? RPI_REPLICAS_SLICE : RPI_REPLICAS_COPY,
                             .first_stage = stage_of(&l->grid, row->first_stage),
                             .last_stage = stage_of(&l->grid, row->last_stage)};
}

static rpi_tensor_piece tensor_of(const tensor_row *row) {
    rpi_tensor_piece tensor = rpi_piece_whole(row->name, &row->shape);
    tensor.shard = row->shard;
    return tensor;
}

/* Element i of a whole tensor. */
static float element(const tensor_row *row, int64_t i) {
    return (float)(row->name[0] * 8192 + i);
}

/* All that a tensor rank has of a tensor: a piece; false: nothing. */
static bool held_by(const tensor_row *row, int ranks, int rank, rpi_tensor_piece *out) {
    rpi_shard_record record = {.name = row->name, .dims = row->shape.dims, .shard = row->shard};
    for (int d = 0; d < record.dims; d++) record.shape[d] = row->shape.size[d];
    *out = tensor_of(row);
    out->ranks = ranks;
    out->rank = rank;
    out->count = rpi_shard_count(&record, ranks, rank);
    return out->count > 0;
}

static void fill(const tensor_row *row, const rpi_tensor_piece *piece, float *out) {
    rpi_piece_walk walk;
    rpi_shard_run run;
    int64_t end = 0;
    rpi_piece_begin(piece, &walk);
    while (rpi_piece_next(&walk, &run)) {
        CHECK(run.whole >= end); /* in the order of the whole */
        end = run.whole + run.count;
        for (int64_t i = 0; i < run.count; i++)
            out[run.local + i] = element(row, run.whole + i);
    }
}

/* ---- writing ---- */

static const char *folder_of(const char *name) {
    const char *folder = ranks_folder(name);
    (void)mkdir(folder, 0700);
    return folder;
}

static void write_rank(const char *folder, const struct layout *l, int rank) {
    tensor_row rows[TENSORS];
    static float elements[TENSORS][MOST];
    rpi_piece_list list = {0};
    char path[RPI_CHECKPOINT_PATH], part[64];
    const char *text = NULL;
    int world = rpi_grid_world(&l->grid);
    int at = rpi_grid_place_of(&l->grid, rank).at[RPI_AXIS_TENSOR];
    list_tensors(rows);
    for (int i = 0; i < TENSORS; i++) {
        rpi_tensor_piece held, tensor = tensor_of(&rows[i]);
        const rpi_piece_saver saver = saver_of(l, &rows[i], rank);
        if (held_by(&rows[i], l->grid.size[RPI_AXIS_TENSOR], at, &held))
            fill(&rows[i], &held, elements[i]);
        REQUIRE_OK(rpi_piece_list_share(&list, &tensor, &saver, elements[i]));
    }
    REQUIRE_OK(rpi_piece_list_text(&list, &text));
    rpi_checkpoint_rank_path(folder, rank, world, STEP, path);
    rpi_checkpoint_part_text(rank, world, STEP, part, sizeof part);
    const rpi_metadata metadata[] = {{"part", part}, {RPI_PIECES_KEY, text}};
    REQUIRE_OK(rpi_safetensors_write(path, list.tensors, list.count, metadata, 2));
    rpi_piece_list_close(&list);
}

static void write_model(const char *folder, int ranks) {
    char text[16], path[RPI_CHECKPOINT_PATH];
    const float states[] = {3, 4};
    const rpi_named_tensor whole = {"states", RP_F32, {1, {2}}, states};
    const rpi_metadata metadata[] = {{"step", "7"}, {RPI_PIECE_RANKS_KEY, text}};
    snprintf(text, sizeof text, "%d", ranks);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    REQUIRE_OK(rpi_safetensors_write(path, &whole, 1, metadata, 2));
}

static void write_all(const char *folder, const struct layout *l) {
    int world = rpi_grid_world(&l->grid);
    for (int rank = 0; rank < world; rank++) write_rank(folder, l, rank);
    write_model(folder, world);
}

/* ---- reading ---- */

typedef struct reader {
    rpi_safetensors *model;
    rpi_piece_files *files;
} reader;

static rp_status open_reader(const char *folder, reader *r) {
    char path[RPI_CHECKPOINT_PATH];
    *r = (reader){0};
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    RP_TRY(rpi_safetensors_open(path, &r->model));
    return rpi_piece_files_open(r->model, folder, &r->files);
}

static void close_reader(reader *r) {
    rpi_piece_files_close(r->files);
    rpi_safetensors_close(r->model);
}

static void check_read(const reader *r, const tensor_row *row, const rpi_tensor_piece *wanted) {
    static float got[MOST], expected[MOST];
    memset(got, 0xff, sizeof got);
    fill(row, wanted, expected);
    REQUIRE_OK(rpi_piece_files_read(r->files, wanted, got));
    CHECK_MSG(!memcmp(got, expected, (size_t)wanted->count * sizeof *got),
              "%s, rank %d of %d, from %lld", row->name, wanted->rank, wanted->ranks,
              (long long)wanted->first);
}

/* All that each tensor rank of a layout has, the middle of it, and single elements. */
static void read_layout(const reader *r, int ranks) {
    tensor_row rows[TENSORS];
    list_tensors(rows);
    for (int i = 0; i < TENSORS; i++) {
        for (int rank = 0; rank < ranks; rank++) {
            rpi_tensor_piece all, part;
            if (!held_by(&rows[i], ranks, rank, &all)) continue;
            check_read(r, &rows[i], &all);
            part = all;
            part.first = all.count / 3;
            part.count = all.count - 2 * part.first;
            check_read(r, &rows[i], &part);
            part.first = all.count - 1;
            part.count = 1;
            check_read(r, &rows[i], &part);
        }
    }
}

static int64_t elements_of(const rpi_safetensors *file) {
    int64_t sum = 0;
    for (int i = 0; i < rpi_safetensors_count(file); i++)
        sum += rpi_shape_count(&rpi_safetensors_at(file, i)->shape);
    return sum;
}

/* All ranks together have saved each element once. */
static void check_sum(const char *folder, const struct layout *l) {
    tensor_row rows[TENSORS];
    int world = rpi_grid_world(&l->grid);
    int64_t sum = 0, all = 0;
    list_tensors(rows);
    for (int i = 0; i < TENSORS; i++) all += rpi_shape_count(&rows[i].shape);
    for (int rank = 0; rank < world; rank++) {
        rpi_safetensors *file = NULL;
        REQUIRE_OK(rpi_checkpoint_open_rank(NULL, folder, rank, world, STEP, &file));
        sum += elements_of(file);
        rpi_safetensors_close(file);
    }
    CHECK_EQ(sum, all);
}

static void any_layout_reads_any_other(void) {
    for (int from = 0; from < LAYOUTS; from++) {
        char name[32];
        reader r;
        snprintf(name, sizeof name, "layout-%d", from);
        const char *folder = folder_of(name);
        write_all(folder, &layouts[from]);
        check_sum(folder, &layouts[from]);
        REQUIRE_OK(open_reader(folder, &r));
        for (int ranks = 1; ranks <= 8; ranks *= 2) read_layout(&r, ranks);
        float states[2];
        CHECK_OK(rpi_piece_files_read_whole(r.files, "states", &(rpi_shape){1, {2}}, states));
        CHECK(states[0] == 3 && states[1] == 4);
        close_reader(&r);
    }
}

/* A file of today has whole tensors, and any piece of them can be read. */
static void one_piece_is_a_whole_tensor(void) {
    tensor_row rows[TENSORS];
    static float elements[TENSORS][MOST];
    rpi_named_tensor tensors[TENSORS];
    const rpi_metadata metadata[] = {{"step", "7"}};
    char path[RPI_CHECKPOINT_PATH];
    reader r;
    const char *folder = folder_of("today");
    list_tensors(rows);
    for (int i = 0; i < TENSORS; i++) {
        const rpi_tensor_piece whole = rpi_piece_whole(rows[i].name, &rows[i].shape);
        fill(&rows[i], &whole, elements[i]);
        tensors[i] = (rpi_named_tensor){rows[i].name, RP_F32, rows[i].shape, elements[i]};
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    REQUIRE_OK(rpi_safetensors_write(path, tensors, TENSORS, metadata, 1));
    REQUIRE_OK(open_reader(folder, &r));
    for (int ranks = 1; ranks <= 8; ranks *= 2) read_layout(&r, ranks);
    rpi_tensor_piece other = rpi_piece_whole("rows", &(rpi_shape){2, {24, 10}});
    float out[MOST];
    CHECK_FAILS(rpi_piece_files_read(r.files, &other, out), MISMATCH, "rows is f32 10x24");
    other.count = 5;
    CHECK_FAILS(rpi_piece_files_read(r.files, &other, out), MISMATCH, "rows is 10x24, not");
    other = rpi_piece_whole("nobody", &(rpi_shape){1, {3}});
    CHECK_FAILS(rpi_piece_files_read(r.files, &other, out), NOT_FOUND, "no tensor nobody");
    close_reader(&r);
}

/* ---- damage ---- */

/* A file of a rank with pieces that somebody says are such. */
typedef struct damage {
    const char *name, *fails;
    const char *first, *second; /* the lists of two ranks; NULL: no list */
    int64_t first_count, second_count;
    const char *first_entry, *second_entry;
} damage;

#define PIECE(shape, first, count)                                                             \
    "{\"tensor\":\"w\",\"shape\":[" shape                                                      \
    "],\"shard\":{\"kind\":\"whole\"},\"ranks\":1,\"rank\":0,\"first\":" #first                \
    ",\"count\":" #count "}"
#define CUT(shard)                                                                             \
    "[{\"tensor\":\"w\",\"shape\":[8],\"shard\":" shard                                        \
    ",\"ranks\":2,\"rank\":0,\"first\":0,\"count\":4}]"
#define FIRST  "[" PIECE("8", 0, 4) "]"
#define SECOND "[" PIECE("8", 4, 4) "]"

static const damage damages[] = {
    {"sound", NULL, FIRST, SECOND, 4, 4, "w@0", "w@4"},
    {"no list", "has no list of pieces", FIRST, NULL, 4, 4, "w@0", "w@4"},
    {"no json", "has no list of pieces", FIRST, "nonsense", 4, 4, "w@0", "w@4"},
    {"no array", "has no list of pieces", FIRST, "{}", 4, 4, "w@0", "w@4"},
    {"a gap", "pieces of w have 7 of its 8 elements", FIRST, "[" PIECE("8", 5, 3) "]", 4, 3,
     "w@0", "w@5"},
    {"twice", "element 3 of w is in two pieces", FIRST, "[" PIECE("8", 3, 5) "]", 4, 5, "w@0",
     "w@3"},
    {"twice and a gap", "element 2 of w is in two pieces", FIRST, "[" PIECE("8", 2, 4) "]", 4,
     4, "w@0", "w@2"},
    {"missing", "lacks the piece of w that begins at 4", FIRST, SECOND, 4, 4, "w@0", "w@5"},
    {"short", "w@4 is not of 4 elements of f32", FIRST, SECOND, 4, 3, "w@0", "w@4"},
    {"other shapes", "pieces of w are of different shapes", FIRST, "[" PIECE("4, 2", 4, 4) "]",
     4, 4, "w@0", "w@4"},
    {"no name", "a piece names no tensor", FIRST, "[{}]", 4, 4, "w@0", "w@4"},
    {"no piece", "a piece names no tensor", FIRST, "[7]", 4, 4, "w@0", "w@4"},
    {"no shape", "the piece of w is described wrongly", FIRST, "[{\"tensor\":\"w\"}]", 4, 4,
     "w@0", "w@4"},
    {"beyond", "5 elements from 4 on, of 8", FIRST, "[" PIECE("8", 4, 5) "]", 4, 5, "w@0",
     "w@4"},
    {"negative", "described wrongly", FIRST, "[" PIECE("8", -4, 4) "]", 4, 4, "w@0", "w@-4"},
    {"a fraction", "described wrongly", FIRST, "[" PIECE("8", 4.5, 4) "]", 4, 4, "w@0", "w@4"},
    {"too large", "described wrongly", FIRST, "[" PIECE("4000000000, 4000000000", 4, 4) "]", 4,
     4, "w@0", "w@4"},
    {"too many axes", "described wrongly", FIRST,
     "[" PIECE("8, 1, 1, 1, 1, 1, 1, 1, 1", 4, 4) "]", 4, 4, "w@0", "w@4"},
    {"no kind", "described wrongly", FIRST, CUT("{\"kind\":\"half\"}"), 4, 4, "w@0", "w@0"},
    {"no axis", "described wrongly", FIRST,
     CUT("{\"kind\":\"cut\",\"axis\":1,\"repeats\":1,\"sections\":[[8,1]]}"), 4, 4, "w@0",
     "w@0"},
    {"no section", "described wrongly", FIRST,
     CUT("{\"kind\":\"cut\",\"axis\":0,\"repeats\":1,\"sections\":[[8]]}"), 4, 4, "w@0", "w@0"},
    {"no sections", "in 0 sections", FIRST,
     CUT("{\"kind\":\"cut\",\"axis\":0,\"repeats\":1,\"sections\":[]}"), 4, 4, "w@0", "w@0"},
    {"a short section", "sections are 7 long", FIRST,
     CUT("{\"kind\":\"cut\",\"axis\":0,\"repeats\":1,\"sections\":[[7,1]]}"), 4, 4, "w@0",
     "w@0"},
    {"a long section", "described wrongly", FIRST,
     CUT("{\"kind\":\"cut\",\"axis\":0,\"repeats\":1,\"sections\":[[8,4000000000]]}"), 4, 4,
     "w@0", "w@0"},
};

static void write_damaged(const char *folder, const damage *d, int rank) {
    const float elements[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const rpi_named_tensor tensor = {rank ? d->second_entry : d->first_entry,
                                     RP_F32,
                                     {1, {rank ? d->second_count : d->first_count}},
                                     elements};
    const char *list = rank ? d->second : d->first;
    char path[RPI_CHECKPOINT_PATH], part[64];
    rpi_checkpoint_rank_path(folder, rank, 2, STEP, path);
    rpi_checkpoint_part_text(rank, 2, STEP, part, sizeof part);
    const rpi_metadata metadata[] = {{"part", part}, {RPI_PIECES_KEY, list}};
    REQUIRE_OK(rpi_safetensors_write(path, &tensor, 1, metadata, list ? 2 : 1));
}

static void damage_is_named(void) {
    const char *folder = folder_of("damaged");
    write_model(folder, 2);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        reader r;
        for (int rank = 0; rank < 2; rank++) write_damaged(folder, &damages[i], rank);
        rp_status status = open_reader(folder, &r);
        if (damages[i].fails)
            CHECK_FAILS(status, CORRUPT, damages[i].fails);
        else
            CHECK_OK(status);
        close_reader(&r);
    }
}

static void files_are_named(void) {
    const struct layout two = {{{1, 1, 2, 1}}, true};
    const char *folder = folder_of("files");
    char path[RPI_CHECKPOINT_PATH], other[RPI_CHECKPOINT_PATH];
    reader r;
    write_all(folder, &two);
    rpi_checkpoint_rank_path(folder, 1, 2, STEP, path);
    rpi_checkpoint_rank_path(folder, 0, 2, STEP, other);
    REQUIRE(rename(other, path) == 0);
    write_rank(folder, &two, 0);
    CHECK_FAILS(open_reader(folder, &r), CORRUPT, "is the part of rank 0 of 2 of step 7");
    close_reader(&r);
    REQUIRE(unlink(path) == 0);
    CHECK_FAILS(open_reader(folder, &r), NOT_FOUND,
                "rank-1-of-2-step-7.safetensors is missing");
    close_reader(&r);
    write_rank(folder, &two, 1);
    REQUIRE(truncate(path, 900) == 0);
    CHECK_FAILS(open_reader(folder, &r), CORRUPT, "rank-1-of-2-step-7.safetensors");
    close_reader(&r);
    write_rank(folder, &two, 1);
    REQUIRE_OK(open_reader(folder, &r));
    close_reader(&r);
}

static void memory_may_run_out(void) {
    const struct layout two = {{{2, 1, 1, 1}}, false};
    const char *folder = folder_of("memory");
    reader r;
    write_all(folder, &two);
    rpi_memory_fail_after(0);
    REQUIRE_OK(open_reader(folder, &r));
    long total = rpi_memory_fail_after(0);
    close_reader(&r);
    for (long n = 1; n <= total; n++) {
        rpi_memory_fail_after(n);
        CHECK_FAILS(open_reader(folder, &r), NOMEM, "no memory");
        rpi_memory_fail_after(0);
        close_reader(&r);
    }
}

/* A name that no file of ours could hold is refused when it is saved. */
static void names_fit(void) {
    char name[300];
    const float element = 1;
    rpi_piece_list list = {0};
    memset(name, 'w', sizeof name);
    name[sizeof name - 1] = '\0';
    rpi_tensor_piece piece = rpi_piece_whole(name, &(rpi_shape){1, {1}});
    CHECK_FAILS(rpi_piece_list_add(&list, &piece, &element), INVALID, "name is too long");
    rpi_piece_list_close(&list);
}

/* ---- JSON ---- */

static void json_says_the_same(void) {
    tensor_row rows[TENSORS];
    list_tensors(rows);
    for (int i = 0; i < TENSORS; i++) {
        for (int ranks = 1; ranks <= 8; ranks *= 2) {
            rpi_tensor_piece piece, again;
            if (!held_by(&rows[i], ranks, ranks / 2, &piece)) continue;
            piece.first = piece.count / 2;
            piece.count -= piece.first;
            cJSON *json = rpi_piece_to_json(&piece);
            REQUIRE(json);
            REQUIRE_OK(rpi_piece_from_json(json, &again));
            CHECK(!strcmp(again.tensor, piece.tensor));
            again.tensor = piece.tensor;
            CHECK(!memcmp(&again.shard, &piece.shard, sizeof piece.shard));
            CHECK(rpi_shape_equal(&again.shape, &piece.shape) && again.ranks == piece.ranks &&
                  again.rank == piece.rank && again.first == piece.first &&
                  again.count == piece.count);
            cJSON_Delete(json);
        }
    }
}

/* ---- runs ---- */

static rpi_train_options run_options(const char *codec, const char *optimizer) {
    rpi_train_options options = ranks_options();
    options.model = "mlp:hidden=96";
    options.global_batch_size = 24;
    options.codec = codec;
    options.optimizer = optimizer;
    options.checkpoint = true;
    options.keep = 2;
    return options;
}

static void train(rpi_train_options options, const char *name, bool pieces, int world,
                  int64_t steps) {
    rpi_train_result result;
    options.checkpoint_pieces = pieces;
    options.out = ranks_folder(name);
    options.steps = steps;
    REQUIRE_OK(ranks_train(&options, world, &result));
}

/* Three ranks save after 3 steps, in pieces or not; `world` ranks go on to 5. The second save
 * is whole, so that its bytes can be compared. */
static void go_on(const char *codec, const char *optimizer, int world) {
    char names[2][64];
    for (int pieces = 0; pieces < 2; pieces++) {
        rpi_train_options options = run_options(codec, optimizer);
        snprintf(names[pieces], sizeof names[pieces], "run-%s-%s-%d-%d", codec, optimizer,
                 world, pieces);
        options.overwrite = true;
        train(options, names[pieces], pieces, 3, 3);
        options.overwrite = false;
        options.resume = ranks_folder(names[pieces]);
        train(options, names[pieces], false, world, 5);
    }
    CHECK_MSG(ranks_same_file(ranks_path(ranks_folder(names[0]), "model.safetensors"),
                              ranks_path(ranks_folder(names[1]), "model.safetensors")),
              "%s, %s: %d ranks go on otherwise from pieces", codec, optimizer, world);
}

static void runs_go_on_from_pieces(void) {
    go_on("q4", "sgd", 3);
    go_on("q4", "sgd", 2);
    go_on("fp32", "adamw", 1);
    go_on("fp32", "adamw", 4);
}

/* What is damaged of the newest in pieces: all go on from the one before, and say which. */
static void the_one_before_is_taken(void) {
    rpi_train_options options = run_options("fp32", "sgd");
    options.checkpoint_every = 2;
    options.overwrite = true;
    train(options, "before", true, 3, 4);
    options.overwrite = false;
    const char *folder = ranks_folder("before");
    REQUIRE(truncate(ranks_path(folder, "rank-1-of-3-step-4.safetensors"), 2000) == 0);
    options.resume = folder;
    train(options, "before", true, 3, 6);
    CHECK(strstr(ranks_notes(), "rank-1-of-3-step-4.safetensors") &&
          strstr(ranks_notes(), "going on from the one of step 2"));
    CHECK(access(ranks_path(folder, "rank-2-of-3-step-6.safetensors"), F_OK) == 0);
    options.resume = NULL;
    options.overwrite = true;
    train(options, "straight", true, 3, 6);
    for (int rank = 0; rank < 3; rank++) {
        char file[64];
        snprintf(file, sizeof file, "rank-%d-of-3-step-6.safetensors", rank);
        CHECK(ranks_same_file(ranks_path(folder, file),
                              ranks_path(ranks_folder("straight"), file)));
    }
    CHECK(access(ranks_path(ranks_folder("straight"), "rank-0-of-3-step-2.safetensors"),
                 F_OK) != 0);
}

CASES({"any_layout_reads_any_other", any_layout_reads_any_other},
      {"one_piece_is_a_whole_tensor", one_piece_is_a_whole_tensor},
      {"damage_is_named", damage_is_named}, {"files_are_named", files_are_named},
      {"memory_may_run_out", memory_may_run_out}, {"names_fit", names_fit},
      {"json_says_the_same", json_says_the_same},
      {"runs_go_on_from_pieces", runs_go_on_from_pieces},
      {"the_one_before_is_taken", the_one_before_is_taken})
