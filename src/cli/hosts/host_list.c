#include "cli/hosts/host_list.h"

#include "base/memory.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS_MAX = 1024, HOSTS_MAX = 4096, LINE_BYTES = 1024 };

static rp_status add_host(rpi_host_list *list, const char *name, size_t length, int64_t slots) {
    rpi_host *host = NULL;
    if (length == 0 || length >= sizeof host->name)
        return RP_FAIL(INVALID, "'%.*s' is no host's name", length > 60 ? 60 : (int)length,
                       name);
    for (size_t i = 0; i < length; i++)
        if (isspace((unsigned char)name[i]) || iscntrl((unsigned char)name[i]))
            return RP_FAIL(INVALID, "'%.*s' is no host's name: it has a blank in it",
                           (int)length, name);
    if (name[0] == '-') /* ssh would read it as an option */
        return RP_FAIL(INVALID, "'%.*s' is no host's name: it begins with '-'", (int)length,
                       name);
    for (int i = 0; i < list->count && !host; i++)
        if (strncmp(list->hosts[i].name, name, length) == 0 && !list->hosts[i].name[length])
            host = &list->hosts[i];
    int64_t total = slots + (host ? host->slots : 0);
    if (slots < 1 || total > SLOTS_MAX)
        return RP_FAIL(INVALID, "%.*s has %lld slots; 1 to %d are allowed", (int)length, name,
                       (long long)total, SLOTS_MAX);
    if (!host) {
        if (list->count == HOSTS_MAX) return RP_FAIL(INVALID, "more than %d hosts", HOSTS_MAX);
        size_t count = (size_t)list->count;
        RP_TRY(rpi_grow_array(count, count + 1, sizeof *list->hosts, "a host", &list->hosts));
        host = &list->hosts[list->count++];
        memcpy(host->name, name, length);
    }
    host->slots = (int)total;
    list->slots += slots;
    return RP_OK;
}

static rp_status parse_slots(const char *text, size_t length, int64_t *out_slots) {
    char number[16], *end = NULL;
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    *out_slots = strtoll(number, &end, 10);
    if (length && length < sizeof number && !*end && isdigit((unsigned char)number[0]))
        return RP_OK;
    return RP_FAIL(INVALID, "'%.*s' is no number of ranks", length > 40 ? 40 : (int)length,
                   text);
}

/* "big", "big:4", "[fe80::1]:4", "fe80::1". */
static rp_status add_word(rpi_host_list *list, const char *word, size_t length) {
    const char *name = word, *bracket = memchr(word, ']', length), *colon = NULL;
    size_t name_length = length;
    int64_t slots = 1;
    if (length && word[0] == '[' && bracket) {
        name = word + 1;
        name_length = (size_t)(bracket - name);
        if (bracket + 1 < word + length) colon = bracket + 1;
        if (colon && *colon != ':')
            return RP_FAIL(INVALID, "'%.*s' is neither HOST nor HOST:RANKS", (int)length, word);
    } else if ((colon = memchr(word, ':', length)) != NULL) {
        size_t left = length - (size_t)(colon - word) - 1;
        if (memchr(colon + 1, ':', left)) colon = NULL; /* an IPv6 address, without a number */
        if (colon) name_length = (size_t)(colon - word);
    }
    if (colon) RP_TRY(parse_slots(colon + 1, (size_t)(word + length - colon - 1), &slots));
    return add_host(list, name, name_length, slots);
}

rp_status rpi_host_list_add_words(rpi_host_list *list, const char *text) {
    for (const char *word = text;; word++) {
        size_t length = strcspn(word, ",");
        if (length == 0)
            return RP_FAIL(INVALID, "'%s' has an empty word; write -H big:4,small:4", text);
        rp_status status = add_word(list, word, length);
        if (status != RP_OK) return rpi_fail_context(status, "hosts '%s': ", text);
        word += length;
        if (!*word) return RP_OK;
    }
}

/* ---- files ---- */

static const char *skip_blanks(const char *text) {
    return text + strspn(text, " \t\r\n");
}

static rp_status add_line(rpi_host_list *list, char *line) {
    int64_t slots = 0;
    line[strcspn(line, "#")] = '\0';
    const char *word = skip_blanks(line);
    size_t length = strcspn(word, " \t\r\n");
    if (length == 0) return RP_OK;
    for (const char *at = skip_blanks(word + length); *at;) {
        size_t bytes = strcspn(at, " \t\r\n");
        if (strncmp(at, "slots=", 6) == 0)
            RP_TRY(parse_slots(at + 6, bytes - 6, &slots));
        else if (strncmp(at, "max_slots=", 10) != 0 && strncmp(at, "max-slots=", 10) != 0)
            return RP_FAIL(INVALID,
                           "'%.*s' is not known; a line is HOST, HOST:N or HOST slots=N",
                           bytes > 60 ? 60 : (int)bytes, at);
        at = skip_blanks(at + bytes);
    }
    return slots ? add_host(list, word, length, slots) : add_word(list, word, length);
}

static rp_status add_lines(rpi_host_list *list, FILE *file, const char *path) {
    char line[LINE_BYTES];
    for (int number = 1; fgets(line, sizeof line, file); number++) {
        rp_status status = RP_OK;
        if (!strchr(line, '\n') && !feof(file))
            status = RP_FAIL(INVALID, "a line is longer than %d bytes", LINE_BYTES - 2);
        if (status == RP_OK) status = add_line(list, line);
        if (status != RP_OK) return rpi_fail_context(status, "%s, line %d: ", path, number);
    }
    if (ferror(file)) return RP_FAIL_ERRNO(INVALID, "cannot read %s", path);
    return RP_OK;
}

rp_status rpi_host_list_add_file(rpi_host_list *list, const char *path) {
    int before = list->count;
    FILE *file = fopen(path, "re");
    if (!file) return RP_FAIL_ERRNO(INVALID, "cannot open the list of hosts %s", path);
    rp_status status = add_lines(list, file, path);
    fclose(file);
    if (status == RP_OK && list->count == before)
        return RP_FAIL(INVALID, "%s names no host; a line is HOST, HOST:N or HOST slots=N",
                       path);
    return status;
}

/* ---- Slurm ---- */

/* The numbers of tasks by node, "4(x2),3", one after the other. */
typedef struct task_counts {
    const char *text; /* NULL: one everywhere */
    long tasks, nodes;
} task_counts;

static rp_status next_tasks(task_counts *counts, int64_t *out_tasks) {
    *out_tasks = 1;
    if (!counts->text) return RP_OK;
    if (counts->nodes == 0) {
        char *end = NULL;
        counts->tasks = strtol(counts->text, &end, 10);
        counts->nodes = 1;
        bool good = end != counts->text && counts->tasks > 0;
        if (good && strncmp(end, "(x", 2) == 0) {
            counts->nodes = strtol(end + 2, &end, 10);
            good = *end++ == ')' && counts->nodes > 0;
        }
        if (!good || (*end && *end != ','))
            return RP_FAIL(INVALID, "'%s' does not say how many tasks each node has",
                           counts->text);
        counts->text = *end ? end + 1 : end;
    }
    counts->nodes--;
    *out_tasks = counts->tasks;
    return RP_OK;
}

/* The name so far, and the rest of the list after it: brackets are opened from left to right,
 * so that several in one name give all their combinations. */
typedef struct slurm_name {
    char text[RPI_HOST_BYTES];
    size_t length;
} slurm_name;

static rp_status append(slurm_name *name, const char *text, size_t length) {
    if (name->length + length >= sizeof name->text)
        return RP_FAIL(INVALID, "a node's name is longer than %zu letters",
                       sizeof name->text - 1);
    memcpy(name->text + name->length, text, length);
    name->length += length;
    return RP_OK;
}

static rp_status add_slurm_names(rpi_host_list *list, slurm_name name, const char *rest,
                                 size_t length, task_counts *counts);

/* "07-11", with the width of its first number. */
static rp_status add_slurm_range(rpi_host_list *list, const slurm_name *name, const char *range,
                                 size_t bytes, const char *rest, size_t rest_length,
                                 task_counts *counts) {
    char text[64], *end = NULL, number[24];
    snprintf(text, sizeof text, "%.*s", (int)bytes, range);
    long first = strtol(text, &end, 10), last = first;
    int width = (int)(end - text);
    bool good = bytes < sizeof text && isdigit((unsigned char)text[0]) && width < 19;
    if (good && *end == '-' && isdigit((unsigned char)end[1])) last = strtol(end + 1, &end, 10);
    if (!good || *end || last < first || last - first >= HOSTS_MAX)
        return RP_FAIL(INVALID, "'%.*s' is no range of nodes", (int)bytes, range);
    for (long at = first; at <= last; at++) {
        slurm_name longer = *name;
        int digits = snprintf(number, sizeof number, "%0*ld", width, at);
        RP_TRY(append(&longer, number, (size_t)digits));
        RP_TRY(add_slurm_names(list, longer, rest, rest_length, counts));
    }
    return RP_OK;
}

static rp_status add_slurm_names(rpi_host_list *list, slurm_name name, const char *rest,
                                 size_t length, task_counts *counts) {
    const char *open = memchr(rest, '[', length);
    if (!open) {
        int64_t tasks = 1;
        RP_TRY(append(&name, rest, length));
        RP_TRY(next_tasks(counts, &tasks));
        return add_host(list, name.text, name.length, tasks);
    }
    const char *close = memchr(open, ']', (size_t)(rest + length - open));
    if (!close) return RP_FAIL(INVALID, "'%.*s' has no ']'", (int)length, rest);
    RP_TRY(append(&name, rest, (size_t)(open - rest)));
    for (const char *range = open + 1; range <= close; range++) {
        size_t bytes = strcspn(range, ",]");
        RP_TRY(add_slurm_range(list, &name, range, bytes, close + 1,
                               (size_t)(rest + length - close - 1), counts));
        range += bytes;
    }
    return RP_OK;
}

/* Up to the next comma outside brackets. */
static size_t slurm_word(const char *text) {
    size_t length = 0;
    bool inside = false;
    for (; text[length] && (inside || text[length] != ','); length++)
        inside = text[length] == '[' || (inside && text[length] != ']');
    return length;
}

rp_status rpi_host_list_add_slurm(rpi_host_list *list, const char *nodes, const char *tasks) {
    task_counts counts = {.text = tasks};
    for (const char *word = nodes;; word++) {
        size_t length = slurm_word(word);
        slurm_name name = {.length = 0};
        rp_status status = add_slurm_names(list, name, word, length, &counts);
        if (status != RP_OK)
            return rpi_fail_context(status, "Slurm's nodes '%s' (tasks '%s'): ", nodes,
                                    tasks ? tasks : "");
        word += length;
        if (!*word) return RP_OK;
    }
}

/* ---- */

rp_status rpi_host_list_limit(rpi_host_list *list, int64_t ranks) {
    int64_t left = ranks;
    if (ranks > list->slots)
        return RP_FAIL(INVALID,
                       "-n is %lld, but the hosts have %lld slot%s; give them more, as in "
                       "-H %s:%lld, or leave -n out",
                       (long long)ranks, (long long)list->slots, list->slots == 1 ? "" : "s",
                       list->hosts[0].name,
                       (long long)(list->hosts[0].slots + ranks - list->slots));
    int count = 0;
    for (; count < list->count && left > 0; count++) {
        rpi_host *host = &list->hosts[count];
        if (host->slots > left) host->slots = (int)left;
        left -= host->slots;
    }
    list->count = count;
    list->slots = ranks;
    return RP_OK;
}

void rpi_host_list_free(rpi_host_list *list) {
    rpi_free(list->hosts);
    *list = (rpi_host_list){0};
}
