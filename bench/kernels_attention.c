#include "kernels.h"

#include "engine/backends/cpu/kernels/kernel_attention.h"

static void forward(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_attention_forward(run, (const rpi_kernel_attention *)args);
}

static void backward(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_attention_backward(run, (const rpi_kernel_attention *)args);
}

static rpi_kernel_heads heads(int64_t batch, int64_t length, int64_t count, int64_t size,
                              const float *data) {
    (void)batch;
    return (rpi_kernel_heads){(void *)data, length * count * size, count * size, size, RP_F32};
}

/* Matrix products: two forward, five backward; causal attention has half of the pairs. */
static void add(bench_list *list, const char *forward_name, const char *backward_name,
                int64_t batch, int64_t length, int64_t count, int64_t size, bool causal,
                double dropout) {
    int64_t part = batch * length * count * size;
    rpi_kernel_heads qkv = heads(batch, length, 3 * count, size, bench_floats(3 * part));
    rpi_kernel_heads k = qkv, v = qkv;
    k.data = (float *)qkv.data + count * size;
    v.data = (float *)qkv.data + 2 * count * size;
    rpi_kernel_attention it = {.batch = batch,
                               .heads = count,
                               .kv_heads = count,
                               .q_length = length,
                               .k_length = length,
                               .head_size = size,
                               .scale = 0.125f,
                               .causal = causal,
                               .dropout = {.probability = dropout, .seed = 1},
                               .q = qkv,
                               .k = k,
                               .v = v,
                               .out = heads(batch, length, count, size, bench_floats(part)),
                               .lse = bench_floats(batch * count * length),
                               .dout = heads(batch, length, count, size, bench_floats(part)),
                               .dq = heads(batch, length, count, size, bench_floats(part)),
                               .dk = heads(batch, length, count, size, bench_floats(part)),
                               .dv = heads(batch, length, count, size, bench_floats(part))};
    it.scratch = bench_floats(rpi_kernel_attention_scratch(&it));
    const void *args = bench_copy(&it, sizeof it);
    double product = 2.0 * (double)(batch * count * size) * (double)(length * length);
    if (causal) product /= 2;
    bench_add(list, (bench_kernel){forward_name, forward, args, 0, 2 * product});
    bench_add(list, (bench_kernel){backward_name, backward, args, 0, 5 * product});
}

void bench_attention(bench_list *list) {
    add(list, "attention forward T1024", "attention backward T1024", 1, 1024, 12, 64, false, 0);
    add(list, "attention forward T1024 dropout", "attention backward T1024 dropout", 1, 1024,
        12, 64, false, 0.1);
    add(list, "attention forward T1024 causal", "attention backward T1024 causal", 1, 1024, 12,
        64, true, 0);
    add(list, "attention forward T128", "attention backward T128", 8, 128, 12, 64, false, 0);
}
