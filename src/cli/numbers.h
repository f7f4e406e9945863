/* Numbers for people: four digits and a unit. Programs read JSON. */
#ifndef RPI_CLI_NUMBERS_H
#define RPI_CLI_NUMBERS_H

#include <stddef.h>

enum { RPI_TIME_BYTES = 32, RPI_NUMBER_BYTES = 32 };

/* "1.227 s", "16.56 ms", "20.3 us", "0 s"; from two minutes on "12:03" and "1:02:03". Returns
 * text. */
const char *rpi_time_text(double seconds, char text[RPI_TIME_BYTES]);
/* "0.4321", "12.35", "1.0e+36", "nan". Returns text. */
const char *rpi_loss_text(double value, char text[RPI_NUMBER_BYTES]);

#endif
