/* A NaN or infinity that a rank has found (divergence.h), in the form in which it tells the
 * others (step_reports.h). */
#ifndef RPI_TRAIN_STEP_FAULT_H
#define RPI_TRAIN_STEP_FAULT_H

typedef enum rpi_fault_kind {
    RPI_FAULT_NONE,
    RPI_FAULT_PARAMETER, /* index: of the tensor in its arena */
    RPI_FAULT_OUTPUT,    /* index: of the node whose output it is */
    RPI_FAULT_LOSS,
    RPI_FAULT_GRADIENT, /* index: as of a parameter, and for the two below */
    RPI_FAULT_RESIDUAL,
    RPI_FAULT_STATE,
    RPI_FAULT_MEAN_STATE, /* the mean of a state over the ranks */
    RPI_FAULT_SLOT,       /* and further ones: for optimizer slot 0, 1, ... */
} rpi_fault_kind;

/* The first fault of a rank; doubles, as ranks send it to each other. */
typedef struct rpi_step_fault {
    double kind, index;
    double value; /* NaN or an infinity */
} rpi_step_fault;

#endif
