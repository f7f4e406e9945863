#include "train/parallel/context_batch.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

static rp_status make_room(rpi_context_batch *memory, int input, size_t bytes) {
    if (bytes <= memory->room[input]) return RP_OK;
    rpi_free(memory->inputs[input]);
    memory->inputs[input] = NULL;
    memory->room[input] = 0;
    RP_TRY(rpi_alloc(bytes, "tokens of a rank", &memory->inputs[input]));
    memory->room[input] = bytes;
    return RP_OK;
}

enum { EACH = sizeof(int32_t) }; /* bytes of an element, of i32 or f32 */

static void fill(const rpi_task_input *input, int64_t count, void *to) {
    for (int64_t i = 0; i < count; i++)
        if (input->dtype == RP_F32)
            ((float *)to)[i] = (float)input->fill;
        else
            ((int32_t *)to)[i] = (int32_t)input->fill;
}

/* Copies this rank's tokens; `to` is filled with padding before. */
static void copy_pieces(const rpi_token_pieces *pieces, int64_t sequence, int64_t own,
                        int64_t samples, const int32_t *from, int32_t *to) {
    for (int64_t s = 0; s < samples; s++)
        for (int i = 0; i < rpi_token_runs(pieces); i++) {
            rpi_token_run run = rpi_token_run_at(pieces, own, i);
            memcpy(to + s * own + run.first, from + s * sequence + run.place,
                   (size_t)run.count * sizeof *to);
        }
}

/* All tokens, row by row of a sample. */
static void copy_whole(int64_t sequence, int64_t filled, int64_t rows, const int32_t *from,
                       int32_t *to) {
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * filled, from + r * sequence, (size_t)sequence * sizeof *to);
}

static int64_t count_labels(const int32_t *labels, int64_t count) {
    int64_t valid = 0;
    for (int64_t i = 0; i < count; i++) valid += labels[i] != RPI_TASK_IGNORED;
    return valid;
}

/* With what fills it up. */
static int64_t own_tokens(const rpi_data_shape *shape, const rpi_token_pieces *pieces) {
    return (shape->sequence + pieces->count - 1) / pieces->count * 2;
}

static rp_status cut_input(rpi_context_batch *memory, const rpi_task_input *input, int index,
                           const rpi_data_shape *shape, const rpi_token_pieces *pieces,
                           rpi_source_batch *batch) {
    int64_t own = own_tokens(shape, pieces), filled = own / 2 * pieces->count;
    int64_t sequence = shape->sequence;
    bool is_cut = rpi_task_input_is_cut(input);
    if (!is_cut && (!rpi_task_input_is_whole(input) || filled == sequence)) return RP_OK;
    int64_t rows =
        batch->count * (int64_t)(rpi_task_input_bytes(input, shape) / EACH) / sequence;
    int64_t count = rows * (is_cut ? own : filled);
    const int32_t *from = batch->inputs[index];
    RP_TRY(make_room(memory, index, (size_t)count * EACH));
    fill(input, count, memory->inputs[index]);
    if (is_cut)
        copy_pieces(pieces, sequence, own, rows, from, memory->inputs[index]);
    else
        copy_whole(sequence, filled, rows, from, memory->inputs[index]);
    batch->inputs[index] = memory->inputs[index];
    return RP_OK;
}

rp_status rpi_context_batch_cut(rpi_context_batch *memory, const rpi_task *task,
                                const rpi_data_shape *shape, const rpi_token_pieces *pieces,
                                rpi_source_batch *batch) {
    int labels = task->label_input;
    if (!pieces->count) return RP_OK;
    for (int i = 0; i < task->input_count; i++)
        RP_TRY(cut_input(memory, &task->inputs[i], i, shape, pieces, batch));
    if (rpi_task_input_is_cut(&task->inputs[labels]))
        batch->labels =
            count_labels(batch->inputs[labels], batch->count * own_tokens(shape, pieces));
    else if (pieces->at[0] > 0)
        batch->labels = 0;
    return RP_OK;
}

void rpi_context_batch_close(rpi_context_batch *memory) {
    for (int i = 0; i < RPI_TASK_INPUTS; i++) rpi_free(memory->inputs[i]);
    *memory = (rpi_context_batch){0};
}
