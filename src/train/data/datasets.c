/* The catalogue of data sets, and what is asked of one by its name. */
#include "base/status.h"
#include "train/data/dataset.h"
#include "train/data/source.h"

extern const rpi_dataset_kind rpi_dataset_cifar10;
extern const rpi_dataset_kind rpi_dataset_cifar100;
extern const rpi_dataset_kind rpi_dataset_fashion_mnist;
extern const rpi_dataset_kind rpi_dataset_idx;
extern const rpi_dataset_kind rpi_dataset_images;
extern const rpi_dataset_kind rpi_dataset_synthetic;
extern const rpi_dataset_kind rpi_dataset_tokens;
extern const rpi_dataset_kind rpi_dataset_masked;
extern const rpi_dataset_kind rpi_dataset_pairs;
extern const rpi_dataset_kind rpi_dataset_spans;
extern const rpi_dataset_kind rpi_dataset_stages;

static const rpi_dataset_kind *const kinds[] = {
    &rpi_dataset_cifar10, &rpi_dataset_cifar100, &rpi_dataset_fashion_mnist,
    &rpi_dataset_idx,     &rpi_dataset_images,   &rpi_dataset_synthetic,
    &rpi_dataset_tokens,  &rpi_dataset_masked,   &rpi_dataset_pairs,
    &rpi_dataset_spans,   &rpi_dataset_stages,   NULL,
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

const rpi_dataset_kind *rpi_dataset_kind_at(int index) {
    return index >= 0 && index < KINDS ? kinds[index] : NULL;
}

rp_status rpi_dataset_kind_find(const char *name, const rpi_dataset_kind **out_kind) {
    return rpi_dataset_kind_of(kinds, name, out_kind);
}

rp_status rpi_dataset_open(const char *name, const rpi_dataset_options *options,
                           rpi_dataset *out_dataset) {
    const rpi_dataset_kind *kind = NULL;
    RP_TRY(rpi_dataset_kind_find(name, &kind));
    return rpi_dataset_load(kind, name, options, out_dataset);
}

rp_status rpi_dataset_check(const char *name, const rpi_picture_options *o) {
    const rpi_dataset_kind *kind = NULL;
    RP_TRY(rpi_dataset_kind_find(name, &kind));
    if (o->skip_broken && !kind->takes_pictures && !kind->skips_broken)
        return RP_FAIL(INVALID,
                       "--skip-broken is for pictures, questions and pairs, --data "
                       "images:FOLDER, spans:FILE or pairs:FILE, not for %s",
                       kind->name);
    const char *word = o->size ? "--image-size" : o->threads ? "--data-threads" : NULL;
    if (word && !kind->takes_pictures)
        return RP_FAIL(INVALID,
                       "%s is for folders of pictures, --data images:FOLDER, not for %s", word,
                       kind->name);
    if (o->augment && !kind->takes_pictures && kind->source != &rpi_source_images)
        return RP_FAIL(INVALID, "--augment is for images, not for %s", kind->name);
    return RP_OK;
}

rp_status rpi_dataset_probe(const char *name, const rpi_dataset_options *options) {
    return rpi_dataset_probe_of(kinds, name, options);
}

rp_status rpi_source_open(const rpi_source_options *options, rpi_source *out_source) {
    return rpi_source_open_of(kinds, options, out_source);
}

rp_status rpi_source_task(const char *data, const rpi_task **out_task) {
    const rpi_dataset_kind *kind = NULL;
    RP_TRY(rpi_dataset_kind_find(data, &kind));
    *out_task = rpi_task_find(kind->source->task);
    return *out_task ? RP_OK : RP_FAIL(INTERNAL, "data %s are for no task", kind->name);
}
