/* Texts that a language model writes after a prompt during its training: --sample-every N. Rank
 * 0 writes with its own parameters; the training does not change. */
#ifndef RPI_TRAIN_TEXT_SAMPLES_H
#define RPI_TRAIN_TEXT_SAMPLES_H

#include "train/tokenizers/text_buffer.h"
#include "train/trainer.h"

/* Before the first step: is there a tokenizer, and does the prompt fit? Does nothing without
 * --sample-every, and on other ranks. */
rp_status rpi_text_sample_check(const rpi_trainer *trainer);

/* The prompt and its continuation, ended by NUL; on rank 0. The caller frees the text. */
rp_status rpi_text_sample_write(const rpi_trainer *trainer, rpi_text *out_text);

#endif
