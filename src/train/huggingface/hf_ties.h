/* Matrices that are one in the model and may have two names in files. */
#ifndef RPI_TRAIN_HF_TIES_H
#define RPI_TRAIN_HF_TIES_H

#include "train/huggingface/hf_family.h"
#include "train/huggingface/hf_files.h"

/* The row of a name in its first place; NULL: it is not tied. */
const rpi_hf_tie *rpi_hf_tie_of(const rpi_hf_family *family, const char *theirs);

/* Do files hold both, and different ones? Fails as reading does. */
rp_status rpi_hf_tie_differs(const rpi_hf_files *files, const rpi_hf_family *family,
                             const rpi_hf_tie *tie, bool *out_differs);

/* The same of a folder's, any of the family's; a folder without weights has none that differ.
 */
rp_status rpi_hf_folder_is_untied(const char *folder, const rpi_hf_family *family,
                                  bool *out_untied);

/* As files of a model with its head name it, of the bare model, or of an old release. */
const rpi_hf_stored *rpi_hf_find_stored(const rpi_hf_files *files, const rpi_hf_family *family,
                                        const char *theirs);

#endif
