/* Ranks as threads of the test: each runs the same options on a communicator of its own. */
#ifndef TESTS_TRAIN_TRAIN_RANKS_H
#define TESTS_TRAIN_TRAIN_RANKS_H

#include "train/train.h"

enum { RANKS_MOST = 8 };

/* A small run that needs no data and writes nothing: an MLP on made-up images. */
rpi_train_options ranks_options(void);

/* Links of the worlds from here on are shaped so; NULL: not. */
void ranks_shape(const char *link);

/* Their transport from here on; NULL: inproc. */
void ranks_over(const char *transport);

/* They count as being on so many hosts from here on, evenly; 0: on one. */
void ranks_hosts(int hosts);

/* What one rank does; returns its status. */
typedef rp_status (*ranks_body)(void *context, rp_comm *comm);

/* Run `body` on `world` threads joined by inproc; statuses and messages of all ranks are kept.
 * The first failure, or RP_OK. */
rp_status ranks_run(int world, ranks_body body, void *context);
rp_status ranks_status(int rank); /* of the latest ranks_run() */
const char *ranks_message(int rank);

/* rpi_train() on `world` ranks; `result` is rank 0's. */
rp_status ranks_train(const rpi_train_options *options, int world, rpi_train_result *result);

/* From now on this rank of every ranks_train() is asked for `what` (RPI_ASKED_*) in its
 * `step`th step; zeros: for nothing. */
typedef struct ranks_wish {
    int rank, step, what;
} ranks_wish;
void ranks_ask(ranks_wish wish);

/* What rank 0 of the latest ranks_train() was told as notes, a line each. */
const char *ranks_notes(void);

/* "FOLDER OF THE TEST/name" and "folder/name"; each is static until the eighth next call. */
const char *ranks_folder(const char *name);
const char *ranks_path(const char *folder, const char *name);
/* Bytes of a whole file, allocated; NULL when there is none. */
unsigned char *ranks_file(const char *path, size_t *bytes);
/* 1 when both files are there and hold the same bytes. */
int ranks_same_file(const char *a, const char *b);

#endif
