#include "plan/plan.h"

static const char *const step_names[RPI_STEP_KINDS] = {
    [RPI_STEP_ENCODE] = "encode", [RPI_STEP_SEND] = "send", [RPI_STEP_RECV] = "recv",
    [RPI_STEP_DECODE] = "decode", [RPI_STEP_ADD] = "add",   [RPI_STEP_COPY] = "copy",
    [RPI_STEP_FENCE] = "fence",
};

const char *rpi_step_name(rpi_step_kind kind) {
    return (unsigned)kind < RPI_STEP_KINDS ? step_names[kind] : "unknown";
}
