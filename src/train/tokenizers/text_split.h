/* Cutting a text at matches, and what becomes of the matches. */
#ifndef RPI_TRAIN_TEXT_SPLIT_H
#define RPI_TRAIN_TEXT_SPLIT_H

#include "train/tokenizers/pipeline.h"

typedef enum rpi_split_behavior {
    RPI_SPLIT_REMOVED,
    RPI_SPLIT_ISOLATED,
    RPI_SPLIT_MERGED_WITH_PREVIOUS,
    RPI_SPLIT_MERGED_WITH_NEXT,
    RPI_SPLIT_CONTIGUOUS, /* neighbours of one sort are one piece */
} rpi_split_behavior;

rp_status rpi_split_behavior_find(const char *name, rpi_split_behavior *out_behavior);

/* Parts of a text come in order, each a match or what lies between two; pieces go out. */
typedef struct rpi_text_split {
    rpi_pieces *out;
    rpi_split_behavior behavior;
    bool invert; /* what lies between is the match */
    bool waiting;
    bool previous_was_match;
    size_t start, end; /* of the piece that waits */
} rpi_text_split;

rp_status rpi_split_part(rpi_text_split *split, size_t start, size_t end, bool is_match);
rp_status rpi_split_end(rpi_text_split *split);

/* Each character with a class in `classes` is a match. */
rp_status rpi_split_at_classes(rpi_pre_tokenizing *p, unsigned classes,
                               rpi_split_behavior behavior);
/* Each character that `wanted` wants is a match. */
rp_status rpi_split_at(rpi_pre_tokenizing *p, bool (*wanted)(int32_t code, int32_t argument),
                       int32_t argument, rpi_split_behavior behavior);
/* Each match of a pattern is one. */
rp_status rpi_split_at_pattern(rpi_pre_tokenizing *p, const rpi_pattern *pattern, bool invert,
                               rpi_split_behavior behavior);

#endif
