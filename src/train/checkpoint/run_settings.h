/* settings.json: the options that a run was started with, for a run that goes on
 * (docs/json.md).
 *
 * Written when a run begins, replaced when it goes on with others. Precedence, lowest first:
 * default, recorded, configuration file, environment, command line. */
#ifndef RPI_TRAIN_RUN_SETTINGS_H
#define RPI_TRAIN_RUN_SETTINGS_H

#include "train/train.h"

/* Into the folder of a run with `world` ranks; nothing without options->table. Rank 0's. */
rp_status rpi_run_settings_write(const rpi_train_options *options, int world);

typedef struct rpi_run_settings rpi_run_settings; /* owns the texts that options point to */

/* RP_NOT_FOUND: there are none; RP_CORRUPT: not what was written, naming the file. */
rp_status rpi_run_settings_read(const char *folder, rpi_run_settings **out_settings);
void rpi_run_settings_free(rpi_run_settings *settings); /* NULL is fine */

/* Set every option that a run takes over. RP_INVALID: an option that this version does not
 * know, or a value that it does not allow. */
rp_status rpi_run_settings_apply(const rpi_run_settings *settings, const rpi_option *table,
                                 void *target);
/* One of them, as it was recorded; NULL and 0: it is not there, or of another type;
 * 1: a switch that is on. */
const char *rpi_run_settings_text(const rpi_run_settings *settings, const char *name);
double rpi_run_settings_number(const rpi_run_settings *settings, const char *name);
/* The ranks it had. */
int rpi_run_settings_world(const rpi_run_settings *settings);

/* Call `say` with a line for each option that a run takes over and that is another in `now`
 * than in `before`: "--lr was 0.05, now 0.1". Those of which the checkpoint speaks are left
 * out. */
void rpi_run_settings_compare(const rpi_option *table, const void *before, const void *now,
                              void (*say)(void *context, const char *line), void *context);

#endif
