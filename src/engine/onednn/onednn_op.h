/* The contract of an op of the oneDNN backend: what onednn_ops.c (the catalogue) lists. */
#ifndef RPI_ENGINE_ONEDNN_OP_H
#define RPI_ENGINE_ONEDNN_OP_H

#include "engine/onednn/onednn_session.h"

typedef struct rpi_dnn_op {
    const rpi_op *op; /* of the engine's catalogue */
    /* Optional: may `next` join the unit, whose first node is of this op? */
    bool (*fuse)(const rpi_unit *unit, const rpi_node *next);
    /* As in rpi_backend. RP_UNSUPPORTED without a message: oneDNN has nothing for this shape
     * and the reference takes it. On failure nothing is left behind. */
    rp_status (*plan)(rpi_dnn_session *session, const rpi_unit *unit, rpi_kernel *kernel);
} rpi_dnn_op;

/* NULL when there is none for this op. */
const rpi_dnn_op *rpi_dnn_op_of(const rpi_op *op);

#endif
