/* How the pictures of a Hugging Face folder were shown to its model: preprocessor_config.json.
 */
#ifndef RPI_TRAIN_HF_PICTURES_H
#define RPI_TRAIN_HF_PICTURES_H

#include "redpoll/status.h"

/* Are they normalized as those of a text of --data? RP_INVALID says how they are; a folder that
 * does not say, and other data than images:FOLDER, are fine. RP_CORRUPT: a damaged file. */
rp_status rpi_hf_pictures_check(const char *folder, const char *data);

#endif
