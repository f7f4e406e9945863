#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_table_softmax.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_ROWS = 120 };

static void forward(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_table_softmax_forward(run, (const rpi_kernel_table_softmax *)args);
}

static void backward(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_table_softmax_backward(run, (const rpi_kernel_table_softmax *)args);
}

typedef struct problem {
    rpi_kernel_table_softmax args;
    int32_t labels[MOST_ROWS];
    uint8_t correct[MOST_ROWS];
} problem;

static rpi_kernel_table draw_table(int64_t classes, int64_t width, uint64_t stream) {
    return (rpi_kernel_table){.classes = classes,
                              .weight = kernel_normal(classes * width, 0.3, stream),
                              .bias = kernel_normal(classes, 1, stream + 1),
                              .dweight = kernel_normal(classes * width, 0.1, stream + 2),
                              .dbias = kernel_normal(classes, 0.1, stream + 3)};
}

static void draw(problem *p, rpi_rng *rng, int64_t rows, int64_t width, int64_t first,
                 int64_t second) {
    *p = (problem){.args = {.rows = rows, .width = width, .factor = 0.25f}};
    rpi_kernel_table_softmax *a = &p->args;
    int64_t scratch = rpi_kernel_table_softmax_scratch(rows, width);
    a->x = kernel_normal(rows * width, 1, 1);
    a->tables[0] = draw_table(first, width, 10);
    a->tables[1] = draw_table(second, width, 20);
    a->labels = p->labels;
    a->correct = p->correct;
    a->losses = kernel_floats(rows);
    a->lse = kernel_floats(rows);
    a->dx = kernel_normal(rows * width, 0.1, 2);
    a->scratch = kernel_floats((scratch + 3) / 4);
    for (int64_t i = 0; i < rows; i++)
        p->labels[i] =
            i % 7 == 3 ? -1 : (int32_t)rpi_rng_below(rng, (uint32_t)(first + second));
}

static void check(problem *p, const char *name) {
    const rpi_kernel_table_softmax *a = &p->args;
    kernel_output losses = {"losses", a->losses, a->rows, RP_F32, 1e-5, 2e-5};
    kernel_output lse = {"lse", a->lse, a->rows, RP_F32, 1e-5, 1e-5};
    kernel_check(&(kernel_case){name, forward, a, {losses, lse}});
    kernel_output outputs[KERNEL_OUTPUTS] = {
        {"dx", a->dx, a->rows * a->width, RP_F32, 1e-5, 2e-5}};
    for (int t = 0, at = 1; t < RPI_TABLES; t++) {
        const rpi_kernel_table *table = &a->tables[t];
        if (!table->classes) continue;
        outputs[at++] = (kernel_output){"dweight", table->dweight, table->classes * a->width,
                                        RP_F32,    1e-5,           2e-5};
        outputs[at++] =
            (kernel_output){"dbias", table->dbias, table->classes, RP_F32, 1e-5, 2e-5};
    }
    kernel_case it = {.name = name, .call = backward, .args = a};
    memcpy(it.outputs, outputs, sizeof outputs);
    kernel_check(&it);
}

static void shapes_match(void) {
    static const int64_t widths[] = {16, 41, 7, 130}, classes[] = {1, 64, 300, 777, 256, 513};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    static problem p;
    for (int i = 0; i < 12; i++) {
        char name[128];
        int64_t rows = kernel_size(&rng, i == 0 ? 120 : 40), second = i % 3;
        draw(&p, &rng, rows, widths[i % 4], classes[i % 6], second);
        (void)snprintf(name, sizeof name, "%d rows of %d, %d and %d classes", (int)rows,
                       (int)widths[i % 4], (int)classes[i % 6], (int)second);
        check(&p, name);
        kernel_buffers_free();
    }
}

/* The largest logit by hand; of equal ones the first. */
static void right_answers_are_counted(void) {
    enum { ROWS = 3, CLASSES = 300, WIDTH = 2 };
    static const int32_t labels[ROWS] = {270, 5, -1};
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
        rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 2);
        rpi_kernel_run run = {.threads = 1, .isa = (rpi_isa)isa};
        static problem p;
        draw(&p, &rng, ROWS, WIDTH, CLASSES, 2);
        float *weight = (float *)(uintptr_t)p.args.tables[0].weight;
        float *bias = (float *)(uintptr_t)p.args.tables[0].bias;
        memset(weight, 0, sizeof(float) * CLASSES * WIDTH);
        memset(bias, 0, sizeof(float) * CLASSES);
        memset((float *)(uintptr_t)p.args.tables[1].weight, 0, sizeof(float) * 2 * WIDTH);
        memset((float *)(uintptr_t)p.args.tables[1].bias, 0, sizeof(float) * 2);
        bias[270] = bias[271] = 9;
        memcpy(p.labels, labels, sizeof labels);
        forward(&run, &p.args);
        CHECK(p.correct[0] == 1 && p.correct[1] == 0 && p.correct[2] == 0);
        CHECK_NEAR((double)p.args.losses[0], log(2 + 300 * exp(-9)), 1e-6);
        CHECK(p.args.losses[2] == 0);
        kernel_buffers_free();
    }
}

static void gradients_are_differences(void) {
    enum { ROWS = 6, WIDTH = 5, FIRST = 9, SECOND = 2 };
    const rpi_kernel_run run = {.threads = 1, .isa = RPI_ISA_SCALAR};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 3);
    static problem p;
    draw(&p, &rng, ROWS, WIDTH, FIRST, SECOND);
    rpi_kernel_table_softmax *a = &p.args;
    float *ones = kernel_floats(ROWS);
    for (int i = 0; i < ROWS; i++) ones[i] = 1;
    a->factor = 1;
    memset(a->dx, 0, sizeof(float) * ROWS * WIDTH);
    for (int t = 0; t < RPI_TABLES; t++) {
        size_t classes = (size_t)a->tables[t].classes;
        memset(a->tables[t].dweight, 0, sizeof(float) * classes * WIDTH);
        memset(a->tables[t].dbias, 0, sizeof(float) * classes);
    }
    forward(&run, a);
    backward(&run, a);
    const struct {
        const char *name;
        const float *x, *dx;
        int64_t count;
    } all[] = {{"x", a->x, a->dx, ROWS * WIDTH},
               {"weight", a->tables[0].weight, a->tables[0].dweight, FIRST * WIDTH},
               {"bias", a->tables[0].bias, a->tables[0].dbias, FIRST},
               {"second weight", a->tables[1].weight, a->tables[1].dweight, SECOND * WIDTH},
               {"second bias", a->tables[1].bias, a->tables[1].dbias, SECOND}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kernel_check_gradient(
            &(kernel_gradient){all[i].name, forward, a, (float *)(uintptr_t)all[i].x, all[i].dx,
                               all[i].count, a->losses, ones, ROWS, 1e-2, 3e-3});
    kernel_buffers_free();
}

CASES({"shapes_match", shapes_match}, {"right_answers_are_counted", right_answers_are_counted},
      {"gradients_are_differences", gradients_are_differences})
