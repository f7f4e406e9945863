/* The part of a queue of completions that requests use. */
#ifndef RPI_COMM_COMPLETIONS_H
#define RPI_COMM_COMPLETIONS_H

#include "redpoll/comm.h"

/* Make room for one token, which is then put exactly once. */
rp_status rpi_completions_promise(rp_completions *completions);
/* Cannot fail. Any thread. */
void rpi_completions_put(rp_completions *completions, uint64_t token);

#endif
