/* What all ranks of a run refuse alike is said once, by rank 0. */
#ifndef RPI_CLI_SAID_ONCE_H
#define RPI_CLI_SAID_ONCE_H

#include "cli/world.h"

/* Rank 0 has printed this line: the other ranks, which wait for it, need not. Only among ranks
 * that our own launcher has started. */
void rpi_tell_what_was_said(rpi_world *world, const char *line);

/* Has rank 0 printed this line, so that this rank need not? Every other rank that refuses calls
 * it, and waits some seconds for rank 0. false among ranks that another launcher has started.
 */
bool rpi_said_by_first(rpi_world *world, const char *line);

#endif
