#include "plan/pipelines/pipeline_orders.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>

/* Rows of `found`. */
enum { FORWARD, INPUTS, WEIGHTS, ROWS };

static int row_of(rpi_pass_kind kind) {
    return kind == RPI_PASS_FORWARD ? FORWARD : kind == RPI_PASS_WEIGHTS ? WEIGHTS : INPUTS;
}

static size_t parts_of(const rpi_pipeline_orders *o) {
    return (size_t)o->shape.stages * (size_t)o->shape.chunks;
}

static size_t cells_of(const rpi_pipeline_orders *o) {
    return ROWS * parts_of(o) * (size_t)o->shape.micro_batches;
}

static int *cell(const rpi_pipeline_orders *o, int row, int part, int micro_batch) {
    size_t at = (size_t)row * parts_of(o) + (size_t)part;
    return &o->found[at * (size_t)o->shape.micro_batches + (size_t)micro_batch];
}

int rpi_pipeline_part_of(const rpi_pipeline_orders *o, int pass) {
    return rpi_pipeline_part(o->kind, o->shape.stages, rpi_pipeline_stage_of(o, pass),
                             o->passes[pass].chunk);
}

const char *rpi_pipeline_text_of(const rpi_pipeline_orders *o, int pass,
                                 char text[RPI_PIPELINE_TEXT]) {
    char name[RPI_PASS_TEXT];
    snprintf(text, RPI_PIPELINE_TEXT, "%s of stage %d",
             rpi_pass_text(&o->passes[pass], o->shape.chunks, name),
             rpi_pipeline_stage_of(o, pass));
    return text;
}

/* ---- which pass is where ---- */

static bool is_in_range(const rpi_pipeline_orders *o, const rpi_pipeline_pass *pass) {
    bool whole = pass->kind == RPI_PASS_BACKWARD;
    bool half = pass->kind == RPI_PASS_INPUTS || pass->kind == RPI_PASS_WEIGHTS;
    return pass->kind < RPI_PASS_KINDS && (o->kind->splits ? !whole : !half) &&
           pass->chunk < o->shape.chunks && pass->micro_batch >= 0 &&
           pass->micro_batch < o->shape.micro_batches;
}

/* As there are as many passes as places for them, none is missing where none is twice. */
rp_status rpi_pipeline_orders_index(rpi_pipeline_orders *o) {
    char text[RPI_PIPELINE_TEXT];
    for (size_t i = 0; i < cells_of(o); i++) o->found[i] = -1;
    for (int i = 0; i < o->count; i++) {
        const rpi_pipeline_pass *pass = &o->passes[i];
        if (!is_in_range(o, pass))
            return RP_FAIL(INTERNAL, "%s: there is no %s", o->kind->name,
                           rpi_pipeline_text_of(o, i, text));
        int *at = cell(o, row_of((rpi_pass_kind)pass->kind), rpi_pipeline_part_of(o, i),
                       pass->micro_batch);
        if (*at >= 0)
            return RP_FAIL(INTERNAL, "%s: %s runs twice, and another never", o->kind->name,
                           rpi_pipeline_text_of(o, i, text));
        *at = i;
    }
    return RP_OK;
}

static rp_status write_orders(rpi_pipeline_orders *o) {
    for (int stage = 0; stage < o->shape.stages; stage++) {
        rpi_pipeline_writer writer = {.passes = &o->passes[(size_t)stage * (size_t)o->each],
                                      .capacity = o->each,
                                      .micro_batches = o->shape.micro_batches};
        o->kind->build(&o->shape, stage, &writer);
        if (writer.count != o->each)
            return RP_FAIL(INTERNAL, "%s: stage %d has %d passes, not %d", o->kind->name, stage,
                           writer.count, o->each);
    }
    return RP_OK;
}

rp_status rpi_pipeline_orders_build(const rpi_pipeline_kind *kind,
                                    const rpi_pipeline_shape *shape, rpi_pipeline_orders *out) {
    rpi_pipeline_orders o = {.kind = kind, .shape = *shape};
    *out = (rpi_pipeline_orders){0};
    o.each = rpi_pipeline_count(kind, shape);
    o.count = o.each * shape->stages;
    rp_status status =
        rpi_alloc_array((size_t)o.count, sizeof *o.passes, "orders of stages", &o.passes);
    if (status == RP_OK)
        status = rpi_alloc_array(cells_of(&o), sizeof *o.found, "orders of stages", &o.found);
    if (status == RP_OK) status = write_orders(&o);
    if (status == RP_OK) status = rpi_pipeline_orders_index(&o);
    if (status == RP_OK)
        *out = o;
    else
        rpi_pipeline_orders_destroy(&o);
    return status;
}

void rpi_pipeline_orders_destroy(rpi_pipeline_orders *o) {
    rpi_free(o->passes);
    rpi_free(o->found);
    *o = (rpi_pipeline_orders){0};
}

/* ---- who waits for whom ---- */

int rpi_pipeline_input(const rpi_pipeline_orders *o, int i) {
    const rpi_pipeline_pass *pass = &o->passes[i];
    int part = rpi_pipeline_part_of(o, i), m = pass->micro_batch;
    if (pass->kind == RPI_PASS_WEIGHTS) return *cell(o, INPUTS, part, m);
    if (pass->kind == RPI_PASS_FORWARD) return part > 0 ? *cell(o, FORWARD, part - 1, m) : -1;
    bool last = part == (int)parts_of(o) - 1;
    return last ? *cell(o, FORWARD, part, m) : *cell(o, INPUTS, part + 1, m);
}

int rpi_pipeline_receiver(const rpi_pipeline_orders *o, int i) {
    const rpi_pipeline_pass *pass = &o->passes[i];
    int row = row_of((rpi_pass_kind)pass->kind), part = rpi_pipeline_part_of(o, i);
    int next = row == FORWARD ? part + 1 : part - 1;
    if (row == WEIGHTS || next < 0 || next >= (int)parts_of(o)) return -1;
    int receiver = *cell(o, row, next, pass->micro_batch);
    return rpi_pipeline_stage_of(o, receiver) == rpi_pipeline_stage_of(o, i) ? -1 : receiver;
}
