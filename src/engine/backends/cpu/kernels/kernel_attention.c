#include "engine/backends/cpu/kernels/kernel_attention.h"

#include <math.h>

/* ---- the definition: one pair of query and key at a time ---- */

static float *lse_of(const rpi_kernel_attention *it, int64_t b, int64_t h, int64_t i) {
    return &it->lse[(b * it->heads + h) * it->q_length + i];
}

static double get(rpi_kernel_heads m, int64_t b, int64_t t, int64_t h, int64_t c) {
    rpi_kernel_rows row = {m.data, 0, m.dtype};
    return rpi_kernel_get(row, 0, b * m.batch + t * m.token + h * m.head + c);
}

static void put(rpi_kernel_heads m, int64_t b, int64_t t, int64_t h, int64_t c, double value) {
    rpi_kernel_rows row = {m.data, 0, m.dtype};
    rpi_kernel_put(row, 0, b * m.batch + t * m.token + h * m.head + c, value);
}

static double dot(const rpi_kernel_attention *it, rpi_kernel_heads x, int64_t b, int64_t i,
                  int64_t h, rpi_kernel_heads y, int64_t j, int64_t kv) {
    double sum = 0;
    for (int64_t c = 0; c < it->head_size; c++) sum += get(x, b, i, h, c) * get(y, b, j, kv, c);
    return sum;
}

static int64_t distance(const rpi_kernel_attention *it, int64_t i, int64_t j) {
    return i + it->q_offset - j;
}

/* The row of a distance, and a query with one of the biases. */
static double row_at(const rpi_kernel_attention *it, int64_t d, int64_t h, int64_t c) {
    return (double)it->relative->r[(d * it->heads + h) * it->head_size + c];
}

static double biased(const rpi_kernel_attention *it, const float *bias, int64_t b, int64_t i,
                     int64_t h, int64_t c) {
    return get(it->q, b, i, h, c) + (double)bias[h * it->head_size + c];
}

static double score(const rpi_kernel_attention *it, int64_t b, int64_t i, int64_t h,
                    int64_t j) {
    const rpi_kernel_relative *relative = it->relative;
    int64_t kv = h / (it->heads / it->kv_heads);
    if (!relative) return it->scale * dot(it, it->q, b, i, h, it->k, j, kv);
    double sum = 0;
    for (int64_t c = 0; c < it->head_size; c++)
        sum += biased(it, relative->u, b, i, h, c) * get(it->k, b, j, kv, c) +
               biased(it, relative->v, b, i, h, c) * row_at(it, distance(it, i, j), h, c);
    return it->scale * sum;
}

/* What the weight of a pair is multiplied by. */
static double kept(const rpi_kernel_attention *it, int64_t b, int64_t h, int64_t i, int64_t j) {
    if (it->dropout.probability == 0) return 1;
    i = rpi_attention_query(it, i);
    uint64_t first = 128 * rpi_attention_mask_group(it, b, h, i, j);
    return rpi_dropout_factor(&it->dropout, first + (uint64_t)(64 * (i % 2) + j % 64));
}

static void forward_query(const rpi_kernel_attention *it, int64_t b, int64_t h, int64_t i) {
    int64_t kv = h / (it->heads / it->kv_heads);
    rpi_key_range keys = rpi_attention_keys(it, b, i);
    double top = -INFINITY, sum = 0, out[RPI_ATTENTION_HEAD_SIZE] = {0};
    for (int64_t j = keys.first; j < keys.last; j++) top = fmax(top, score(it, b, i, h, j));
    if (top == -INFINITY) top = 0; /* sees nothing, or only what weighs nothing */
    for (int64_t j = keys.first; j < keys.last; j++) {
        double p = exp(score(it, b, i, h, j) - top);
        sum += p;
        p *= kept(it, b, h, i, j);
        for (int64_t c = 0; c < it->head_size; c++) out[c] += p * get(it->v, b, j, kv, c);
    }
    for (int64_t c = 0; c < it->head_size; c++)
        put(it->out, b, i, h, c, keys.first < keys.last ? out[c] / sum : 0);
    if (it->lse) *lse_of(it, b, h, i) = (float)(top + log(sum));
}

/* Units are blocks of queries of a key head, as in the vector form. */
void rpi_attention_forward_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_attention_call *call = args;
    const rpi_kernel_attention *it = call->it;
    int64_t size = call->queries, group = it->heads / it->kv_heads;
    int64_t blocks = (it->q_length + size - 1) / size;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t first = unit % blocks * size, kv = unit / blocks % it->kv_heads;
        int64_t b = unit / blocks / it->kv_heads;
        int64_t last = first + size < it->q_length ? first + size : it->q_length;
        for (int64_t h = kv * group; h < (kv + 1) * group; h++)
            for (int64_t i = first; i < last; i++) forward_query(it, b, h, i);
    }
}

/* p, times what dropout leaves of it, and ds of one pair. */
typedef struct pair {
    double p, ds;
} pair;

static pair pair_of(const rpi_kernel_attention *it, int64_t b, int64_t h, int64_t i,
                    int64_t j) {
    int64_t kv = h / (it->heads / it->kv_heads);
    double p = exp(score(it, b, i, h, j) - *lse_of(it, b, h, i));
    double delta = dot(it, it->dout, b, i, h, it->out, i, h), m = kept(it, b, h, i, j);
    return (pair){m * p, p * (m * dot(it, it->dout, b, i, h, it->v, j, kv) - delta)};
}

static void backward_query(const rpi_kernel_attention *it, int64_t b, int64_t h, int64_t i) {
    int64_t kv = h / (it->heads / it->kv_heads);
    rpi_key_range keys = rpi_attention_keys(it, b, i);
    double dq[RPI_ATTENTION_HEAD_SIZE] = {0};
    for (int64_t j = keys.first; j < keys.last; j++) {
        double ds = pair_of(it, b, h, i, j).ds;
        for (int64_t c = 0; c < it->head_size; c++) {
            dq[c] += ds * get(it->k, b, j, kv, c);
            if (it->relative) dq[c] += ds * row_at(it, distance(it, i, j), h, c);
        }
    }
    for (int64_t c = 0; c < it->head_size; c++) put(it->dq, b, i, h, c, it->scale * dq[c]);
}

static void backward_key(const rpi_kernel_attention *it, int64_t b, int64_t kv, int64_t j) {
    int64_t group = it->heads / it->kv_heads;
    double dk[RPI_ATTENTION_HEAD_SIZE] = {0}, dv[RPI_ATTENTION_HEAD_SIZE] = {0};
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = 0; i < it->q_length; i++) {
            rpi_key_range keys = rpi_attention_keys(it, b, i);
            if (j < keys.first || j >= keys.last) continue;
            pair at = pair_of(it, b, h, i, j);
            for (int64_t c = 0; c < it->head_size; c++) {
                dk[c] += at.ds * (it->relative ? biased(it, it->relative->u, b, i, h, c)
                                               : get(it->q, b, i, h, c));
                dv[c] += at.p * get(it->dout, b, i, h, c);
            }
        }
    for (int64_t c = 0; c < it->head_size; c++) {
        put(it->dk, b, j, kv, c, it->scale * dk[c]);
        put(it->dv, b, j, kv, c, dv[c]);
    }
}

void rpi_attention_prepare_scalar(const void *args, int64_t begin, int64_t end) {
    (void)args, (void)begin, (void)end;
}

/* Units are key heads. */
void rpi_attention_backward_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_attention *it = args;
    int64_t group = it->heads / it->kv_heads;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t b = unit / it->kv_heads, kv = unit % it->kv_heads;
        for (int64_t h = kv * group; h < (kv + 1) * group; h++)
            for (int64_t i = 0; i < it->q_length; i++) backward_query(it, b, h, i);
        for (int64_t j = 0; j < it->k_length; j++) backward_key(it, b, kv, j);
    }
}

void rpi_attention_distances_scalar(const void *args, int64_t begin, int64_t end) {
    (void)args, (void)begin, (void)end;
}

/* Gradients of the biases, and of one row of distances at a time. */
static void add_distance(const rpi_kernel_attention *it, int64_t h, int64_t d, double *du,
                         double *dv, double *dr) {
    const rpi_kernel_relative *relative = it->relative;
    for (int64_t b = 0; b < it->batch; b++)
        for (int64_t i = 0; i < it->q_length; i++) {
            int64_t j = i + it->q_offset - d;
            rpi_key_range keys = rpi_attention_keys(it, b, i);
            if (j < keys.first || j >= keys.last) continue;
            double ds = it->scale * pair_of(it, b, h, i, j).ds;
            for (int64_t c = 0; c < it->head_size; c++) {
                du[c] += ds * get(it->k, b, j, h, c);
                dv[c] += ds * row_at(it, d, h, c);
                dr[c] += ds * biased(it, relative->v, b, i, h, c);
            }
        }
}

static void write_row(const rpi_kernel_attention *it, float *to, int64_t row,
                      const double *from) {
    for (int64_t c = 0; to && c < it->head_size; c++)
        to[row * it->head_size + c] = (float)from[c];
}

/* Units are heads. */
void rpi_attention_biases_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_attention *it = args;
    for (int64_t h = begin; h < end; h++) {
        double du[RPI_ATTENTION_HEAD_SIZE] = {0}, dv[RPI_ATTENTION_HEAD_SIZE] = {0};
        for (int64_t d = 0; d < it->k_length; d++) {
            double dr[RPI_ATTENTION_HEAD_SIZE] = {0};
            add_distance(it, h, d, du, dv, dr);
            write_row(it, it->relative->dr, d * it->heads + h, dr);
        }
        write_row(it, it->relative->du, h, du);
        write_row(it, it->relative->dv, h, dv);
    }
}

void rpi_attention_finish_scalar(const void *args, int64_t begin, int64_t end) {
    (void)args, (void)begin, (void)end;
}

/* ---- calls ---- */

/* As many as fit, since keys are packed for each block; fewer where threads would have nothing
 * to do. */
static int64_t queries_of_block(const rpi_kernel_attention *it, int threads) {
    int64_t size = RPI_ATTENTION_TILE / rpi_attention_padded(it);
    if (size > RPI_ATTENTION_QUERIES) size = RPI_ATTENTION_QUERIES;
    int64_t heads = it->batch * it->kv_heads;
    while (size > RPI_ATTENTION_KEYS &&
           heads * ((it->q_length + size - 1) / size) < 4 * threads)
        size /= 2;
    return size;
}

int64_t rpi_kernel_attention_packed(const rpi_kernel_attention *it) {
    return 2 * it->heads * rpi_attention_distances(it) * rpi_attention_padded(it);
}

static void pack_distances(const rpi_kernel_run *run, const rpi_kernel_attention *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(attention_distances);
    if (it->relative) rpi_kernel_parallel(run, it->heads, 1, bodies, it);
}

void rpi_kernel_attention_forward(const rpi_kernel_run *run, const rpi_kernel_attention *it) {
    static const rpi_kernel_body bodies[] = RPI_KERNEL_BODIES(attention_forward);
    rpi_attention_call call = {it, queries_of_block(it, run->threads)};
    int64_t blocks = (it->q_length + call.queries - 1) / call.queries;
    pack_distances(run, it);
    rpi_kernel_parallel(run, it->batch * it->kv_heads * blocks, 1, bodies, &call);
}

/* Of each query a row of sums of dq, of q and of dout, and D; with distances also a row of
 * q + v and of sums of its gradient, and the gradients of distances for each batch and head. */
int64_t rpi_kernel_attention_scratch(const rpi_kernel_attention *it) {
    int64_t padded = rpi_attention_padded(it), heads = it->batch * it->heads;
    int64_t floats = heads * it->q_length * (3 * padded + 1);
    if (!it->relative) return floats;
    return floats + heads * (2 * it->q_length * padded + rpi_attention_distances(it) * padded);
}

void rpi_kernel_attention_backward(const rpi_kernel_run *run, const rpi_kernel_attention *it) {
    static const rpi_kernel_body prepare[] = RPI_KERNEL_BODIES(attention_prepare);
    static const rpi_kernel_body backward[] = RPI_KERNEL_BODIES(attention_backward);
    static const rpi_kernel_body finish[] = RPI_KERNEL_BODIES(attention_finish);
    static const rpi_kernel_body biases[] = RPI_KERNEL_BODIES(attention_biases);
    int64_t queries = it->batch * it->heads * it->q_length;
    pack_distances(run, it);
    rpi_kernel_parallel(run, queries, 64, prepare, it);
    rpi_kernel_parallel(run, it->batch * it->kv_heads, 1, backward, it);
    if (it->relative) rpi_kernel_parallel(run, it->heads, 1, biases, it);
    rpi_kernel_parallel(run, queries, 64, finish, it);
}
