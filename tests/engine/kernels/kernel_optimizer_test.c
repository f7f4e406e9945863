#include "kernel_fixture.h"

#include "engine/backends/cpu/kernels/kernel_optimizer.h"

/* Every output to the bit: replicas on different processors must stay equal. */
#define EXACTLY 0, 0

static void sgd(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_sgd_step(run, (const rpi_kernel_sgd *)args);
}

static void adamw(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_adamw_step(run, (const rpi_kernel_adam *)args);
}

static void lamb_direction(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_lamb_direction(run, (const rpi_kernel_adam *)args);
}

static void lamb_step(const rpi_kernel_run *run, const void *args) {
    rpi_kernel_lamb_step(run, (const rpi_kernel_lamb *)args);
}

static float *positive(int64_t count, uint64_t stream) {
    float *x = kernel_normal(count, 1, stream);
    for (int64_t i = 0; i < count; i++) x[i] *= x[i];
    return x;
}

static rpi_kernel_sgd draw_sgd(int64_t count, int index) {
    rpi_kernel_sgd it = {.count = count,
                         .values = kernel_normal(count, 1, 1),
                         .gradients = kernel_normal(count, 1, 2),
                         .gradient_scale = index % 3 ? 1 : 0.37f,
                         .momentum_buffer = kernel_normal(count, 1, 3),
                         .learning_rate = 0.1f,
                         .momentum = index % 2 ? 0.9f : 0,
                         .weight_decay = index % 5 ? 1e-2f : 0,
                         .nesterov = index % 4 == 3,
                         .copy = kernel_bf16s(count, 1, 4)};
    return it;
}

static rpi_kernel_adam draw_adam(int64_t count, int index) {
    return (rpi_kernel_adam){.count = count,
                             .values = kernel_normal(count, 1, 1),
                             .gradients = kernel_normal(count, 1, 2),
                             .gradient_scale = index % 2 ? 1 : 0.37f,
                             .first = kernel_normal(count, 1, 3),
                             .second = positive(count, 4),
                             .learning_rate = 1e-3,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .epsilon = 1e-8,
                             .weight_decay = 0.1,
                             .step = 1 + (uint64_t)index * 1000,
                             .copy = index % 3 ? kernel_bf16s(count, 1, 5) : NULL,
                             .direction = kernel_normal(count, 1, 6)};
}

static void every_form_gives_the_same_bits(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int i = 0; i < 20; i++) {
        int64_t n = kernel_size(&rng, i == 0 ? 20000 : 500);
        rpi_kernel_sgd s = draw_sgd(n, i);
        kernel_check(&(kernel_case){"sgd",
                                    sgd,
                                    &s,
                                    {{"values", s.values, n, RP_F32, EXACTLY},
                                     {"momentum", s.momentum_buffer, n, RP_F32, EXACTLY},
                                     {"copy", s.copy, n, RP_BF16, EXACTLY}}});
        rpi_kernel_adam a = draw_adam(n, i);
        kernel_case adam = {"adamw",
                            adamw,
                            &a,
                            {{"first", a.first, n, RP_F32, EXACTLY},
                             {"second", a.second, n, RP_F32, EXACTLY},
                             {"values", a.values, n, RP_F32, EXACTLY}}};
        if (a.copy) adam.outputs[3] = (kernel_output){"copy", a.copy, n, RP_BF16, EXACTLY};
        kernel_check(&adam);
        kernel_check(&(kernel_case){"lamb direction",
                                    lamb_direction,
                                    &a,
                                    {{"first", a.first, n, RP_F32, EXACTLY},
                                     {"second", a.second, n, RP_F32, EXACTLY},
                                     {"direction", a.direction, n, RP_F32, EXACTLY}}});
        rpi_kernel_lamb l = {n, a.values, a.direction, 1e-2, 3, i % 4 ? 7 : 0, a.copy};
        kernel_check(
            &(kernel_case){"lamb", lamb_step, &l, {{"values", l.values, n, RP_F32, EXACTLY}}});
        kernel_buffers_free();
    }
}

/* Any cut of a tensor gives the bits of the whole. */
static void cuts_change_nothing(void) {
    enum { COUNT = 1000, CUT = 333 };
    rpi_kernel_run run = {2, rpi_cpu_isa()};
    rpi_kernel_adam whole = draw_adam(COUNT, 1), parts = draw_adam(COUNT, 1);
    rpi_kernel_adamw_step(&run, &whole);
    const rpi_kernel_adam all = parts;
    parts.count = CUT;
    rpi_kernel_adamw_step(&run, &parts);
    parts.count = COUNT - CUT;
    parts.values += CUT, parts.gradients += CUT, parts.first += CUT, parts.second += CUT;
    parts.copy += CUT;
    rpi_kernel_adamw_step(&run, &parts);
    for (int i = 0; i < COUNT; i++)
        CHECK(whole.values[i] == all.values[i] && whole.second[i] == all.second[i]);
    kernel_buffers_free();
}

enum { ELEMENTS = 4, STEPS = 3 };
static const float start[ELEMENTS] = {0.5f, -1.25f, 3.0f, 1e-3f};
static const float gradients[STEPS][ELEMENTS] = {
    {0.1f, -0.2f, 0.3f, 1e-4f}, {0.05f, 0.7f, -0.3f, -1e-4f}, {-1.0f, 0.2f, 0.01f, 0.0f}};

/* What torch.optim.AdamW(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1) and
 * torch.optim.SGD(lr=0.1, momentum=0.9, weight_decay=0.01) give after these three steps. */
static void three_steps_are_those_of_pytorch(void) {
    static const float adamw_values[ELEMENTS] = {0.484554172f, -1.24718499f, 2.98181438f,
                                                 -0.00804421864f};
    static const float sgd_values[2][ELEMENTS] = {
        {0.560640395f, -1.3417995f, 2.95796847f, 0.000986322877f},
        {0.638163447f, -1.39882934f, 2.95232511f, 0.000984741724f}};
    rpi_kernel_run run = {1, rpi_cpu_isa()};
    float p[ELEMENTS], m[ELEMENTS] = {0}, v[ELEMENTS] = {0};
    memcpy(p, start, sizeof p);
    for (int t = 0; t < STEPS; t++)
        rpi_kernel_adamw_step(&run, &(rpi_kernel_adam){.count = ELEMENTS,
                                                       .values = p,
                                                       .gradients = gradients[t],
                                                       .gradient_scale = 1,
                                                       .first = m,
                                                       .second = v,
                                                       .learning_rate = 1e-2,
                                                       .beta1 = 0.9,
                                                       .beta2 = 0.95,
                                                       .epsilon = 1e-8,
                                                       .weight_decay = 0.1,
                                                       .step = (uint64_t)t + 1});
    for (int i = 0; i < ELEMENTS; i++) CHECK_NEAR(p[i], adamw_values[i], 3e-7 * fabsf(p[i]));
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        memcpy(p, start, sizeof p);
        memset(m, 0, sizeof m);
        for (int t = 0; t < STEPS; t++)
            rpi_kernel_sgd_step(&run, &(rpi_kernel_sgd){.count = ELEMENTS,
                                                        .values = p,
                                                        .gradients = gradients[t],
                                                        .gradient_scale = 1,
                                                        .momentum_buffer = m,
                                                        .learning_rate = 0.1f,
                                                        .momentum = 0.9f,
                                                        .weight_decay = 0.01f,
                                                        .nesterov = nesterov});
        for (int i = 0; i < ELEMENTS; i++)
            CHECK_NEAR(p[i], sgd_values[nesterov][i], 3e-7 * fabsf(p[i]));
    }
}

/* LAMB against its equations in double; where a norm is 0 the trust is 1. */
static void lamb_is_its_equations(void) {
    rpi_kernel_run run = {1, rpi_cpu_isa()};
    float p[ELEMENTS], d[ELEMENTS], m[ELEMENTS] = {0}, v[ELEMENTS] = {0};
    memcpy(p, start, sizeof p);
    rpi_kernel_adam it = {.count = ELEMENTS,
                          .values = p,
                          .gradients = gradients[0],
                          .gradient_scale = 2,
                          .first = m,
                          .second = v,
                          .beta1 = 0.9,
                          .beta2 = 0.999,
                          .epsilon = 1e-6,
                          .weight_decay = 0.01,
                          .step = 1,
                          .direction = d};
    rpi_kernel_lamb_direction(&run, &it);
    double squares = 0, value_squares = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        double g = 2 * (double)gradients[0][i]; /* step 1: m and v without bias are g and g^2 */
        CHECK_NEAR(d[i], g / (fabs(g) + 1e-6) + 0.01 * start[i], 2e-6);
        squares += (double)d[i] * d[i];
        value_squares += (double)start[i] * start[i];
    }
    rpi_kernel_lamb step = {ELEMENTS, p, d, 0.5, value_squares, squares, NULL};
    rpi_kernel_lamb_step(&run, &step);
    for (int i = 0; i < ELEMENTS; i++)
        CHECK_NEAR(p[i], start[i] - 0.5 * sqrt(value_squares / squares) * d[i], 1e-6);
    memcpy(p, start, sizeof p);
    step.value_squares = 0;
    rpi_kernel_lamb_step(&run, &step);
    for (int i = 0; i < ELEMENTS; i++) CHECK_NEAR(p[i], start[i] - 0.5 * d[i], 1e-6);
}

/* A gradient that is no number makes a value that is none, and only that one. */
static void nonfinite_values_pass(void) {
    enum { COUNT = 40 };
    for (int isa = 0; isa <= (int)rpi_cpu_isa(); isa++) {
        rpi_kernel_run run = {1, (rpi_isa)isa};
        rpi_kernel_adam a = draw_adam(COUNT, 1);
        rpi_kernel_sgd s = draw_sgd(COUNT, 1);
        float *g = kernel_normal(COUNT, 1, 9);
        g[7] = NAN, g[20] = INFINITY;
        a.gradients = s.gradients = g;
        rpi_kernel_adamw_step(&run, &a);
        rpi_kernel_sgd_step(&run, &s);
        for (int i = 0; i < COUNT; i++) {
            CHECK(isfinite(a.values[i]) == (i != 7 && i != 20));
            CHECK(isfinite(s.values[i]) == (i != 7 && i != 20));
        }
        kernel_buffers_free();
    }
}

CASES({"every_form_gives_the_same_bits", every_form_gives_the_same_bits},
      {"cuts_change_nothing", cuts_change_nothing},
      {"three_steps_are_those_of_pytorch", three_steps_are_those_of_pytorch},
      {"lamb_is_its_equations", lamb_is_its_equations},
      {"nonfinite_values_pass", nonfinite_values_pass})
