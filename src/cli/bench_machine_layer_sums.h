/* Sums between the products of a layer, as tensor-parallel ranks have them. */
#ifndef RPI_CLI_BENCH_MACHINE_LAYER_SUMS_H
#define RPI_CLI_BENCH_MACHINE_LAYER_SUMS_H

#include "cli/bench_machine.h"

/* Zeros, or opened. */
typedef struct rpi_machine_layer_sums {
    rp_comm *comm; /* NULL: one rank, which has no sums */
    float *from, *to;
    size_t count; /* elements */
    int item;
    bool is_on; /* in the step that runs */
    int times;  /* of the step */
    double seconds;
    rp_status status; /* of the first that failed */
} rpi_machine_layer_sums;

/* Opens the item of sums of so many floats. */
rp_status rpi_machine_layer_sums_open(rpi_machine_bench *bench, size_t count,
                                      rpi_machine_layer_sums *sums);
void rpi_machine_layer_sums_close(rpi_machine_layer_sums *sums);
/* Sums once, where it is on. */
void rpi_machine_layer_sums_add(rpi_machine_layer_sums *sums);
/* Before and after a step with sums. */
void rpi_machine_layer_sums_begin(rpi_machine_layer_sums *sums);
rp_status rpi_machine_layer_sums_end(rpi_machine_bench *bench, rpi_machine_layer_sums *sums);

#endif
