/* What goes first, at every place where something waits.
 *
 *     an operation      urgent      of an urgent communicator, or short and of a normal one
 *                       normal      of a normal communicator
 *                       bulk        of one for bulk
 *     an iteration      runs them in this order, and little of what is not urgent at a time
 *                       while there is something urgent (executor.c)
 *     a frame           urgent      passes those in the link that have not left (transport.h,
 *                                   rpi_traffic), but none of its own communicator
 *                       bulk        leaves room in the link, while several communicators move
 *                       plain       all others */
#ifndef RPI_COMM_URGENCY_H
#define RPI_COMM_URGENCY_H

typedef enum rpi_urgency { RPI_URGENT, RPI_NORMAL, RPI_BULK, RPI_URGENCIES } rpi_urgency;

/* The most bytes of all elements of a short operation: an eighth of a millisecond at 1 Gbit/s,
 * which bulk does not notice. */
enum { RPI_SHORT_BYTES = 16 * 1024 };

#endif
