#include "plan/pipelines/pipeline_kind.h"

#include "base/status.h"

#include <stdio.h>

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static rp_status check_range(const char *what, int64_t value, int64_t most) {
    if (value >= 1 && value <= most) return RP_OK;
    return RP_FAIL(INVALID, "%lld %s in a pipeline; 1 to %lld are allowed", (long long)value,
                   what, (long long)most);
}

static rp_status check_chunks(const rpi_pipeline_kind *kind, int64_t chunks) {
    if (kind->chunks > 0 && chunks != kind->chunks)
        return RP_FAIL(INVALID, "%s has %d chunk%s a stage, not %lld; interleaved takes more",
                       kind->name, kind->chunks, kind->chunks == 1 ? "" : "s",
                       (long long)chunks);
    if (kind->chunks == 0 && (chunks < 2 || chunks > RPI_PIPELINE_CHUNKS))
        return RP_FAIL(
            INVALID, "%lld chunk%s a stage in %s; 2 to %d are allowed, and 1f1b has one",
            (long long)chunks, chunks == 1 ? "" : "s", kind->name, RPI_PIPELINE_CHUNKS);
    return RP_OK;
}

rp_status rpi_pipeline_shape_make(const rpi_pipeline_kind *kind, int64_t stages,
                                  int64_t micro_batches, int64_t chunks,
                                  rpi_pipeline_shape *out_shape) {
    if (chunks == 0) chunks = kind->chunks ? kind->chunks : 2;
    RP_TRY(check_range("stages", stages, RPI_PIPELINE_STAGES));
    RP_TRY(check_range("micro-batches", micro_batches, RPI_PIPELINE_MICRO_BATCHES));
    RP_TRY(check_chunks(kind, chunks));
    int64_t each = stages * chunks * (kind->splits ? 3 : 2);
    if (each * micro_batches > RPI_PIPELINE_PASSES)
        return RP_FAIL(
            INVALID, "%lld stages run %lld passes; %d are allowed: at most %lld micro-batches",
            (long long)stages, (long long)(each * micro_batches), RPI_PIPELINE_PASSES,
            (long long)smaller(RPI_PIPELINE_PASSES / each, micro_batches));
    *out_shape = (rpi_pipeline_shape){(int)stages, (int)micro_batches, (int)chunks};
    return RP_OK;
}

const char *rpi_pass_name(rpi_pass_kind kind) {
    static const char *const names[] = {"forward", "backward", "inputs", "weights"};
    return kind < RPI_PASS_KINDS ? names[kind] : NULL;
}

const char *rpi_pass_text(const rpi_pipeline_pass *pass, int chunks, char text[RPI_PASS_TEXT]) {
    char letter = "FDBW"[pass->kind % RPI_PASS_KINDS];
    if (chunks == 1)
        snprintf(text, RPI_PASS_TEXT, "%c%d", letter, pass->micro_batch);
    else if (pass->chunk < 26)
        snprintf(text, RPI_PASS_TEXT, "%c%d%c", letter, pass->micro_batch, 'a' + pass->chunk);
    else
        snprintf(text, RPI_PASS_TEXT, "%c%d/%d", letter, pass->micro_batch, pass->chunk);
    return text;
}

/* ---- for kinds ---- */

void rpi_pipeline_put(rpi_pipeline_writer *writer, rpi_pass_kind kind, int chunk,
                      int micro_batch) {
    if (micro_batch >= writer->micro_batches) return;
    int at = writer->count++;
    if (at < writer->capacity)
        writer->passes[at] =
            (rpi_pipeline_pass){(uint8_t)kind, (uint8_t)chunk, (int32_t)micro_batch};
}

int rpi_pipeline_ahead(const rpi_pipeline_shape *shape, int stage, int times) {
    return (int)smaller((int64_t)times * (shape->stages - 1 - stage), shape->micro_batches);
}

int rpi_pipeline_ahead_kept(const rpi_pipeline_shape *shape, int stage, int times) {
    return (int)smaller(rpi_pipeline_ahead(shape, stage, times) + 1, shape->micro_batches);
}

int64_t rpi_pipeline_whole_time(const rpi_pipeline_shape *shape) {
    return 3 * ((int64_t)shape->micro_batches + shape->stages - 1);
}

void rpi_pipeline_put_1f1b(rpi_pipeline_writer *writer, int warm_up) {
    for (int k = 0; k < warm_up; k++) rpi_pipeline_put(writer, RPI_PASS_FORWARD, 0, k);
    for (int k = 0; k < writer->micro_batches; k++) {
        rpi_pipeline_put(writer, RPI_PASS_FORWARD, 0, warm_up + k);
        rpi_pipeline_put(writer, RPI_PASS_BACKWARD, 0, k);
    }
}

void rpi_pipeline_put_halves(rpi_pipeline_writer *writer, int warm_up, int late) {
    int weights = 0;
    for (int k = 0; k < warm_up; k++) rpi_pipeline_put(writer, RPI_PASS_FORWARD, 0, k);
    for (int k = 0; k < writer->micro_batches; k++) {
        rpi_pipeline_put(writer, RPI_PASS_FORWARD, 0, warm_up + k);
        rpi_pipeline_put(writer, RPI_PASS_INPUTS, 0, k);
        if (k >= late) rpi_pipeline_put(writer, RPI_PASS_WEIGHTS, 0, weights++);
    }
    while (weights < writer->micro_batches)
        rpi_pipeline_put(writer, RPI_PASS_WEIGHTS, 0, weights++);
}
