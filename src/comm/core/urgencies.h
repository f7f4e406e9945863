/* How urgent an operation is: urgency.h. */
#ifndef RPI_COMM_URGENCIES_H
#define RPI_COMM_URGENCIES_H

typedef enum rpi_urgency { RPI_URGENT, RPI_NORMAL, RPI_BULK, RPI_URGENCIES } rpi_urgency;

#endif
