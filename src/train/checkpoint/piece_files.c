#include "train/checkpoint/piece_files.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/checkpoint/checkpoint_files.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A piece in a file. */
typedef struct stored {
    rpi_tensor_piece piece;
    const rpi_safetensors *file;
    const rpi_named_tensor *entry;
} stored;

struct rpi_piece_files {
    const rpi_safetensors *model;
    rpi_safetensors **ranks; /* files */
    cJSON **lists;           /* the lists of their pieces, which own the names */
    int rank_count;
    stored *pieces; /* in the order of tensors */
    int count, room;
};

/* ---- opening ---- */

static rp_status note(rpi_piece_files *files, const stored *one) {
    if (files->count == files->room) {
        size_t grown = files->room ? 2 * (size_t)files->room : 64;
        RP_TRY(rpi_grow_array((size_t)files->count, grown, sizeof *files->pieces, "pieces",
                              &files->pieces));
        files->room = (int)grown;
    }
    files->pieces[files->count++] = *one;
    return RP_OK;
}

static rp_status take_piece(rpi_piece_files *files, const rpi_safetensors *file,
                            const cJSON *item) {
    char name[256];
    stored one = {.file = file};
    rp_status status = rpi_piece_from_json(item, &one.piece);
    if (status != RP_OK)
        return rpi_fail_context(status, "%s is damaged: ", rpi_safetensors_path(file));
    int length =
        snprintf(name, sizeof name, "%s@%lld", one.piece.tensor, (long long)one.piece.first);
    if (length > 0 && length < (int)sizeof name) one.entry = rpi_safetensors_find(file, name);
    if (!one.entry)
        return RP_FAIL(CORRUPT, "%s is damaged: it lacks the piece of %s that begins at %lld",
                       rpi_safetensors_path(file), one.piece.tensor,
                       (long long)one.piece.first);
    if (one.entry->dtype != RP_F32 || rpi_shape_count(&one.entry->shape) != one.piece.count)
        return RP_FAIL(CORRUPT, "%s is damaged: %s is not of %lld elements of f32",
                       rpi_safetensors_path(file), name, (long long)one.piece.count);
    return note(files, &one);
}

static rp_status take_list(rpi_piece_files *files, int rank) {
    const rpi_safetensors *file = files->ranks[rank];
    const char *text = rpi_safetensors_metadata(file, RPI_PIECES_KEY);
    files->lists[rank] = text ? cJSON_Parse(text) : NULL;
    if (!cJSON_IsArray(files->lists[rank]))
        return RP_FAIL(CORRUPT, "%s has no list of pieces, and the model is of such",
                       rpi_safetensors_path(file));
    const cJSON *item;
    cJSON_ArrayForEach(item, files->lists[rank]) RP_TRY(take_piece(files, file, item));
    return RP_OK;
}

static rp_status open_ranks(rpi_piece_files *files, const char *folder, int64_t ranks,
                            int64_t step) {
    RP_TRY(rpi_alloc_array((size_t)ranks, sizeof *files->ranks, "files", &files->ranks));
    RP_TRY(rpi_alloc_array((size_t)ranks, sizeof *files->lists, "files", &files->lists));
    files->rank_count = (int)ranks;
    for (int r = 0; r < files->rank_count; r++) {
        RP_TRY(rpi_checkpoint_open_rank(files->model, folder, r, files->rank_count, step,
                                        &files->ranks[r]));
        RP_TRY(take_list(files, r));
    }
    return RP_OK;
}

/* ---- is each element there once? ---- */

static int by_tensor(const void *a, const void *b) {
    const stored *x = a, *y = b;
    int names = strcmp(x->piece.tensor, y->piece.tensor);
    if (names) return names;
    if (x->piece.rank != y->piece.rank) return x->piece.rank < y->piece.rank ? -1 : 1;
    return x->piece.first < y->piece.first ? -1 : x->piece.first > y->piece.first;
}

/* A run of a whole tensor, and the piece that contains it. */
typedef struct covered {
    int64_t whole, count;
    const stored *by;
} covered;

typedef struct cover {
    covered *runs;
    int64_t count, room;
} cover;

static int by_place(const void *a, const void *b) {
    const covered *x = a, *y = b;
    return x->whole < y->whole ? -1 : x->whole > y->whole;
}

static rp_status add_runs(cover *c, const stored *one) {
    rpi_piece_walk walk;
    rpi_shard_run run;
    rpi_piece_begin(&one->piece, &walk);
    while (rpi_piece_next(&walk, &run)) {
        if (c->count == c->room) {
            size_t grown = c->room ? 2 * (size_t)c->room : 256;
            RP_TRY(rpi_grow_array((size_t)c->count, grown, sizeof *c->runs, "runs", &c->runs));
            c->room = (int64_t)grown;
        }
        c->runs[c->count++] = (covered){run.whole, run.count, one};
    }
    return RP_OK;
}

static rp_status look_for_gaps(const cover *c, const stored *first, int64_t elements) {
    int64_t end = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const covered *run = &c->runs[i];
        if (run->whole < end)
            return RP_FAIL(CORRUPT, "element %lld of %s is in two pieces: in %s and in %s",
                           (long long)run->whole, first->piece.tensor,
                           rpi_safetensors_path(c->runs[i - 1].by->file),
                           rpi_safetensors_path(run->by->file));
        if (run->whole > end) break;
        end = run->whole + run->count;
    }
    if (end == elements) return RP_OK;
    return RP_FAIL(CORRUPT, "element %lld of %s is in no piece", (long long)end,
                   first->piece.tensor);
}

/* Checks pieces [first, first + count), which are of one tensor. The sum of their counts is
 * checked first, because it bounds the work that a damaged file can cause. */
static rp_status check_tensor(const stored *first, int count, cover *c) {
    int64_t sum = 0, elements = rpi_shape_count(&first->piece.shape);
    c->count = 0;
    for (int i = 0; i < count; i++) {
        if (!rpi_shape_equal(&first[i].piece.shape, &first->piece.shape))
            return RP_FAIL(CORRUPT, "pieces of %s are of different shapes in %s and in %s",
                           first->piece.tensor, rpi_safetensors_path(first->file),
                           rpi_safetensors_path(first[i].file));
        sum += first[i].piece.count;
    }
    if (sum < elements)
        return RP_FAIL(CORRUPT, "pieces of %s have %lld of its %lld elements",
                       first->piece.tensor, (long long)sum, (long long)elements);
    for (int i = 0; i < count; i++) RP_TRY(add_runs(c, &first[i]));
    qsort(c->runs, (size_t)c->count, sizeof *c->runs, by_place);
    return look_for_gaps(c, first, elements);
}

static int count_alike(const rpi_piece_files *files, int first) {
    int count = 1;
    while (first + count < files->count && !strcmp(files->pieces[first + count].piece.tensor,
                                                   files->pieces[first].piece.tensor))
        count++;
    return count;
}

static rp_status check_cover(rpi_piece_files *files) {
    cover c = {0};
    rp_status status = RP_OK;
    if (files->count)
        qsort(files->pieces, (size_t)files->count, sizeof *files->pieces, by_tensor);
    for (int i = 0, n = 0; i < files->count && status == RP_OK; i += n) {
        n = count_alike(files, i);
        status = check_tensor(&files->pieces[i], n, &c);
        if (status == RP_OK &&
            rpi_safetensors_find(files->model, files->pieces[i].piece.tensor))
            status = RP_FAIL(CORRUPT, "%s is in %s, and in pieces",
                             files->pieces[i].piece.tensor, rpi_safetensors_path(files->model));
    }
    rpi_free(c.runs);
    return status;
}

rp_status rpi_piece_files_open(const rpi_safetensors *model, const char *folder,
                               rpi_piece_files **out_files) {
    rpi_piece_files *files = NULL;
    const char *path = rpi_safetensors_path(model);
    int64_t ranks = 0, step = 0;
    rp_status status = RP_OK;
    RP_TRY(rpi_alloc(sizeof *files, "a checkpoint", &files));
    files->model = model;
    if (rpi_safetensors_metadata(model, RPI_PIECE_RANKS_KEY)) {
        status =
            rpi_checkpoint_number(model, path, RPI_PIECE_RANKS_KEY, 1, RPI_GRID_RANKS, &ranks);
        if (status == RP_OK)
            status = rpi_checkpoint_number(model, path, "step", 0, INT64_MAX, &step);
        if (status == RP_OK) status = open_ranks(files, folder, ranks, step);
        if (status == RP_OK) status = check_cover(files);
    }
    if (status == RP_OK)
        *out_files = files;
    else
        rpi_piece_files_close(files);
    return status;
}

void rpi_piece_files_close(rpi_piece_files *files) {
    if (!files) return;
    for (int r = 0; r < files->rank_count; r++) {
        rpi_safetensors_close(files->ranks[r]);
        cJSON_Delete(files->lists[r]);
    }
    rpi_free(files->ranks);
    rpi_free(files->lists);
    rpi_free(files->pieces);
    rpi_free(files);
}

/* ---- reading ---- */

/* Elements that two pieces of a tensor have in common, and where they lie in each. */
typedef struct common {
    int64_t a, b, count;
} common;

typedef struct meeting {
    rpi_piece_walk walks[2];
    rpi_shard_run runs[2];
    bool goes_on;
} meeting;

static void meet(const rpi_tensor_piece *a, const rpi_tensor_piece *b, meeting *m) {
    rpi_piece_begin(a, &m->walks[0]);
    rpi_piece_begin(b, &m->walks[1]);
    m->goes_on =
        rpi_piece_next(&m->walks[0], &m->runs[0]) && rpi_piece_next(&m->walks[1], &m->runs[1]);
}

/* Both walk through the tensor in its order, so that the run that ends first is done. */
static bool next_common(meeting *m, common *out) {
    *out = (common){0};
    while (m->goes_on && out->count == 0) {
        const rpi_shard_run *x = &m->runs[0], *y = &m->runs[1];
        int64_t first = x->whole > y->whole ? x->whole : y->whole;
        int64_t ends[] = {x->whole + x->count, y->whole + y->count};
        int sooner = ends[0] > ends[1];
        if (ends[sooner] > first)
            *out = (common){x->local + first - x->whole, y->local + first - y->whole,
                            ends[sooner] - first};
        m->goes_on = rpi_piece_next(&m->walks[sooner], &m->runs[sooner]);
    }
    return out->count > 0;
}

/* The range of a stored piece that contains everything that is wanted of it; count 0: nothing
 * is. */
static void find_span(const rpi_tensor_piece *piece, const rpi_tensor_piece *wanted,
                      int64_t *out_first, int64_t *out_count) {
    meeting m;
    common c;
    *out_first = *out_count = 0;
    meet(piece, wanted, &m);
    for (bool is_first = true; next_common(&m, &c); is_first = false) {
        if (is_first) *out_first = c.a;
        *out_count = c.a + c.count - *out_first;
    }
}

static void scatter(const rpi_tensor_piece *piece, const rpi_tensor_piece *wanted,
                    const float *read, int64_t first, float *out) {
    meeting m;
    common c;
    meet(piece, wanted, &m);
    while (next_common(&m, &c))
        memcpy(out + c.b, read + (c.a - first), (size_t)c.count * sizeof *out);
}

/* Reads what a stored piece has of the wanted piece. */
static rp_status read_stored(const stored *one, const rpi_tensor_piece *wanted, float *out) {
    int64_t first, count;
    float *read = NULL;
    find_span(&one->piece, wanted, &first, &count);
    if (!count) return RP_OK;
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *read, "a piece", &read));
    rp_status status = rpi_safetensors_read_part(one->file, one->entry, first, count, read);
    if (status == RP_OK)
        status = rpi_safetensors_check_finite(one->file, one->entry->name, read, count);
    if (status == RP_OK) scatter(&one->piece, wanted, read, first, out);
    rpi_free(read);
    return status;
}

static bool is_whole(const rpi_tensor_piece *piece) {
    return piece->shard.kind == RPI_SHARD_WHOLE && piece->first == 0 &&
           piece->count == rpi_shape_count(&piece->shape);
}

static rp_status check_shape(const char *path, const rpi_shape *has,
                             const rpi_tensor_piece *wanted) {
    char there[96], here[96];
    if (rpi_shape_equal(has, &wanted->shape)) return RP_OK;
    return RP_FAIL(MISMATCH, "%s: %s is %s, not %s", path, wanted->tensor,
                   rpi_shape_text(has, there, sizeof there),
                   rpi_shape_text(&wanted->shape, here, sizeof here));
}

/* Reads from the model's own file. */
static rp_status read_model(const rpi_piece_files *files, const rpi_tensor_piece *wanted,
                            float *out) {
    const rpi_named_tensor *entry = rpi_safetensors_find(files->model, wanted->tensor);
    if (!entry || entry->dtype != RP_F32 || is_whole(wanted))
        return rpi_safetensors_read_finite(files->model, wanted->tensor, &wanted->shape, out);
    stored one = {.piece = rpi_piece_whole(wanted->tensor, &entry->shape),
                  .file = files->model,
                  .entry = entry};
    RP_TRY(check_shape(rpi_safetensors_path(files->model), &entry->shape, wanted));
    return read_stored(&one, wanted, out);
}

static int find_tensor(const rpi_piece_files *files, const char *tensor) {
    int first = 0, end = files->count;
    while (first < end) {
        int middle = first + (end - first) / 2;
        if (strcmp(files->pieces[middle].piece.tensor, tensor) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    bool found = first < files->count && !strcmp(files->pieces[first].piece.tensor, tensor);
    return found ? first : -1;
}

rp_status rpi_piece_files_each(const rpi_piece_files *files, rpi_piece_tensor_function each,
                               void *context) {
    for (int i = 0; i < rpi_safetensors_count(files->model); i++)
        RP_TRY(each(context, rpi_safetensors_at(files->model, i)));
    for (int i = 0; i < files->count; i += count_alike(files, i)) {
        const rpi_tensor_piece *piece = &files->pieces[i].piece;
        RP_TRY(each(context, &(rpi_named_tensor){piece->tensor, RP_F32, piece->shape, NULL}));
    }
    return RP_OK;
}

bool rpi_piece_files_has(const rpi_piece_files *files, const char *tensor) {
    return find_tensor(files, tensor) >= 0 || rpi_safetensors_find(files->model, tensor);
}

static bool has_element(const rpi_tensor_piece *piece, int64_t element) {
    rpi_piece_walk walk;
    rpi_shard_run run;
    rpi_piece_begin(piece, &walk);
    while (rpi_piece_next(&walk, &run))
        if (element >= run.whole && element < run.whole + run.count) return true;
    return false;
}

int rpi_piece_files_rank_of(const rpi_piece_files *files, const char *tensor, int64_t element) {
    int first = find_tensor(files, tensor);
    for (int i = 0; first >= 0 && i < count_alike(files, first); i++) {
        const stored *one = &files->pieces[first + i];
        if (!has_element(&one->piece, element)) continue;
        for (int r = 0; r < files->rank_count; r++)
            if (files->ranks[r] == one->file) return r;
    }
    return -1;
}

rp_status rpi_piece_files_read(const rpi_piece_files *files, const rpi_tensor_piece *wanted,
                               float *out) {
    int first = find_tensor(files, wanted->tensor);
    RP_TRY(rpi_piece_check(wanted));
    if (first < 0) return read_model(files, wanted, out);
    const stored *pieces = &files->pieces[first];
    RP_TRY(check_shape(rpi_safetensors_path(files->model), &pieces->piece.shape, wanted));
    for (int i = 0; i < count_alike(files, first); i++)
        RP_TRY(read_stored(&pieces[i], wanted, out));
    return RP_OK;
}

rp_status rpi_piece_files_read_whole(const rpi_piece_files *files, const char *tensor,
                                     const rpi_shape *shape, float *out) {
    const rpi_tensor_piece whole = rpi_piece_whole(tensor, shape);
    return rpi_piece_files_read(files, &whole, out);
}
