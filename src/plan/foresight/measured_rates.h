/* Rates of a device that were measured by size, which replace the formulas of its facts. */
#ifndef RPI_PLAN_MEASURED_RATES_H
#define RPI_PLAN_MEASURED_RATES_H

#include "plan/foresight/rate_table.h"

enum { RPI_RATE_DTYPES = 2, RPI_RATE_PASSES = 2 };

typedef struct rpi_measured_rates {
    char dtypes[RPI_RATE_DTYPES][8];          /* "fp32"; "": no more */
    rpi_rate_table products[RPI_RATE_DTYPES]; /* by m, n and k */
    /* Forward and backward: by tokens of a sequence, width of a head, and heads times samples;
     * by bytes; by m, n and k of the logits' product. */
    rpi_rate_table attention[RPI_RATE_PASSES];
    rpi_rate_table rest[RPI_RATE_PASSES], head[RPI_RATE_PASSES];
    rpi_rate_table gradients;  /* that are looked at, by bytes */
    rpi_rate_table optimizer;  /* by bytes */
    rpi_rate_table sums;       /* of the ranks of a host, by the bytes that are summed */
    rpi_rate_table layer_sums; /* the same, between the products of a layer */
} rpi_measured_rates;

/* The products of this dtype; NULL: they were not measured. */
const rpi_rate_table *rpi_measured_products(const rpi_measured_rates *rates, const char *dtype);

#endif
