/* A step of a pipeline as a picture of letters: a line a stage, time to the right.
 *
 *     0  F0 F1 F2 F3          B0 W0 F4 B1 W1
 *     1     F0 F1 F2       B0 F3 B1 W0 F4 B2
 *
 * A pass begins in the column of its time with its name, or the letter where that is too long;
 * '-' fills what is left of it. Of a step that is too long, the beginning and the end are
 * shown. */
#ifndef RPI_PLAN_PIPELINE_PICTURE_H
#define RPI_PLAN_PIPELINE_PICTURE_H

#include "plan/pipelines/pipeline_price.h"

#include <stdio.h>

enum { RPI_PICTURE_COLUMNS = 4096 }; /* at most */

typedef struct rpi_picture_frame {
    double columns;  /* of the whole step; a whole number */
    int first, last; /* of these, shown of its beginning and its end; last 0: all of it is */
    bool spaced;     /* there is room for a column between passes */
} rpi_picture_frame;

/* What goes into so many columns, 8 to RPI_PICTURE_COLUMNS: the whole step with all names, else
 * with a letter for each pass, else its beginning and its end with names. */
rpi_picture_frame rpi_pipeline_frame(const rpi_pipeline_orders *orders,
                                     const rpi_pipeline_price *price, int most);
/* Lines of the stages, behind their numbers. */
void rpi_pipeline_picture(FILE *stream, const rpi_pipeline_orders *orders,
                          const rpi_pipeline_price *price, const rpi_picture_frame *frame);

#endif
