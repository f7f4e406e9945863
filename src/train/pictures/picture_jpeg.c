/* JPEG by libjpeg: baseline, progressive and arithmetic; grey, colour, CMYK and YCCK.
 *
 * What is to be shown much smaller is not decoded whole: of each block of 8 x 8 pixels 4 x 4,
 * 2 x 2 or one are made, by a shorter transform.
 *
 * The decoder goes on behind damage and only warns of it. Here those warnings that mean lost
 * pixels are failures; others, such as of stray bytes between markers, are not. */
#include "base/memory.h"
#include "train/pictures/picture.h"

extern const rpi_picture_format rpi_picture_jpeg;

#if RPI_HAVE_JPEG

#    include <setjmp.h>
#    include <stdio.h>
#    include <string.h>

#    include <jpeglib.h>

#    include <jerror.h>

/* A small file can hold scans that each go over all pixels of a picture. */
enum { MOST_SCANS = 500, WORDS = JMSG_LENGTH_MAX };
#    define MOST_SCANNED (INT64_C(1) << 32) /* pixels, over all scans */

typedef struct decoding {
    struct jpeg_error_mgr errors; /* first: libjpeg hands it back */
    struct jpeg_decompress_struct jpeg;
    struct jpeg_progress_mgr progress;
    jmp_buf leave;
    size_t count;      /* bytes of the file */
    size_t offset;     /* of the failure */
    char words[WORDS]; /* of the failure */
    uint8_t *row, *cmyk;
} decoding;

/* ---- what libjpeg calls ---- */

static decoding *decoding_of(j_common_ptr jpeg) {
    return (decoding *)(void *)jpeg->err;
}

static void leave(j_common_ptr jpeg) {
    decoding *d = decoding_of(jpeg);
    jpeg->err->format_message(jpeg, d->words);
    d->offset = d->jpeg.src ? d->count - d->jpeg.src->bytes_in_buffer : 0;
    longjmp(d->leave, 1);
}

static bool loses_pixels(int message) {
    return message == JWRN_JPEG_EOF || message == JWRN_HIT_MARKER ||
           message == JWRN_HUFF_BAD_CODE || message == JWRN_MUST_RESYNC ||
           message == JWRN_ARITH_BAD_CODE || message == JWRN_NOT_SEQUENTIAL;
}

static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0 && loses_pixels(jpeg->err->msg_code)) leave(jpeg);
}

static void on_progress(j_common_ptr jpeg) {
    decoding *d = decoding_of(jpeg);
    int64_t scans = d->jpeg.input_scan_number;
    int64_t pixels = (int64_t)d->jpeg.image_width * d->jpeg.image_height;
    if (scans <= MOST_SCANS && scans * pixels <= MOST_SCANNED) return;
    snprintf(d->words, sizeof d->words, "more than %lld scans of its %ux%u pixels",
             (long long)scans - 1, d->jpeg.image_width, d->jpeg.image_height);
    d->offset = d->count - d->jpeg.src->bytes_in_buffer;
    longjmp(d->leave, 1);
}

static void print_nothing(j_common_ptr jpeg) {
    (void)jpeg;
}

/* ---- colours ---- */

/* a b / 255, to the nearest. */
static unsigned scale_byte(unsigned a, unsigned b) {
    unsigned t = a * b + 128;
    return (t + (t >> 8)) >> 8;
}

/* Adobe's files hold the complement of each ink. */
static void cmyk_to_rgb(const uint8_t *cmyk, int width, bool is_inverted, uint8_t *rgb) {
    unsigned flip = is_inverted ? 255 : 0;
    for (int x = 0; x < width; x++, cmyk += 4, rgb += 3) {
        unsigned light = 255 - (cmyk[3] ^ flip);
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)(light - scale_byte(cmyk[c] ^ flip, light));
    }
}

static bool is_cmyk(const struct jpeg_decompress_struct *jpeg) {
    return jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK;
}

/* ---- decoding ---- */

static rp_status reduce(struct jpeg_decompress_struct *jpeg, int width, int height, int by) {
    jpeg->scale_num = 1;
    jpeg->scale_denom = (unsigned)by;
    jpeg_calc_output_dimensions(jpeg);
    if (jpeg->output_width == (unsigned)rpi_picture_reduced(width, by) &&
        jpeg->output_height == (unsigned)rpi_picture_reduced(height, by))
        return RP_OK;
    return RP_FAIL(INTERNAL, "JPEG: %dx%d pixels by %d are %ux%u", width, height, by,
                   jpeg->output_width, jpeg->output_height);
}

static rp_status begin(decoding *d, const rpi_picture_sink *sink) {
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    jpeg_read_header(jpeg, TRUE);
    RP_TRY(rpi_picture_check_size(jpeg->image_width, jpeg->image_height));
    int width = (int)jpeg->image_width, height = (int)jpeg->image_height;
    int by = sink->reduce ? sink->reduce(sink->context, width, height) : 1;
    jpeg->out_color_space = is_cmyk(jpeg) ? JCS_CMYK : JCS_RGB;
    RP_TRY(reduce(jpeg, width, height, by));
    size_t columns = jpeg->output_width;
    RP_TRY(rpi_alloc_array(columns, RPI_PICTURE_CHANNELS, "a row of a picture", &d->row));
    if (is_cmyk(jpeg)) RP_TRY(rpi_alloc_array(columns, 4, "a row of a picture", &d->cmyk));
    RP_TRY(sink->begin(sink->context, width, height, by));
    jpeg_start_decompress(jpeg);
    return RP_OK;
}

static rp_status decode_rows(decoding *d, const rpi_picture_sink *sink) {
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    RP_TRY(begin(d, sink));
    int width = (int)jpeg->output_width;
    while (jpeg->output_scanline < jpeg->output_height) {
        int y = (int)jpeg->output_scanline;
        JSAMPROW row = d->cmyk ? d->cmyk : d->row;
        if (jpeg_read_scanlines(jpeg, &row, 1) != 1) continue;
        if (d->cmyk) cmyk_to_rgb(d->cmyk, width, jpeg->saw_Adobe_marker, d->row);
        sink->row(sink->context, y, d->row);
    }
    jpeg_finish_decompress(jpeg);
    return RP_OK;
}

static void prepare(decoding *d) {
    d->jpeg.err = jpeg_std_error(&d->errors);
    d->errors.error_exit = leave;
    d->errors.emit_message = on_message;
    d->errors.output_message = print_nothing;
}

/* What stands behind setjmp() changes no local of the function that calls it. */
static rp_status run(decoding *d, const uint8_t *bytes, const rpi_picture_sink *sink) {
    if (setjmp(d->leave))
        return RP_FAIL(CORRUPT, "JPEG: %s, at byte %zu of %zu", d->words, d->offset, d->count);
    jpeg_create_decompress(&d->jpeg);
    d->progress.progress_monitor = on_progress;
    d->jpeg.progress = &d->progress;
    jpeg_mem_src(&d->jpeg, bytes, (unsigned long)d->count);
    return decode_rows(d, sink);
}

static rp_status decode_jpeg(const uint8_t *bytes, size_t count, const rpi_picture_sink *sink) {
    decoding d = {.count = count};
    prepare(&d);
    rp_status status = run(&d, bytes, sink);
    jpeg_destroy_decompress(&d.jpeg);
    rpi_free(d.row);
    rpi_free(d.cmyk);
    return status;
}
#else
#    define decode_jpeg NULL
#endif

const rpi_picture_format rpi_picture_jpeg = {
    .name = "JPEG",
    .package = "libjpeg-dev",
    .suffixes = (const char *const[]){".jpg", ".jpeg", ".jpe", ".jfif", NULL},
    .magic = (const uint8_t[]){0xff, 0xd8, 0xff},
    .magic_bytes = 3,
    .decode = decode_jpeg,
};
