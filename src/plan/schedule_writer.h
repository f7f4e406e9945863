/* How algorithm kinds write a schedule: one call a step. The first failure sticks and the calls
 * behind it do nothing; rpi_writer_finish reports it. */
#ifndef RPI_PLAN_SCHEDULE_WRITER_H
#define RPI_PLAN_SCHEDULE_WRITER_H

#include "plan/plan.h"

typedef struct rpi_writer {
    rpi_schedule *schedule;
    int capacity;
    int round;
    rp_status status;
} rpi_writer;

/* Start an empty schedule of `parts` parts for the request. */
rpi_writer rpi_writer_start(const rpi_plan_request *request, int parts, rpi_schedule *schedule);
rp_status rpi_writer_finish(rpi_writer *writer);

/* Steps from here on belong to this round. */
void rpi_writer_round(rpi_writer *writer, int round);

/* A fresh encoded slot, written by the step itself; returns the slot. */
int rpi_write_encode(rpi_writer *writer, int part, int from, int role);
int rpi_write_recv(rpi_writer *writer, int part, int peer);

/* The same with the exact codec of level HOST, for ranks of this host only. */
int rpi_write_encode_inside(rpi_writer *writer, int part, int from, int role);
int rpi_write_recv_inside(rpi_writer *writer, int part, int peer);

void rpi_write_send(rpi_writer *writer, int part, int from, int peer);
void rpi_write_decode(rpi_writer *writer, int part, int from, int into);
void rpi_write_add(rpi_writer *writer, int part, int from, int into);
void rpi_write_copy(rpi_writer *writer, int part, int from, int into);
/* `from` starts the part's SUM, or is added to it. */
void rpi_write_accumulate(rpi_writer *writer, int part, int from, bool first);
/* `into` becomes weight * `from`; SUM becomes SUM + weight * `from`. */
void rpi_write_weighed_copy(rpi_writer *writer, int part, int from, int into,
                            rpi_fraction weight);
void rpi_write_weighed_add(rpi_writer *writer, int part, int from, rpi_fraction weight);
/* A finished sum becomes the mean where it lies, where one was asked for: before it is encoded
 * for everybody. */
void rpi_write_mean(rpi_writer *writer, int part);
/* A finished sum, or its mean, goes to OUT. */
void rpi_write_result(rpi_writer *writer, int part);
void rpi_write_token_send(rpi_writer *writer, int peer);
void rpi_write_token_recv(rpi_writer *writer, int peer);
void rpi_write_fence(rpi_writer *writer);

/* (a + b) modulo world, for b from -world up. */
int rpi_wrap(int a, int b, int world);

/* fits() of algorithms that take every world. */
bool rpi_fits_all(const rpi_plan_request *request);

#endif
