/* One table of options yields the command line, the environment variables, the YAML keys,
 * --help and the documentation.
 *
 * An option writes one field of the command's own struct. Precedence, lowest first: default,
 * configuration file, environment (REDPOLL_ + name in capitals, '-' as '_'), command line; the
 * caller applies them in this order. */
#ifndef RPI_BASE_OPTION_H
#define RPI_BASE_OPTION_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum rpi_option_type {
    RPI_OPTION_FLAG,    /* bool; without a placeholder no value on the command line: --flag,
                           --no-flag; with one ("on|off") it needs it there; on/off, true/false,
                           yes/no, 1/0 wherever a value stands */
    RPI_OPTION_COUNT,   /* int64_t; K M G are binary */
    RPI_OPTION_BYTES,   /* int64_t; K M G binary, kB MB GB decimal */
    RPI_OPTION_SECONDS, /* double */
    RPI_OPTION_REAL,    /* double */
    RPI_OPTION_TEXT, /* const char *, borrowed from where it was written; --name= makes one that
                        a file can set, and that has no default, NULL again */
    RPI_OPTION_LIST, /* rpi_option_list: one more text each time it is given;
                        for the command line, not for files */
} rpi_option_type;

enum { RPI_OPTION_LIST_MAX = 64 };
typedef struct rpi_option_list {
    const char *items[RPI_OPTION_LIST_MAX]; /* borrowed as texts are */
    int count;
} rpi_option_list;

typedef struct rpi_option {
    const char *name;  /* "global-batch-size"; NULL ends a table */
    const char *alias; /* "np", "n": one dash will do for it; NULL: none */
    const char *yaml;  /* dotted path in a configuration file; NULL: not in files */
    rpi_option_type type;
    size_t offset;        /* of the field, by offsetof */
    const char *fallback; /* default as a user would write it; NULL: 0, false or NULL */
    double min, max;      /* numbers, inclusive; both 0: no limit */
    const char *value;    /* placeholder in --help: "N", "RATE,LATENCY" */
    const char *help;     /* a phrase; the default is added */
    /* Further check of a text, NULL: any. RP_INVALID with a message. */
    rp_status (*check)(const char *text);
} rpi_option;

/* Every field to its default. The table's defaults must parse: RP_INTERNAL otherwise. */
rp_status rpi_options_defaults(const rpi_option *table, void *target);

/* Those of REDPOLL_* that are set. `get` is getenv or a test's stand-in. */
rp_status rpi_options_environment(const rpi_option *table, char *(*get)(const char *name),
                                  void *target);

/* One option by its YAML path. RP_INVALID: unknown (with the nearest), or a bad value. */
rp_status rpi_options_set_yaml(const rpi_option *table, const char *path, const char *value,
                               void *target);
/* The same by an option's name, as --name does. */
rp_status rpi_options_set_name(const rpi_option *table, const char *name, const char *value,
                               void *target);
/* Is there such a path, or one below it? RP_INVALID: unknown, with the nearest. */
rp_status rpi_options_check_yaml(const rpi_option *table, const char *path);

/* argv[1...]: --name value, --name=value, -alias value, --flag, --no-flag. Words without a dash
 * go to positional (up to capacity, else RP_INVALID); what follows `--` too. *out_help is set
 * when
 * --help or -h stands anywhere before `--`, and the rest is then not checked. */
typedef struct rpi_positional {
    const char **words;
    int capacity, count;
    bool stops_at_first;
    int first; /* out, with stops_at_first: index in argv of the first word; argc: none */
} rpi_positional;
rp_status rpi_options_parse(const rpi_option *table, int argc, char **argv, void *target,
                            rpi_positional *positional, bool *out_help);

/* on, true, yes, 1, or off, false, no, 0, in any letters; false: it is neither. */
bool rpi_parse_switch(const char *text, bool *out_on);

/* The option that a word of the command line names ("--link=1Gbit", "-n"); NULL: none here. */
const rpi_option *rpi_options_find(const rpi_option *table, const char *word);

/* "-n, --ranks N" and "REDPOLL_RANKS"; both return text. */
const char *rpi_option_head(const rpi_option *option, char *text, size_t bytes);
const char *rpi_option_variable(const rpi_option *option, char *text, size_t bytes);

/* Lines of at most RPI_TEXT_COLUMNS (base/wrap.h). */
void rpi_options_help(const rpi_option *table, FILE *stream);
/* A table in Markdown: option, variable, YAML key, default, meaning. */
void rpi_options_markdown(const rpi_option *table, FILE *stream);
/* The value of an option as text ("200", "true", "1e-4"); "" for a NULL text. */
const char *rpi_option_text(const rpi_option *option, const void *target, char *text,
                            size_t bytes);

#endif
