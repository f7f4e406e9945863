#include "cli/nanotron_nodes.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LONGEST_PATH = 256 };

yaml_node_t *rpi_nanotron_node(const rpi_nanotron *t, int id) {
    return yaml_document_get_node(t->document, id);
}

bool rpi_nanotron_is_mapping(const rpi_nanotron *t, int id) {
    return id && rpi_nanotron_node(t, id)->type == YAML_MAPPING_NODE;
}

static bool is_empty(const rpi_nanotron *t, int id) {
    yaml_node_t *node = rpi_nanotron_node(t, id);
    if (node->type == YAML_SEQUENCE_NODE)
        return node->data.sequence.items.start == node->data.sequence.items.top;
    return node->type == YAML_MAPPING_NODE &&
           node->data.mapping.pairs.start == node->data.mapping.pairs.top;
}

static yaml_node_pair_t *find_pair(const rpi_nanotron *t, int mapping, const char *key,
                                   size_t length) {
    if (!rpi_nanotron_is_mapping(t, mapping)) return NULL;
    yaml_node_t *node = rpi_nanotron_node(t, mapping);
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        yaml_node_t *name = rpi_nanotron_node(t, pair->key);
        if (name->type == YAML_SCALAR_NODE && name->data.scalar.length == length &&
            memcmp(name->data.scalar.value, key, length) == 0)
            return pair;
    }
    return NULL;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as a path. */
int rpi_nanotron_find(const rpi_nanotron *t, int mapping, const char *path) {
    size_t length = strcspn(path, ".");
    yaml_node_pair_t *pair = find_pair(t, mapping, path, length);
    if (!pair || !path[length]) return pair ? pair->value : 0;
    return rpi_nanotron_find(t, pair->value, path + length + 1);
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as a path. */
int rpi_nanotron_take(const rpi_nanotron *t, int mapping, const char *path) {
    size_t length = strcspn(path, ".");
    yaml_node_pair_t *pair = find_pair(t, mapping, path, length);
    if (!pair) return 0;
    int value = pair->value;
    if (path[length]) {
        int inner = rpi_nanotron_take(t, value, path + length + 1);
        if (!inner || !is_empty(t, value)) return inner;
        value = inner;
    }
    yaml_node_t *node = rpi_nanotron_node(t, mapping);
    size_t behind = (size_t)(node->data.mapping.pairs.top - (pair + 1));
    memmove(pair, pair + 1, behind * sizeof *pair);
    node->data.mapping.pairs.top--;
    return value;
}

const char *rpi_nanotron_text(const rpi_nanotron *t, int id) {
    yaml_node_t *node = id ? rpi_nanotron_node(t, id) : NULL;
    if (!node || node->type != YAML_SCALAR_NODE || rpi_yaml_is_null(node)) return "";
    return (const char *)node->data.scalar.value;
}

const char *rpi_nanotron_number(const rpi_nanotron *t, int id, char text[RPI_YAML_NUMBER]) {
    return *rpi_nanotron_text(t, id) ? rpi_yaml_number(rpi_nanotron_node(t, id), text) : "";
}

/* ---- putting in ---- */

static rp_status no_memory(const rpi_nanotron *t) {
    return RP_FAIL(NOMEM, "no memory to read %s", t->file);
}

static int mark(const rpi_nanotron *t, int id) {
    if (id) rpi_nanotron_node(t, id)->start_mark.line = t->line;
    return id;
}

static int add_scalar(const rpi_nanotron *t, const char *text, size_t length) {
    return mark(t, yaml_document_add_scalar(t->document, NULL, (const yaml_char_t *)text,
                                            (int)length, YAML_PLAIN_SCALAR_STYLE));
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as a path. */
static rp_status put(const rpi_nanotron *t, int mapping, const char *path, const char *text) {
    size_t length = strcspn(path, ".");
    yaml_node_pair_t *pair = find_pair(t, mapping, path, length);
    size_t own = pair ? rpi_nanotron_node(t, pair->value)->start_mark.line : 0;
    if (pair && path[length] && rpi_nanotron_is_mapping(t, pair->value))
        return put(t, pair->value, path + length + 1, text);
    int value =
        path[length]
            ? mark(t, yaml_document_add_mapping(t->document, NULL, YAML_BLOCK_MAPPING_STYLE))
            : add_scalar(t, text, strlen(text));
    int key = value && !pair ? add_scalar(t, path, length) : 0;
    if (pair && value) {
        rpi_nanotron_node(t, value)->start_mark.line = own;
        find_pair(t, mapping, path, length)->value = value;
    }
    if (!value || (!pair && (!key || !yaml_document_append_mapping_pair(t->document, mapping,
                                                                        key, value))))
        return no_memory(t);
    return path[length] ? put(t, value, path + length + 1, text) : RP_OK;
}

rp_status rpi_nanotron_put(const rpi_nanotron *t, const char *path, const char *text) {
    return put(t, t->root, path, text);
}

rp_status rpi_nanotron_put_absent(const rpi_nanotron *t, const char *path, const char *text) {
    bool is_there = *rpi_nanotron_text(t, rpi_nanotron_find(t, t->root, path));
    return is_there ? RP_OK : put(t, t->root, path, text);
}

rp_status rpi_nanotron_put_from(const rpi_nanotron *t, int from, const char *path,
                                const char *text) {
    rpi_nanotron at = *t;
    if (from) at.line = rpi_nanotron_node(t, from)->start_mark.line;
    return put(&at, t->root, path, text);
}

/* ---- what keys may say ---- */

rp_status rpi_nanotron_refuse(const rpi_nanotron *t, int id, const char *path,
                              const char *words, const char *why) {
    yaml_node_t *node = rpi_nanotron_node(t, id);
    const char *text = rpi_nanotron_text(t, id);
    return RP_FAIL(INVALID, "%s:%zu: %s is %.200s; redpoll train has %s only%s%s", t->file,
                   node->start_mark.line + 1, path,
                   node->type != YAML_SCALAR_NODE ? "a list or a mapping"
                   : *text                        ? text
                                                  : "null",
                   words, why ? ": " : "", why ? why : "");
}

/* Compares a word whatever its case, and any spelling of a switch. */
static bool is_word(const char *text, const char *word, size_t length) {
    char wanted[RPI_YAML_NUMBER];
    bool is_on, is_wanted;
    if (strlen(text) == length && strncasecmp(word, text, length) == 0) return true;
    snprintf(wanted, sizeof wanted, "%.*s", (int)length, word);
    return (strcmp(wanted, "true") == 0 || strcmp(wanted, "false") == 0) &&
           rpi_parse_switch(wanted, &is_wanted) && rpi_parse_switch(text, &is_on) &&
           is_on == is_wanted;
}

bool rpi_nanotron_is_among(const rpi_nanotron *t, int id, const char *words) {
    char number[RPI_YAML_NUMBER];
    const char *text = id ? rpi_nanotron_number(t, id, number) : "";
    if (id && rpi_nanotron_node(t, id)->type != YAML_SCALAR_NODE && !is_empty(t, id))
        return false;
    for (const char *word = words; *word; word += *word == '|') {
        size_t end = strcspn(word, "|");
        if (is_word(*text ? text : "null", word, end)) return true;
        word += end;
    }
    return false;
}

rp_status rpi_nanotron_take_all(const rpi_nanotron *t, int mapping,
                                const rpi_nanotron_key *keys, const char *prefix) {
    for (const rpi_nanotron_key *key = keys; key->path; key++) {
        char path[LONGEST_PATH];
        int id = rpi_nanotron_find(t, mapping, key->path);
        bool is_section = key->words && strcmp(key->words, RPI_NANOTRON_SECTION) == 0;
        if (!id) continue;
        if (is_section && rpi_nanotron_is_mapping(t, id) && !is_empty(t, id)) continue;
        const char *words = is_section ? "null" : key->words;
        if (words && !rpi_nanotron_is_among(t, id, words)) {
            snprintf(path, sizeof path, "%s%s", prefix, key->path);
            return rpi_nanotron_refuse(t, id, path, words, key->why);
        }
        (void)rpi_nanotron_take(t, mapping, key->path);
    }
    return RP_OK;
}

rp_status rpi_nanotron_check_moved(const rpi_nanotron *t, int mapping,
                                   const rpi_nanotron_moved *keys, const char *prefix) {
    for (const rpi_nanotron_moved *key = keys; key->path; key++) {
        int id = rpi_nanotron_find(t, mapping, key->path);
        if (!id) continue;
        return RP_FAIL(INVALID, "%s:%zu: %s%s is a key of older releases; it is %s now",
                       t->file, rpi_nanotron_node(t, id)->start_mark.line + 1, prefix,
                       key->path, key->now);
    }
    return RP_OK;
}

/* ---- what is left ---- */

static rp_status check_pair(const rpi_nanotron *t, yaml_node_pair_t pair, const char *prefix) {
    yaml_node_t *key = rpi_nanotron_node(t, pair.key);
    char path[LONGEST_PATH], below[LONGEST_PATH + 1], hint[160];
    snprintf(path, sizeof path, "%s%.100s", prefix,
             key->type == YAML_SCALAR_NODE ? (const char *)key->data.scalar.value : "?");
    snprintf(below, sizeof below, "%.*s.", LONGEST_PATH - 1, path);
    if (!rpi_nanotron_has_below(path, NULL) || strlen(prefix) > LONGEST_PATH / 2)
        return RP_FAIL(INVALID, "%s:%zu: unknown key '%s'%s", t->file, key->start_mark.line + 1,
                       path, rpi_nanotron_suggest(path, NULL, hint, sizeof hint));
    if (rpi_nanotron_is_mapping(t, pair.value))
        return rpi_nanotron_check_left(t, pair.value, below);
    if (rpi_yaml_is_null(rpi_nanotron_node(t, pair.value))) return RP_OK;
    return RP_FAIL(INVALID, "%s:%zu: keys and values are wanted below %s", t->file,
                   key->start_mark.line + 1, path);
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as a file may be. */
rp_status rpi_nanotron_check_left(const rpi_nanotron *t, int mapping, const char *prefix) {
    if (!rpi_nanotron_is_mapping(t, mapping)) return RP_OK;
    yaml_node_t *node = rpi_nanotron_node(t, mapping);
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++)
        RP_TRY(check_pair(t, *pair, prefix));
    return RP_OK;
}
