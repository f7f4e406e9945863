/* Where something ceases to hold: from which rate of a link on a codec no longer pays. */
#ifndef RPI_PLAN_BREAK_EVEN_H
#define RPI_PLAN_BREAK_EVEN_H

#include "redpoll/status.h"

#include <stdbool.h>

/* Does it hold at `value`? Where it does, it does at every lower one. */
typedef rp_status (*rpi_holds)(void *context, double value, bool *out_holds);

/* The value up to which it holds, to a thousandth; 0: not even at `low`, infinity: still at
 * `high`. Both above 0. Passes on what `holds` fails with. */
rp_status rpi_break_even(rpi_holds holds, void *context, double low, double high, double *out);

#endif
