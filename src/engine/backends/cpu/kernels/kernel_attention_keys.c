#include "engine/backends/cpu/kernels/kernel_attention.h"

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Where the document of position `at` ends, or `last` if that comes first. */
static int64_t document_end(const int32_t *starts, int64_t at, int64_t last) {
    int64_t inside = at;
    while (inside + 1 < last) {
        int64_t middle = inside + (last - inside) / 2;
        if (starts[middle] == starts[at])
            inside = middle;
        else
            last = middle;
    }
    return last;
}

rpi_key_range rpi_attention_keys(const rpi_kernel_attention *it, int64_t batch, int64_t query) {
    int64_t at = rpi_attention_query(it, query) + it->q_offset;
    int64_t all = rpi_attention_all_keys(it);
    rpi_key_range keys = {it->first_key, it->lengths ? least(it->lengths[batch], all) : all};
    if (it->causal) keys.last = least(keys.last, at + 1);
    if (it->window > 0) {
        keys.first = most(keys.first, at - it->window + 1);
        keys.last = least(keys.last, at + it->window);
    }
    if (it->document_starts && at >= 0 && at < it->k_length) {
        const int32_t *starts = it->document_starts + batch * it->k_length;
        keys.first = most(keys.first, starts[at]);
        keys.last = document_end(starts, at, keys.last);
    }
    return keys;
}
