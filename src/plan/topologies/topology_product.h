/* Products of rounds: dense matrices, by rationals and by doubles. */
#ifndef RPI_PLAN_TOPOLOGY_PRODUCT_H
#define RPI_PLAN_TOPOLOGY_PRODUCT_H

#include "plan/topologies/topology.h"

/* Rows and columns are rank * vectors + vector. */
typedef struct rpi_product {
    int size;
    double *at, *next; /* [size * size] */
} rpi_product;

rp_status rpi_product_open(const rpi_topology *topology, rpi_product *out_product); /* I */
void rpi_product_close(rpi_product *product);
void rpi_product_apply(rpi_product *product, const rpi_mixing *mixing); /* becomes W * it */
/* Is vector 0 of every rank the average of the vectors 0, within the tolerance, whatever else
 * there was? */
bool rpi_product_averages(const rpi_product *product, const rpi_mixing *mixing,
                          double tolerance);
/* The largest modulus of an eigenvalue of product - J. */
rp_status rpi_product_second(const rpi_product *product, double *out_second);
/* The largest modulus of an eigenvalue of any matrix, by Gelfand's formula: |A^m|^(1/m), m = 1,
 * 2, 4 ... Both are [size * size] and hold something else afterwards. */
double rpi_matrix_radius(double *matrix, double *scratch, int size);

/* Is vector 0 of every rank exactly the average after so many rounds? *out_fits false: a
 * fraction did not fit 63 bits, and nothing is known. */
rp_status rpi_topology_averages(const rpi_topology *topology, int64_t rounds,
                                bool *out_averages, bool *out_fits);

#endif
