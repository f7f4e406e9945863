#include "cli/config.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "cli/nanotron.h"
#include "cli/nanotron_keys.h"
#include "cli/yaml_words.h"

#include <string.h>
#include <yaml.h>

/* A text that was composed here; settings point to it. */
typedef struct made_text {
    struct made_text *next;
    char text[]; /* NOLINT(modernize-avoid-c-arrays) */
} made_text;

struct rpi_config {
    char *file;
    made_text *made;
    yaml_document_t document;
    bool has_document, is_nanotron;
    long long replicas;
};

/* More than any file of settings needs, and few enough to check at once. With aliases a short
 * file can stand for a long one, so that keys are counted as they are visited. */
enum { LONGEST_PATH = 200, MOST_BYTES = 1 << 20, DEEPEST = 16, MOST_KEYS = 10000 };

typedef struct walk {
    rpi_config *config;
    const char *file;
    const rpi_option *table;
    void *target;
    int keys; /* visited so far */
} walk;

static rp_status fail_at(const walk *w, const yaml_node_t *node, const char *text,
                         const char *path) {
    return RP_FAIL(INVALID, "%s:%zu: %s%s", w->file, node->start_mark.line + 1, text, path);
}

static rp_status at_line(const walk *w, const yaml_node_t *node, rp_status status) {
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status, "%s:%zu: ", w->file, node->start_mark.line + 1);
}

static bool takes_text(const rpi_option *table, const char *path) {
    for (const rpi_option *o = table; o->name; o++)
        if (o->yaml && strcmp(o->yaml, path) == 0) return o->type == RPI_OPTION_TEXT;
    return false;
}

/* Is there an option with this key, or one below it? For files of nanotron, its neighbouring
 * keys are suggested, too. */
static rp_status check_key(const walk *w, const char *path) {
    char hint[160];
    rp_status status = rpi_options_check_yaml(w->table, path);
    if (status == RP_OK || !w->config->is_nanotron) return status;
    if (rpi_nanotron_has_below(path, w->table)) return RP_OK;
    return RP_FAIL(INVALID, "unknown key '%s'%s", path,
                   rpi_nanotron_suggest(path, w->table, hint, sizeof hint));
}

static rp_status set_number(const walk *w, const char *path, const yaml_node_t *value) {
    char text[RPI_YAML_NUMBER];
    rp_status status = rpi_yaml_check_finite(value);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", path);
    return rpi_options_set_yaml(w->table, path, rpi_yaml_number(value, text), w->target);
}

static rp_status set_scalar(const walk *w, const char *path, const yaml_node_t *value) {
    const char *text = (const char *)value->data.scalar.value;
    rp_status status = check_key(w, path);
    if (status != RP_OK || rpi_yaml_is_null(value)) return at_line(w, value, status);
    return at_line(w, value,
                   takes_text(w->table, path)
                       ? rpi_options_set_yaml(w->table, path, text, w->target)
                       : set_number(w, path, value));
}

/* ---- options below a value's name ----
 *
 * "strategy: {gossip: {topology: base}}" is "strategy: gossip:topology=base". */

enum { LONGEST_TEXT = 1024 };

static rp_status join_value(walk *w, const yaml_node_t *node, char *text);

/* NOLINTNEXTLINE(misc-no-recursion): files are not nested deeper than DEEPEST. */
static rp_status join_options(walk *w, const yaml_node_t *options, char *text) {
    yaml_document_t *document = &w->config->document;
    const char *before = ":";
    for (yaml_node_pair_t *pair = options->data.mapping.pairs.start;
         pair < options->data.mapping.pairs.top; pair++) {
        yaml_node_t *key = yaml_document_get_node(document, pair->key);
        if (key->type != YAML_SCALAR_NODE) return fail_at(w, key, "a key must be a word", "");
        if (strlen(text) == LONGEST_TEXT - 1) return fail_at(w, key, "too long a value", "");
        if (rpi_yaml_is_null(yaml_document_get_node(document, pair->value))) continue;
        rpi_append(text, LONGEST_TEXT, "%s%s=", before, (const char *)key->data.scalar.value);
        RP_TRY(join_value(w, yaml_document_get_node(document, pair->value), text));
        before = ",";
    }
    return RP_OK;
}

/* A word, or a name with its options. */
/* NOLINTNEXTLINE(misc-no-recursion): aliases of themselves end with LONGEST_TEXT. */
static rp_status join_value(walk *w, const yaml_node_t *node, char *text) {
    yaml_document_t *document = &w->config->document;
    if (node->type == YAML_SCALAR_NODE) {
        char number[RPI_YAML_NUMBER];
        const char *said = (const char *)node->data.scalar.value;
        bool is_list = strchr(said, ':') != NULL; /* "10:20" may be one, whose option knows */
        rpi_append(text, LONGEST_TEXT, "%s", is_list ? said : rpi_yaml_number(node, number));
        return RP_OK;
    }
    if (node->type != YAML_MAPPING_NODE)
        return fail_at(w, node, "a list stands where a value is wanted", "");
    yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    if (node->data.mapping.pairs.top - pair != 1)
        return fail_at(w, node, "one name, with its options below it, is wanted here", "");
    yaml_node_t *key = yaml_document_get_node(document, pair->key);
    yaml_node_t *options = yaml_document_get_node(document, pair->value);
    if (key->type != YAML_SCALAR_NODE) return fail_at(w, key, "a key must be a word", "");
    rpi_append(text, LONGEST_TEXT, "%s", (const char *)key->data.scalar.value);
    if (rpi_yaml_is_null(options)) return RP_OK;
    if (options->type != YAML_MAPPING_NODE)
        return fail_at(w, options, "options with their values are wanted below ",
                       (const char *)key->data.scalar.value);
    return join_options(w, options, text);
}

static rp_status set_joined(walk *w, const char *path, const yaml_node_t *node) {
    char text[LONGEST_TEXT] = "";
    made_text *made = NULL;
    RP_TRY(join_value(w, node, text));
    if (strlen(text) == LONGEST_TEXT - 1) return fail_at(w, node, "too long a value: ", path);
    RP_TRY(rpi_alloc(sizeof *made + strlen(text) + 1, "a configuration", &made));
    memcpy(made->text, text, strlen(text) + 1);
    made->next = w->config->made;
    w->config->made = made;
    return at_line(w, node, rpi_options_set_yaml(w->table, path, made->text, w->target));
}

/* ---- the file ---- */

/* A mapping without a key. */
static bool is_empty(const yaml_node_t *node) {
    return node->type == YAML_MAPPING_NODE &&
           node->data.mapping.pairs.start == node->data.mapping.pairs.top;
}

/* NOLINTNEXTLINE(misc-no-recursion): paths, and with them aliases of themselves, are limited.
 */
static rp_status walk_mapping(walk *w, const yaml_node_t *mapping, const char *prefix) {
    yaml_document_t *document = &w->config->document;
    if (is_empty(mapping) && *prefix) return at_line(w, mapping, check_key(w, prefix));
    for (yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        yaml_node_t *key = yaml_document_get_node(document, pair->key);
        yaml_node_t *value = yaml_document_get_node(document, pair->value);
        if (key->type != YAML_SCALAR_NODE) return fail_at(w, key, "a key must be a word", "");
        if (++w->keys > MOST_KEYS) return fail_at(w, key, "too many keys", "");
        char path[LONGEST_PATH];
        int length = snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "",
                              (const char *)key->data.scalar.value);
        if (length >= LONGEST_PATH) return fail_at(w, key, "keys are nested too deep", "");
        if (value->type == YAML_MAPPING_NODE && w->config->is_nanotron)
            RP_TRY(at_line(w, key, check_key(w, path)));
        if (value->type == YAML_MAPPING_NODE && takes_text(w->table, path))
            RP_TRY(set_joined(w, path, value));
        else if (value->type == YAML_MAPPING_NODE)
            RP_TRY(walk_mapping(w, value, path));
        else if (value->type == YAML_SCALAR_NODE)
            RP_TRY(set_scalar(w, path, value));
        else
            return fail_at(w, value, "a list stands where a value is wanted: ", path);
    }
    return RP_OK;
}

static rp_status not_yaml(const char *file, const yaml_parser_t *parser) {
    return RP_FAIL(INVALID, "%s:%zu: not YAML: %s", file, parser->problem_mark.line + 1,
                   parser->problem ? parser->problem : "unreadable");
}

/* What one event says about the shape of the file: -1, 0 or 1 levels deeper. */
static int levels(yaml_event_type_t type) {
    if (type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT) return 1;
    return type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT ? -1 : 0;
}

/* Accepts one document that is not nested deeper than settings are. It reads events, before
 * libyaml builds anything from them, which would take seconds for a file of brackets. */
static rp_status check_shape(const char *file, yaml_parser_t *parser) {
    int depth = 0, documents = 0;
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) return not_yaml(file, parser);
        yaml_event_type_t type = event.type;
        size_t line = event.start_mark.line + 1;
        yaml_event_delete(&event);
        depth += levels(type);
        documents += type == YAML_DOCUMENT_START_EVENT;
        if (depth > DEEPEST)
            return RP_FAIL(INVALID, "%s:%zu: nested deeper than %d levels", file, line,
                           (int)DEEPEST);
        if (documents > 1)
            return RP_FAIL(INVALID, "%s:%zu: a second document begins; one is read from a file",
                           file, line);
        if (type == YAML_STREAM_END_EVENT) return RP_OK;
    }
}

static rp_status load(const char *file, yaml_parser_t *parser, rpi_config *config) {
    if (!yaml_parser_load(parser, &config->document)) return not_yaml(file, parser);
    config->has_document = true;
    return RP_OK;
}

static rp_status parse(const char *file, const char *text, size_t bytes, rpi_config *config) {
    const char *nul = memchr(text, '\0', bytes);
    size_t line = 1;
    for (const char *c = text; nul && c < nul; c++) line += *c == '\n';
    if (nul) return RP_FAIL(INVALID, "%s:%zu: a NUL byte; YAML is text", file, line);
    rp_status status = RP_OK;
    for (int pass = 0; pass < 2 && status == RP_OK; pass++) {
        yaml_parser_t parser;
        if (!yaml_parser_initialize(&parser))
            return RP_FAIL(NOMEM, "no memory to read %s", file);
        yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
        status = pass == 0 ? check_shape(file, &parser) : load(file, &parser, config);
        yaml_parser_delete(&parser);
    }
    return status;
}

/* ---- keys that are written twice ---- */

static bool is_same(const yaml_node_t *a, const yaml_node_t *b) {
    return a->type == YAML_SCALAR_NODE && b->type == YAML_SCALAR_NODE &&
           strcmp((const char *)a->data.scalar.value, (const char *)b->data.scalar.value) == 0;
}

static rp_status check_pairs(const char *file, yaml_document_t *document,
                             const yaml_node_t *mapping) {
    const yaml_node_pair_t *start = mapping->data.mapping.pairs.start,
                           *top = mapping->data.mapping.pairs.top;
    if (top - start > MOST_KEYS)
        return RP_FAIL(INVALID, "%s:%zu: too many keys", file, mapping->start_mark.line + 1);
    for (const yaml_node_pair_t *pair = start; pair < top; pair++)
        for (const yaml_node_pair_t *other = start; other < pair; other++) {
            const yaml_node_t *key = yaml_document_get_node(document, pair->key);
            if (is_same(key, yaml_document_get_node(document, other->key)))
                return RP_FAIL(INVALID, "%s:%zu: this key is written twice: %.100s", file,
                               key->start_mark.line + 1, (const char *)key->data.scalar.value);
        }
    return RP_OK;
}

static rp_status check_repeated(const char *file, yaml_document_t *document) {
    for (yaml_node_t *node = document->nodes.start; node < document->nodes.top; node++)
        if (node->type == YAML_MAPPING_NODE) RP_TRY(check_pairs(file, document, node));
    return RP_OK;
}

/* A file of nanotron's becomes one of ours. */
static rp_status prepare(const char *path, rpi_config *config) {
    yaml_document_t *document = &config->document;
    if (!config->has_document) return RP_OK;
    RP_TRY(rpi_yaml_merge(path, document, MOST_KEYS));
    config->is_nanotron = rpi_nanotron_is(document);
    RP_TRY(rpi_nanotron_check_family(path, document));
    RP_TRY(check_repeated(path, document));
    config->replicas = rpi_nanotron_replicas(document);
    return rpi_nanotron_translate(path, document);
}

long long rpi_config_replicas(const rpi_config *config) {
    return config->replicas;
}

/* A path that is not a file is a mistake of usage. */
static rp_status read_text(const char *path, char **out_text, size_t *out_bytes) {
    rp_status status = rpi_regular_file_read(path, MOST_BYTES, out_text, out_bytes);
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status == RP_CORRUPT ? RP_INVALID : status, "the configuration ");
}

rp_status rpi_config_open(const char *path, rpi_config **out_config) {
    rpi_config *config = NULL;
    char *text = NULL;
    size_t bytes = 0;
    RP_TRY(rpi_alloc(sizeof *config, "a configuration", &config));
    rp_status status = rpi_strdup(path, &config->file);
    if (status == RP_OK) status = read_text(path, &text, &bytes);
    if (status == RP_OK) status = parse(path, text, bytes, config);
    if (status == RP_OK) status = prepare(path, config);
    rpi_free(text);
    if (status != RP_OK) {
        rpi_config_free(config);
        return status;
    }
    *out_config = config;
    return RP_OK;
}

rp_status rpi_config_apply(rpi_config *config, const rpi_option *table, void *target) {
    walk w = {.config = config, .file = config->file, .table = table, .target = target};
    yaml_node_t *root = yaml_document_get_root_node(&config->document);
    if (!root || rpi_yaml_is_null(root) || is_empty(root))
        return RP_FAIL(INVALID,
                       "%s sets nothing: the file is empty, or holds comments alone; without a "
                       "configuration everything is as by default",
                       config->file);
    if (root->type != YAML_MAPPING_NODE)
        return fail_at(&w, root, "the file must hold keys and values", "");
    return walk_mapping(&w, root, "");
}

rp_status rpi_config_read(const char *path, const rpi_option *table, void *target,
                          rpi_config **out_config) {
    rpi_config *config = NULL;
    RP_TRY(rpi_config_open(path, &config));
    rp_status status = rpi_config_apply(config, table, target);
    if (status != RP_OK) {
        rpi_config_free(config);
        return status;
    }
    *out_config = config;
    return RP_OK;
}

void rpi_config_free(rpi_config *config) {
    if (!config) return;
    if (config->has_document) yaml_document_delete(&config->document);
    while (config->made) {
        made_text *next = config->made->next;
        rpi_free(config->made);
        config->made = next;
    }
    rpi_free(config->file);
    rpi_free(config);
}
