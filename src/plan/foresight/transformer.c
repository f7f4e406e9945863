#include "plan/foresight/transformer.h"

#include "base/status.h"
#include "base/suggest.h"

#include <stddef.h>

enum { FORWARD_AND_BACKWARD = 3 }; /* in units of a forward pass */
enum { WIDEST = 1 << 24 };         /* so that counts of elements stay within 64 bits */

const char *const rpi_recompute_names[RPI_RECOMPUTES] = {"none", "selective", "full"};

static const char *recompute_at(const void *context, int index) {
    (void)context;
    return index < RPI_RECOMPUTES ? rpi_recompute_names[index] : NULL;
}

rp_status rpi_recompute_parse(const char *text, rpi_recompute *out) {
    int index = 0;
    RP_TRY(rpi_name_find("recomputation", text, recompute_at, NULL, &index));
    *out = (rpi_recompute)index;
    return RP_OK;
}

rp_status rpi_transformer_check(const rpi_transformer *m) {
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"layers", m->layers},        {"hidden", m->hidden},
                 {"heads", m->heads},          {"head", m->head},
                 {"kv-heads", m->kv_heads},    {"intermediate", m->ffn},
                 {"vocabulary", m->vocabulary}};
    if (m->head == 0 && m->heads > 0)
        return RP_FAIL(INVALID, "hidden=%lld is no multiple of heads=%lld",
                       (long long)m->hidden, (long long)m->heads);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value < 1 || sizes[i].value > WIDEST)
            return RP_FAIL(INVALID, "a transformer with %s=%lld is none", sizes[i].name,
                           (long long)sizes[i].value);
    if (m->heads % m->kv_heads)
        return RP_FAIL(INVALID, "kv-heads=%lld is no divisor of heads=%lld",
                       (long long)m->kv_heads, (long long)m->heads);
    return RP_OK;
}

/* The width of queries, keys and values together. */
static double qkv_width(const rpi_transformer *m) {
    return (double)((m->heads + 2 * m->kv_heads) * m->head);
}

static double layer_matrices(const rpi_transformer *m) {
    double h = (double)m->hidden, out = (double)(m->heads * m->head);
    return h * (qkv_width(m) + out + (m->gated ? 3 : 2) * (double)m->ffn);
}

static double layer_vectors(const rpi_transformer *m) {
    double h = (double)m->hidden;
    if (!m->biases) return 2 * h;
    return 4 * h + qkv_width(m) + h + (m->gated ? 2 : 1) * (double)m->ffn + h;
}

rpi_transformer_parameters rpi_transformer_count(const rpi_transformer *m) {
    double h = (double)m->hidden, table = (double)m->vocabulary * h;
    rpi_transformer_parameters p = {
        .layer_matrices = layer_matrices(m),
        .layer_vectors = layer_vectors(m),
        .embedding = table + (double)m->positions * h,
        .head = (m->tied ? 0 : table) + (m->biases ? 2 : 1) * h,
    };
    p.all = (double)m->layers * (p.layer_matrices + p.layer_vectors) + p.embedding + p.head;
    return p;
}

rpi_transformer_flops rpi_transformer_flops_of(const rpi_transformer *m, int64_t sequence) {
    return (rpi_transformer_flops){
        .layer_matrices = 2 * layer_matrices(m),
        .layer_attention = 4 * (double)sequence * (double)(m->heads * m->head),
        .head = 2 * (double)m->hidden * (double)m->vocabulary,
    };
}

rpi_step_flops rpi_transformer_step_flops(const rpi_transformer *m, double tokens,
                                          int64_t sequence, rpi_recompute recompute) {
    rpi_transformer_flops f = rpi_transformer_flops_of(m, sequence);
    double layers = (double)m->layers, again = 0;
    double forward = layers * (f.layer_matrices + f.layer_attention) + f.head;
    if (recompute == RPI_RECOMPUTE_SELECTIVE)
        again = FORWARD_AND_BACKWARD * layers * f.layer_attention;
    if (recompute == RPI_RECOMPUTE_FULL) again = forward - f.head;
    double model = FORWARD_AND_BACKWARD * forward * tokens;
    return (rpi_step_flops){model, model + again * tokens};
}
