/* metrics.jsonl: a header, one object a step, and a closing one (docs/json.md). */
#ifndef RPI_TRAIN_METRICS_H
#define RPI_TRAIN_METRICS_H

#include "train/trainer.h"

typedef struct rpi_metrics rpi_metrics;

/* Opens folder/metrics.jsonl. keep: a resumed run keeps what is there, except a last line that
 * was cut off; otherwise the file is replaced. Every line is written to the file at once;
 * RP_IO: it cannot be. */
rp_status rpi_metrics_open(const char *folder, bool keep, rpi_metrics **out_metrics);
/* NULL is fine. RP_IO: a network file system may report only now that the disk is full. */
rp_status rpi_metrics_close(rpi_metrics *metrics);

/* metrics NULL: nothing is written. */
rp_status rpi_metrics_header(rpi_metrics *metrics, const rpi_trainer *trainer);
rp_status rpi_metrics_step(rpi_metrics *metrics, const rpi_step_metrics *step);
rp_status rpi_metrics_evaluation(rpi_metrics *metrics, int64_t step,
                                 const rpi_evaluation *evaluation);
rp_status rpi_metrics_sample(rpi_metrics *metrics, int64_t step, const char *prompt,
                             const char *text);
/* Writes that ranks have died and the others go on. */
rp_status rpi_metrics_loss(rpi_metrics *metrics, const rpi_trainer *trainer,
                           const rpi_loss *loss);
/* Writes that ranks have come back. */
rp_status rpi_metrics_return(rpi_metrics *metrics, const rpi_trainer *trainer,
                             const rpi_back *back);
/* The last step in the metrics.jsonl of the run in a folder; 0: none yet; -1: there is no such
 * file. */
int64_t rpi_metrics_last_step(const char *folder);
/* Writes the last line of a run that failed: the steps done, and the message. */
rp_status rpi_metrics_failure(rpi_metrics *metrics, int64_t step, const char *message);
/* Writes an object, which the function takes over; NULL: none. */
rp_status rpi_metrics_put(rpi_metrics *metrics, struct cJSON *object);
rp_status rpi_metrics_closing(rpi_metrics *metrics, const rpi_train_result *result);

#endif
