#include "redpoll/codec_comparison.h"

#include "base/c_locale.h"
#include "base/clock.h"
#include "base/fpenv.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/status.h"
#include "codec/codec.h"
#include "comm/core/communicator.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

/* The lengths that are tried, and how often with each codec. */
enum { SHORTEST = 16 * 1024, GROWTH = 4, LONGEST = 4 * 1024 * 1024, FEWEST = 3, MOST = 16 };
#define TRIAL_S       0.2 /* for one length, both codecs together */
#define LONG_ENOUGH_S 0.1 /* beyond it time is proportional to the length */

enum { EXACT, LOSSY, WAYS };

typedef struct trial {
    rp_comm *comm;
    rp_codec codec[WAYS];
    float *data, *residual;
    rp_collective_options options;
} trial;

/* The largest value of all ranks, on all of them. */
static rp_status agree(rp_comm *comm, double values[WAYS]) {
    rp_segment both = {.data = values, .count = WAYS, .dtype = RP_F64};
    rp_collective_options options = RP_COLLECTIVE_OPTIONS(.reduce = RP_MAX);
    return rp_all_reduce(comm, &both, 1, &options);
}

static rp_status time_once(trial *t, size_t count, double seconds[WAYS]) {
    for (int way = 0; way < WAYS; way++) {
        rp_segment segment = {.data = t->data,
                              .count = count,
                              .dtype = RP_F32,
                              .codec = t->codec[way],
                              .residual = way == LOSSY ? t->residual : NULL};
        int64_t start = rpi_now_ns();
        RP_TRY(rp_all_reduce(t->comm, &segment, 1, &t->options));
        seconds[way] = rpi_seconds(rpi_now_ns() - start);
        t->options.step++;
    }
    return RP_OK;
}

static int repeats_of(const double seconds[WAYS]) {
    double fit = TRIAL_S / fmax(seconds[EXACT] + seconds[LOSSY], 1e-9);
    return fit < FEWEST ? FEWEST : fit < MOST ? (int)fit : MOST;
}

/* One turn to warm up, which also determines their number; then the least of them. */
static rp_status time_length(trial *t, size_t count, double least[WAYS]) {
    double seconds[WAYS];
    RP_TRY(time_once(t, count, seconds));
    RP_TRY(agree(t->comm, seconds));
    int repeats = repeats_of(seconds);
    least[EXACT] = least[LOSSY] = INFINITY;
    for (int i = 0; i < repeats; i++) {
        RP_TRY(time_once(t, count, seconds));
        for (int way = 0; way < WAYS; way++) least[way] = fmin(least[way], seconds[way]);
    }
    return agree(t->comm, least);
}

static size_t longer(size_t count, size_t most) {
    return count * GROWTH < most ? count * GROWTH : most;
}

/* An exact codec differs from another exact one only by noise. */
static bool gains(const trial *t, const double seconds[WAYS]) {
    return !rp_codec_is_exact(&t->codec[LOSSY], RP_F32) &&
           seconds[LOSSY] < seconds[EXACT] * (1 - RP_COMPARISON_GAIN);
}

static rp_status try_lengths(trial *t, size_t most, rp_codec_comparison *out) {
    size_t count = most < SHORTEST ? most : SHORTEST;
    out->lossy_from = RP_LOSSY_NEVER;
    for (;; count = longer(count, most)) {
        double seconds[WAYS];
        RP_TRY(time_length(t, count, seconds));
        if (!gains(t, seconds))
            out->lossy_from = RP_LOSSY_NEVER;
        else if (out->lossy_from == RP_LOSSY_NEVER)
            out->lossy_from = count;
        out->count = count;
        out->exact_s = seconds[EXACT];
        out->lossy_s = seconds[LOSSY];
        if (count >= most || seconds[EXACT] > LONG_ENOUGH_S) return RP_OK;
    }
}

static rp_status allocate(trial *t, size_t most, bool feedback) {
    RP_TRY(rpi_alloc_array(most, sizeof *t->data, "values to time codecs with", &t->data));
    if (feedback)
        RP_TRY(rpi_alloc_array(most, sizeof *t->residual, "residuals to time codecs with",
                               &t->residual));
    rpi_rng rng = rpi_rng_make(0, RPI_RNG_TEST, (uint64_t)rp_comm_rank(t->comm));
    for (size_t i = 0; i < most; i++) t->data[i] = rpi_rng_uniform(&rng) - 0.5f;
    return RP_OK;
}

/* Before any rank waits for data of a rank that has none. */
static rp_status prepare(trial *t, size_t most, bool feedback) {
    double failed[WAYS] = {0};
    rp_status status = allocate(t, most, feedback);
    if (status != RP_OK) failed[0] = 1;
    RP_TRY(agree(t->comm, failed));
    if (status != RP_OK) return status;
    if (failed[0] > 0) return RP_FAIL(NOMEM, "another rank has no memory to time codecs with");
    return RP_OK;
}

static rp_status check(const rp_comm *comm, const rp_codec *codec, size_t most, int feedback,
                       const rp_codec_comparison *comparison) {
    char why[RPI_CODEC_FAULT_BYTES];
    if (!comm) return RP_FAIL(INVALID, "comm is NULL");
    if (!codec) return RP_FAIL(INVALID, "codec is NULL");
    if (!comparison) return RP_FAIL(INVALID, "there is nowhere to put the comparison");
    if (most < 1 || most > RPI_ELEMENTS_MAX)
        return RP_FAIL(INVALID, "most is %zu elements; 1 or more are needed", most);
    const char *fault = rpi_codec_fault(codec, why);
    if (fault) return RP_FAIL(INVALID, "codec: %s", fault);
    return feedback ? rpi_codec_check_feedback(codec, RP_F32) : RP_OK;
}

rp_status rp_codec_compare(rp_comm *comm, const rp_codec *codec, size_t most, int feedback,
                           const char *algorithm, rp_codec_comparison *out_comparison) {
    RPI_FPENV_SCOPE;
    static const rp_codec exact;
    RP_TRY(check(comm, codec, most, feedback, out_comparison));
    rp_codec_comparison found = {.lossy_from = RP_LOSSY_NEVER};
    double world = rp_comm_world(comm);
    trial t = {.comm = comm,
               .codec = {exact, *codec},
               .options = RP_COLLECTIVE_OPTIONS(.algorithm = algorithm, .reduce = RP_AVG)};
    if (most > LONGEST) most = LONGEST;
    rp_status status = world > 1 ? prepare(&t, most, feedback != 0) : RP_OK;
    if (status == RP_OK && world > 1) status = try_lengths(&t, most, &found);
    rpi_free(t.data);
    rpi_free(t.residual);
    if (status != RP_OK) return status;
    double sent = 2 * (world - 1) / world * (double)found.count * sizeof(float);
    if (found.exact_s > 0) found.sent_bytes_s = sent / found.exact_s;
    *out_comparison = found;
    return RP_OK;
}

static double megabytes(size_t count) {
    return (double)count * sizeof(float) * 1e-6;
}

const char *rp_codec_comparison_text(const rp_codec_comparison *comparison,
                                     const rp_codec *codec, char text[RP_COMPARISON_TEXT]) {
    char name[64], choice[128] = "fp32";
    if (!text) {
        (void)RP_FAIL(INVALID, "there is nowhere to put the text");
        return "";
    }
    text[0] = '\0';
    if (!comparison) return text;
    rp_codec_text(codec, name, sizeof name);
    if (comparison->lossy_from != RP_LOSSY_NEVER)
        rpi_print(choice, sizeof choice, "%s from %.3g MB on, fp32 below", name,
                  megabytes(comparison->lossy_from));
    rpi_print(text, RP_COMPARISON_TEXT,
              "%s: %.3g MB take %.3g ms exact (%.3g Gbit/s sent by a rank), %.3g ms as %s",
              choice, megabytes(comparison->count), comparison->exact_s * 1e3,
              comparison->sent_bytes_s * 8e-9, comparison->lossy_s * 1e3, name);
    return text;
}
