/* metrics.jsonl: a header, one object a step, a closing one (docs/json.md). */
#ifndef RPI_TRAIN_METRICS_H
#define RPI_TRAIN_METRICS_H

#include "train/trainer.h"

typedef struct rpi_metrics rpi_metrics;

/* Open folder/metrics.jsonl: what is there is kept for a run that goes on in its own folder,
 * but for a last line that was cut off in writing; else it is replaced. Every line reaches the
 * file at once; RP_IO when one cannot. */
rp_status rpi_metrics_open(const char *folder, bool keep, rpi_metrics **out_metrics);
/* NULL is fine. RP_IO: network file systems find out only now that the disk is full. */
rp_status rpi_metrics_close(rpi_metrics *metrics);

/* metrics NULL: nothing is written. */
rp_status rpi_metrics_header(rpi_metrics *metrics, const rpi_trainer *trainer);
rp_status rpi_metrics_step(rpi_metrics *metrics, const rpi_step_metrics *step);
rp_status rpi_metrics_evaluation(rpi_metrics *metrics, int64_t step,
                                 const rpi_evaluation *evaluation);
rp_status rpi_metrics_sample(rpi_metrics *metrics, int64_t step, const char *prompt,
                             const char *text);
/* Ranks have died, and the others go on. */
rp_status rpi_metrics_loss(rpi_metrics *metrics, const rpi_trainer *trainer,
                           const rpi_loss *loss);
/* Ranks have come back. */
rp_status rpi_metrics_return(rpi_metrics *metrics, const rpi_trainer *trainer,
                             const rpi_back *back);
/* Of the run in a folder: the last step that its metrics.jsonl has; 0: none yet, -1: there is
 * no such file. */
int64_t rpi_metrics_last_step(const char *folder);
/* The last line of a run that failed: steps done, and the message. */
rp_status rpi_metrics_failure(rpi_metrics *metrics, int64_t step, const char *message);
/* An object of its own, which is taken; NULL: none. */
rp_status rpi_metrics_put(rpi_metrics *metrics, struct cJSON *object);
rp_status rpi_metrics_closing(rpi_metrics *metrics, const rpi_train_result *result);

#endif
