#include "cli/hosts/choose_hosts.h"

#include "base/c_locale.h"
#include "base/memory.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Step ids from here on do not belong to srun: batch script, interactive shell, external. */
#define FIRST_SPECIAL_STEP 4294967290.0

static const char *variable(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* A process that srun started as a rank must not start ranks on all hosts of the job. */
static bool is_slurm_rank(void) {
    const char *step = variable("SLURM_STEP_ID");
    return step && rpi_strtod(step, NULL) < FIRST_SPECIAL_STEP;
}

static void say_batch(const char *command, const rpi_host_list *list, const char *where,
                      const char *text) {
    fprintf(stderr, "redpoll %s: %lld rank%s on %d host%s, by %s (%s)\n", command,
            (long long)list->slots, list->slots == 1 ? "" : "s", list->count,
            list->count == 1 ? "" : "s", where, text);
}

static rp_status choose_batch(const char *command, rpi_host_list *list) {
    const char *nodes = variable("SLURM_JOB_NODELIST"), *file = variable("PBS_NODEFILE");
    if (nodes && !is_slurm_rank()) {
        RP_TRY(rpi_host_list_add_slurm(list, nodes, variable("SLURM_TASKS_PER_NODE")));
        say_batch(command, list, "SLURM_JOB_NODELIST", nodes);
    } else if (file && !nodes) {
        RP_TRY(rpi_host_list_add_file(list, file));
        say_batch(command, list, "PBS_NODEFILE", file);
    }
    return RP_OK;
}

rp_status rpi_hosts_choose(const char *command, const char *words, const char *file,
                           bool or_batch, rpi_host_list *out_list) {
    rpi_host_list list = {0};
    rp_status status = RP_OK;
    if (words && file)
        return RP_FAIL(INVALID, "-H and --hostfile both say which hosts; give one of them");
    if (words)
        status = rpi_host_list_add_words(&list, words);
    else if (file)
        status = rpi_host_list_add_file(&list, file);
    else if (or_batch)
        status = choose_batch(command, &list);
    if (status == RP_OK)
        *out_list = list;
    else
        rpi_host_list_free(&list);
    return status;
}

/* ---- variables ---- */

/* Whether the launcher sets this variable for each rank. */
static bool is_set_by_launcher(const char *name, size_t length) {
    static const char *const ours[] = {
        "RANK",          "WORLD_SIZE",     "LOCAL_RANK",
        "MASTER_ADDR",   "MASTER_PORT",    "LOCAL_WORLD_SIZE",
        "REDPOLL_STORE", "REDPOLL_SECRET", "REDPOLL_SECRET_FILE"};
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (strlen(ours[i]) == length && strncmp(ours[i], name, length) == 0) return true;
    return false;
}

rp_status rpi_check_variable(const char *text) {
    size_t length = strcspn(text, "=");
    bool good = length > 0 && length < 256 && !isdigit((unsigned char)text[0]);
    for (size_t i = 0; i < length && good; i++)
        good = isalnum((unsigned char)text[i]) || text[i] == '_';
    if (!good)
        return RP_FAIL(INVALID, "'%.60s' is no variable; write NAME or NAME=VALUE", text);
    if (is_set_by_launcher(text, length))
        return RP_FAIL(INVALID, "%.*s is set for each rank by redpoll run itself", (int)length,
                       text);
    if (!text[length] && !getenv(text))
        return RP_FAIL(INVALID, "%s is not set here; %s=VALUE gives it a value", text, text);
    return RP_OK;
}

static bool is_option(const rpi_option *table, const char *entry, size_t length) {
    char name[96];
    if (strncmp(entry, "REDPOLL_PORTS=", 14) == 0 ||
        strncmp(entry, "REDPOLL_LOST_AFTER=", 19) == 0 ||
        strncmp(entry, "REDPOLL_TLS=", 12) == 0)
        return false; /* ranks read them, too */
    for (; table->name; table++) {
        rpi_option_variable(table, name, sizeof name);
        if (strlen(name) == length && strncmp(name, entry, length) == 0) return true;
    }
    return false;
}

static rp_status add_item(const char *item, char **out_variable) {
    const char *value = strchr(item, '=') ? NULL : getenv(item);
    char *text = NULL;
    if (strchr(item, '=')) return rpi_strdup(item, out_variable);
    if (!value) return RP_FAIL(INVALID, "%s is not set here", item);
    size_t bytes = strlen(item) + strlen(value) + 2;
    RP_TRY(rpi_alloc(bytes, "a variable", &text));
    snprintf(text, bytes, "%s=%s", item, value);
    *out_variable = text;
    return RP_OK;
}

static rp_status fill(const rpi_option *table, const rpi_option_list *list, char **variables) {
    size_t count = 0;
    for (char **entry = environ; *entry; entry++) {
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "REDPOLL_", 8) != 0 || is_option(table, *entry, length) ||
            is_set_by_launcher(*entry, length))
            continue;
        RP_TRY(rpi_strdup(*entry, &variables[count++]));
    }
    for (int i = 0; i < list->count; i++) RP_TRY(add_item(list->items[i], &variables[count++]));
    return RP_OK;
}

rp_status rpi_variables_to_pass(const rpi_option *table, const rpi_option_list *list,
                                char ***out_variables) {
    char **variables = NULL;
    size_t most = 0;
    while (environ[most]) most++;
    RP_TRY(rpi_alloc_array(most + (size_t)list->count + 1, sizeof *variables, "variables",
                           &variables));
    rp_status status = fill(table, list, variables);
    if (status == RP_OK)
        *out_variables = variables;
    else
        rpi_variables_free(variables);
    return status;
}

void rpi_variables_free(char **variables) {
    for (char **each = variables; each && *each; each++) rpi_free(*each);
    rpi_free(variables);
}
