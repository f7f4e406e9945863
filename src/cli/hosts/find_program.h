/* Is there such a program? */
#ifndef RPI_CLI_FIND_PROGRAM_H
#define RPI_CLI_FIND_PROGRAM_H

#include <stdbool.h>

/* As execvp() would look for it: a path, or a name in one of PATH's folders. */
bool rpi_program_exists(const char *name);

#endif
