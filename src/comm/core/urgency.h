/* What goes first, at every place where something waits.
 *
 *     an operation      urgent      of an urgent communicator, or short and of a normal one
 *                       normal      of a normal communicator
 *                       bulk        of one for bulk
 *     a pass            runs them in this order, and little of what is not urgent at a time
 *                       while there is something urgent (executor.c)
 *     a frame           urgent      passes those in the link that have not left (transport.h,
 *                                   rpi_traffic), but none of its own communicator
 *                       bulk        leaves room in the link, while several communicators move
 *                       plain       all others */
#ifndef RPI_COMM_URGENCY_H
#define RPI_COMM_URGENCY_H

#include "comm/core/communicator.h"

/* Bytes of all elements of a short operation, at most: about what a network of 1 Gbit/s carries
 * while a message takes to get there at all. */
enum { RPI_SHORT_BYTES = 16 * 1024 };

/* Of an operation whose elements are known. */
rpi_urgency rpi_urgency_of(const rp_request *request);
/* Words of a communicator, headers alone, and what its windows send. */
rpi_urgency rpi_urgency_of_words(const rp_comm *comm);
rpi_urgency rpi_urgency_of_windows(const rp_comm *comm);
/* The next frame to this rank, whose link stands, leaves as is fit: before lend(). [driver] */
void rpi_urgency_prepare(rp_comm *comm, int rank, rpi_urgency urgency);
/* That frame was posted. [driver] */
void rpi_urgency_posted(rp_comm *comm, int rank);

#endif
