#include "train/huggingface/hf_ties.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

const rpi_hf_tie *rpi_hf_tie_of(const rpi_hf_family *family, const char *theirs) {
    for (const rpi_hf_tie *tie = family->ties; tie && tie->name; tie++)
        if (strcmp(tie->name, theirs) == 0) return tie;
    return NULL;
}

static const rpi_hf_stored *find_named(const rpi_hf_files *files, const char *name) {
    char text[RPI_HF_NAME];
    const rpi_hf_stored *stored = rpi_hf_files_find(files, name);
    const char *old = stored ? NULL : rpi_hf_old_name(name, text);
    return old ? rpi_hf_files_find(files, old) : stored;
}

const rpi_hf_stored *rpi_hf_find_stored(const rpi_hf_files *files, const rpi_hf_family *family,
                                        const char *theirs) {
    const rpi_hf_stored *stored = find_named(files, theirs);
    return stored ? stored : find_named(files, rpi_hf_bare_name(family, theirs));
}

static rp_status compare(const rpi_hf_files *files, const rpi_hf_stored *a,
                         const rpi_hf_stored *b, bool *out_differs) {
    float *first = NULL, *second = NULL;
    int64_t count = rpi_shape_count(&a->tensor->shape);
    *out_differs = true;
    if (!rpi_shape_equal(&a->tensor->shape, &b->tensor->shape)) return RP_OK;
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *first, a->name, &first));
    rp_status status = rpi_alloc_array((size_t)count, sizeof *second, b->name, &second);
    if (status == RP_OK) status = rpi_hf_files_read(files, a, first);
    if (status == RP_OK) status = rpi_hf_files_read(files, b, second);
    int64_t at = 0;
    while (status == RP_OK && at < count && first[at] == second[at]) at++;
    *out_differs = at < count;
    rpi_free(first);
    rpi_free(second);
    return status;
}

rp_status rpi_hf_tie_differs(const rpi_hf_files *files, const rpi_hf_family *family,
                             const rpi_hf_tie *tie, bool *out_differs) {
    const rpi_hf_stored *first = rpi_hf_find_stored(files, family, tie->name);
    const rpi_hf_stored *second = rpi_hf_find_stored(files, family, tie->also);
    *out_differs = false;
    return first && second ? compare(files, first, second, out_differs) : RP_OK;
}

rp_status rpi_hf_folder_is_untied(const char *folder, const rpi_hf_family *family,
                                  bool *out_untied) {
    rpi_hf_files *files = NULL;
    rp_status status = rpi_hf_files_open(folder, &files);
    *out_untied = false;
    if (status == RP_NOT_FOUND) return RP_OK;
    for (const rpi_hf_tie *tie = family->ties;
         status == RP_OK && tie && tie->name && !*out_untied; tie++)
        status = rpi_hf_tie_differs(files, family, tie, out_untied);
    rpi_hf_files_close(files);
    return status;
}
