#include "base/option.h"

#include "base/append.h"
#include "base/c_locale.h"
#include "base/status.h"
#include "base/suggest.h"
#include "base/units.h"
#include "base/wrap.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

static void *field_of(const rpi_option *option, void *target) {
    return (char *)target + option->offset;
}

/* YAML writes its switches in small and in capital letters. */
bool rpi_parse_switch(const char *text, bool *out_on) {
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no",
                                                                                "off", "0"};
    for (int i = 0; i < 4; i++) {
        bool is_yes = strcasecmp(text, yes[i]) == 0;
        if (!is_yes && strcasecmp(text, no[i]) != 0) continue;
        *out_on = is_yes;
        return true;
    }
    return false;
}

static rp_status parse_flag(const rpi_option *option, const char *text, bool *out_flag) {
    if (rpi_parse_switch(text, out_flag)) return RP_OK;
    if (option->value) return RP_FAIL(INVALID, "'%s' is neither on nor off", text);
    return RP_FAIL(INVALID, "'%s' is not a switch; write true or false", text);
}

static rp_status check_range(const rpi_option *option, double value, const char *text) {
    if ((option->min == 0 && option->max == 0) ||
        (value >= option->min && value <= option->max))
        return RP_OK;
    if (option->max >= 1e18 && value > option->max)
        return RP_FAIL(INVALID, "'%s' is too large; at most %g", text, option->max);
    if (option->max >= 1e18)
        return RP_FAIL(INVALID, "'%s' is too small; at least %g", text, option->min);
    return RP_FAIL(INVALID, "'%s' is %s; %.15g to %.15g are allowed", text,
                   value > option->max ? "too large" : "out of range", option->min,
                   option->max);
}

/* The stages write through memcpy: the field's type is known by the option's type only. */
static rp_status set_whole(const rpi_option *option, const char *text, void *field) {
    int64_t value = 0;
    if (option->type == RPI_OPTION_COUNT)
        RP_TRY(rpi_parse_count(text, &value));
    else
        RP_TRY(rpi_parse_bytes(text, &value));
    RP_TRY(check_range(option, (double)value, text));
    memcpy(field, &value, sizeof value);
    return RP_OK;
}

static rp_status set_real(const rpi_option *option, const char *text, void *field) {
    double value = 0;
    if (option->type == RPI_OPTION_SECONDS)
        RP_TRY(rpi_parse_seconds(text, &value));
    else
        RP_TRY(rpi_parse_real(text, &value));
    RP_TRY(check_range(option, value, text));
    memcpy(field, &value, sizeof value);
    return RP_OK;
}

static rp_status add_item(const rpi_option *option, const char *text, rpi_option_list *list) {
    if (list->count == RPI_OPTION_LIST_MAX)
        return RP_FAIL(INVALID, "is given more than %d times", RPI_OPTION_LIST_MAX);
    if (option->check) RP_TRY(option->check(text));
    list->items[list->count++] = text;
    return RP_OK;
}

static rp_status set_field(const rpi_option *option, const char *text, void *target) {
    void *field = field_of(option, target);
    bool flag = false;
    switch (option->type) {
    case RPI_OPTION_FLAG:
        RP_TRY(parse_flag(option, text, &flag));
        memcpy(field, &flag, sizeof flag);
        return RP_OK;
    case RPI_OPTION_COUNT:
    case RPI_OPTION_BYTES: return set_whole(option, text, field);
    case RPI_OPTION_SECONDS:
    case RPI_OPTION_REAL: return set_real(option, text, field);
    case RPI_OPTION_TEXT:
        /* What a file may have said is taken back by an empty value. */
        if (!*text && option->yaml && !option->fallback) text = NULL;
        if (text && option->check) RP_TRY(option->check(text));
        memcpy(field, &text, sizeof text);
        return RP_OK;
    case RPI_OPTION_LIST: return add_item(option, text, field);
    }
    return RP_FAIL(INTERNAL, "option %s has no type", option->name);
}

static rp_status set_named(const rpi_option *option, const char *text, void *target,
                           const char *prefix, const char *name) {
    rp_status status = set_field(option, text, target);
    return status == RP_OK ? status : rpi_fail_context(status, "%s%s: ", prefix, name);
}

rp_status rpi_options_defaults(const rpi_option *table, void *target) {
    for (const rpi_option *option = table; option->name; option++)
        if (option->fallback && set_field(option, option->fallback, target) != RP_OK)
            return rpi_fail_context(RP_INTERNAL, "default of --%s: ", option->name);
    return RP_OK;
}

const char *rpi_option_variable(const rpi_option *option, char *text, size_t bytes) {
    snprintf(text, bytes, "REDPOLL_%s", option->name);
    for (char *c = text + 8; *c; c++) *c = *c == '-' ? '_' : rpi_upper(*c);
    return text;
}

rp_status rpi_options_environment(const rpi_option *table, char *(*get)(const char *name),
                                  void *target) {
    for (const rpi_option *option = table; option->name; option++) {
        char variable[96];
        const char *value = get(rpi_option_variable(option, variable, sizeof variable));
        if (value && *value) RP_TRY(set_named(option, value, target, "", variable));
    }
    return RP_OK;
}

static const char *yaml_at(const void *context, int index) {
    const rpi_option *table = context;
    for (; table->name; table++)
        if (table->yaml && index-- == 0) return table->yaml;
    return NULL;
}

static rp_status unknown_yaml(const rpi_option *table, const char *path) {
    char hint[128];
    return RP_FAIL(INVALID, "unknown key '%s'%s", path,
                   rpi_suggest_text(path, yaml_at, table, hint, sizeof hint));
}

rp_status rpi_options_set_yaml(const rpi_option *table, const char *path, const char *value,
                               void *target) {
    for (const rpi_option *option = table; option->name; option++)
        if (option->yaml && strcmp(option->yaml, path) == 0)
            return set_named(option, value, target, "", path);
    return unknown_yaml(table, path);
}

rp_status rpi_options_check_yaml(const rpi_option *table, const char *path) {
    size_t length = strlen(path);
    for (const rpi_option *option = table; option->name; option++)
        if (option->yaml && strncmp(option->yaml, path, length) == 0 &&
            (option->yaml[length] == '\0' || option->yaml[length] == '.'))
            return RP_OK;
    return unknown_yaml(table, path);
}

static const char *name_at(const void *context, int index) {
    const rpi_option *table = context;
    return table[index].name;
}

static const rpi_option *find(const rpi_option *table, const char *name, size_t length) {
    for (; table->name; table++) {
        if (strlen(table->name) == length && strncmp(table->name, name, length) == 0)
            return table;
        if (table->alias && strlen(table->alias) == length &&
            strncmp(table->alias, name, length) == 0)
            return table;
    }
    return NULL;
}

const rpi_option *rpi_options_find(const rpi_option *table, const char *word) {
    if (word[0] != '-' || !word[1]) return NULL;
    const char *name = word + (word[1] == '-' ? 2 : 1);
    return find(table, name, strcspn(name, "="));
}

static rp_status unknown(const rpi_option *table, const char *word, const char *name,
                         size_t length) {
    char bare[64], hint[128];
    snprintf(bare, sizeof bare, "%.*s", (int)length, name);
    const char *nearest = rpi_suggest(bare, name_at, table);
    if (nearest)
        snprintf(hint, sizeof hint, "; did you mean '--%s'?", nearest);
    else
        snprintf(hint, sizeof hint, "; --help lists the options");
    return RP_FAIL(INVALID, "unknown option '%s'%s", word, hint);
}

static bool takes_value(const rpi_option *option) {
    return option->type != RPI_OPTION_FLAG || option->value;
}

/* argv[*index] starts with a dash; takes its value too and leaves *index on the last word used.
 */
static rp_status parse_option(const rpi_option *table, int argc, char **argv, int *index,
                              void *target) {
    const char *word = argv[*index];
    const char *name = word + (word[1] == '-' ? 2 : 1);
    const char *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const rpi_option *option = find(table, name, length);
    if (!option && length > 3 && strncmp(name, "no-", 3) == 0 && !equals) {
        option = find(table, name + 3, length - 3);
        if (option && option->type == RPI_OPTION_FLAG)
            return set_named(option, "false", target, "--", name);
        option = NULL;
    }
    if (!option) return unknown(table, word, name, length);
    if (!takes_value(option) && !equals)
        return set_named(option, "true", target, "--", option->name);
    if (equals) return set_named(option, equals + 1, target, "--", option->name);
    if (*index + 1 >= argc)
        return RP_FAIL(INVALID, "%s needs a value: %s %s", word, word, option->value);
    return set_named(option, argv[++*index], target, "--", option->name);
}

static rp_status add_positional(rpi_positional *positional, const char *word) {
    if (!positional || positional->count == positional->capacity)
        return RP_FAIL(INVALID, "unexpected word '%s'; --help shows the usage", word);
    positional->words[positional->count++] = word;
    return RP_OK;
}

/* Where the options of this command end. */
static int options_end(int argc, char **argv, const rpi_option *table,
                       const rpi_positional *positional) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) return i;
        if (!positional || !positional->stops_at_first) continue;
        if (argv[i][0] != '-' || !argv[i][1]) return i;
        const char *name = argv[i] + (argv[i][1] == '-' ? 2 : 1);
        const rpi_option *option = find(table, name, strlen(name));
        if (option && takes_value(option)) i++; /* its value is no program */
    }
    return argc;
}

rp_status rpi_options_set_name(const rpi_option *table, const char *name, const char *value,
                               void *target) {
    const rpi_option *option = find(table, name, strlen(name));
    if (!option) return RP_FAIL(INVALID, "unknown option '%s'", name);
    return set_named(option, value, target, "--", name);
}

rp_status rpi_options_parse(const rpi_option *table, int argc, char **argv, void *target,
                            rpi_positional *positional, bool *out_help) {
    int end = options_end(argc, argv, table, positional);
    *out_help = false;
    for (int i = 1; i < end; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) *out_help = true;
    if (*out_help) return RP_OK;
    for (int i = 1; i < end; i++) {
        if (argv[i][0] == '-' && argv[i][1])
            RP_TRY(parse_option(table, end, argv, &i, target));
        else
            RP_TRY(add_positional(positional, argv[i]));
    }
    if (end < argc && strcmp(argv[end], "--") == 0) end++;
    if (positional && positional->stops_at_first) {
        positional->first = end;
        return RP_OK;
    }
    for (; end < argc; end++) RP_TRY(add_positional(positional, argv[end]));
    return RP_OK;
}

const char *rpi_option_head(const rpi_option *option, char *text, size_t bytes) {
    char alias[24] = "";
    if (option->alias) snprintf(alias, sizeof alias, "-%s, ", option->alias);
    snprintf(text, bytes, "%s--%s%s%s", alias, option->name, option->value ? " " : "",
             option->value ? option->value : "");
    return text;
}

enum { HELP_COLUMN = 32 };

void rpi_options_help(const rpi_option *table, FILE *stream) {
    for (const rpi_option *option = table; option->name; option++) {
        char head[96], text[1024];
        rpi_option_head(option, head, sizeof head);
        fprintf(stream, strlen(head) > HELP_COLUMN - 4 ? "  %s\n%*s" : "  %-28s%*s", head,
                strlen(head) > HELP_COLUMN - 4 ? HELP_COLUMN : 2, "");
        snprintf(text, sizeof text, "%s%s%s%s", option->help, option->fallback ? " [" : "",
                 option->fallback ? option->fallback : "", option->fallback ? "]" : "");
        rpi_print_wrapped(stream, text, HELP_COLUMN, HELP_COLUMN);
    }
}

/* A cell of a table: a bar inside would end it. */
static void print_cell(FILE *stream, const char *text) {
    for (; text && *text; text++) fprintf(stream, *text == '|' ? "\\%c" : "%c", *text);
}

void rpi_options_markdown(const rpi_option *table, FILE *stream) {
    fprintf(stream,
            "| option | variable | YAML key | default | meaning |\n|---|---|---|---|---|\n");
    for (const rpi_option *option = table; option->name; option++) {
        char head[96], variable[96];
        rpi_option_head(option, head, sizeof head);
        fprintf(stream, "| `");
        print_cell(stream, head);
        fprintf(stream, "` | `%s` | %s%s%s | ",
                rpi_option_variable(option, variable, sizeof variable), option->yaml ? "`" : "",
                option->yaml ? option->yaml : "", option->yaml ? "`" : "");
        print_cell(stream, option->fallback);
        fprintf(stream, " | ");
        print_cell(stream, option->help);
        fprintf(stream, " |\n");
    }
}

static void list_text(const rpi_option_list *list, char *text, size_t bytes) {
    text[0] = '\0';
    for (int i = 0; i < list->count; i++)
        rpi_append(text, bytes, "%s%s", i ? " " : "", list->items[i]);
}

const char *rpi_option_text(const rpi_option *option, const void *target, char *text,
                            size_t bytes) {
    const char *field = (const char *)target + option->offset;
    bool flag = false;
    int64_t whole;
    double real;
    const char *string;
    switch (option->type) {
    case RPI_OPTION_FLAG:
        memcpy(&flag, field, sizeof flag);
        if (option->value)
            snprintf(text, bytes, "%s", flag ? "on" : "off");
        else
            snprintf(text, bytes, "%s", flag ? "true" : "false");
        break;
    case RPI_OPTION_COUNT:
    case RPI_OPTION_BYTES:
        memcpy(&whole, field, sizeof whole);
        snprintf(text, bytes, "%" PRId64, whole);
        break;
    case RPI_OPTION_SECONDS:
    case RPI_OPTION_REAL:
        memcpy(&real, field, sizeof real);
        rpi_print(text, bytes, "%.15g", real);
        break;
    case RPI_OPTION_TEXT:
        memcpy(&string, field, sizeof string);
        snprintf(text, bytes, "%s", string ? string : "");
        break;
    case RPI_OPTION_LIST: list_text((const rpi_option_list *)(const void *)field, text, bytes);
    }
    return text;
}
