#include "plan/foresight/training_layout.h"

#include "base/status.h"
#include "base/suggest.h"
#include "plan/context_lengths.h"

#include <stddef.h>

/* Adam: two moments of 4 bytes, and a copy of the weights in 4 where they are in 2. */
static const rpi_precision precisions[] = {
    {"bf16", "bf16", 2, 2, 12, 2, "weights and gradients in bf16, Adam in fp32"},
    {"bf16-fp32", "bf16", 2, 4, 12, 2, "as bf16, with gradients summed in fp32 (Megatron)"},
    {"fp16", "fp16", 2, 2, 16, 2, "fp16, with a copy of weights and gradients in fp32"},
    {"amp", "bf16", 4, 4, 8, 2, "weights and gradients in fp32, products in bf16"},
    {"fp32", "fp32", 4, 4, 8, 4, "all in fp32"},
};
enum { MOST_RANKS = 1 << 20, MOST_STAGES = 16384, MOST = 1 << 30 };
enum { PRECISIONS = sizeof precisions / sizeof precisions[0] };

const rpi_precision *rpi_precision_at(int index) {
    return index >= 0 && index < PRECISIONS ? &precisions[index] : NULL;
}

static const char *precision_at(const void *context, int index) {
    (void)context;
    return index < PRECISIONS ? precisions[index].name : NULL;
}

rp_status rpi_precision_find(const char *name, const rpi_precision **out) {
    int index = 0;
    RP_TRY(rpi_name_find("precision", name, precision_at, NULL, &index));
    *out = &precisions[index];
    return RP_OK;
}

int64_t rpi_layout_micro_batches(const rpi_training_layout *l) {
    return l->global_batch / l->data / l->micro_batch;
}

int64_t rpi_layout_ranks(const rpi_training_layout *l) {
    return l->tensor * l->context * l->pipeline * l->data;
}

int64_t rpi_layout_sharers(const rpi_training_layout *l) {
    return l->data * l->context;
}

int64_t rpi_layout_sample_tokens(const rpi_training_layout *l) {
    return rpi_context_length_own(l->context, l->sequence);
}

double rpi_layout_tokens(const rpi_training_layout *l) {
    return (double)l->micro_batch * (double)rpi_layout_sample_tokens(l);
}

double rpi_layout_parts(const rpi_training_layout *l) {
    int64_t tokens = rpi_layout_sample_tokens(l);
    int64_t most = (tokens + l->tensor - 1) / l->tensor;
    return l->sequence_parallel ? (double)tokens / (double)most : 1;
}

double rpi_layout_keys(const rpi_training_layout *l) {
    int64_t heads = l->model.kv_heads / l->tensor;
    return (double)((heads > 1 ? heads : 1) * l->model.head);
}

static rp_status check_tensor(const rpi_training_layout *l) {
    long long t = l->tensor;
    if (l->model.heads % t)
        return RP_FAIL(INVALID, "--tp %lld does not divide the %lld heads", t,
                       (long long)l->model.heads);
    if (l->model.kv_heads % t && t % l->model.kv_heads)
        return RP_FAIL(INVALID, "--tp %lld and the %lld heads of keys and values do not divide",
                       t, (long long)l->model.kv_heads);
    if (l->model.ffn % t)
        return RP_FAIL(INVALID, "--tp %lld does not divide intermediate=%lld", t,
                       (long long)l->model.ffn);
    return RP_OK;
}

/* Each rank has two pieces, the i-th and the i-th from the end, so that their work is even. The
 * last pieces may be filled up, but each rank has tokens. */
static rp_status check_context(const rpi_training_layout *l) {
    rp_status fits = rpi_context_lengths_check(l->context, l->sequence, l->model.positions);
    return fits == RP_OK ? RP_OK : rpi_fail_context(fits, "--cp %lld: ", (long long)l->context);
}

static rp_status check_pipeline(const rpi_training_layout *l) {
    long long chunks = l->pipeline * l->interleave, micro = rpi_layout_micro_batches(l);
    if (chunks > l->model.layers && l->interleave > 1)
        return RP_FAIL(INVALID,
                       "--pp %lld with --interleave %lld: %lld chunks are more than the %lld "
                       "layers",
                       (long long)l->pipeline, (long long)l->interleave, chunks,
                       (long long)l->model.layers);
    if (chunks > l->model.layers)
        return RP_FAIL(INVALID, "%lld stages are more than the %lld layers", chunks,
                       (long long)l->model.layers);
    if (l->interleave > 1 && l->pipeline == 1)
        return RP_FAIL(INVALID, "--interleave %lld is of a pipeline; say --pp, too",
                       (long long)l->interleave);
    if (l->interleave > 1 && micro % l->pipeline)
        return RP_FAIL(INVALID,
                       "interleaved stages want whole rounds of %lld micro-batches; a step "
                       "has %lld",
                       (long long)l->pipeline, micro);
    return RP_OK;
}

/* Refuses invalid numbers, and numbers with which counts of ranks and elements would exceed 64
 * bits. */
static rp_status check_sizes(const rpi_training_layout *l) {
    const struct {
        const char *what;
        int64_t value, most;
    } sizes[] = {
        {"tensor-parallel ranks", l->tensor, MOST_RANKS},
        {"context-parallel ranks", l->context, MOST_RANKS},
        {"stages", l->pipeline, MOST_STAGES},
        {"replicas", l->data, MOST_RANKS},
        {"chunks", l->interleave, MOST_STAGES},
        {"tokens of a sample", l->sequence, MOST},
        {"samples of a step", l->global_batch, MOST},
        {"samples of a micro-batch", l->micro_batch, MOST},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        long long value = sizes[i].value, most = sizes[i].most;
        if (value < 1) return RP_FAIL(INVALID, "%lld %s are too few", value, sizes[i].what);
        if (value > most)
            return RP_FAIL(INVALID, "%lld %s are more than anybody has; %lld are the most",
                           value, sizes[i].what, most);
    }
    return RP_OK;
}

rp_status rpi_layout_check_batch(const rpi_training_layout *l) {
    long long micro = l->micro_batch, batch = l->global_batch, data = l->data;
    if (batch % data)
        return RP_FAIL(INVALID, "--dp %lld does not divide the global batch of %lld", data,
                       batch);
    if (batch / data % micro)
        return RP_FAIL(INVALID,
                       "--micro-batch-size %lld does not divide the %lld samples of a replica",
                       micro, batch / data);
    return RP_OK;
}

rp_status rpi_layout_check(const rpi_training_layout *l) {
    RP_TRY(rpi_transformer_check(&l->model));
    RP_TRY(check_sizes(l));
    RP_TRY(rpi_layout_check_batch(l));
    RP_TRY(check_tensor(l));
    RP_TRY(check_context(l));
    RP_TRY(check_pipeline(l));
    return RP_OK;
}
