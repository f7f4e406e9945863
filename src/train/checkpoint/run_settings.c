#include "train/checkpoint/run_settings.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "net/bytes/frame.h"
#include "redpoll/version.h"
#include "train/checkpoint/checksum.h"
#include "train/checkpoint/option_json.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, MOST_WORLD = 1 << 20 };

struct rpi_run_settings {
    cJSON *root, *options;
    char *path;
    int world;
};

static bool is_one_of(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* Options that belong to one start of the command, or to one host, are not recorded. A row that
 * writes the field of an earlier row is another name for that option. */
static bool is_taken_over(const rpi_option *table, const rpi_option *option) {
    static const char *const own[] = {"config", "out", "overwrite", "resume", "trace", "bind"};
    for (const rpi_option *other = table; other < option; other++)
        if (other->offset == option->offset) return false;
    return !is_one_of(option->name, own, sizeof own / sizeof own[0]);
}

static void path_in(const char *folder, char path[RPI_PATH_BYTES]) {
    snprintf(path, RPI_PATH_BYTES, "%s/settings.json", folder);
}

/* The option was not given and has no default: absent then differs from 0. */
static bool is_absent(const rpi_option *option, const void *target) {
    char text[64];
    if (option->fallback || option->type == RPI_OPTION_FLAG) return false;
    rpi_option_text(option, target, text, sizeof text);
    return !*text || (option->type != RPI_OPTION_TEXT && strcmp(text, "0") == 0);
}

/* ---- writing ---- */

static char *text_of(const rpi_train_options *o, int world) {
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, RPI_CHECKSUM_KEY, RPI_CHECKSUM_BLANK);
    cJSON_AddStringToObject(root, "redpoll", rp_version());
    cJSON_AddNumberToObject(root, "world", world);
    cJSON *options = cJSON_AddObjectToObject(root, "options");
    for (const rpi_option *option = o->table; option->name; option++)
        if (is_taken_over(o->table, option) && !is_absent(option, o->given))
            rpi_option_add_json(options, option, o->given);
    char *text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}

static uint32_t crc_of(const char *text) {
    return rpi_crc32c(0, text, strlen(text));
}

rp_status rpi_run_settings_write(const rpi_train_options *o, int world) {
    if (!o->table || !o->given || !o->out) return RP_OK;
    char path[RPI_PATH_BYTES];
    path_in(o->out, path);
    char *text = text_of(o, world);
    if (!text) return RP_FAIL(NOMEM, "no memory for %s", path);
    rpi_checksum_write(rpi_checksum_digits(text, strlen(text)), crc_of(text));
    rpi_replacement file;
    rp_status status = rpi_replacement_open(path, &file);
    if (status == RP_OK) {
        if (fprintf(file.stream, "%s\n", text) < 0)
            status = RP_FAIL_ERRNO(IO, "cannot write %s", path);
        status = rpi_replacement_close(&file, status);
    }
    cJSON_free(text);
    return status;
}

/* ---- reading ---- */

static rp_status damaged(const char *path, const char *what) {
    return RP_FAIL(CORRUPT,
                   "%s is damaged: %s; remove it and give the run's options on the command "
                   "line",
                   path, what);
}

static rp_status check_text(const char *path, char *text, size_t bytes) {
    uint32_t wanted = 0;
    if (memchr(text, '\0', bytes)) return damaged(path, "it holds a NUL byte");
    if (bytes == 0 || text[bytes - 1] != '\n') return damaged(path, "its end is missing");
    text[bytes - 1] = '\0';
    char *digits = rpi_checksum_digits(text, bytes - 1);
    if (!digits || !rpi_checksum_take(digits, &wanted))
        return damaged(path, "it has no checksum");
    return crc_of(text) == wanted ? RP_OK : damaged(path, "it does not match its checksum");
}

static rp_status parse(rpi_run_settings *s, const char *text) {
    s->root = cJSON_ParseWithOpts(text, NULL, true);
    s->options = cJSON_GetObjectItemCaseSensitive(s->root, "options");
    const cJSON *world = cJSON_GetObjectItemCaseSensitive(s->root, "world");
    if (!cJSON_IsObject(s->options) || !cJSON_IsNumber(world) || world->valuedouble < 1 ||
        world->valuedouble > MOST_WORLD)
        return damaged(s->path, "it holds no settings");
    s->world = (int)world->valuedouble;
    return RP_OK;
}

rp_status rpi_run_settings_read(const char *folder, rpi_run_settings **out_settings) {
    char path[RPI_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    rpi_run_settings *settings = NULL;
    path_in(folder, path);
    RP_TRY(rpi_regular_file_read(path, MOST_BYTES, &text, &bytes));
    rp_status status = rpi_alloc(sizeof *settings, "settings", &settings);
    if (status == RP_OK) status = rpi_strdup(path, &settings->path);
    if (status == RP_OK) status = check_text(path, text, bytes);
    if (status == RP_OK) status = parse(settings, text);
    rpi_free(text);
    if (status != RP_OK) {
        rpi_run_settings_free(settings);
        return status;
    }
    *out_settings = settings;
    return RP_OK;
}

void rpi_run_settings_free(rpi_run_settings *settings) {
    if (!settings) return;
    cJSON_Delete(settings->root);
    rpi_free(settings->path);
    rpi_free(settings);
}

int rpi_run_settings_world(const rpi_run_settings *settings) {
    return settings->world;
}

const char *rpi_run_settings_text(const rpi_run_settings *settings, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(settings->options, name));
}

double rpi_run_settings_number(const rpi_run_settings *settings, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(settings->options, name);
    return cJSON_IsNumber(item) ? item->valuedouble : cJSON_IsTrue(item);
}

rp_status rpi_run_settings_apply(const rpi_run_settings *settings, const rpi_option *table,
                                 void *target) {
    const cJSON *member;
    cJSON_ArrayForEach(member, settings->options) {
        rp_status status = rpi_option_set_json(table, member, target);
        if (status == RP_OK) continue;
        const cJSON *version = cJSON_GetObjectItemCaseSensitive(settings->root, "redpoll");
        return rpi_fail_context(status, "%s, written by redpoll %s: ", settings->path,
                                cJSON_IsString(version) ? version->valuestring : "?");
    }
    return RP_OK;
}

/* ---- comparing ---- */

/* The checkpoint itself reports changes of these; another model is an error. */
static bool is_told_elsewhere(const char *name) {
    static const char *const told[] = {"model", "seed", "ranks", "global-batch-size",
                                       "batch-size"};
    return is_one_of(name, told, sizeof told / sizeof told[0]);
}

void rpi_run_settings_compare(const rpi_option *table, const void *before, const void *now,
                              void (*say)(void *context, const char *line), void *context) {
    for (const rpi_option *option = table; option->name; option++) {
        if (!is_taken_over(table, option) || is_told_elsewhere(option->name)) continue;
        char was[1024], is[1024], line[2200];
        rpi_option_text(option, before, was, sizeof was);
        rpi_option_text(option, now, is, sizeof is);
        if (strcmp(was, is) == 0) continue;
        snprintf(line, sizeof line, "--%s was %s, now %s", option->name,
                 is_absent(option, before) ? "absent" : was,
                 is_absent(option, now) ? "absent" : is);
        say(context, line);
    }
}
