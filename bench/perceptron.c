#include "perceptron.h"

#include "base/memory.h"
#include "base/rng.h"

#include <math.h>

enum { MOST_HIDDEN = 256, MOST_CLASSES = 256, BATCH = 100 };

/* Where each of the four tensors begins. */
static size_t first_of(const perceptron *it, int tensor) {
    size_t inputs = (size_t)it->inputs, hidden = (size_t)it->hidden;
    size_t classes = (size_t)it->classes;
    size_t sizes[] = {hidden * inputs, hidden, classes * hidden, classes};
    size_t first = 0;
    for (int i = 0; i < tensor; i++) first += sizes[i];
    return first;
}

size_t perceptron_count(const perceptron *it) {
    return first_of(it, 4);
}

void perceptron_begin(const perceptron *it, uint64_t seed, float *x) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_TEST, 0);
    float first = sqrtf(2.0f / (float)it->inputs), second = sqrtf(2.0f / (float)it->hidden);
    for (size_t i = 0; i < perceptron_count(it); i++) x[i] = 0;
    for (size_t i = 0; i < first_of(it, 1); i++) x[i] = first * rpi_rng_normal(&rng);
    for (size_t i = first_of(it, 2); i < first_of(it, 3); i++)
        x[i] = second * rpi_rng_normal(&rng);
}

/* One layer: out = weight in + bias. */
static void layer(const float *weight, const float *bias, const float *in, int inputs,
                  int outputs, float *out) {
    for (int o = 0; o < outputs; o++) {
        const float *row = weight + (size_t)o * (size_t)inputs;
        float sum = bias[o];
        for (int i = 0; i < inputs; i++) sum += row[i] * in[i];
        out[o] = sum;
    }
}

static void forward(const perceptron *it, const float *x, const float *image, float *hidden,
                    float *logits) {
    layer(x, x + first_of(it, 1), image, it->inputs, it->hidden, hidden);
    for (int h = 0; h < it->hidden; h++) hidden[h] = fmaxf(hidden[h], 0);
    layer(x + first_of(it, 2), x + first_of(it, 3), hidden, it->hidden, it->classes, logits);
}

/* Logits become softmax - onehot: the gradient of cross entropy. */
static void loss_gradient(float *logits, int classes, int32_t label) {
    float highest = logits[0], sum = 0;
    for (int c = 1; c < classes; c++) highest = fmaxf(highest, logits[c]);
    for (int c = 0; c < classes; c++) sum += logits[c] = expf(logits[c] - highest);
    for (int c = 0; c < classes; c++) logits[c] = logits[c] / sum - (c == label);
}

/* Adds the gradient of this output by this input to bias and weight. */
static void add_outer(float *weight, float *bias, const float *in, int inputs,
                      const float *output, int outputs, float factor) {
    for (int o = 0; o < outputs; o++) {
        float scale = factor * output[o];
        if (scale == 0) continue;
        float *row = weight + (size_t)o * (size_t)inputs;
        for (int i = 0; i < inputs; i++) row[i] += scale * in[i];
        bias[o] += scale;
    }
}

void perceptron_gradient(const perceptron *it, const float *x, const float *images,
                         const int32_t *labels, int64_t count, float factor, float *gradient) {
    float hidden[MOST_HIDDEN], back[MOST_HIDDEN], logits[MOST_CLASSES];
    size_t first = first_of(it, 1), second = first_of(it, 2), third = first_of(it, 3);
    for (int64_t n = 0; n < count; n++) {
        const float *image = images + n * it->inputs;
        forward(it, x, image, hidden, logits);
        loss_gradient(logits, it->classes, labels[n]);
        for (int h = 0; h < it->hidden; h++) {
            back[h] = 0;
            for (int c = 0; c < it->classes && hidden[h] > 0; c++)
                back[h] += x[second + (size_t)(c * it->hidden + h)] * logits[c];
        }
        add_outer(gradient + second, gradient + third, hidden, it->hidden, logits, it->classes,
                  factor);
        add_outer(gradient, gradient + first, image, it->inputs, back, it->hidden, factor);
    }
}

static int most_likely(const float *logits, int classes) {
    int best = 0;
    for (int c = 1; c < classes; c++)
        if (logits[c] > logits[best]) best = c;
    return best;
}

rp_status perceptron_accuracy(const perceptron *it, const float *x, const rpi_dataset *data,
                              double *out_share) {
    float hidden[MOST_HIDDEN], logits[MOST_CLASSES];
    float *images = NULL;
    RP_TRY(rpi_alloc_array((size_t)BATCH * (size_t)it->inputs, sizeof *images, "test images",
                           &images));
    int64_t right = 0;
    for (int64_t from = 0; from < data->test.count; from += BATCH) {
        uint32_t indices[BATCH];
        int32_t labels[BATCH];
        int64_t count = data->test.count - from < BATCH ? data->test.count - from : BATCH;
        for (int64_t i = 0; i < count; i++) indices[i] = (uint32_t)(from + i);
        rpi_dataset_batch(data, &data->test, indices, count, images, labels);
        for (int64_t i = 0; i < count; i++) {
            forward(it, x, images + i * it->inputs, hidden, logits);
            right += most_likely(logits, it->classes) == labels[i];
        }
    }
    rpi_free(images);
    *out_share = (double)right / (double)data->test.count;
    return RP_OK;
}
