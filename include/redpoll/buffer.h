/** Memory that ranks of one host read in place.
 *
 * What is sent over shared memory ("shm") is copied twice as a rule: by its sender into the
 * link, and out of it by its receiver. Where it lies in a buffer of rp_buffer_allocate() its
 * receiver reads it there, and in an exact all-reduce of two ranks puts the sum there: one pass
 * over memory in place of three. Nothing else changes: any function of the library takes any
 * part of a buffer where it takes memory, results have the same bits, and ranks need not agree
 * on who has buffers. Short frames, lossy encodings, other transports and shaped links copy as
 * ever. Ranks of one job can write into each other's buffers, and believe each other.
 *
 * Memory that was allocated by other means cannot be shared afterwards, so that there is no
 * "register": as MPI_Win_allocate_shared() and ncclMemAlloc() do, the library makes it.
 */
#ifndef REDPOLL_BUFFER_H
#define REDPOLL_BUFFER_H

#include "redpoll/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** *buffer: `bytes` of zeros at the start of a page, the caller's until rp_buffer_free(). It is
 *  the process's, of no communicator: those that are there and later ones use it alike.
 *  An operation with data in a buffer is complete on a rank once the others have read what it
 *  sent, so that one that only sends (the root of a broadcast) waits for them where it did not.
 *  Each buffer holds one file descriptor open here; peers of one host map it when
 *  something in it is first sent to them, up to 64 buffers of each rank (others are copied).
 *  In a child that fork() made the memory is not there: touching it is a fault.
 *  Local, does not block, any thread. RP_INVALID: bytes is 0, or more than can be mapped, or
 *  buffer is NULL. RP_NOMEM: no memory, or more than the limit of file
 *  sizes allows (ulimit -f); pages are taken when they are first touched, as malloc's are.
 *  RP_IO: no descriptor is left. */
RP_API rp_status rp_buffer_allocate(size_t bytes, void **buffer);

/** The memory is gone and given back, whatever peers have mapped. NULL is fine; so is a buffer
 *  of the parent in a child that fork() made, where nothing is done.
 *  Local, does not block, any thread. RP_INVALID: not what rp_buffer_allocate() returned.
 *  RP_STATE: an operation in flight uses it: wait for that first, or destroy its communicator.
 */
RP_API rp_status rp_buffer_free(void *buffer);

#ifdef __cplusplus
}
#endif
#endif
