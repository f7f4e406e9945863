#include "cli/yaml_words.h"

#include "base/c_locale.h"
#include "base/memory.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *text_of(const yaml_node_t *scalar) {
    return (const char *)scalar->data.scalar.value;
}

static bool is_plain(const yaml_node_t *node) {
    return node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static bool is_among(const char *text, const char *const *words) {
    for (; *words; words++)
        if (strcmp(text, *words) == 0) return true;
    return false;
}

bool rpi_yaml_is_null(const yaml_node_t *node) {
    static const char *const words[] = {"", "~", "null", "Null", "NULL", NULL};
    return is_plain(node) && is_among(text_of(node), words);
}

rp_status rpi_yaml_check_finite(const yaml_node_t *scalar) {
    static const char *const words[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN", NULL};
    if (!is_plain(scalar)) return RP_OK;
    const char *text = text_of(scalar);
    if (!is_among(text + (*text == '-' || *text == '+'), words)) return RP_OK;
    return RP_FAIL(INVALID, "'%s' is no finite number", text);
}

/* ---- numbers ---- */

/* Digits of a base, '_' left out, as a number; false: something else, or more than 64 bits. */
static bool digits(const char *text, int base, uint64_t *out) {
    char bare[RPI_YAML_NUMBER];
    size_t used = 0;
    for (; *text; text++) {
        int digit = *text >= '0' && *text <= '9'   ? *text - '0'
                    : *text >= 'a' && *text <= 'f' ? *text - 'a' + 10
                    : *text >= 'A' && *text <= 'F' ? *text - 'A' + 10
                                                   : base;
        if (*text == '_') continue;
        if (digit >= base || used + 1 >= sizeof bare) return false;
        bare[used++] = *text;
    }
    bare[used] = '\0';
    *out = strtoull(bare, NULL, base);
    return used > 0 && *out < UINT64_MAX;
}

/* 1:30, 1:02:03.5: each behind the first has one digit or two, below 60. */
static bool sixties(const char *text, double *out) {
    double value = 0;
    int places = 0;
    if (*text < '0' || *text > '9') return false;
    for (;; places++) {
        size_t length = strspn(text, places ? "0123456789" : "0123456789_");
        char part[24];
        uint64_t number;
        snprintf(part, sizeof part, "%.*s", (int)length, text);
        if (length == 0 || length >= sizeof part || !digits(part, 10, &number)) return false;
        if (places && (length > 2 || number > 59)) return false;
        value = value * 60 + (double)number;
        text += length;
        if (*text != ':') break;
        text++;
    }
    if (*text == '.' && strspn(text + 1, "0123456789") == strlen(text + 1))
        value += text[1] ? rpi_strtod(text, NULL) : 0;
    else if (*text)
        return false;
    *out = value;
    return places > 0;
}

/* Reals may have '_' among their digits. */
static bool has_underscores(const char *text) {
    return strchr(text, '_') && text[0] >= '0' && text[0] <= '9' &&
           strspn(text, "0123456789_.eE+-") == strlen(text);
}

static void leave_out(const char *text, char *out) {
    size_t used = 0;
    for (; *text && used + 1 < RPI_YAML_NUMBER; text++)
        if (*text != '_') out[used++] = *text;
    out[used] = '\0';
}

/* Whole numbers of another base, by what they begin with. */
static bool whole(const char *text, uint64_t *out) {
    if (text[0] != '0' || !text[1]) return false;
    if (text[1] == 'b') return digits(text + 2, 2, out);
    if (text[1] == 'x') return digits(text + 2, 16, out);
    return digits(text, 8, out);
}

const char *rpi_yaml_number(const yaml_node_t *scalar, char text[RPI_YAML_NUMBER]) {
    const char *said = text_of(scalar);
    const char *sign = *said == '-' ? "-" : "";
    const char *number = said + (*said == '-' || *said == '+');
    uint64_t value;
    double seconds;
    if (!is_plain(scalar)) return said;
    if (whole(number, &value))
        snprintf(text, RPI_YAML_NUMBER, "%s%" PRIu64, sign, value);
    else if (sixties(number, &seconds))
        snprintf(text, RPI_YAML_NUMBER, "%s%.17g", sign, seconds);
    else if (has_underscores(number) && strlen(said) < RPI_YAML_NUMBER)
        leave_out(said, text);
    else
        return said;
    return text;
}

/* ---- merges ---- */

typedef struct merges {
    const char *file;
    yaml_document_t *document;
    int keys, most;
} merges;

static rp_status fail_at(const merges *m, const yaml_node_t *node, const char *text) {
    return RP_FAIL(INVALID, "%s:%zu: %s", m->file, node->start_mark.line + 1, text);
}

static yaml_node_t *node_of(const merges *m, int id) {
    return yaml_document_get_node(m->document, id);
}

static bool is_merge(const yaml_node_t *key) {
    return is_plain(key) && strcmp(text_of(key), "<<") == 0;
}

static bool has_key(const merges *m, int mapping, const yaml_node_t *key) {
    yaml_node_t *node = node_of(m, mapping);
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *other = node_of(m, pair->key);
        if (other->type == YAML_SCALAR_NODE && strcmp(text_of(other), text_of(key)) == 0)
            return true;
    }
    return false;
}

/* By their numbers: what is pointed to moves when a mapping grows. */
static rp_status copy_pairs(merges *m, int to, int from) {
    yaml_node_t *source = node_of(m, from);
    if (source->type != YAML_MAPPING_NODE)
        return fail_at(m, source, "<< merges a mapping, or a list of them");
    for (int i = 0; i < source->data.mapping.pairs.top - source->data.mapping.pairs.start;
         i++) {
        yaml_node_pair_t pair = source->data.mapping.pairs.start[i];
        yaml_node_t *key = node_of(m, pair.key);
        if (key->type != YAML_SCALAR_NODE) return fail_at(m, key, "a key must be a word");
        if (++m->keys > m->most) return fail_at(m, key, "too many keys");
        if (is_merge(key) || has_key(m, to, key)) continue;
        if (!yaml_document_append_mapping_pair(m->document, to, pair.key, pair.value))
            return RP_FAIL(NOMEM, "no memory to read %s", m->file);
    }
    return RP_OK;
}

static rp_status merge_value(merges *m, int to, int value) {
    yaml_node_t *node = node_of(m, value);
    if (node->type != YAML_SEQUENCE_NODE) return copy_pairs(m, to, value);
    for (int i = 0; i < node->data.sequence.items.top - node->data.sequence.items.start; i++)
        RP_TRY(copy_pairs(m, to, node->data.sequence.items.start[i]));
    return RP_OK;
}

static rp_status merge_into(merges *m, int mapping) {
    yaml_node_t *node = node_of(m, mapping);
    if (node->data.mapping.pairs.top - node->data.mapping.pairs.start > m->most)
        return fail_at(m, node, "too many keys");
    for (int i = 0; i < node->data.mapping.pairs.top - node->data.mapping.pairs.start; i++) {
        yaml_node_pair_t *pair = node->data.mapping.pairs.start + i;
        if (!is_merge(node_of(m, pair->key))) continue;
        int value = pair->value;
        size_t behind = (size_t)(node->data.mapping.pairs.top - (pair + 1));
        memmove(pair, pair + 1, behind * sizeof *pair);
        node->data.mapping.pairs.top--;
        i--;
        RP_TRY(merge_value(m, mapping, value));
    }
    return RP_OK;
}

typedef struct ending {
    size_t at;
    int id;
} ending;

/* Of those that end together the inner first. */
static int by_end(const void *a, const void *b) {
    const ending *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return y->id - x->id;
}

/* In the order of their ends: what an alias names has ended before it. */
rp_status rpi_yaml_merge(const char *file, yaml_document_t *document, int most) {
    merges m = {.file = file, .document = document, .most = most};
    int count = (int)(document->nodes.top - document->nodes.start), mappings = 0;
    ending *ends = NULL;
    RP_TRY(rpi_alloc_array((size_t)count + 1, sizeof *ends, file, &ends));
    for (int id = 1; id <= count; id++)
        if (node_of(&m, id)->type == YAML_MAPPING_NODE)
            ends[mappings++] = (ending){node_of(&m, id)->end_mark.index, id};
    qsort(ends, (size_t)mappings, sizeof *ends, by_end);
    rp_status status = RP_OK;
    for (int i = 0; i < mappings && status == RP_OK; i++) status = merge_into(&m, ends[i].id);
    rpi_free(ends);
    return status;
}
