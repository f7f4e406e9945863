/* A step of a pipeline as a picture of letters: a line a stage, time to the right.
 *
 *     0  F0 F1 F2 F3          B0 W0 F4 B1 W1
 *     1     F0 F1 F2       B0 F3 B1 W0 F4 B2
 *
 * A pass begins in the column of its time, and as much of its name as fits is there; '-' fills
 * what is left of it but for the last column. */
#ifndef RPI_PLAN_PIPELINE_PICTURE_H
#define RPI_PLAN_PIPELINE_PICTURE_H

#include "plan/pipelines/pipeline_price.h"

#include <stdio.h>

enum { RPI_PICTURE_COLUMNS = 4096 }; /* at most */

/* How many columns show every name, where passes are not too unlike; at most `most`. */
int rpi_pipeline_picture_columns(const rpi_pipeline_orders *orders,
                                 const rpi_pipeline_price *price, int most);
/* The step in so many columns, of 1 to RPI_PICTURE_COLUMNS, behind the number of each stage. */
void rpi_pipeline_picture(FILE *stream, const rpi_pipeline_orders *orders,
                          const rpi_pipeline_price *price, int columns);

#endif
