/* The lines of share/redpoll/devices.txt, which the build puts into the program; NULL past the
 * end. */
#ifndef RPI_PLAN_DEVICE_LINES_H
#define RPI_PLAN_DEVICE_LINES_H

extern const char *const rpi_plan_device_lines[];

#endif
