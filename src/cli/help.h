/* Help that is not one command's: the list of all commands, of a group such as `redpoll bench`,
 * and of the environment variables that are not options. */
#ifndef RPI_CLI_HELP_H
#define RPI_CLI_HELP_H

#include "cli/command.h"

/* Variables that belong to no option. */
typedef struct rpi_variable {
    const char *name, *values, *meaning;
} rpi_variable;
/* NULL past the end. */
const rpi_variable *rpi_variable_at(int index);

/* The command with whose name argv[0...] begin; *out_words: the number of its words. NULL and
 * 0: there is none. */
const rpi_command *rpi_command_find(int argc, char **argv, int *out_words);
/* Is there a command with this whole name, such as `plan` beside `plan gossip`? */
bool rpi_command_exists(const char *name, int length);
/* Does a command's name begin with this word and a space? */
bool rpi_command_in_group(const rpi_command *command, const char *group);
bool rpi_command_is_group(const char *word);
/* One line about the commands of a group. */
const char *rpi_command_group_summary(const char *group);

void rpi_help_print_all(FILE *stream);
void rpi_help_print_group(const char *group, FILE *stream);
/* `redpoll help WORDS...`; the exit code. */
int rpi_help_run(int argc, char **argv);
/* Says that no command has this name, and suggests the nearest. */
int rpi_help_unknown(int argc, char **argv);

#endif
