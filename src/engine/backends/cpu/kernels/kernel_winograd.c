#include "engine/backends/cpu/kernels/kernel_winograd.h"

enum {
    BLOCK = RPI_WINOGRAD_BLOCK,
    TILE = RPI_WINOGRAD_TILE,
    POINTS = RPI_WINOGRAD_POINTS,
    PANEL = RPI_WINOGRAD_PANEL,
};

/* ---- the definition: direct sums ---- */

static double at(const float *image, int64_t channels, int64_t height, int64_t width, int64_t n,
                 int64_t c, int64_t row, int64_t col) {
    if (row < 0 || row >= height || col < 0 || col >= width) return 0;
    int64_t plane = n * (channels / BLOCK) + c / BLOCK;
    return (double)image[((plane * height + row) * width + col) * BLOCK + c % BLOCK];
}

static double weight_at(const rpi_kernel_winograd *it, int64_t filter, int64_t c, int64_t row,
                        int64_t col) {
    const rpi_winograd_shape *s = &it->shape;
    if (it->turned)
        return (double)it->weight[(c * s->filters + filter) * 9 + (2 - row) * 3 + 2 - col];
    return (double)it->weight[(filter * s->channels + c) * 9 + row * 3 + col];
}

static void define_output(const rpi_winograd_call *call, int64_t n, int64_t filter, int64_t row,
                          int64_t col) {
    const rpi_kernel_winograd *it = call->it;
    const rpi_winograd_shape *s = &call->shape;
    double sum = it->bias ? (double)it->bias[filter] : 0;
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t i = 0; i < 9; i++)
            sum += weight_at(it, filter, c, i / 3, i % 3) *
                   at(it->x, s->channels, s->height, s->width, n, c, row + i / 3 - s->padding,
                      col + i % 3 - s->padding);
    int64_t plane = n * (s->filters / BLOCK) + filter / BLOCK;
    float *y = it->y + ((plane * call->rows + row) * call->cols + col) * BLOCK + filter % BLOCK;
    *y = (float)(it->accumulate ? (double)*y + sum : sum);
}

void rpi_winograd_outputs_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_winograd_call *call = args;
    for (int64_t i = begin; i < end; i++) {
        int64_t tile = call->first + i, n = tile / (call->down * call->across);
        int64_t top = tile / call->across % call->down * TILE,
                left = tile % call->across * TILE;
        for (int64_t row = top; row < top + TILE && row < call->rows; row++)
            for (int64_t col = left; col < left + TILE && col < call->cols; col++)
                for (int64_t filter = 0; filter < call->shape.filters; filter++)
                    define_output(call, n, filter, row, col);
    }
}

static void define_gradient(const rpi_winograd_call *call, int64_t filter, int64_t c,
                            int64_t i) {
    const rpi_kernel_winograd_weight *it = call->of_weight;
    const rpi_winograd_shape *s = &call->shape;
    double sum = 0;
    for (int64_t n = 0; n < s->images; n++)
        for (int64_t row = 0; row < call->rows; row++)
            for (int64_t col = 0; col < call->cols; col++)
                sum += at(it->dy, s->filters, call->rows, call->cols, n, filter, row, col) *
                       at(it->x, s->channels, s->height, s->width, n, c,
                          row + i / 3 - s->padding, col + i % 3 - s->padding);
    float *dw = &it->dw[(filter * s->channels + c) * 9 + i];
    *dw = (float)(it->accumulate ? (double)*dw + sum : sum);
}

void rpi_winograd_deliver_scalar(const void *args, int64_t begin, int64_t end) {
    const rpi_winograd_call *call = args;
    const int64_t blocks = call->shape.channels / BLOCK;
    for (int64_t i = begin * BLOCK * PANEL; i < end * BLOCK * PANEL; i++) {
        int64_t unit = i / (BLOCK * PANEL), c = unit % blocks * BLOCK + i / PANEL % BLOCK;
        int64_t filter = (call->first_panel + unit / blocks) * PANEL + i % PANEL;
        for (int64_t j = 0; j < 9 && filter < call->shape.filters; j++)
            define_gradient(call, filter, c, j);
    }
}

/* The definition needs no matrices. */
#define NOTHING(name)                                                                          \
    void name(const void *args, int64_t begin, int64_t end) {                                  \
        (void)args, (void)begin, (void)end;                                                    \
    }
NOTHING(rpi_winograd_weights_scalar)
NOTHING(rpi_winograd_inputs_scalar)
NOTHING(rpi_winograd_multiply_scalar)
NOTHING(rpi_winograd_gradients_scalar)
NOTHING(rpi_winograd_sum_scalar)

/* ---- calls ---- */

static int64_t tiles_along(int64_t size) {
    return (size + TILE - 1) / TILE;
}

/* All that take no more than the weights, which are read again for each so many tiles; else so
 * many that inputs and outputs take 4 MB. */
static int64_t tiles_at_once(const rpi_winograd_shape *s, int64_t all) {
    enum { FLOATS = 1 << 20, FEWEST = 48, STRIP = 6 };
    const int64_t weights = POINTS * s->channels * s->filters;
    const int64_t tile = POINTS * (s->channels + s->filters);
    if (all * tile <= weights) return all;
    int64_t most = FLOATS / tile / STRIP * STRIP;
    if (most < FEWEST) most = FEWEST;
    if (all > most && all < most + most / 2) most = (all / 2 + STRIP) / STRIP * STRIP;
    return all < most ? all : most;
}

static int64_t panels_of(const rpi_winograd_shape *s) {
    return (s->filters + PANEL - 1) / PANEL;
}

/* All, or where all tiles are at hand, so many that their weights stay in the cache between
 * transform and product. */
static int64_t panels_at_once(const rpi_winograd_shape *s, bool all_tiles) {
    enum { FLOATS = 1 << 20 };
    const int64_t all = panels_of(s), floats = all * PANEL * POINTS * s->channels;
    const int64_t parts = all_tiles ? (floats + FLOATS - 1) / FLOATS : 1;
    return parts < all ? (all + parts - 1) / parts : 1;
}

static rpi_winograd_call describe(const rpi_winograd_shape *s, float *workspace) {
    rpi_winograd_call call = {.shape = *s,
                              .rows = s->height + 2 * s->padding - 2,
                              .cols = s->width + 2 * s->padding - 2};
    call.down = tiles_along(call.rows);
    call.across = tiles_along(call.cols);
    const int64_t tiles = s->images * call.down * call.across;
    call.most = tiles_at_once(s, tiles);
    call.most_panels = panels_at_once(s, call.most == tiles);
    call.input_row = s->channels + RPI_WINOGRAD_PAD;
    call.output_row = s->filters + RPI_WINOGRAD_PAD;
    call.input_step = call.most * call.input_row + RPI_WINOGRAD_PAD;
    call.output_step = call.most * call.output_row + RPI_WINOGRAD_PAD;
    call.weight_step = s->channels * call.most_panels * PANEL + RPI_WINOGRAD_PAD;
    call.inputs = workspace;
    if (!workspace) return call;
    call.outputs = call.inputs + POINTS * call.input_step;
    call.weights = call.outputs + POINTS * call.output_step;
    return call;
}

size_t rpi_kernel_winograd_workspace(const rpi_winograd_shape *shape) {
    rpi_winograd_call call = describe(shape, NULL);
    return (size_t)(POINTS * (call.input_step + call.output_step + call.weight_step)) *
           sizeof(float);
}

static int64_t products(const rpi_winograd_call *call) {
    return POINTS * call->panels;
}

static int64_t weight_blocks(const rpi_winograd_call *call) {
    return call->panels * (call->shape.channels / BLOCK);
}

static bool take_panels(rpi_winograd_call *call) {
    int64_t left = panels_of(&call->shape) - call->first_panel;
    call->panels = left < call->most_panels ? left : call->most_panels;
    call->first = 0;
    return left > 0;
}

static bool take_tiles(rpi_winograd_call *call) {
    int64_t left = call->shape.images * call->down * call->across - call->first;
    call->tiles = left < call->most ? left : call->most;
    return left > 0;
}

static bool are_last_panels(const rpi_winograd_call *call) {
    return call->first_panel + call->panels == panels_of(&call->shape);
}

void rpi_kernel_winograd_run(const rpi_kernel_run *run, const rpi_kernel_winograd *it) {
    static const rpi_kernel_body weights[] = RPI_KERNEL_BODIES(winograd_weights);
    static const rpi_kernel_body inputs[] = RPI_KERNEL_BODIES(winograd_inputs);
    static const rpi_kernel_body multiply[] = RPI_KERNEL_BODIES(winograd_multiply);
    static const rpi_kernel_body outputs[] = RPI_KERNEL_BODIES(winograd_outputs);
    rpi_winograd_call call = describe(&it->shape, it->workspace);
    call.it = it;
    for (; take_panels(&call); call.first_panel += call.panels) {
        rpi_kernel_parallel(run, weight_blocks(&call), 1, weights, &call);
        for (; take_tiles(&call); call.first += call.tiles) {
            if (call.first_panel == 0) rpi_kernel_parallel(run, call.tiles, 1, inputs, &call);
            rpi_kernel_parallel(run, products(&call), 1, multiply, &call);
            if (are_last_panels(&call)) rpi_kernel_parallel(run, call.tiles, 1, outputs, &call);
        }
    }
}

void rpi_kernel_winograd_weight_run(const rpi_kernel_run *run,
                                    const rpi_kernel_winograd_weight *it) {
    static const rpi_kernel_body gradients[] = RPI_KERNEL_BODIES(winograd_gradients);
    static const rpi_kernel_body sum[] = RPI_KERNEL_BODIES(winograd_sum);
    static const rpi_kernel_body deliver[] = RPI_KERNEL_BODIES(winograd_deliver);
    rpi_winograd_call call = describe(&it->shape, it->workspace);
    call.of_weight = it;
    for (; take_panels(&call); call.first_panel += call.panels) {
        for (; take_tiles(&call); call.first += call.tiles) {
            if (call.first_panel == 0)
                rpi_kernel_parallel(run, call.tiles, 1, gradients, &call);
            rpi_kernel_parallel(run, products(&call), 1, sum, &call);
        }
        rpi_kernel_parallel(run, weight_blocks(&call), 1, deliver, &call);
    }
}
