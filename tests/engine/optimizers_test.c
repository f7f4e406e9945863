/* Optimizers: known steps, and the same bits for any cut into ranges, of tensors or of their
 * elements. */
#include "engine/optimizer.h"
#include "harness/check.h"

#include "base/rng.h"

enum { COUNT = 101, STEPS = 5 };

static void sgd_by_hand(void) {
    const rpi_optimizer *sgd = NULL;
    REQUIRE_OK(rpi_optimizer_find("sgd", &sgd));
    const struct {
        rpi_optimizer_rates rates;
        double first, second; /* values after two steps from 1 with gradients 2 and 3 */
    } rows[] = {
        {{.learning_rate = 0.1f}, 0.8, 0.5},
        {{.learning_rate = 0.1f, .momentum = 0.5f}, 0.8, 0.8 - 0.1 * (0.5 * 2 + 3)},
        {{.learning_rate = 0.1f, .weight_decay = 0.5f}, 0.75, 0.75 - 0.1 * (3 + 0.375)},
        {{.learning_rate = 0.1f, .momentum = 0.5f, .nesterov = true},
         1 - 0.1 * (2 + 0.5 * 2),
         0.7 - 0.1 * (3 + 0.5 * 4)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float value = 1, buffer = 0, gradient = 2;
        CHECK_OK(rpi_optimizer_check(sgd, &rows[i].rates));
        sgd->update(&rows[i].rates, 0, 1, &value, &gradient, (float *[]){&buffer});
        CHECK_NEAR((double)value, rows[i].first, 1e-6);
        gradient = 3;
        sgd->update(&rows[i].rates, 1, 1, &value, &gradient, (float *[]){&buffer});
        CHECK_NEAR((double)value, rows[i].second, 1e-6);
    }
}

/* The first step goes by the sign of the gradient; the second by hand. */
static void adamw_by_hand(void) {
    const rpi_optimizer *adamw = NULL;
    REQUIRE_OK(rpi_optimizer_find("adamw", &adamw));
    rpi_optimizer_rates rates = {.learning_rate = 0.1f,
                                 .weight_decay = 0.5f,
                                 .beta1 = 0.8,
                                 .beta2 = 0.9,
                                 .epsilon = 1e-8};
    CHECK_OK(rpi_optimizer_check(adamw, &rates));
    float value = 1, first = 0, second = 0, gradient = 2;
    adamw->update(&rates, 0, 1, &value, &gradient, (float *[]){&first, &second});
    CHECK_NEAR((double)value, 1 - 0.1 * 0.5 - 0.1, 1e-6);
    gradient = 3;
    adamw->update(&rates, 1, 1, &value, &gradient, (float *[]){&first, &second});
    double m = (0.8 * 0.4 + 0.2 * 3) / (1 - 0.64), v = (0.9 * 0.4 + 0.1 * 9) / (1 - 0.81);
    CHECK_NEAR((double)value, 0.85 * (1 - 0.1 * 0.5) - 0.1 * m / sqrt(v), 1e-6);
}

/* Adam's directions by hand, each tensor as long a step as it is itself; a tensor of zeros goes
 * by the direction's own length. */
static void lamb_by_hand(void) {
    enum { N = 3, TURNS = 3 };
    static const double gradient[TURNS][N] = {{2, -1, 0.5}, {3, 1, -4}, {-0.25, 2, 1}};
    const double rate = 0.01, decay = 0.1, epsilon = 1e-6, beta1 = 0.8, beta2 = 0.9;
    const rpi_optimizer_rates rates = {.learning_rate = (float)rate,
                                       .weight_decay = (float)decay,
                                       .beta1 = beta1,
                                       .beta2 = beta2,
                                       .epsilon = epsilon};
    const rpi_optimizer *lamb = NULL;
    REQUIRE_OK(rpi_optimizer_find("lamb", &lamb));
    CHECK_OK(rpi_optimizer_check(lamb, &rates));
    CHECK(lamb->whole_tensors);
    for (int zeros = 0; zeros < 2; zeros++) {
        double p[N] = {0}, m[N] = {0}, v[N] = {0}, power1 = 1, power2 = 1;
        float values[N] = {0}, first[N] = {0}, second[N] = {0}, slope[N];
        for (int i = 0; i < N && !zeros; i++) p[i] = values[i] = (float)(1 - 2 * i);
        for (int turn = 0; turn < TURNS; turn++) {
            double d[N], of_p = 0, of_d = 0;
            power1 *= beta1, power2 *= beta2;
            for (int i = 0; i < N; i++) {
                double g = gradient[turn][i];
                m[i] = beta1 * m[i] + (1 - beta1) * g;
                v[i] = beta2 * v[i] + (1 - beta2) * g * g;
                d[i] =
                    m[i] / (1 - power1) / (sqrt(v[i] / (1 - power2)) + epsilon) + decay * p[i];
                of_p += p[i] * p[i], of_d += d[i] * d[i];
                slope[i] = (float)g;
            }
            double trust = of_p > 0 ? sqrt(of_p / of_d) : 1;
            for (int i = 0; i < N; i++) p[i] -= rate * trust * d[i];
            lamb->update(&rates, (uint64_t)turn, N, values, slope, (float *[]){first, second});
            for (int i = 0; i < N; i++) CHECK_NEAR((double)values[i], p[i], 1e-6);
        }
    }
}

static void fill(float *x, uint64_t index) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, index);
    for (int i = 0; i < COUNT; i++) x[i] = rpi_rng_normal(&rng);
}

/* STEPS steps in pieces of `piece` elements. */
static void run(const rpi_optimizer *optimizer, const rpi_optimizer_rates *rates, int64_t piece,
                float *values) {
    float gradients[COUNT], slots[RPI_OPTIMIZER_SLOTS][COUNT] = {{0}};
    fill(values, 0);
    for (uint64_t step = 0; step < STEPS; step++) {
        fill(gradients, 1 + step);
        for (int64_t at = 0; at < COUNT; at += piece) {
            float *parts[RPI_OPTIMIZER_SLOTS];
            for (int i = 0; i < RPI_OPTIMIZER_SLOTS; i++) parts[i] = slots[i] + at;
            int64_t count = COUNT - at < piece ? COUNT - at : piece;
            optimizer->update(rates, step, count, values + at, gradients + at, parts);
        }
    }
}

static int equal_bits(const float *a, const float *b) {
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
    for (size_t i = 0; i < COUNT * sizeof(float); i++)
        if (x[i] != y[i]) return 0;
    return 1;
}

static void any_cut(void) {
    static const rpi_optimizer_rates rates[] = {{.learning_rate = 0.1f,
                                                 .momentum = 0.9f,
                                                 .weight_decay = 1e-2f,
                                                 .beta1 = 0.9,
                                                 .beta2 = 0.95,
                                                 .epsilon = 1e-8},
                                                {.learning_rate = 0.1f,
                                                 .momentum = 0.9f,
                                                 .nesterov = true,
                                                 .beta2 = 0.5,
                                                 .epsilon = 1e-3,
                                                 .threads = 3},
                                                {.learning_rate = 0.1f, .epsilon = 1}};
    for (int i = 0; rpi_optimizer_at(i); i++)
        for (size_t r = 0;
             r < sizeof rates / sizeof rates[0] && !rpi_optimizer_at(i)->whole_tensors; r++)
            for (int64_t piece = 1; piece < COUNT; piece += 7) {
                float whole[COUNT], cut[COUNT];
                run(rpi_optimizer_at(i), &rates[r], COUNT, whole);
                run(rpi_optimizer_at(i), &rates[r], piece, cut);
                CHECK_MSG(equal_bits(whole, cut), "%s in pieces of %lld",
                          rpi_optimizer_at(i)->name, (long long)piece);
            }
}

/* A power of two loses nothing: the step of scaled rates is that of scaled gradients. */
static void gradients_are_scaled(void) {
    for (int i = 0; rpi_optimizer_at(i); i++) {
        const rpi_optimizer *optimizer = rpi_optimizer_at(i);
        float gradients[COUNT], halves[COUNT], by_rates[COUNT], by_hand[COUNT];
        float slots[2][RPI_OPTIMIZER_SLOTS][COUNT] = {{{0}}}, *parts[2][RPI_OPTIMIZER_SLOTS];
        rpi_optimizer_rates rates = {.learning_rate = 0.1f,
                                     .momentum = 0.9f,
                                     .weight_decay = 1e-2f,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .epsilon = 1e-8};
        fill(gradients, 1);
        fill(by_rates, 0);
        fill(by_hand, 0);
        for (int e = 0; e < COUNT; e++) halves[e] = gradients[e] / 2;
        for (int k = 0; k < 2; k++)
            for (int s = 0; s < RPI_OPTIMIZER_SLOTS; s++) parts[k][s] = slots[k][s];
        optimizer->update(&rates, 0, COUNT, by_hand, halves, parts[0]);
        rates.gradient_scale = 0.5f;
        optimizer->update(&rates, 0, COUNT, by_rates, gradients, parts[1]);
        CHECK_MSG(equal_bits(by_rates, by_hand), "%s", optimizer->name);
    }
}

static void bad_rates(void) {
    static const struct {
        rpi_optimizer_rates rates;
        const char *optimizer, *part;
    } rows[] = {{{.learning_rate = -1}, "sgd", "learning rate is -1"},
                {{.learning_rate = NAN}, "adamw", "learning rate is"},
                {{.momentum = -0.5f}, "sgd", "momentum is -0.5"},
                {{.weight_decay = -1}, "adamw", "weight decay is -1"},
                {{.nesterov = true}, "sgd", "Nesterov's variant needs"},
                {{.nesterov = true, .epsilon = 1}, "adamw", "one of sgd"},
                {{.epsilon = 0}, "adamw", "epsilon is 0; above 0"},
                {{.epsilon = 1, .beta1 = 1}, "adamw", "beta1 is 1; from 0 to below 1"},
                {{.epsilon = 1, .beta2 = -1}, "adamw", "beta2 is -1"},
                {{.nesterov = true, .epsilon = 1}, "lamb", "one of sgd, not of lamb"},
                {{.epsilon = 0}, "lamb", "epsilon is 0; above 0"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const rpi_optimizer *optimizer = NULL;
        REQUIRE_OK(rpi_optimizer_find(rows[i].optimizer, &optimizer));
        CHECK_FAILS(rpi_optimizer_check(optimizer, &rows[i].rates), INVALID, rows[i].part);
    }
}

static void catalogue(void) {
    const rpi_optimizer *found = NULL;
    for (int i = 0; rpi_optimizer_at(i); i++) {
        const rpi_optimizer *optimizer = rpi_optimizer_at(i);
        CHECK(optimizer->slot_count >= 0 && optimizer->slot_count <= RPI_OPTIMIZER_SLOTS);
        for (int j = 0; j < optimizer->slot_count; j++) CHECK(optimizer->slot_names[j] != NULL);
        CHECK_OK(rpi_optimizer_find(optimizer->name, &found));
        CHECK(found == optimizer);
    }
    CHECK_OK(rpi_optimizer_find("adamW", &found));
    CHECK(strcmp(found->name, "adamw") == 0);
    CHECK_FAILS(rpi_optimizer_find("sgb", &found), INVALID, "did you mean 'sgd'");
}

CASES({"sgd_by_hand", sgd_by_hand}, {"adamw_by_hand", adamw_by_hand},
      {"lamb_by_hand", lamb_by_hand}, {"any_cut", any_cut},
      {"gradients_are_scaled", gradients_are_scaled}, {"bad_rates", bad_rates},
      {"catalogue", catalogue})
