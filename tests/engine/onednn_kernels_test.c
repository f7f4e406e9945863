/* The convolutions of the models run on oneDNN's kernels, not on its reference code: tens of
 * times slower, that would go unnoticed by every test of numbers. */
#include "harness/check.h"
#include "solo.h"
#include "train/models/network.h"

#include "redpoll/log.h"

#include <stdio.h>
#include <string.h>

extern const rpi_backend rpi_backend_cpu;

typedef struct model_case {
    const char *model;
    int channels, size;
    int least; /* descriptions of convolutions: forward, backward data, backward weights */
} model_case;

/* A convolution of the first layer has no backward data pass. */
enum { RESNET20_PASSES = 3 * 21 - 1, RESNET18_PASSES = 3 * 20 - 1 };

static const model_case models[] = {
    {"mlp", 1, 28, 0},
    {"resnet20", 1, 28, RESNET20_PASSES},
    {"resnet20", 3, 32, RESNET20_PASSES},
    {"resnet20", 10, 12, RESNET20_PASSES},
    {"resnet20:width=1", 1, 28, RESNET20_PASSES},
    {"resnet20:width=3", 1, 28, RESNET20_PASSES},
    {"resnet20:width=8", 1, 28, RESNET20_PASSES},
    {"resnet20:width=8", 17, 9, RESNET20_PASSES},
    {"resnet20:width=15", 2, 15, RESNET20_PASSES},
    {"resnet20:width=20", 1, 28, RESNET20_PASSES},
    {"resnet20:width=24", 1, 28, RESNET20_PASSES},
    {"resnet20:width=64", 1, 28, RESNET20_PASSES},
    {"resnet18", 1, 28, RESNET18_PASSES},
    {"resnet18", 3, 32, RESNET18_PASSES},
    {"resnet18:width=8", 1, 28, RESNET18_PASSES},
    {"resnet18:width=20", 1, 28, RESNET18_PASSES},
    {"vit:layers=1,hidden=64,heads=2,patch=16", 3, 64, 0},
};
enum { MODELS = sizeof models / sizeof models[0] };

typedef struct census {
    const char *model;
    int convolutions;
} census;

static void take_note(void *context, rp_log_level level, const char *line) {
    census *it = context;
    if (!strstr(line, ": convolution by ")) return;
    it->convolutions++;
    CHECK_MSG(level == RP_LOG_DEBUG && !strstr(line, " by ref"), "%s: %s", it->model, line);
}

static void compile(const model_case *c) {
    rpi_data_shape shape = {
        .channels = c->channels, .height = c->size, .width = c->size, .classes = 10};
    rpi_network network = {0};
    rpi_weights *weights = NULL;
    rpi_instance *instance = NULL;
    rpi_program_options options = {.training = true, .dimensions = {{"batch", 4}}};
    rpi_backend_options one_thread = {.threads = 1};
    REQUIRE_OK(rpi_network_build(c->model, &shape, &network));
    CHECK_OK(rpi_weights_create(network.graph, network.loss, &weights));
    if (weights)
        CHECK_OK(solo_open_with(network.graph, weights, network.loss, &rpi_backend_cpu,
                                &one_thread, &options, &instance));
    solo_close(instance);
    rpi_weights_destroy(weights);
    rpi_network_close(&network);
}

/* oneDNN has no kernels of both passes for less. */
static bool has_kernels(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2");
#else
    return false;
#endif
}

static void models_use_kernels(void) {
    if (!has_kernels()) {
        check_skip("oneDNN's kernels need AVX2");
        return;
    }
    for (int i = 0; i < MODELS; i++) {
        census seen = {.model = models[i].model};
        rp_log_set_level(RP_LOG_DEBUG);
        rp_log_set_sink(take_note, &seen);
        compile(&models[i]);
        rp_log_set_sink(NULL, NULL);
        CHECK_MSG(seen.convolutions >= models[i].least, "%s: %d convolutions, %d are expected",
                  models[i].model, seen.convolutions, models[i].least);
    }
}

CASES({"models_use_kernels", models_use_kernels})
