/* What a language model writes behind a prompt while it is trained: --sample-every N. Rank 0
 * writes with its own parameters; nothing about training changes. */
#ifndef RPI_TRAIN_TEXT_SAMPLES_H
#define RPI_TRAIN_TEXT_SAMPLES_H

#include "train/tokenizers/text_buffer.h"
#include "train/trainer.h"

/* Before the first step: is there a tokenizer, does the prompt fit? Nothing without
 * --sample-every, and on other ranks. */
rp_status rpi_text_sample_check(const rpi_trainer *trainer);

/* The prompt and what follows it, ended by NUL; rank 0. The text is the caller's to free. */
rp_status rpi_text_sample_write(const rpi_trainer *trainer, rpi_text *out_text);

#endif
