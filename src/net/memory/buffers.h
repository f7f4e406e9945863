/* The buffers of this process (redpoll/buffer.h): which memory is in which, and which
 * operations use it. Any thread. */
#ifndef RPI_NET_BUFFERS_H
#define RPI_NET_BUFFERS_H

#include "redpoll/buffer.h"

#include <stdbool.h>
#include <stdint.h>

/* Memory in a buffer. */
typedef struct rpi_buffer_place {
    uint64_t id;   /* of the buffer; never used again in this process, never 0 */
    size_t bytes;  /* of the whole buffer, in pages */
    size_t offset; /* of the memory */
} rpi_buffer_place;

/* False: some of it is in no buffer. Almost free if there is no buffer at all. */
bool rpi_buffers_find(const void *data, size_t bytes, rpi_buffer_place *out_place);
/* Memory that rp_buffer_allocate() returned and that is not freed yet; in a forked child also
 * its parent's. */
bool rpi_buffers_is_one(const void *memory);
/* Allocate all pages of such a buffer now. RP_NOMEM: there are not enough, and touching one
 * might cause a fault. */
rp_status rpi_buffers_reserve(void *memory);
/* A descriptor of the buffer's memory, which the caller closes; -1: it was freed, or there is
 * no descriptor left. */
int rpi_buffers_descriptor(uint64_t id);
bool rpi_buffers_has(uint64_t id);
/* A number that changes when a buffer is freed. */
unsigned rpi_buffers_freed(void);
/* Another process may continue to write there: the pages become this process's alone, and
 * nobody reads or writes the old ones; the rest of the buffer stays in use. RP_NOMEM: they do
 * not. */
rp_status rpi_buffers_detach(void *data, size_t bytes);
/* change 1: an operation begins to use `bytes` at `data`; -1: it is done. Memory that is in no
 * buffer is fine. */
void rpi_buffers_use(const void *data, size_t bytes, int change);

#endif
