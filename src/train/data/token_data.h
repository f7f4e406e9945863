/* What a user names as tokens to learn from: "tokens:PATH[,validation=PATH or SHARE]", and
 * "masked:..." for those that a masked language model learns from. */
#ifndef RPI_TRAIN_TOKEN_DATA_H
#define RPI_TRAIN_TOKEN_DATA_H

#include "base/memory.h"
#include "base/regular_file.h"

#include <stdbool.h>

typedef struct rpi_token_data {
    char kind[16]; /* "tokens" */
    char train[RPI_PATH_BYTES];
    char validation[RPI_PATH_BYTES]; /* "": the last `share` of the samples to learn from */
    double share;
} rpi_token_data;

/* What is held out when nobody says. */
#define RPI_TOKEN_DATA_SHARE 0.05

/* Paths as rpi_token_file_open() takes them; a folder stands for the files of tokens in it:
 * one, or two of which one has "val" in its name. Looks at names only. RP_INVALID, RP_NOT_FOUND
 * say what is wanted. */
rp_status rpi_token_data_parse(const char *text, rpi_token_data *out_data);

/* What stands behind "validation=": a path, or a share. */
rp_status rpi_token_data_validation(const char *text, rpi_token_data *data);

/* Of all samples those to learn from: all but the last `share`, which is at least one.
 * sequence: for the message where there are too few. */
rp_status rpi_token_data_split(const rpi_token_data *data, int64_t all, int64_t sequence,
                               int64_t *out_train);

/* Does this text name tokens? */
bool rpi_token_data_is(const char *text);

/* "5%" or "0.05"; false: it is no number, but a path. */
bool rpi_token_data_share(const char *text, double *out_share);

#endif
