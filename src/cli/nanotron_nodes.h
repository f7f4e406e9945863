/* A file of nanotron's while it becomes one of ours: its nodes, by the paths of their keys. */
#ifndef RPI_CLI_NANOTRON_NODES_H
#define RPI_CLI_NANOTRON_NODES_H

#include "cli/nanotron_keys.h"
#include "cli/yaml_words.h"

enum { RPI_NANOTRON_MODEL = 512, RPI_NANOTRON_DATA = 4096 };

typedef struct rpi_nanotron {
    const char *file;
    yaml_document_t *document;
    int root;
    size_t line;                    /* of what is put in, by what it comes from */
    char model[RPI_NANOTRON_MODEL]; /* "llama:hidden=..." */
} rpi_nanotron;

/* Numbers of nodes stay, pointers to them do not when nodes are added. 0: there is none. */
yaml_node_t *rpi_nanotron_node(const rpi_nanotron *t, int id);
bool rpi_nanotron_is_mapping(const rpi_nanotron *t, int id);
/* By a path with dots; the second takes the key out, with the mappings that hold nothing else.
 */
int rpi_nanotron_find(const rpi_nanotron *t, int mapping, const char *path);
int rpi_nanotron_take(const rpi_nanotron *t, int mapping, const char *path);

/* The first is "" where a value is null, or no scalar; the second reads numbers as YAML does.
 */
const char *rpi_nanotron_text(const rpi_nanotron *t, int id);
const char *rpi_nanotron_number(const rpi_nanotron *t, int id, char text[RPI_YAML_NUMBER]);

/* A value in the place of what is there, on its line, or a new one, and its mappings. */
rp_status rpi_nanotron_put(const rpi_nanotron *t, const char *path, const char *text);
/* The same, unless there is one that is not null. */
rp_status rpi_nanotron_put_absent(const rpi_nanotron *t, const char *path, const char *text);
/* A new value on the line of the node that it comes from; 0: as the others. */
rp_status rpi_nanotron_put_from(const rpi_nanotron *t, int from, const char *path,
                                const char *text);

/* RP_INVALID, with file, line and key: what is said there, and what may be. */
rp_status rpi_nanotron_refuse(const rpi_nanotron *t, int id, const char *path,
                              const char *words, const char *why);
/* Take out what a table has; `prefix` is that of its paths. RP_INVALID: a value that is not
 * among its words. */
rp_status rpi_nanotron_take_all(const rpi_nanotron *t, int mapping,
                                const rpi_nanotron_key *keys, const char *prefix);
/* RP_INVALID: a key that an older release had is there, which says its place now. */
rp_status rpi_nanotron_check_moved(const rpi_nanotron *t, int mapping,
                                   const rpi_nanotron_moved *keys, const char *prefix);
/* RP_INVALID: something is left in a mapping that was to be empty, down to its key. */
rp_status rpi_nanotron_check_left(const rpi_nanotron *t, int mapping, const char *prefix);
/* Is a word, or a number, among those of a key? */
bool rpi_nanotron_is_among(const rpi_nanotron *t, int id, const char *words);

#endif
