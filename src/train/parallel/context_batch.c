#include "train/parallel/context_batch.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

enum { IGNORED = -100 };

static bool is_sequence(const rpi_task_input *input) {
    return input->axes[1] && strcmp(input->axes[1], "sequence") == 0;
}

static rp_status make_room(rpi_context_batch *memory, int input, size_t bytes) {
    if (bytes <= memory->room[input]) return RP_OK;
    rpi_free(memory->inputs[input]);
    memory->inputs[input] = NULL;
    memory->room[input] = 0;
    RP_TRY(rpi_alloc(bytes, "tokens of a rank", &memory->inputs[input]));
    memory->room[input] = bytes;
    return RP_OK;
}

/* `each` is the size of a token in bytes. */
static void copy_pieces(const rpi_token_pieces *pieces, int64_t sequence, size_t each,
                        int64_t samples, const unsigned char *from, unsigned char *to) {
    int64_t own = sequence / pieces->count * 2;
    for (int64_t s = 0; s < samples; s++)
        for (int i = 0; i < rpi_token_runs(pieces); i++) {
            rpi_token_run run = rpi_token_run_at(pieces, own, i);
            memcpy(to + (size_t)(s * own + run.first) * each,
                   from + (size_t)(s * sequence + run.place) * each, (size_t)run.count * each);
        }
}

static int64_t count_labels(const int32_t *labels, int64_t count) {
    int64_t valid = 0;
    for (int64_t i = 0; i < count; i++) valid += labels[i] != IGNORED;
    return valid;
}

rp_status rpi_context_batch_cut(rpi_context_batch *memory, const rpi_task *task,
                                const rpi_data_shape *shape, const rpi_token_pieces *pieces,
                                rpi_source_batch *batch) {
    if (!pieces->count) return RP_OK;
    int64_t own = shape->sequence / pieces->count * 2;
    for (int i = 0; i < task->input_count; i++) {
        if (!is_sequence(&task->inputs[i])) continue;
        size_t whole = rpi_task_input_bytes(&task->inputs[i], shape);
        size_t each = whole / (size_t)shape->sequence;
        RP_TRY(make_room(memory, i, (size_t)(batch->count * own) * each));
        copy_pieces(pieces, shape->sequence, each, batch->count, batch->inputs[i],
                    memory->inputs[i]);
        batch->inputs[i] = memory->inputs[i];
    }
    if (is_sequence(&task->inputs[task->label_input]))
        batch->labels = count_labels(batch->inputs[task->label_input], batch->count * own);
    return RP_OK;
}

void rpi_context_batch_close(rpi_context_batch *memory) {
    for (int i = 0; i < RPI_TASK_INPUTS; i++) rpi_free(memory->inputs[i]);
    *memory = (rpi_context_batch){0};
}
