#include "base/states.h"

#if defined(RPI_CHECKS_STATES)

#    include <stdio.h>
#    include <stdlib.h>

int rpi_states_step(const rpi_states *next, int count, int from, int to, const char *variable,
                    const char *file, int line) {
    if (rpi_states_have(next, count, from, to)) return to;
    fprintf(stderr, "%s:%d: %s may not go from state %d to state %d\n", file, line, variable,
            from, to);
    abort();
}

#else

typedef int rpi_states_are_not_checked; /* a file of C holds at least a declaration */

#endif
