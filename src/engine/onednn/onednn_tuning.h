/* Which convolution algorithm for which shape.
 *
 * Winograd F(4x4, 3x3) needs a quarter of the multiplications and some more memory traffic, so
 * it wins where there is enough work, and rounds to about 1e-6 where direct sums round to 1e-7.
 *
 * Where tiles are many, and with oneDNN 3, which has no Winograd, it is our own kernel
 * (onednn_conv_winograd.c), by the rule alone.
 *
 * Without a file a rule decides, from the shape alone, so that every run and every rank decides
 * alike. With a file each shape is measured once, the rule is overruled where the other
 * algorithm is quicker by a tenth or more, and what was found is remembered there: runs with
 * the same file give the same bytes. */
#ifndef RPI_ENGINE_ONEDNN_TUNING_H
#define RPI_ENGINE_ONEDNN_TUNING_H

#include "engine/onednn/onednn_api.h"

typedef struct rpi_dnn_geometry {
    rpi_dnn_direction direction;
    int64_t batch, channels, height, width; /* of the input */
    int64_t filters, window_height, window_width;
    int stride, padding;
    bool is_bf16; /* what it reads; there is no choice then: Winograd is for f32 */
    int threads;
} rpi_dnn_geometry;

/* In words: "2 forward n64 c64 h28 w28 k64 r3 s3 stride1 padding1 threads2", the first number
 * being oneDNN's major version; behind "threads2" there is " bf16" where it is. */
enum { RPI_DNN_GEOMETRY_TEXT = 256 };
void rpi_dnn_geometry_text(const rpi_dnn_geometry *geometry, char text[RPI_DNN_GEOMETRY_TEXT]);

typedef struct rpi_dnn_tuning rpi_dnn_tuning;

/* file NULL: by the rule. A file that is not there yet is made with the first measurement. */
rp_status rpi_dnn_tuning_create(const char *file, rpi_dnn_tuning **out_tuning);
void rpi_dnn_tuning_destroy(rpi_dnn_tuning *tuning);

/* Can Winograd be asked for, and would the rule take it? */
bool rpi_dnn_winograd_fits(const rpi_dnn_geometry *geometry);
bool rpi_dnn_winograd_pays(const rpi_dnn_geometry *geometry);

/* Both algorithms exist for this shape: which one? `measure` times one of them, in seconds; it
 * is called only where a file is given that does not hold the answer yet. */
typedef rp_status (*rpi_dnn_measure)(void *context, bool winograd, double *out_seconds);
rp_status rpi_dnn_tuning_choose(rpi_dnn_tuning *tuning, const rpi_dnn_geometry *geometry,
                                rpi_dnn_measure measure, void *context, bool *out_winograd);

#endif
