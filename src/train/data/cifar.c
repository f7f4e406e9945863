/* CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning multiple layers of features from tiny images",
 * 2009): 50,000 and 10,000 coloured images of 32 x 32, as the binary files of their author:
 *
 *     CIFAR-10    data_batch_1.bin ... data_batch_5.bin, test_batch.bin   label, pixels
 *     CIFAR-100   train.bin, test.bin                        coarse label, fine label, pixels
 *
 * a byte each, pixels as 3 planes of 32 rows. The fine labels are learnt. Mean and deviation
 * are those of each colour over the training images, as everybody uses them. */
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "train/data/dataset.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern const rpi_dataset_kind rpi_dataset_cifar10;
extern const rpi_dataset_kind rpi_dataset_cifar100;

enum { CHANNELS = 3, SIDE = 32, PIXELS = CHANNELS * SIDE * SIDE, MOST_BYTES = 1 << 28 };

typedef struct cifar {
    const char *name, *archive; /* "cifar-10-binary.tar.gz" */
    const char *unpacked;       /* the folder in it */
    const char *const *train;   /* file names; NULL ends them */
    const char *test, *python;  /* python: a name that only the pickled version has */
    int classes, labels;        /* labels: bytes before the pixels; the last is learnt */
    float mean[CHANNELS], deviation[CHANNELS];
} cifar;

static const cifar cifar10 = {
    .name = "CIFAR-10",
    .archive = "cifar-10-binary.tar.gz",
    .unpacked = "cifar-10-batches-bin",
    .train = (const char *const[]){"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                   "data_batch_4.bin", "data_batch_5.bin", NULL},
    .test = "test_batch.bin",
    .python = "data_batch_1",
    .classes = 10,
    .labels = 1,
    .mean = {0.4914f, 0.4822f, 0.4465f},
    .deviation = {0.2470f, 0.2435f, 0.2616f},
};

static const cifar cifar100 = {
    .name = "CIFAR-100",
    .archive = "cifar-100-binary.tar.gz",
    .unpacked = "cifar-100-binary",
    .train = (const char *const[]){"train.bin", NULL},
    .test = "test.bin",
    .python = "train",
    .classes = 100,
    .labels = 2,
    .mean = {0.5071f, 0.4865f, 0.4409f},
    .deviation = {0.2673f, 0.2564f, 0.2762f},
};

/* ---- where the files are ---- */

static rp_status join(const char *folder, const char *name, char out[RPI_PATH_BYTES]) {
    if (snprintf(out, RPI_PATH_BYTES, "%s/%s", folder, name) < RPI_PATH_BYTES) return RP_OK;
    return RP_FAIL(INVALID, "the path %.200s.../%s is too long", folder, name);
}

static rp_status require(const cifar *c, const char *folder, const char *name) {
    char path[RPI_PATH_BYTES], other[RPI_PATH_BYTES];
    RP_TRY(join(folder, name, path));
    if (access(path, F_OK) == 0) return RP_OK;
    RP_TRY(join(folder, c->python, other));
    if (access(other, F_OK) == 0)
        return RP_FAIL(NOT_FOUND,
                       "%s is missing, and %s is of the version for Python: take the binary "
                       "one, %s",
                       path, other, c->archive);
    return RP_FAIL(NOT_FOUND,
                   "%s is missing: unpack %s's binary version, %s, and name its "
                   "folder",
                   path, c->name, c->archive);
}

/* The folder that was named, or the one that unpacking makes in it; all files are there. */
static rp_status find_folder(const cifar *c, const rpi_dataset_options *options,
                             char out_folder[RPI_PATH_BYTES]) {
    const char *colon = strchr(options->data, ':');
    if (options->folder) return RP_FAIL(INVALID, "--data-dir is not for it; write NAME:FOLDER");
    if (!colon || !colon[1])
        return RP_FAIL(INVALID, "name the folder with the files of %s", c->archive);
    RP_TRY(join(colon + 1, c->unpacked, out_folder));
    if (access(out_folder, F_OK) != 0) snprintf(out_folder, RPI_PATH_BYTES, "%s", colon + 1);
    for (const char *const *name = c->train; *name; name++)
        RP_TRY(require(c, out_folder, *name));
    return require(c, out_folder, c->test);
}

/* ---- reading ---- */

static rp_status append(const cifar *c, const char *path, const uint8_t *bytes, size_t count,
                        rpi_images *images) {
    size_t record = (size_t)c->labels + PIXELS, before = (size_t)images->count;
    size_t more = count / record;
    if (count == 0 || count % record)
        return RP_FAIL(CORRUPT,
                       "%s has %zu bytes, which is no multiple of %zu, one image with its "
                       "label: is it cut, or of another version?",
                       path, count, record);
    RP_TRY(rpi_grow_array(before, before + more, PIXELS, "images", &images->pixels));
    RP_TRY(rpi_grow_array(before, before + more, 1, "labels", &images->labels));
    for (size_t i = 0; i < more; i++, bytes += record) {
        uint8_t label = bytes[c->labels - 1];
        if (label >= c->classes)
            return RP_FAIL(CORRUPT, "%s: label %d at byte %zu; there are %d classes", path,
                           label, i * record + (size_t)c->labels - 1, c->classes);
        images->labels[before + i] = label;
        memcpy(images->pixels + (before + i) * PIXELS, bytes + c->labels, PIXELS);
    }
    images->count += (int64_t)more;
    return RP_OK;
}

static rp_status read_file(const cifar *c, const char *folder, const char *name,
                           rpi_images *images) {
    char path[RPI_PATH_BYTES], *bytes = NULL;
    size_t count = 0;
    RP_TRY(join(folder, name, path));
    RP_TRY(rpi_regular_file_read(path, MOST_BYTES, &bytes, &count));
    rp_status status = append(c, path, (const uint8_t *)bytes, count, images);
    rpi_free(bytes);
    return status;
}

static rp_status load(const cifar *c, const rpi_dataset_options *options,
                      rpi_dataset *dataset) {
    char folder[RPI_PATH_BYTES];
    RP_TRY(find_folder(c, options, folder));
    for (const char *const *name = c->train; *name; name++)
        RP_TRY(read_file(c, folder, *name, &dataset->train));
    RP_TRY(read_file(c, folder, c->test, &dataset->test));
    dataset->train.channels = dataset->test.channels = CHANNELS;
    dataset->train.height = dataset->test.height = SIDE;
    dataset->train.width = dataset->test.width = SIDE;
    dataset->classes = c->classes;
    dataset->channel_means = c->mean;
    dataset->channel_deviations = c->deviation;
    return RP_OK;
}

static rp_status load_cifar10(const rpi_dataset_options *options, rpi_dataset *dataset) {
    return load(&cifar10, options, dataset);
}

static rp_status load_cifar100(const rpi_dataset_options *options, rpi_dataset *dataset) {
    return load(&cifar100, options, dataset);
}

static rp_status probe_cifar10(const rpi_dataset_options *options) {
    char folder[RPI_PATH_BYTES];
    return find_folder(&cifar10, options, folder);
}

static rp_status probe_cifar100(const rpi_dataset_options *options) {
    char folder[RPI_PATH_BYTES];
    return find_folder(&cifar100, options, folder);
}

const rpi_dataset_kind rpi_dataset_cifar10 = {
    .name = "cifar10",
    .summary =
        "60,000 coloured images, 32x32, 10 classes: cifar10:FOLDER, with the binary files",
    .takes_text = true,
    .load = load_cifar10,
    .source = &rpi_source_images,
    .probe = probe_cifar10,
};

const rpi_dataset_kind rpi_dataset_cifar100 = {
    .name = "cifar100",
    .summary = "the same of 100 classes: cifar100:FOLDER",
    .takes_text = true,
    .load = load_cifar100,
    .source = &rpi_source_images,
    .probe = probe_cifar100,
};
