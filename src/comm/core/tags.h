/* The numbers of sends and receives of each tag between this rank and one other. */
#ifndef RPI_COMM_TAGS_H
#define RPI_COMM_TAGS_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Counts wrap at 2^31, for which a sequence number has room. */
typedef struct rpi_tag {
    uint32_t key;      /* tag + 1; 0: a free slot */
    uint32_t sent;     /* to the other rank */
    uint32_t received; /* receives that were posted for it, or have been assigned to it */
    uint32_t has_rts;  /* its last send that we heard of */
    uint64_t since; /* number of the RTS frame (all tags) by which the first without a receive
                       came */
} rpi_tag;

/* Zeros are an empty table. */
typedef struct rpi_tags {
    rpi_tag *slots;
    size_t room, count;
} rpi_tags;

/* The tag's counts, zeros at first; valid until the next call of this function. RP_NOMEM only
 * for a new tag. */
rp_status rpi_tags_get(rpi_tags *tags, int tag, rpi_tag **out_tag);
/* NULL: it was never used. */
rpi_tag *rpi_tags_find(const rpi_tags *tags, int tag);
void rpi_tags_free(rpi_tags *tags);

uint32_t rpi_tag_next(uint32_t number);
/* The other rank has sent something for which there is no receive here. */
bool rpi_tag_waits(const rpi_tag *tag);
/* Send `number` is told of. */
bool rpi_tag_is_new(const rpi_tag *tag, uint32_t number);

#endif
