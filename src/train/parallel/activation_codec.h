/* The codec by which ranks that hold one model together encode the activations, and their
 * gradients, that they hand each other. It rounds to nearest, so that values that are computed
 * again are the same again. There is no error feedback, because an activation is sent only
 * once; the error is measured instead.
 *
 * Evaluations are exact: only what ranks send is encoded, not the model. */
#ifndef RPI_TRAIN_ACTIVATION_CODEC_H
#define RPI_TRAIN_ACTIVATION_CODEC_H

#include "redpoll/codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* With the forward pass, or with the backward pass. */
typedef enum rpi_link_way {
    RPI_LINK_ACTIVATION,
    RPI_LINK_GRADIENT,
    RPI_LINK_WAYS
} rpi_link_way;

/* Sums of squares: of what the codec lost, and of what it encoded. */
typedef struct rpi_activation_error {
    double lost, all;
} rpi_activation_error;

typedef struct rpi_activation_codec {
    rp_codec codec;                             /* the codec; zeros: exact */
    bool is_off;                                /* true during evaluations */
    bool measures;                              /* the current step is measured */
    int64_t begun;                              /* steps of this run so far */
    rpi_activation_error errors[RPI_LINK_WAYS]; /* measured so far */
    /* Room to measure, `run` elements at a time. */
    size_t run;
    void *encoded;
    float *decoded;
} rpi_activation_codec;

/* Reads the text of a codec; NULL or "": exact. RP_INVALID: the text is not a codec, or one
 * that does not fit: it leaves elements out, rounds at random, or its size is not known before
 * it encodes. */
rp_status rpi_activation_codec_parse(const char *text, rp_codec *out_codec);
rp_status rpi_activation_codec_open(const char *text, rpi_activation_codec *out_codec);
void rpi_activation_codec_close(rpi_activation_codec *codec); /* zeros are fine */

/* The codec to use now: the exact one while it is off, and where `codec` is NULL. */
rp_codec rpi_activation_codec_now(const rpi_activation_codec *codec);
bool rpi_activation_codec_is_exact(const rpi_activation_codec *codec);
/* Bytes of a message, with the exact codec, too. */
size_t rpi_activation_codec_bytes(const rp_codec *codec, int64_t count);

/* A step begins. The first three steps of a run are measured (weights that begin with zeros
 * have no gradients in the first one), and then one of ten, because measuring takes a second
 * encoding. */
void rpi_activation_codec_begin(rpi_activation_codec *codec, int64_t step);
/* In a step that is measured, adds the error of encoding these elements. */
rp_status rpi_activation_codec_measure(rpi_activation_codec *codec, rpi_link_way way,
                                       const float *elements, int64_t count);
/* The root of lost over encoded; NaN: nothing was measured. */
double rpi_activation_error_relative(const rpi_activation_error *error);

#endif
