#include "train/data/token_samples.h"

#include <string.h>

rp_status rpi_token_samples_open(const rpi_token_file *file, int64_t sequence,
                                 rpi_token_samples *out_samples) {
    if (sequence < 1 || sequence > INT32_MAX - 1)
        return RP_FAIL(INVALID, "a sequence of %lld tokens; at least 1 is needed",
                       (long long)sequence);
    if (file->count < sequence + 1)
        return RP_FAIL(INVALID,
                       "%lld tokens, %lld documents: too few for one sequence of %lld and the "
                       "token behind it",
                       (long long)file->count, (long long)file->documents, (long long)sequence);
    *out_samples = (rpi_token_samples){.file = file,
                                       .sequence = sequence,
                                       .stride = sequence + 1,
                                       .count = file->count / (sequence + 1)};
    return RP_OK;
}

void rpi_token_samples_join(rpi_token_samples *s) {
    s->stride = s->sequence;
    s->count = (s->file->count - 1) / s->sequence;
}

/* Walks over the documents that the inputs lie in; labels that look into the next are blotted
 * out. */
static int64_t place_documents(const rpi_token_samples *s, int64_t first, int32_t *labels,
                               int32_t *positions) {
    int64_t document = rpi_token_file_document(s->file, first), ignored = 0;
    int64_t end = rpi_token_file_end(s->file, document) - first, begin = 0;
    for (int64_t i = 0; i < s->sequence; i++) {
        while (i >= end) { /* empty documents end where they begin */
            begin = end;
            end = rpi_token_file_end(s->file, ++document) - first;
        }
        positions[i] = (int32_t)(i - begin);
        if (i + 1 < end) continue;
        labels[i] = RPI_LABEL_IGNORED;
        ignored++;
    }
    return ignored;
}

int64_t rpi_token_sample_valid(const rpi_token_samples *s, int64_t index) {
    int64_t first = index * s->stride, last = first + s->sequence, ignored = 0;
    int64_t document = rpi_token_file_document(s->file, first), before = first;
    for (; document < s->file->documents; document++) {
        int64_t end = rpi_token_file_end(s->file, document);
        if (end > last) break;
        if (end > before) ignored++; /* the label behind this end; of empty ones there is one */
        before = end;
    }
    return s->sequence - ignored;
}

rp_status rpi_token_sample_read(const rpi_token_samples *s, int64_t index,
                                const rpi_token_rows *rows, int64_t row, int64_t *out_valid) {
    if (index < 0 || index >= s->count)
        return RP_FAIL(INVALID, "sample %lld; there are %lld", (long long)index,
                       (long long)s->count);
    int64_t first = index * s->stride, at = row * s->sequence;
    int32_t *inputs = rows->inputs + at, *labels = rows->labels + at;
    uint32_t last;
    RP_TRY(rpi_token_file_read(s->file, first, s->sequence, (uint32_t *)inputs));
    RP_TRY(rpi_token_file_read(s->file, first + s->sequence, 1, &last));
    memcpy(labels, inputs + 1, (size_t)(s->sequence - 1) * sizeof *labels);
    labels[s->sequence - 1] = (int32_t)last;
    *out_valid = s->sequence;
    if (rows->positions) *out_valid -= place_documents(s, first, labels, rows->positions + at);
    return RP_OK;
}
