#include "plan/schedule_writer.h"

#include "base/memory.h"

#include <stdint.h>

rpi_writer rpi_writer_start(const rpi_plan_request *request, int parts,
                            rpi_schedule *schedule) {
    *schedule = (rpi_schedule){.world = request->world,
                               .rank = request->rank,
                               .root = request->root,
                               .parts = parts,
                               .mean = request->mean};
    return (rpi_writer){.schedule = schedule, .status = RP_OK};
}

rp_status rpi_writer_finish(rpi_writer *writer) {
    return writer->status;
}

void rpi_writer_round(rpi_writer *writer, int round) {
    writer->round = round;
}

static void append(rpi_writer *writer, rpi_step step) {
    rpi_schedule *schedule = writer->schedule;
    if (writer->status != RP_OK) return;
    if (schedule->count == writer->capacity) {
        int capacity = writer->capacity ? 2 * writer->capacity : 16;
        writer->status =
            rpi_grow_array((size_t)schedule->count, (size_t)capacity, sizeof *schedule->steps,
                           "steps of a schedule", &schedule->steps);
        if (writer->status != RP_OK) return;
        writer->capacity = capacity;
    }
    step.round = (uint16_t)writer->round;
    if (writer->round >= schedule->rounds) schedule->rounds = writer->round + 1;
    schedule->steps[schedule->count++] = step;
}

static int fresh_wire(rpi_writer *writer) {
    return RPI_SLOT_ENCODED + writer->schedule->encoded_slots++;
}

static int write_encode(rpi_writer *writer, int part, int from, int role, int level) {
    int wire = fresh_wire(writer);
    append(writer, (rpi_step){.kind = RPI_STEP_ENCODE,
                              .role = (uint8_t)role,
                              .level = (uint8_t)level,
                              .from = (uint16_t)from,
                              .into = (uint16_t)wire,
                              .part = part,
                              .peer = -1});
    return wire;
}

static int write_recv(rpi_writer *writer, int part, int peer, int level) {
    int wire = fresh_wire(writer);
    append(writer, (rpi_step){.kind = RPI_STEP_RECV,
                              .level = (uint8_t)level,
                              .into = (uint16_t)wire,
                              .part = part,
                              .peer = peer});
    return wire;
}

int rpi_write_encode(rpi_writer *writer, int part, int from, int role) {
    return write_encode(writer, part, from, role, RPI_LEVEL_WORLD);
}

int rpi_write_recv(rpi_writer *writer, int part, int peer) {
    return write_recv(writer, part, peer, RPI_LEVEL_WORLD);
}

int rpi_write_encode_inside(rpi_writer *writer, int part, int from, int role) {
    return write_encode(writer, part, from, role, RPI_LEVEL_HOST);
}

int rpi_write_recv_inside(rpi_writer *writer, int part, int peer) {
    return write_recv(writer, part, peer, RPI_LEVEL_HOST);
}

void rpi_write_send(rpi_writer *writer, int part, int from, int peer) {
    append(
        writer,
        (rpi_step){.kind = RPI_STEP_SEND, .from = (uint16_t)from, .part = part, .peer = peer});
}

static void write_local(rpi_writer *writer, rpi_step_kind kind, int part, int from, int into) {
    append(writer, (rpi_step){.kind = (uint8_t)kind,
                              .from = (uint16_t)from,
                              .into = (uint16_t)into,
                              .part = part,
                              .peer = -1});
}

void rpi_write_decode(rpi_writer *writer, int part, int from, int into) {
    write_local(writer, RPI_STEP_DECODE, part, from, into);
}

void rpi_write_add(rpi_writer *writer, int part, int from, int into) {
    write_local(writer, RPI_STEP_ADD, part, from, into);
}

void rpi_write_copy(rpi_writer *writer, int part, int from, int into) {
    write_local(writer, RPI_STEP_COPY, part, from, into);
}

void rpi_write_accumulate(rpi_writer *writer, int part, int from, bool first) {
    if (!first)
        rpi_write_add(writer, part, from, RPI_SLOT_SUM);
    else if (from == RPI_SLOT_IN)
        rpi_write_copy(writer, part, from, RPI_SLOT_SUM);
    else
        rpi_write_decode(writer, part, from, RPI_SLOT_SUM);
}

/* The weight that makes a finished sum the result. */
static rpi_fraction result_weight(const rpi_writer *writer) {
    const rpi_schedule *schedule = writer->schedule;
    return schedule->mean && schedule->world > 1 ? (rpi_fraction){1, schedule->world}
                                                 : (rpi_fraction){0};
}

static void write_weighed(rpi_writer *writer, rpi_step_kind kind, int part, int from, int into,
                          rpi_fraction weight) {
    append(writer, (rpi_step){.kind = (uint8_t)kind,
                              .from = (uint16_t)from,
                              .into = (uint16_t)into,
                              .part = part,
                              .peer = -1,
                              .weight = weight});
}

void rpi_write_mean(rpi_writer *writer, int part) {
    rpi_fraction weight = result_weight(writer);
    if (weight.over)
        write_weighed(writer, RPI_STEP_COPY, part, RPI_SLOT_SUM, RPI_SLOT_SUM, weight);
}

void rpi_write_result(rpi_writer *writer, int part) {
    write_weighed(writer, RPI_STEP_COPY, part, RPI_SLOT_SUM, RPI_SLOT_OUT,
                  result_weight(writer));
}

void rpi_write_weighed_copy(rpi_writer *writer, int part, int from, int into,
                            rpi_fraction weight) {
    write_weighed(writer, RPI_STEP_COPY, part, from, into, weight);
}

void rpi_write_weighed_add(rpi_writer *writer, int part, int from, rpi_fraction weight) {
    write_weighed(writer, RPI_STEP_ADD, part, from, RPI_SLOT_SUM, weight);
}

void rpi_write_token_send(rpi_writer *writer, int peer) {
    append(writer, (rpi_step){.kind = RPI_STEP_SEND, .from = RPI_SLOT_RTR, .peer = peer});
}

void rpi_write_token_recv(rpi_writer *writer, int peer) {
    append(writer, (rpi_step){.kind = RPI_STEP_RECV, .into = RPI_SLOT_RTR, .peer = peer});
}

void rpi_write_fence(rpi_writer *writer) {
    append(writer, (rpi_step){.kind = RPI_STEP_FENCE, .peer = -1});
}

int rpi_wrap(int a, int b, int world) {
    return (a + b + world) % world;
}

bool rpi_fits_all(const rpi_plan_request *request) {
    return request->world >= 1;
}
