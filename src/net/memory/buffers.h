/* The buffers of this process (redpoll/buffer.h): which memory lies in which, and who uses it.
 * Any thread. */
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

/* False: some of it lies in none. Costs next to nothing where there is no buffer at all. */
bool rpi_buffers_find(const void *data, size_t bytes, rpi_buffer_place *out_place);
/* What rp_buffer_allocate() returned, and is not freed yet; in a forked child its parent's,
 * too.
 */
bool rpi_buffers_is_one(const void *memory);
/* All pages of such a buffer are taken now. RP_NOMEM: there are not so many, and touching one
 * might be a fault. */
rp_status rpi_buffers_reserve(void *memory);
/* A descriptor of the buffer's memory, the caller's to close; -1: it was freed, or there is no
 * descriptor left. */
int rpi_buffers_descriptor(uint64_t id);
bool rpi_buffers_has(uint64_t id);
/* Another number when a buffer has been freed since. */
unsigned rpi_buffers_freed(void);
/* Another process may go on to write there: the pages are this process's alone from here on,
 * and nobody reads or writes in them any more; elsewhere in the buffer all goes on. RP_NOMEM:
 * they are not. */
rp_status rpi_buffers_detach(void *data, size_t bytes);
/* change 1: an operation begins to use `bytes` at `data`; -1: it is done. Memory in no buffer
 * is fine. */
void rpi_buffers_use(const void *data, size_t bytes, int change);

#endif
