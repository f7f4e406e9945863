/* How gradients travel: a codec, or "auto:like=q4,every=100", which gives each tensor bits of
 * its own so that bytes are least at the error of the codec named, chosen anew every so many
 * steps. */
#ifndef RPI_TRAIN_TRAIN_CODEC_H
#define RPI_TRAIN_TRAIN_CODEC_H

#include "redpoll/codec.h"

typedef struct rpi_train_codec {
    rp_codec codec; /* of all tensors; with `every`: the one whose error is met */
    int64_t every;  /* steps; 0: the codec is as it is */
} rpi_train_codec;

enum { RPI_TRAIN_CODEC_TEXT = 96 };

/* RP_INVALID says what is wrong. Options of the codec behind `like` may stand anywhere behind
 * it: "auto:like=q4,bucket=128". */
rp_status rpi_train_codec_parse(const char *text, rpi_train_codec *out_codec);
/* Canonical, and what rpi_train_codec_parse() reads. Returns text. */
const char *rpi_train_codec_text(const rpi_train_codec *codec, char text[RPI_TRAIN_CODEC_TEXT]);
/* For tables of options. */
rp_status rpi_train_codec_check(const char *text);

#endif
