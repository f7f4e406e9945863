/* Help that is not one command's: the list of all, of a group as `redpoll bench`, and what the
 * environment holds beside options. */
#ifndef RPI_CLI_HELP_H
#define RPI_CLI_HELP_H

#include "cli/command.h"

/* Variables that are no option's. */
typedef struct rpi_variable {
    const char *name, *values, *meaning;
} rpi_variable;
/* NULL past the end. */
const rpi_variable *rpi_variable_at(int index);

/* The command whose name argv[0...] begin with, and in *out_words how many words it took; NULL
 * and 0: none. */
const rpi_command *rpi_command_find(int argc, char **argv, int *out_words);
/* Are these letters a command's whole name, as `plan`, which `plan gossip` begins with, is? */
bool rpi_command_exists(const char *name, int length);
/* Does a command's name begin with this word and a space? */
bool rpi_command_in_group(const rpi_command *command, const char *group);
bool rpi_command_is_group(const char *word);
/* What its commands do, in one line. */
const char *rpi_command_group_summary(const char *group);

void rpi_help_print_all(FILE *stream);
void rpi_help_print_group(const char *group, FILE *stream);
/* `redpoll help WORDS...`; the exit code. */
int rpi_help_run(int argc, char **argv);
/* No command is called so; says what is near. */
int rpi_help_unknown(int argc, char **argv);

#endif
