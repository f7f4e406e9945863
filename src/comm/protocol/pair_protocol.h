/* What sends and receives (calls/point_to_point.c) and their protocol share; communicator.h
 * declares its functions. */
#ifndef RPI_COMM_PAIR_PROTOCOL_H
#define RPI_COMM_PAIR_PROTOCOL_H

#include "comm/core/communicator.h"

/* Point to point runs a schedule of a world of two: 0 sends, 1 receives. */
enum { RPI_PAIR_SENDER, RPI_PAIR_RECEIVER };
enum { RPI_ANYBODY = -1 };

#endif
