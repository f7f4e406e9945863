#include "plan/foresight/break_even.h"

#include "base/status.h"

#include <math.h>

rp_status rpi_break_even(rpi_holds holds, void *context, double low, double high, double *out) {
    bool at_low, at_high;
    RP_TRY(holds(context, low, &at_low));
    RP_TRY(holds(context, high, &at_high));
    while (at_low && !at_high && high / low > 1.001) {
        double middle = sqrt(low * high);
        bool at_middle;
        RP_TRY(holds(context, middle, &at_middle));
        *(at_middle ? &low : &high) = middle;
    }
    *out = !at_low ? 0 : at_high ? INFINITY : sqrt(low * high);
    return RP_OK;
}
