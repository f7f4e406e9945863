/* Order statistics of repeated measurements. */
#ifndef RPI_BASE_MEDIAN_H
#define RPI_BASE_MEDIAN_H

/* Sorts values in place; count >= 1. The mean of the two middle ones when count is even. */
double rpi_median(double *values, int count);

#endif
