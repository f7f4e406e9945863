/* How the threads of a team wait for each other: quick while nobody else wants their
 * processors, and fair in company.
 *
 * A waiter spins first, because what it waits for is mostly near. Every few microseconds it
 * offers its processor to whoever is ready to run there; alone that costs less than a percent
 * of the waiting. If somebody takes it the team is in company: from then on its waits are
 * short, and sleep, so that a processor is never kept by who has nothing to do. After a while a
 * long wait is tried again, later each time while there is still company. */
#ifndef RPI_ENGINE_GATE_H
#define RPI_ENGINE_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What the members of a team know of others; zeros at the start. */
typedef struct rpi_company {
    _Alignas(64) _Atomic int64_t until_ns; /* in company till then */
    _Atomic int64_t length_ns;             /* for how long it was last assumed */
} rpi_company;

bool rpi_in_company(const rpi_company *company);

/* A number that one thread changes and others wait for. */
typedef struct rpi_gate {
    _Alignas(64) atomic_uint value;
    atomic_uint sleepers;
} rpi_gate;

/* Set the number and wake who sleeps. */
void rpi_gate_set(rpi_gate *gate, unsigned value);
/* The same of many gates: put all, rpi_gate_fence(), then wake at all, so that no store waits
 * for the one before. */
void rpi_gate_put(rpi_gate *gate, unsigned value);
void rpi_gate_fence(void);
void rpi_gate_wake(rpi_gate *gate);
/* Until the number is another than `old`; returns it. */
unsigned rpi_gate_wait(rpi_gate *gate, unsigned old, rpi_company *company);

#endif
