#include "train/checkpoint/run_folder.h"

#include "base/folder.h"
#include "base/status.h"
#include "train/checkpoint/checkpoint_files.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST_PATH = 900 };

bool rpi_run_folder_continues(const rpi_train_options *options) {
    struct stat out, resume;
    return options->out && options->resume && stat(options->out, &out) == 0 &&
           stat(options->resume, &resume) == 0 && out.st_dev == resume.st_dev &&
           out.st_ino == resume.st_ino;
}

static bool holds(const char *folder, const char *name) {
    char path[LONGEST_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

rp_status rpi_run_folder_check(const rpi_train_options *options) {
    const char *out = options->out;
    if (!out) return RP_OK;
    if (strlen(out) > LONGEST_PATH)
        return RP_FAIL(INVALID, "--out: the path is longer than %d bytes", LONGEST_PATH);
    struct stat facts;
    if (stat(out, &facts) == 0 && !S_ISDIR(facts.st_mode))
        return RP_FAIL(INVALID, "--out: %s is not a folder", out);
    if (options->overwrite || rpi_run_folder_continues(options)) return RP_OK;
    int64_t step = 0;
    if (!holds(out, "model.safetensors") && !holds(out, "metrics.jsonl") &&
        rpi_checkpoint_earlier(out, &step, 1) == 0)
        return RP_OK;
    return RP_FAIL(
        INVALID,
        "%s holds a run already: go on with --resume %s, start over with --overwrite, or "
        "choose another --out",
        out, out);
}

static rp_status make_writable(const char *folder) {
    RP_TRY(rpi_folder_make(folder));
    if (access(folder, W_OK | X_OK) != 0)
        return RP_FAIL_ERRNO(IO, "cannot write to the folder %s", folder);
    return RP_OK;
}

/* A run that starts over and stops early must not leave the old run's checkpoint as if it were
 * its own. */
static void remove_checkpoint(const char *folder) {
    DIR *stream = opendir(folder);
    if (!stream) return;
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        const char *name = entry->d_name;
        const char *dot = strrchr(name, '.');
        int64_t step = 0;
        bool rank_file =
            strncmp(name, "rank-", 5) == 0 && dot && strcmp(dot, ".safetensors") == 0;
        if (!rank_file && !rpi_checkpoint_is_earlier(name, &step) &&
            strcmp(name, "model.safetensors") != 0 && strcmp(name, "trace.json") != 0)
            continue;
        char path[LONGEST_PATH + 300];
        snprintf(path, sizeof path, "%s/%s", folder, name);
        unlink(path);
    }
    closedir(stream);
}

rp_status rpi_run_folder_make(const rpi_train_options *options, int rank) {
    if (!options->out) return RP_OK;
    RP_TRY(make_writable(options->out));
    if (rank == 0 && !rpi_run_folder_continues(options)) remove_checkpoint(options->out);
    return RP_OK;
}
