/* What ranks that hold one model together make of the activations, and of their gradients, that
 * they hand each other: a codec, rounding to nearest, so that what is made again is the same
 * again. Nothing is held back for the next time, as an activation does not come again; by how
 * much they are off is measured.
 *
 * Evaluations are exact: they are of the model, not of the way there. */
#ifndef RPI_TRAIN_ACTIVATION_CODEC_H
#define RPI_TRAIN_ACTIVATION_CODEC_H

#include "redpoll/codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which way it goes: with the forward pass or with the backward one. */
typedef enum rpi_link_way {
    RPI_LINK_ACTIVATION,
    RPI_LINK_GRADIENT,
    RPI_LINK_WAYS
} rpi_link_way;

/* Sums of squares: of what was lost, and of what was encoded. */
typedef struct rpi_activation_error {
    double lost, all;
} rpi_activation_error;

typedef struct rpi_activation_codec {
    rp_codec codec;                             /* zeros: exact */
    bool is_off;                                /* for a while: evaluations */
    bool measures;                              /* in the step at hand */
    int64_t begun;                              /* steps of this run */
    rpi_activation_error errors[RPI_LINK_WAYS]; /* of what was measured so far */
    /* To measure with: a run of so many elements at a time. */
    size_t run;
    void *encoded;
    float *decoded;
} rpi_activation_codec;

/* Reads the text of one; NULL or "": exact. RP_INVALID: none, or one that does not fit: which
 * leaves elements out, rounds at random, or whose bytes nobody knows ahead. */
rp_status rpi_activation_codec_parse(const char *text, rp_codec *out_codec);
rp_status rpi_activation_codec_open(const char *text, rpi_activation_codec *out_codec);
void rpi_activation_codec_close(rpi_activation_codec *codec); /* zeros are fine */

/* Of what is handed over now: the exact codec while it is off, and where it is NULL. */
rp_codec rpi_activation_codec_now(const rpi_activation_codec *codec);
bool rpi_activation_codec_is_exact(const rpi_activation_codec *codec);
/* Of a message; of elements that travel as they are, too. */
size_t rpi_activation_codec_bytes(const rp_codec *codec, int64_t count);

/* A step begins: some are measured, the first three of a run (what begins with zeros has no
 * gradients in the first) and one of ten, as it costs a second encoding. */
void rpi_activation_codec_begin(rpi_activation_codec *codec, int64_t step);
/* Add what encoding these elements loses to what is known, in a step that is measured. */
rp_status rpi_activation_codec_measure(rpi_activation_codec *codec, rpi_link_way way,
                                       const float *elements, int64_t count);
/* The root of lost by all; NaN: nothing was measured. */
double rpi_activation_error_relative(const rpi_activation_error *error);

#endif
