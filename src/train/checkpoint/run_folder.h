/* The folder that a run writes to. */
#ifndef RPI_TRAIN_RUN_FOLDER_H
#define RPI_TRAIN_RUN_FOLDER_H

#include "train/train.h"

/* May a run with these options write here? RP_INVALID when another run's files are there and
 * neither --resume of this folder nor --overwrite was said. Creates nothing. */
rp_status rpi_run_folder_check(const rpi_train_options *options);

/* Make the folder with its parents; remove what an earlier run left of checkpoints when it is
 * started over. Of `rank`: files are shared where the file system is. */
rp_status rpi_run_folder_make(const rpi_train_options *options, int rank);

/* Does this run go on in the folder it resumes from? */
bool rpi_run_folder_continues(const rpi_train_options *options);

#endif
