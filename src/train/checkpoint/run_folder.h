/* The folder that a run writes to. */
#ifndef RPI_TRAIN_RUN_FOLDER_H
#define RPI_TRAIN_RUN_FOLDER_H

#include "train/train.h"

/* May a run with these options write here? RP_INVALID: another run's files are there, and
 * neither --resume of this folder nor --overwrite was given. Creates nothing. */
rp_status rpi_run_folder_check(const rpi_train_options *options);

/* Makes the folder with its parents, and removes the checkpoints of an earlier run if it is
 * started over. `rank` removes its own files, as the folder may be shared or not. */
rp_status rpi_run_folder_make(const rpi_train_options *options, int rank);

/* Does this run continue in the folder from which it resumes? */
bool rpi_run_folder_continues(const rpi_train_options *options);

#endif
