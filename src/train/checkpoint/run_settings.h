/* settings.json: the options with which a run was started, for a run that resumes it
 * (docs/json.md).
 *
 * Written when a run begins, and replaced when it is resumed with others. Precedence, lowest
 * first: default, recorded, configuration file, environment, command line. */
#ifndef RPI_TRAIN_RUN_SETTINGS_H
#define RPI_TRAIN_RUN_SETTINGS_H

#include "train/train.h"

/* Writes into the folder of a run with `world` ranks; does nothing without options->table. On
 * rank 0. */
rp_status rpi_run_settings_write(const rpi_train_options *options, int world);

typedef struct rpi_run_settings rpi_run_settings; /* owns the texts to which options point */

/* RP_NOT_FOUND: there is no such file; RP_CORRUPT: it is not what was written; the message
 * names it. */
rp_status rpi_run_settings_read(const char *folder, rpi_run_settings **out_settings);
void rpi_run_settings_free(rpi_run_settings *settings); /* NULL is fine */

/* Sets every option that a resumed run takes over. RP_INVALID: this version does not know an
 * option, or does not allow its value. */
rp_status rpi_run_settings_apply(const rpi_run_settings *settings, const rpi_option *table,
                                 void *target);
/* A recorded value; NULL or 0: it is not there, or has another type; 1: a switch that is on. */
const char *rpi_run_settings_text(const rpi_run_settings *settings, const char *name);
double rpi_run_settings_number(const rpi_run_settings *settings, const char *name);
/* The number of ranks of the recorded run. */
int rpi_run_settings_world(const rpi_run_settings *settings);

/* Calls `say` with a line for each option that a resumed run takes over and that differs
 * between `before` and `now`: "--lr was 0.05, now 0.1". Options that the checkpoint reports are
 * left out. */
void rpi_run_settings_compare(const rpi_option *table, const void *before, const void *now,
                              void (*say)(void *context, const char *line), void *context);

#endif
