#include "engine/backends/cpu/kernels/kernel_activation.h"

#include "engine/backends/cpu/kernels/simd_math.h"

/* f(z) and f'(z); both are always computed where inlined, what is unused falls away. */
typedef struct value_slope {
    vf value, slope;
} value_slope;

/* (1 + tanh u) / 2 = sigmoid(2u), which loses no digits for negative u. Beyond +-12 it is 0 or
 * 1, and clamping there keeps infinity times 0 out of the slope. */
SIMD value_slope gelu_tanh(vf z) {
    vf x = vf_clamp(z, -12.0f, 12.0f), x2 = vf_mul(x, x);
    vf u2 = vf_mul(x, vf_fma(x2, vf_set(0.0713548163f), vf_set(1.59576912f)));
    vf du2 = vf_fma(x2, vf_set(0.214064449f), vf_set(1.59576912f));
    vf s = vf_sigmoid(u2);
    vf bump = vf_mul(vf_mul(s, vf_sub(vf_set(1), s)), du2);
    return (value_slope){vf_mul(z, s), vf_fma(z, bump, s)};
}

SIMD value_slope gelu_erf(vf z) {
    vf cdf, pdf;
    vf_normal(z, &cdf, &pdf);
    return (value_slope){vf_mul(z, cdf), vf_fma(z, pdf, cdf)};
}

SIMD value_slope silu(vf z) {
    vf s = vf_sigmoid(z);
    vf bump = vf_mul(s, vf_sub(vf_set(1), s));
    return (value_slope){vf_mul(z, s), vf_fma(z, bump, s)};
}

/* A NaN passes: comparisons with it are false. */
SIMD value_slope relu(vf z) {
    return (value_slope){vf_select(vf_lt(z, vf_zero()), vf_zero(), z),
                         vf_select(vf_le(z, vf_zero()), vf_zero(), vf_set(1))};
}

SIMD value_slope evaluate(rpi_activation kind, vf z) {
    vf t;
    switch (kind) {
    case RPI_ACTIVATION_RELU: return relu(z);
    case RPI_ACTIVATION_GELU_TANH: return gelu_tanh(z);
    case RPI_ACTIVATION_GELU_ERF: return gelu_erf(z);
    case RPI_ACTIVATION_SILU: return silu(z);
    case RPI_ACTIVATION_TANH: t = vf_tanh(z); return (value_slope){t, vf_fnma(t, t, vf_set(1))};
    default: return (value_slope){z, vf_set(1)};
    }
}

/* Units are pieces of rows. */
#define EACH_PIECE(it, row, first, count)                                                      \
    for (int64_t unit = begin, pieces = rpi_kernel_pieces((it)->cols), row, first, count;      \
         unit < end && (row = unit / pieces, first = unit % pieces * RPI_KERNEL_PIECE,         \
                       count = (it)->cols - first < RPI_KERNEL_PIECE ? (it)->cols - first      \
                                                                     : RPI_KERNEL_PIECE,       \
                       true);                                                                  \
         unit++)

SIMD vf biased(simd_row x, const float *bias, int64_t i, int64_t live) {
    vf z = row_load(x, i, live);
    return bias ? vf_add(z, vf_load_n(bias + i, live)) : z;
}

SIMD void forward(const rpi_kernel_activation *it, rpi_activation kind, int64_t begin,
                  int64_t end) {
    EACH_PIECE(it, row, first, count) {
        simd_row x = row_of(it->x, row), y = row_of(it->y, row);
        EACH_VECTOR(k, live, count) {
            vf z = biased(x, it->bias, first + k, live);
            row_store(y, first + k, evaluate(kind, z).value, live);
        }
    }
}

SIMD void backward(const rpi_kernel_activation *it, rpi_activation kind, int64_t begin,
                   int64_t end) {
    EACH_PIECE(it, row, first, count) {
        simd_row x = row_of(it->x, row), dy = row_of(it->dy, row), dx = row_of(it->dx, row);
        EACH_VECTOR(k, live, count) {
            vf slope = evaluate(kind, biased(x, it->bias, first + k, live)).slope;
            row_store(dx, first + k, vf_mul(row_load(dy, first + k, live), slope), live);
        }
    }
}

SIMD void gated_forward(const rpi_kernel_gated *it, rpi_activation kind, int64_t begin,
                        int64_t end) {
    EACH_PIECE(it, row, first, count) {
        simd_row gate = row_of(it->gate, row), up = row_of(it->up, row), y = row_of(it->y, row);
        EACH_VECTOR(k, live, count) {
            vf open = evaluate(kind, row_load(gate, first + k, live)).value;
            row_store(y, first + k, vf_mul(open, row_load(up, first + k, live)), live);
        }
    }
}

SIMD void gated_backward(const rpi_kernel_gated *it, rpi_activation kind, int64_t begin,
                         int64_t end) {
    EACH_PIECE(it, row, first, count) {
        simd_row gate = row_of(it->gate, row), up = row_of(it->up, row);
        simd_row dy = row_of(it->dy, row);
        simd_row dgate = row_of(it->dgate, row), dup = row_of(it->dup, row);
        EACH_VECTOR(k, live, count) {
            int64_t i = first + k;
            value_slope open = evaluate(kind, row_load(gate, i, live));
            vf d = row_load(dy, i, live), du = vf_mul(d, row_load(up, i, live));
            row_store(dgate, i, vf_mul(du, open.slope), live);
            row_store(dup, i, vf_mul(d, open.value), live);
        }
    }
}

/* Each kind gets a loop of its own. */
#define BY_KIND(loop, it)                                                                      \
    switch ((it)->kind) {                                                                      \
    case RPI_ACTIVATION_RELU: loop(it, RPI_ACTIVATION_RELU, begin, end); break;                \
    case RPI_ACTIVATION_GELU_TANH: loop(it, RPI_ACTIVATION_GELU_TANH, begin, end); break;      \
    case RPI_ACTIVATION_GELU_ERF: loop(it, RPI_ACTIVATION_GELU_ERF, begin, end); break;        \
    case RPI_ACTIVATION_SILU: loop(it, RPI_ACTIVATION_SILU, begin, end); break;                \
    case RPI_ACTIVATION_TANH: loop(it, RPI_ACTIVATION_TANH, begin, end); break;                \
    default: loop(it, RPI_ACTIVATION_NONE, begin, end);                                        \
    }

RPI_SIMD_BODY(activation_forward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_activation *it = args;
    BY_KIND(forward, it)
}

RPI_SIMD_BODY(activation_backward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_activation *it = args;
    BY_KIND(backward, it)
}

RPI_SIMD_BODY(gated_forward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_gated *it = args;
    BY_KIND(gated_forward, it)
}

RPI_SIMD_BODY(gated_backward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_gated *it = args;
    BY_KIND(gated_backward, it)
}

RPI_SIMD_BODY(add_bias)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_add *it = args;
    EACH_PIECE(it, row, first, count) {
        simd_row a = row_of(it->a, row), b = row_of(it->b.data ? it->b : it->a, row),
                 y = row_of(it->y, row);
        EACH_VECTOR(k, live, count) {
            vf sum = row_load(a, first + k, live);
            if (it->b.data) sum = vf_add(sum, row_load(b, first + k, live));
            if (it->bias) sum = vf_add(sum, vf_load_n(it->bias + first + k, live));
            row_store(y, first + k, it->relu ? vf_max(vf_zero(), sum) : sum, live);
        }
    }
}

RPI_SIMD_BODY(relu_backward)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_relu_gradient *it = args;
    EACH_PIECE(it, row, first, count) {
        simd_row y = row_of(it->y, row), dy = row_of(it->dy, row), dx = row_of(it->dx, row);
        EACH_VECTOR(k, live, count) {
            vf open = row_load(dy, first + k, live);
            vm closed = vf_le(row_load(y, first + k, live), vf_zero());
            row_store(dx, first + k, vf_select(closed, vf_zero(), open), live);
        }
    }
}

/* Units are columns, 64 at a time: less of a row would be a cache line of every page. */
enum { SUM_VECTORS = 4 };

SIMD void sum_rows(const rpi_kernel_sums *it, int64_t c, int64_t live, int64_t first,
                   vf total[SUM_VECTORS]) {
    int64_t last =
        first + RPI_KERNEL_SUM_ROWS < it->rows ? first + RPI_KERNEL_SUM_ROWS : it->rows;
    vf sum[SUM_VECTORS];
    for (int v = 0; v < SUM_VECTORS; v++) sum[v] = vf_zero();
    for (int64_t r = first; r < last; r++) {
        simd_row x = row_of(it->x, r);
        for (int v = 0; v < SUM_VECTORS; v++)
            if (v * RPI_LANES < live)
                sum[v] = vf_add(sum[v], row_load(x, c + v * RPI_LANES, live - v * RPI_LANES));
    }
    for (int v = 0; v < SUM_VECTORS; v++) total[v] = vf_add(total[v], sum[v]);
}

RPI_SIMD_BODY(column_sums)(const void *args, int64_t begin, int64_t end) {
    const rpi_kernel_sums *it = args;
    for (int64_t c = begin; c < end; c += SUM_VECTORS * RPI_LANES) {
        int64_t live = end - c;
        vf total[SUM_VECTORS];
        for (int v = 0; v < SUM_VECTORS; v++) total[v] = vf_zero();
        for (int64_t first = 0; first < it->rows; first += RPI_KERNEL_SUM_ROWS)
            sum_rows(it, c, live, first, total);
        for (int v = 0; v < SUM_VECTORS && v * RPI_LANES < live; v++) {
            float *sums = it->sums + c + v * RPI_LANES;
            int64_t rest = live - v * RPI_LANES;
            if (it->accumulate) total[v] = vf_add(total[v], vf_load_n(sums, rest));
            vf_store_n(sums, total[v], rest);
        }
    }
}
