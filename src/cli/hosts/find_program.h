/* Is there such a program, and which is this one? */
#ifndef RPI_CLI_FIND_PROGRAM_H
#define RPI_CLI_FIND_PROGRAM_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stddef.h>

/* As execvp() would look for it: a path, or a name in one of PATH's folders. */
bool rpi_program_exists(const char *name);
/* The file of this one. */
rp_status rpi_program_own(char *text, size_t bytes);

#endif
