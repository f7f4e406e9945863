/* Memory of vectors that go from rank to rank again and again. Where ranks of this host can
 * read it in place it lies in a buffer (redpoll/buffer.h). Results have the same bits with both
 * kinds of memory. */
#ifndef RPI_METHODS_VECTOR_MEMORY_H
#define RPI_METHODS_VECTOR_MEMORY_H

#include "redpoll/comm.h"

#include <stddef.h>

/* As rpi_alloc(): zeroed and aligned, RP_NOMEM names `what`. All of a buffer's pages are taken
 * at once, so that lack of memory is an error here and no fault later. Where there can be no
 * buffer (descriptors, a limit of file sizes) it is memory of the process's own, and a warning
 * says why, once. Local, any thread; the communicator may end before the vector does. */
rp_status rpi_vector_alloc(const rp_comm *comm, size_t bytes, const char *what,
                           void *out_vector) RP_MUST_USE;
/* NULL is fine. No operation uses it any more. Keeps the thread's last error. */
void rpi_vector_free(void *vector);

#endif
