/* The contract of a command of `redpoll`; commands.c is the catalogue. */
#ifndef RPI_CLI_COMMAND_H
#define RPI_CLI_COMMAND_H

#include "base/option.h"

/* Exit codes of every command. */
enum { RPI_EXIT_DONE = 0, RPI_EXIT_FAILED = 1, RPI_EXIT_USAGE = 2 };

typedef struct rpi_command {
    const char *name;          /* "bench all-reduce": one or two words */
    const char *summary;       /* one line */
    const rpi_option *options; /* its table */
    /* argv[0] is the command's last word. Returns the exit code; has printed its errors. */
    int (*run)(int argc, char **argv);
} rpi_command;

/* The catalogue; NULL past the end. */
const rpi_command *rpi_command_at(int index);

/* Print this thread's last error as one line to standard error and return the exit code that
 * belongs to a failure. */
int rpi_command_failed(rp_status status);
/* The same for a mistake in the words of a command: exit code 2, and where to find help. */
int rpi_command_misused(const char *command, rp_status status);

/* The object as one line on standard output; frees it. */
struct cJSON;
void rpi_command_print_json(struct cJSON *object);

#endif
