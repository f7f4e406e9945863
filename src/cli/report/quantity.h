/* Numbers for people: a few digits, and a unit that fits their size. Pure. */
#ifndef RPI_CLI_REPORT_QUANTITY_H
#define RPI_CLI_REPORT_QUANTITY_H

#include <stddef.h>

typedef enum rpi_quantity {
    RPI_NUMBER,  /* losses, rates: no unit */
    RPI_WHOLE,   /* steps, ranks: 200, 20k, 1M */
    RPI_SECONDS, /* ns ... h */
    RPI_BYTES,   /* decimal: kB, MB */
    RPI_BYTES_S, /* per second */
    RPI_SHARE,   /* 1 is 100 % */
} rpi_quantity;

typedef struct rpi_quantity_unit {
    const char *name; /* "MB"; "" where there is none */
    double size;      /* one of it, in the base unit */
    double least;     /* from which value on it is used */
} rpi_quantity_unit;

enum { RPI_QUANTITY_TEXT = 40 };

/* The largest unit that fits a value of this size; not finite or 0: the base unit. */
const rpi_quantity_unit *rpi_unit_for(rpi_quantity quantity, double value);
/* 0.4512, 92.4, 1e36; an en dash for NaN. `digits` are significant ones. */
const char *rpi_number_text(double value, int digits, char text[RPI_QUANTITY_TEXT]);
/* With its unit: "44.7 MB", "1.38 s", "87.2 %". */
const char *rpi_quantity_text(rpi_quantity quantity, double value,
                              char text[RPI_QUANTITY_TEXT]);
/* The shortest text that reads back as the same number; "" unless it is finite. */
const char *rpi_exact_text(double value, char text[RPI_QUANTITY_TEXT]);

#endif
