/* Any dataset as four IDX files in one folder, found by their names: what holds "train" and
 * "images", "train" and "labels", and "t10k" or "test" instead of "train". Classes are the
 * largest training label + 1; mean and deviation are measured on the training images. */
#include "train/data/idx_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST_PATH = 1024 };

static bool matches(const char *name, const char *part, const char *what) {
    if (name[0] == '.' || !strstr(name, what)) return false;
    if (strcmp(part, "train") == 0) return strstr(name, "train") != NULL;
    return strstr(name, "test") != NULL || strstr(name, "t10k") != NULL;
}

/* The one file of the folder that holds `what` of `part`. */
static rp_status find_file(const char *folder, const char *part, const char *what,
                           char path[LONGEST_PATH]) {
    DIR *stream = opendir(folder);
    if (!stream) return RP_FAIL_ERRNO(IO, "cannot open the folder %s", folder);
    char found[256] = "", second[256] = "";
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (!matches(entry->d_name, part, what)) continue;
        snprintf(found[0] ? second : found, sizeof found, "%s", entry->d_name);
    }
    closedir(stream);
    if (!found[0])
        return RP_FAIL(NOT_FOUND,
                       "%s has no file named like %s-%s-idx%d-ubyte or with .gz behind it",
                       folder, part, what, strcmp(what, "images") == 0 ? 3 : 1);
    if (second[0])
        return RP_FAIL(INVALID,
                       "%s and %s in %s both look like %s %s; keep one set in a folder", found,
                       second, folder, part, what);
    if (snprintf(path, LONGEST_PATH, "%s/%s", folder, found) >= LONGEST_PATH)
        return RP_FAIL(INVALID, "the path %s/%s is too long", folder, found);
    return RP_OK;
}

typedef struct paths {
    char images[LONGEST_PATH], labels[LONGEST_PATH];
} paths;

static rp_status find_part(const rpi_dataset_options *options, const char *part, paths *out) {
    if (!options->folder)
        return RP_FAIL(INVALID, "name the folder of the IDX files with --data-dir");
    RP_TRY(find_file(options->folder, part, "images", out->images));
    return find_file(options->folder, part, "labels", out->labels);
}

static rp_status probe(const rpi_dataset_options *options) {
    paths files;
    RP_TRY(find_part(options, "train", &files));
    return find_part(options, "test", &files);
}

static rp_status load(const rpi_dataset_options *options, rpi_dataset *dataset) {
    paths train, test;
    RP_TRY(find_part(options, "train", &train));
    RP_TRY(find_part(options, "test", &test));
    RP_TRY(rpi_idx_read(train.images, train.labels, &dataset->train));
    RP_TRY(rpi_idx_read(test.images, test.labels, &dataset->test));
    for (int64_t i = 0; i < dataset->train.count; i++)
        if (dataset->train.labels[i] >= dataset->classes)
            dataset->classes = dataset->train.labels[i] + 1;
    rpi_dataset_measure(&dataset->train, &dataset->mean, &dataset->deviation);
    return RP_OK;
}

const rpi_dataset_kind rpi_dataset_idx = {
    .name = "idx",
    .summary = "any IDX files, with --data-dir",
    .load = load,
    .source = &rpi_source_images,
    .probe = probe,
};
