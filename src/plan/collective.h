/* The contract of a collective kind: what each rank gives and must end up with, part by part.
 * The check (plan_check.h) and the price (cost.h) ask it instead of knowing collectives by
 * name. collective_kinds.c is the catalogue. */
#ifndef RPI_PLAN_COLLECTIVE_H
#define RPI_PLAN_COLLECTIVE_H

#include "plan/plan.h"

/* One rank of one call. */
typedef struct rpi_seat {
    int world, root, rank;
} rpi_seat;

/* Who is in a part of OUT: one rank's contribution, or one of the two numbers below. */
enum { RPI_FROM_NOBODY = -1, RPI_FROM_ALL = -2 };

typedef enum rpi_replicas {
    RPI_REPLICAS_NONE,
    RPI_REPLICAS_ALL,         /* whoever has a part that others have too holds the same bits */
    RPI_REPLICAS_BUT_THE_ROOT /* which keeps what it had */
} rpi_replicas;

typedef struct rpi_collective_kind {
    rpi_collective id; /* its number on the wire and in tables */
    const char *name;  /* "all-reduce" */
    bool has_root;
    bool reduces;    /* contributions are combined */
    bool has_blocks; /* only the two ranks that share a part know how long it is (plan.h) */
    bool tokens_only;
    bool token_first; /* rank 0 touches no data before a token has come */
    bool both_ways;   /* a block is two parts: one as it is sent, one as it is received */
    bool mixes;       /* OUT is a row of the request's mixing, not a sum of everybody */
    bool rank_order;  /* promised to callers (comm.h): no other order is chosen unasked */
    rpi_replicas replicas;
    /* Does the collective give the rank this part of IN? */
    bool (*gives)(const rpi_seat *seat, int part);
    /* What that part of OUT ends with: a rank, RPI_FROM_ALL; RPI_FROM_NOBODY: there is none. */
    int (*wants)(const rpi_seat *seat, int part);
} rpi_collective_kind;

const rpi_collective_kind *rpi_collective_kind_of(rpi_collective collective);

/* What the sender calls part p, the receiver calls so. */
int rpi_collective_received_as(const rpi_collective_kind *kind, int world, int part);

extern const rpi_collective_kind rpi_collective_all_reduce;
extern const rpi_collective_kind rpi_collective_reduce_scatter;
extern const rpi_collective_kind rpi_collective_all_gather;
extern const rpi_collective_kind rpi_collective_broadcast;
extern const rpi_collective_kind rpi_collective_barrier;
extern const rpi_collective_kind rpi_collective_sendrecv;
extern const rpi_collective_kind rpi_collective_reduce;
extern const rpi_collective_kind rpi_collective_gather;
extern const rpi_collective_kind rpi_collective_scatter;
extern const rpi_collective_kind rpi_collective_all_to_all;
extern const rpi_collective_kind rpi_collective_neighbour_all_reduce;

#endif
