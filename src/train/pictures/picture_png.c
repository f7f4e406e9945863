/* PNG by libpng: every colour type and depth, interlaced or not; 16 bits are rounded to 8. */
#include "base/memory.h"
#include "train/pictures/picture.h"

extern const rpi_picture_format rpi_picture_png;

#if RPI_HAVE_PNG

#    include <setjmp.h>
#    include <stdio.h>
#    include <string.h>

#    include <png.h>

enum {
    WORDS = 256,
    LARGEST_CHUNK = 1 << 23, /* of texts and profiles, as they are unpacked */
    /* Bytes of the file that may follow the last row of pixels as it comes: the end of the
     * packed stream. Behind more of them gigabytes could wait to be unpacked. */
    SPARE = 1 << 16,
    DEEPEST_PIXEL = 8, /* bytes: four channels of 16 bits */
};

typedef struct decoding {
    png_structp png;
    png_infop info;
    const uint8_t *bytes;
    size_t count, offset;
    size_t width, height;
    size_t end;        /* of what may be read for the last row; 0: it is not its turn */
    char words[WORDS]; /* of the failure */
    uint8_t *pixels;   /* a row, or all of an interlaced picture */
    png_bytepp rows;   /* of an interlaced picture */
} decoding;

/* ---- what libpng calls ---- */

static void leave(png_structp png, png_const_charp words) {
    decoding *d = png_get_error_ptr(png);
    snprintf(d->words, sizeof d->words, "%s", words);
    png_longjmp(png, 1);
}

static void warn_nobody(png_structp png, png_const_charp words) {
    (void)png, (void)words;
}

/* libpng unpacks all that follows the last row before it returns that. */
static void refuse_rest(decoding *d) {
    char words[WORDS];
    snprintf(words, sizeof words,
             "%zu bytes of packed pixels follow the last row of its %zux%zu; %d are the most",
             d->count - d->offset, d->width, d->height, SPARE);
    png_error(d->png, words);
}

static void read_bytes(png_structp png, png_bytep out, png_size_t count) {
    decoding *d = png_get_io_ptr(png);
    if (count > d->count - d->offset) png_error(png, "the file ends too early");
    if (d->end && d->offset + count > d->end) refuse_rest(d);
    memcpy(out, d->bytes + d->offset, count);
    d->offset += count;
}

/* ---- decoding ---- */

static void ask_for_rgb(decoding *d) {
    int type = png_get_color_type(d->png, d->info);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(d->png);
    if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(d->png);
    if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(d->png);
    png_set_scale_16(d->png);
    png_set_strip_alpha(d->png);
}

static rp_status begin(decoding *d, const rpi_picture_sink *sink, int *out_passes) {
    png_read_info(d->png, d->info);
    uint64_t width = png_get_image_width(d->png, d->info);
    uint64_t height = png_get_image_height(d->png, d->info);
    RP_TRY(rpi_picture_check_size(width, height));
    ask_for_rgb(d);
    d->width = width;
    d->height = height;
    *out_passes = png_set_interlace_handling(d->png);
    bool is_whole = *out_passes > 1;
    png_read_update_info(d->png, d->info);
    if (png_get_rowbytes(d->png, d->info) != width * RPI_PICTURE_CHANNELS)
        return RP_FAIL(INTERNAL, "PNG: rows of %zu bytes for %llu pixels",
                       png_get_rowbytes(d->png, d->info), (unsigned long long)width);
    RP_TRY(rpi_alloc_array(width * RPI_PICTURE_CHANNELS, is_whole ? height : 1,
                           "the rows of a picture", &d->pixels));
    if (is_whole)
        RP_TRY(rpi_alloc_array(height, sizeof *d->rows, "the rows of a picture", &d->rows));
    for (uint64_t y = 0; is_whole && y < height; y++)
        d->rows[y] = d->pixels + y * width * RPI_PICTURE_CHANNELS;
    return sink->begin(sink->context, (int)width, (int)height, 1);
}

static void read_row(decoding *d, uint8_t *row, bool is_last) {
    if (is_last) d->end = d->offset + DEEPEST_PIXEL * d->width + SPARE;
    png_read_row(d->png, row, NULL);
    d->end = 0;
}

static void read_passes(decoding *d, int passes) {
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < d->height; y++)
            read_row(d, d->rows[y], pass == passes - 1 && y == d->height - 1);
}

static rp_status decode_rows(decoding *d, const rpi_picture_sink *sink) {
    int passes = 1;
    RP_TRY(begin(d, sink, &passes));
    if (d->rows) read_passes(d, passes);
    for (size_t y = 0; y < d->height; y++) {
        if (!d->rows) read_row(d, d->pixels, y == d->height - 1);
        sink->row(sink->context, (int)y, d->rows ? d->rows[y] : d->pixels);
    }
    png_read_end(d->png, NULL);
    return RP_OK;
}

/* What stands behind setjmp() changes no local of the function that calls it. */
static rp_status run(decoding *d, const rpi_picture_sink *sink) {
    if (setjmp(png_jmpbuf(d->png)))
        return RP_FAIL(CORRUPT, "PNG: %s, at byte %zu of %zu", d->words, d->offset, d->count);
    png_set_read_fn(d->png, d, read_bytes);
    png_set_user_limits(d->png, RPI_PICTURE_MOST_PIXELS, RPI_PICTURE_MOST_PIXELS);
    png_set_chunk_malloc_max(d->png, LARGEST_CHUNK);
    return decode_rows(d, sink);
}

static rp_status decode_png(const uint8_t *bytes, size_t count, const rpi_picture_sink *sink) {
    decoding d = {.bytes = bytes, .count = count};
    d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d, leave, warn_nobody);
    d.info = d.png ? png_create_info_struct(d.png) : NULL;
    rp_status status =
        d.info ? run(&d, sink) : RP_FAIL(NOMEM, "no memory to read a PNG of %zu bytes", count);
    png_destroy_read_struct(&d.png, &d.info, NULL);
    rpi_free(d.pixels);
    rpi_free(d.rows);
    return status;
}
#else
#    define decode_png NULL
#endif

const rpi_picture_format rpi_picture_png = {
    .name = "PNG",
    .package = "libpng-dev",
    .suffixes = (const char *const[]){".png", NULL},
    .magic = (const uint8_t[]){0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'},
    .magic_bytes = 8,
    .decode = decode_png,
};
