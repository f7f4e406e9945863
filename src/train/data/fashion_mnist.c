/* Fashion-MNIST (Xiao, Rasul, Vollgraf 2017): 60,000 and 10,000 grey images of 28 x 28, 10
 * classes.
 *
 * From Debian's package dataset-fashion-mnist, or any folder with files of the same names. The
 * mean and deviation are those of the training set, as everybody uses them. */
#include "train/data/idx_file.h"

#include <stdio.h>
#include <unistd.h>

static const char *const debian_folder = "/usr/share/datasets/fashion-mnist";

enum { LONGEST_PATH = 1024 };

typedef struct paths {
    char images[LONGEST_PATH], labels[LONGEST_PATH];
} paths;

static void find_part(const rpi_dataset_options *options, const char *part, paths *out) {
    const char *folder = options->folder ? options->folder : debian_folder;
    snprintf(out->images, sizeof out->images, "%s/%s-images-idx3-ubyte.gz", folder, part);
    snprintf(out->labels, sizeof out->labels, "%s/%s-labels-idx1-ubyte.gz", folder, part);
}

static rp_status missing(const char *path) {
    return RP_FAIL(
        NOT_FOUND,
        "%s is missing; install it with `apt-get install dataset-fashion-mnist`, or name "
        "a folder that holds the four files with --data-dir",
        path);
}

static rp_status probe_part(const rpi_dataset_options *options, const char *part) {
    paths files;
    find_part(options, part, &files);
    if (access(files.images, F_OK) != 0) return missing(files.images);
    return access(files.labels, F_OK) == 0 ? RP_OK : missing(files.labels);
}

static rp_status probe(const rpi_dataset_options *options) {
    RP_TRY(probe_part(options, "train"));
    return probe_part(options, "t10k");
}

static rp_status load_part(const rpi_dataset_options *options, const char *part,
                           rpi_images *images) {
    paths files;
    find_part(options, part, &files);
    return rpi_idx_read(files.images, files.labels, images);
}

static rp_status load(const rpi_dataset_options *options, rpi_dataset *dataset) {
    RP_TRY(probe(options));
    RP_TRY(load_part(options, "train", &dataset->train));
    RP_TRY(load_part(options, "t10k", &dataset->test));
    dataset->classes = 10;
    dataset->mean = 0.2860f;
    dataset->deviation = 0.3530f;
    return RP_OK;
}

const rpi_dataset_kind rpi_dataset_fashion_mnist = {
    .name = "fashion-mnist",
    .summary = "70,000 grey images of clothes, 28x28, 10 classes",
    .load = load,
    .source = &rpi_source_images,
    .probe = probe,
};
