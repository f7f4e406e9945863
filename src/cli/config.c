#include "cli/config.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>
#include <yaml.h>

struct rpi_config {
    yaml_document_t document;
};

enum { LONGEST_PATH = 200 };

typedef struct walk {
    rpi_config *config;
    const char *file;
    const rpi_option *table;
    void *target;
} walk;

static rp_status fail_at(const walk *w, const yaml_node_t *node, const char *text,
                         const char *path) {
    return RP_FAIL(INVALID, "%s:%zu: %s%s", w->file, node->start_mark.line + 1, text, path);
}

static rp_status set_scalar(const walk *w, const char *path, const yaml_node_t *value) {
    const char *text = (const char *)value->data.scalar.value;
    if (!*text || strcmp(text, "null") == 0 || strcmp(text, "~") == 0) return RP_OK;
    rp_status status = rpi_options_set_yaml(w->table, path, text, w->target);
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status, "%s:%zu: ", w->file, value->start_mark.line + 1);
}

static rp_status repeated(const walk *w, const yaml_node_t *mapping,
                          const yaml_node_pair_t *pair) {
    const char *name = (const char *)yaml_document_get_node(&w->config->document, pair->key)
                           ->data.scalar.value;
    for (yaml_node_pair_t *other = mapping->data.mapping.pairs.start; other < pair; other++) {
        yaml_node_t *key = yaml_document_get_node(&w->config->document, other->key);
        if (key->type == YAML_SCALAR_NODE &&
            strcmp((const char *)key->data.scalar.value, name) == 0)
            return fail_at(w, key, "this key is written twice: ", name);
    }
    return RP_OK;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the file, which libyaml limits. */
static rp_status walk_mapping(const walk *w, const yaml_node_t *mapping, const char *prefix) {
    yaml_document_t *document = &w->config->document;
    for (yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        yaml_node_t *key = yaml_document_get_node(document, pair->key);
        yaml_node_t *value = yaml_document_get_node(document, pair->value);
        if (key->type != YAML_SCALAR_NODE) return fail_at(w, key, "a key must be a word", "");
        RP_TRY(repeated(w, mapping, pair));
        char path[LONGEST_PATH];
        int length = snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "",
                              (const char *)key->data.scalar.value);
        if (length >= LONGEST_PATH) return fail_at(w, key, "keys are nested too deep", "");
        if (value->type == YAML_MAPPING_NODE)
            RP_TRY(walk_mapping(w, value, path));
        else if (value->type == YAML_SCALAR_NODE)
            RP_TRY(set_scalar(w, path, value));
        else
            return fail_at(w, value, "a list stands where a value is wanted: ", path);
    }
    return RP_OK;
}

static rp_status parse(FILE *stream, const char *file, yaml_document_t *document) {
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) return RP_FAIL(NOMEM, "no memory to read %s", file);
    yaml_parser_set_input_file(&parser, stream);
    rp_status status = RP_OK;
    if (!yaml_parser_load(&parser, document))
        status = RP_FAIL(INVALID, "%s:%zu: not YAML: %s", file, parser.problem_mark.line + 1,
                         parser.problem ? parser.problem : "unreadable");
    yaml_parser_delete(&parser);
    return status;
}

static rp_status apply(const walk *w) {
    yaml_node_t *root = yaml_document_get_root_node(&w->config->document);
    if (!root) return RP_OK; /* an empty file sets nothing */
    if (root->type != YAML_MAPPING_NODE)
        return fail_at(w, root, "the file must hold keys and values", "");
    return walk_mapping(w, root, "");
}

rp_status rpi_config_read(const char *path, const rpi_option *table, void *target,
                          rpi_config **out_config) {
    FILE *stream = fopen(path, "rb");
    if (!stream) return RP_FAIL_ERRNO(IO, "cannot open the configuration %s", path);
    rpi_config *config = NULL;
    rp_status status = rpi_alloc(sizeof *config, "a configuration", &config);
    if (status == RP_OK) {
        status = parse(stream, path, &config->document);
        if (status != RP_OK) {
            rpi_free(config);
            config = NULL;
        }
    }
    fclose(stream);
    if (status != RP_OK) return status;
    status = apply(&(walk){config, path, table, target});
    if (status != RP_OK) {
        rpi_config_free(config);
        return status;
    }
    *out_config = config;
    return RP_OK;
}

void rpi_config_free(rpi_config *config) {
    if (!config) return;
    yaml_document_delete(&config->document);
    rpi_free(config);
}
