/* Communicators that wait for a number: context.h. */
#ifndef RPI_COMM_NUMBER_WAITING_H
#define RPI_COMM_NUMBER_WAITING_H

#include "comm/core/context.h"

/* They are opened under offered numbers. True: something has changed. [progress] */
bool rpi_context_number_waiting(rpi_context *context);

#endif
