/* PNG by libpng: every colour type and depth, interlaced or not; 16 bits are rounded to 8. */
#include "base/memory.h"
#include "train/pictures/picture.h"

extern const rpi_picture_format rpi_picture_png;

#if RPI_HAVE_PNG

#    include <setjmp.h>
#    include <stdio.h>
#    include <string.h>

#    include <png.h>

enum { WORDS = 256, LARGEST_CHUNK = 1 << 23 };

typedef struct decoding {
    png_structp png;
    png_infop info;
    const uint8_t *bytes;
    size_t count, offset;
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

static void read_bytes(png_structp png, png_bytep out, png_size_t count) {
    decoding *d = png_get_io_ptr(png);
    if (count > d->count - d->offset) png_error(png, "the file ends too early");
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

static rp_status begin(decoding *d, const rpi_picture_sink *sink, bool *out_whole) {
    png_read_info(d->png, d->info);
    uint64_t width = png_get_image_width(d->png, d->info);
    uint64_t height = png_get_image_height(d->png, d->info);
    RP_TRY(rpi_picture_check_size(width, height));
    ask_for_rgb(d);
    *out_whole = png_set_interlace_handling(d->png) > 1;
    png_read_update_info(d->png, d->info);
    if (png_get_rowbytes(d->png, d->info) != width * RPI_PICTURE_CHANNELS)
        return RP_FAIL(INTERNAL, "PNG: rows of %zu bytes for %llu pixels",
                       png_get_rowbytes(d->png, d->info), (unsigned long long)width);
    RP_TRY(rpi_alloc_array(width * RPI_PICTURE_CHANNELS, *out_whole ? height : 1,
                           "the rows of a picture", &d->pixels));
    if (*out_whole)
        RP_TRY(rpi_alloc_array(height, sizeof *d->rows, "the rows of a picture", &d->rows));
    for (uint64_t y = 0; *out_whole && y < height; y++)
        d->rows[y] = d->pixels + y * width * RPI_PICTURE_CHANNELS;
    return sink->begin(sink->context, (int)width, (int)height, 1);
}

static rp_status decode_rows(decoding *d, const rpi_picture_sink *sink) {
    bool is_whole = false;
    RP_TRY(begin(d, sink, &is_whole));
    int height = (int)png_get_image_height(d->png, d->info);
    if (is_whole) png_read_image(d->png, d->rows);
    for (int y = 0; y < height; y++) {
        if (!is_whole) png_read_row(d->png, d->pixels, NULL);
        sink->row(sink->context, y, is_whole ? d->rows[y] : d->pixels);
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
