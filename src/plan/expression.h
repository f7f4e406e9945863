/* Which computation a value is the result of, as a number: two values with the same number have
 * the same bits, since they are the same operations on the same inputs in the same order. So
 * the check (plan_check.h) can tell that replicas are bit-identical, also where each rank
 * computes its own. */
#ifndef RPI_PLAN_EXPRESSION_H
#define RPI_PLAN_EXPRESSION_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum rpi_operation {
    RPI_OPERATION_INPUT,   /* left: rank, right: part */
    RPI_OPERATION_ENCODED, /* by a lossy codec; left: what, right: which ENCODE of all */
    RPI_OPERATION_ROUNDED, /* to the dtype of the data, as by an exact codec; left: what */
    RPI_OPERATION_ADDED,   /* left + right */
    RPI_OPERATION_WEIGHED, /* left, by the weight right */
} rpi_operation;

typedef struct rpi_expression {
    uint32_t operation;
    int64_t left, right;
} rpi_expression;

typedef struct rpi_expressions { /* zeros: empty */
    rpi_expression *list;
    size_t used, room;
    int *table; /* number + 1 by hash; 2 * room slots */
} rpi_expressions;

/* The number of an expression, the same for the same one. Rounding twice, or an input, changes
 * nothing. RP_NOMEM. */
rp_status rpi_expression_number(rpi_expressions *known, rpi_operation operation, int64_t left,
                                int64_t right, int *out_number);
void rpi_expressions_free(rpi_expressions *known);

#endif
