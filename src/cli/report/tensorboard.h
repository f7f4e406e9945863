/* Runs as event files: FOLDER/LABEL/events.out.tfevents.TIME.redpoll, which TensorBoard opens
 * with `tensorboard --logdir FOLDER`. */
#ifndef RPI_CLI_REPORT_TENSORBOARD_H
#define RPI_CLI_REPORT_TENSORBOARD_H

#include "cli/report/metrics_file.h"
#include "cli/report/output_file.h"

/* Write one run into a folder of its own below `folder`, under another name; the caller commits
 * or discards it. */
rp_status rpi_tensorboard_write(const char *folder, const char *label,
                                const rpi_metrics_file *file, rpi_output_file *out_file);

#endif
