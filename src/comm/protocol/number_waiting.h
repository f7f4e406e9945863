/* Communicators that wait for a number: fabric.h. */
#ifndef RPI_COMM_NUMBER_WAITING_H
#define RPI_COMM_NUMBER_WAITING_H

#include "comm/core/fabric.h"

/* They are opened under those that have been offered. True: something has changed. [driver] */
bool rpi_fabric_number_waiting(rpi_fabric *fabric);

#endif
