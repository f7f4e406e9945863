/* The contract of a command of `redpoll`; commands.c is the catalogue. */
#ifndef RPI_CLI_COMMAND_H
#define RPI_CLI_COMMAND_H

#include "base/option.h"

#include <stdio.h>

/* Exit codes of every command. */
enum { RPI_EXIT_DONE = 0, RPI_EXIT_FAILED = 1, RPI_EXIT_USAGE = 2 };

/* Options that stand behind a name in the value of another option: "--strategy gossip:". */
typedef struct rpi_inner_options {
    const char *option, *name; /* NULL: past the end */
    const rpi_option *table;
} rpi_inner_options;

/* All texts of a command are data: --help, the man page and the completions of shells are made
 * of them. */
typedef struct rpi_command {
    const char *name;          /* "bench all-reduce": one or two words */
    const char *summary;       /* one line */
    const char *words;         /* behind the name in the usage; NULL: "[OPTIONS]" */
    const char *about;         /* paragraphs; broken into lines where they are printed */
    const char *notes;         /* further paragraphs behind the options; NULL: none */
    const char *examples;      /* lines, indented by two */
    const rpi_option *options; /* its table */
    /* The command whose options it takes, too, but for those of its own names; NULL: none. */
    const struct rpi_command *also;
    rpi_inner_options (*inner_at)(int index); /* NULL: values have no options of their own */
    /* The values that its one word may have, by index; NULL past the end. NULL function: it
     * takes no word, or any. */
    const char *(*word_at)(int index);
    const struct rpi_bench_kind *bench; /* the collective that it times; NULL: none */
    /* argv[0] is the command's last word. Returns the exit code; has printed its errors. */
    int (*run)(int argc, char **argv);
} rpi_command;

/* The catalogue; NULL past the end. */
const rpi_command *rpi_command_at(int index);

/* An option that the command takes, its own first, then those of `also`; NULL past the end. */
const rpi_option *rpi_command_option_at(const rpi_command *command, int index);

/* Prints what `--help` prints; and a row of it, or of another list. */
void rpi_command_print_help(const rpi_command *command, FILE *stream);
void rpi_command_print_row(const char *head, const char *text, FILE *stream);

/* Prints this thread's last error as one line to standard error; returns the exit code of a
 * failure. */
int rpi_command_failed(rp_status status);
/* The same for a mistake in the words of a command: exit code 2, and where to find help. */
int rpi_command_misused(const char *command, rp_status status);

/* Runs a command without options that takes at most one word: handles --help and mistakes of
 * usage, and calls print(word) for the rest; the word is NULL if there is none. */
int rpi_command_print(const rpi_command *command, int argc, char **argv,
                      rp_status (*print)(const char *word));

/* Runs a command with settings of its own, which are zeroed first: reads the defaults of its
 * table, the environment and the command line into them, then calls work(settings). RP_INVALID
 * from work() is a mistake of usage, too. word: where the command's one word is stored; NULL:
 * it takes none. It keeps its value if the user gives none. */
int rpi_command_work(const rpi_command *command, int argc, char **argv, void *settings,
                     const char **word, rp_status (*work)(void *settings));

/* The exit code when everything is printed: `code`, or that of a failure if standard output
 * could not be written, which is then reported. A reader that has closed its pipe is not a
 * failure. */
int rpi_command_finish(int code);

/* Writes out what has been printed, for a reader who follows. If the reader has gone, ends the
 * process as SIGPIPE would, even if that signal is ignored or blocked. */
void rpi_command_flush(void);

/* Prints the object as one line on standard output; frees it. */
struct cJSON;
void rpi_command_print_json(struct cJSON *object);

#endif
