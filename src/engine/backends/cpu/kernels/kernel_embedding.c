#include "engine/backends/cpu/kernels/kernel_embedding.h"

void rpi_embedding_forward_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_embedding *it = args;
    for (int64_t t = begin; t < end; t++) {
        int64_t row = rpi_embedding_row(it, t);
        for (int64_t c = 0; c < it->cols; c++) {
            float value = row < 0 ? 0 : it->scale * rpi_kernel_get(it->table, row, c);
            rpi_kernel_put(it->out, t, c,
                           it->add ? rpi_kernel_get(it->out, t, c) + value : value);
        }
    }
}

/* Units are touched rows. */
void rpi_embedding_backward_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_embedding_runs *runs = args;
    const rpi_kernel_embedding *it = runs->it;
    for (int64_t i = begin; i < end; i++) {
        float *sums = it->sums + (it->dense ? it->touched[i] : i) * it->cols;
        for (int64_t c = 0; c < it->cols; c++) {
            double sum = 0;
            for (uint64_t at = rpi_embedding_start(runs, i); at < runs->ends[i]; at++)
                sum += rpi_kernel_get(it->dout, (int64_t)(uint32_t)runs->sorted[at], c);
            sums[c] = (float)(it->scale * sum + (it->dense ? sums[c] : 0));
        }
    }
}

int64_t rpi_kernel_embedding_forward(const rpi_kernel_run *run,
                                     const rpi_kernel_embedding *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(embedding_forward);
    int64_t whole = it->whole ? it->whole : it->vocabulary;
    for (int64_t t = 0; t < it->tokens; t++)
        if (it->ids[t] < 0 || it->ids[t] >= whole) return t;
    rpi_kernel_parallel(run, it->tokens, 1, bodies, it);
    return -1;
}

/* One pass of a radix sort: stable, by the byte at `shift`. */
static void sort_by_byte(const uint64_t *from, int64_t count, int shift, uint64_t *to) {
    int64_t places[257] = {0};
    for (int64_t i = 0; i < count; i++) places[(from[i] >> shift & 255) + 1]++;
    for (int byte = 0; byte < 256; byte++) places[byte + 1] += places[byte];
    for (int64_t i = 0; i < count; i++) to[places[from[i] >> shift & 255]++] = from[i];
}

/* Those whose row is here. The result lies in one half of the scratch; *out_other is the other.
 */
static const uint64_t *sort_tokens(const rpi_kernel_embedding *it, int64_t *out_count,
                                   uint64_t **out_other) {
    uint64_t *sorted = it->scratch, *other = it->scratch + it->tokens;
    int64_t count = 0;
    for (int64_t t = 0; t < it->tokens; t++) {
        int64_t row = rpi_embedding_row(it, t);
        if (row >= 0) sorted[count++] = (uint64_t)row << 32 | (uint64_t)t;
    }
    *out_count = count;
    for (int shift = 32; shift < 64 && (it->vocabulary - 1) >> (shift - 32) > 0; shift += 8) {
        sort_by_byte(sorted, count, shift, other);
        uint64_t *swap = sorted;
        sorted = other;
        other = swap;
    }
    *out_other = other;
    return sorted;
}

/* Where the i-th run ends stands in ends[i]; touched gets the rows. */
static int64_t find_runs(const rpi_kernel_embedding *it, const uint64_t *sorted, int64_t tokens,
                         uint64_t *ends) {
    int64_t count = 0;
    for (int64_t at = 0; at < tokens; at++) {
        if (at > 0 && sorted[at] >> 32 != sorted[at - 1] >> 32) ends[count++] = (uint64_t)at;
        it->touched[count] = (int32_t)(sorted[at] >> 32);
    }
    if (tokens > 0) ends[count++] = (uint64_t)tokens;
    return count;
}

void rpi_kernel_embedding_backward(const rpi_kernel_run *run, const rpi_kernel_embedding *it,
                                   int64_t *out_touched) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(embedding_backward);
    uint64_t *ends;
    int64_t tokens;
    const uint64_t *sorted = sort_tokens(it, &tokens, &ends);
    *out_touched = find_runs(it, sorted, tokens, ends);
    rpi_embedding_runs runs = {it, sorted, ends};
    rpi_kernel_parallel(run, *out_touched, 1, bodies, &runs);
}
