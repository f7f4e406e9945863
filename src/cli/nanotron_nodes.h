/* A file of nanotron's during its translation: its nodes, by the paths of their keys. */
#ifndef RPI_CLI_NANOTRON_NODES_H
#define RPI_CLI_NANOTRON_NODES_H

#include "cli/nanotron_keys.h"
#include "cli/yaml_words.h"

enum { RPI_NANOTRON_MODEL = 512, RPI_NANOTRON_DATA = 4096 };

typedef struct rpi_nanotron {
    const char *file;
    yaml_document_t *document;
    int root;
    size_t line; /* for added nodes: the line of the node from which they come */
    char model[RPI_NANOTRON_MODEL]; /* "llama:hidden=..." */
} rpi_nanotron;

/* Numbers of nodes stay valid when nodes are added, pointers do not. 0: there is none. */
yaml_node_t *rpi_nanotron_node(const rpi_nanotron *t, int id);
bool rpi_nanotron_is_mapping(const rpi_nanotron *t, int id);
/* Finds by a path with dots; take() also removes the key, with mappings that are then empty. */
int rpi_nanotron_find(const rpi_nanotron *t, int mapping, const char *path);
int rpi_nanotron_take(const rpi_nanotron *t, int mapping, const char *path);

/* text(): "" if the value is null, or not a scalar; the second reads numbers as YAML does. */
const char *rpi_nanotron_text(const rpi_nanotron *t, int id);
const char *rpi_nanotron_number(const rpi_nanotron *t, int id, char text[RPI_YAML_NUMBER]);

/* Puts a value in the place of an existing one, on its line, or adds it with its mappings. */
rp_status rpi_nanotron_put(const rpi_nanotron *t, const char *path, const char *text);
/* The same, unless there is a value that is not null. */
rp_status rpi_nanotron_put_absent(const rpi_nanotron *t, const char *path, const char *text);
/* Puts a new value on the line of the node from which it comes; 0: as the others. */
rp_status rpi_nanotron_put_from(const rpi_nanotron *t, int from, const char *path,
                                const char *text);

/* RP_INVALID, with file, line and key: the value, and what is allowed. */
rp_status rpi_nanotron_refuse(const rpi_nanotron *t, int id, const char *path,
                              const char *words, const char *why);
/* Removes the keys of a table; `prefix` is that of its paths. RP_INVALID: a value is not among
 * its words. */
rp_status rpi_nanotron_take_all(const rpi_nanotron *t, int mapping,
                                const rpi_nanotron_key *keys, const char *prefix);
/* RP_INVALID: there is a key of an older release; the message has its new place. */
rp_status rpi_nanotron_check_moved(const rpi_nanotron *t, int mapping,
                                   const rpi_nanotron_moved *keys, const char *prefix);
/* RP_INVALID: something is left in a mapping that should be empty; the message has its key. */
rp_status rpi_nanotron_check_left(const rpi_nanotron *t, int mapping, const char *prefix);
/* Is a value among the words, or numbers, of a key? */
bool rpi_nanotron_is_among(const rpi_nanotron *t, int id, const char *words);

#endif
