/* What all ranks of a run refuse alike is said once, by rank 0. */
#ifndef RPI_CLI_SAID_ONCE_H
#define RPI_CLI_SAID_ONCE_H

#include "cli/world.h"

/* Does rank 0 say this line, too, so that this rank need not? Each rank that refuses calls it;
 * rank 0 hands its line on, others wait some seconds for that. Of ranks that our own launcher
 * has started; else false. */
bool rpi_said_by_first(rpi_world *world, const char *line);

#endif
