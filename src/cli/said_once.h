/* What all ranks of a run refuse alike is said once, by rank 0. */
#ifndef RPI_CLI_SAID_ONCE_H
#define RPI_CLI_SAID_ONCE_H

#include "cli/world.h"

/* Does rank 0 say this line, too, so that this rank need not? Rank 0 calls it for whatever it
 * says in the end, others where they have something to say, and wait some seconds for it. Of
 * ranks that our own launcher has started; else false. */
bool rpi_said_by_first(rpi_world *world, const char *line);

#endif
