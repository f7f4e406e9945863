/* Up to which value something holds: for example, from which rate of a link on a codec no
 * longer shortens a step. */
#ifndef RPI_PLAN_BREAK_EVEN_H
#define RPI_PLAN_BREAK_EVEN_H

#include "redpoll/status.h"

#include <stdbool.h>

/* Does it hold at `value`? If it does it holds at every lower value. */
typedef rp_status (*rpi_holds)(void *context, double value, bool *out_holds);

/* The value up to which it holds, to a thousandth; 0: it does not hold at `low`; infinity: it
 * holds at `high`. Both are above 0. Returns a failure of `holds`. */
rp_status rpi_break_even(rpi_holds holds, void *context, double low, double high, double *out);

#endif
