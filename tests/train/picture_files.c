#include "picture_files.h"

#include "base/folder.h"
#include "harness/check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>

uint8_t picture_pixel(int x, int y, int channel) {
    int mixed = (x * 40503) ^ (y * 30011) ^ (channel * 20021);
    return (uint8_t)((mixed >> 5) + x * 2 + y * 3 + channel * 60);
}

uint8_t *picture_draw(int width, int height, int channels) {
    uint8_t *pixels = calloc((size_t)width * (size_t)height, (size_t)channels);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++)
                pixels[((size_t)y * (size_t)width + (size_t)x) * (size_t)channels + (size_t)c] =
                    picture_pixel(x, y, c);
    return pixels;
}

/* ---- PNG ---- */

static void append(png_structp png, png_bytep bytes, png_size_t count) {
    picture_file *file = png_get_io_ptr(png);
    file->bytes = realloc(file->bytes, file->count + count);
    memcpy(file->bytes + file->count, bytes, count);
    file->count += count;
}

static int color_type(picture_kind kind) {
    switch (kind) {
    case PICTURE_PNG_RGBA: return PNG_COLOR_TYPE_RGBA;
    case PICTURE_PNG_GREY:
    case PICTURE_PNG_GREY_1:
    case PICTURE_PNG_GREY_16: return PNG_COLOR_TYPE_GRAY;
    case PICTURE_PNG_GREY_ALPHA: return PNG_COLOR_TYPE_GRAY_ALPHA;
    case PICTURE_PNG_PALETTE:
    case PICTURE_PNG_TRANSPARENT_PALETTE: return PNG_COLOR_TYPE_PALETTE;
    default: return PNG_COLOR_TYPE_RGB;
    }
}

static int channels_of(int type) {
    return type == PNG_COLOR_TYPE_RGBA         ? 4
           : type == PNG_COLOR_TYPE_RGB        ? 3
           : type == PNG_COLOR_TYPE_GRAY_ALPHA ? 2
                                               : 1;
}

static void set_palette(png_structp png, png_infop info, bool is_transparent) {
    png_color palette[256];
    png_byte alpha[1] = {0};
    for (int i = 0; i < 256; i++)
        palette[i] = (png_color){(png_byte)i, (png_byte)(255 - i), (png_byte)(i / 2)};
    png_set_PLTE(png, info, palette, 256);
    if (is_transparent) png_set_tRNS(png, info, alpha, 1, NULL);
}

/* 16 bits: the byte, and another below it that rounds down. */
static void widen(const uint8_t *bytes, size_t count, uint8_t *wide) {
    for (size_t i = 0; i < count; i++) wide[2 * i] = wide[2 * i + 1] = bytes[i];
}

static void write_rows(png_structp png, picture_kind kind, int width, int height,
                       int channels) {
    uint8_t *pixels = picture_draw(width, height, channels);
    size_t row = (size_t)width * (size_t)channels;
    uint8_t *wide = calloc(2 * row, (size_t)height);
    bool is_wide = kind == PICTURE_PNG_RGB_16 || kind == PICTURE_PNG_GREY_16;
    widen(pixels, row * (size_t)height, wide);
    if (kind == PICTURE_PNG_GREY_1) {
        memset(wide, 0, row * (size_t)height);
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++)
                if (picture_pixel(x, y, 0) > 127)
                    wide[(size_t)y * row + (size_t)x / 8] |= (uint8_t)(0x80 >> x % 8);
    }
    png_bytep *rows = malloc((size_t)height * sizeof *rows);
    for (int y = 0; y < height; y++)
        rows[y] = is_wide                      ? wide + (size_t)y * row * 2
                  : kind == PICTURE_PNG_GREY_1 ? wide + (size_t)y * row
                                               : pixels + (size_t)y * row;
    png_write_image(png, rows);
    png_write_end(png, NULL);
    free(rows);
    free(wide);
    free(pixels);
}

static picture_file encode_png(picture_kind kind, int width, int height) {
    picture_file file = {0};
    int type = color_type(kind);
    int depth = kind == PICTURE_PNG_GREY_1                                  ? 1
                : kind == PICTURE_PNG_RGB_16 || kind == PICTURE_PNG_GREY_16 ? 16
                                                                            : 8;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_set_write_fn(png, &file, append, NULL);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, depth, type,
                 kind == PICTURE_PNG_INTERLACED ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (type == PNG_COLOR_TYPE_PALETTE)
        set_palette(png, info, kind == PICTURE_PNG_TRANSPARENT_PALETTE);
    png_write_info(png, info);
    write_rows(png, kind, width, height, channels_of(type));
    png_destroy_write_struct(&png, &info);
    return file;
}

/* ---- JPEG ---- */

static void fill_row(picture_kind kind, int width, int channels, uint8_t *row) {
    for (int x = 0; x < width; x++)
        for (int c = 0; c < channels; c++)
            row[x * channels + c] =
                kind == PICTURE_JPEG_CMYK && c == 3 ? 200 : picture_pixel(0, 0, c);
}

static picture_file encode_jpeg(picture_kind kind, int width, int height) {
    struct jpeg_compress_struct jpeg = {0};
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long count = 0;
    int channels = kind == PICTURE_JPEG_GREY ? 1 : kind == PICTURE_JPEG_CMYK ? 4 : 3;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &bytes, &count);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = channels;
    jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    if (kind == PICTURE_JPEG_PROGRESSIVE) jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    uint8_t *row = malloc((size_t)width * 4);
    fill_row(kind, width, channels, row);
    while (jpeg.next_scanline < jpeg.image_height) jpeg_write_scanlines(&jpeg, &row, 1);
    free(row);
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    return (picture_file){bytes, count};
}

picture_file picture_encode(picture_kind kind, int width, int height) {
    return kind < PICTURE_JPEG_RGB ? encode_png(kind, width, height)
                                   : encode_jpeg(kind, width, height);
}

uint8_t picture_wanted(picture_kind kind, int x, int y, int channel) {
    int level = picture_pixel(x, y, 0);
    switch (kind) {
    case PICTURE_PNG_GREY:
    case PICTURE_PNG_GREY_ALPHA:
    case PICTURE_PNG_GREY_16: return (uint8_t)level;
    case PICTURE_PNG_GREY_1: return level > 127 ? 255 : 0;
    case PICTURE_PNG_PALETTE:
    case PICTURE_PNG_TRANSPARENT_PALETTE:
        return (uint8_t)(channel == 0 ? level : channel == 1 ? 255 - level : level / 2);
    case PICTURE_JPEG_GREY: return picture_pixel(0, 0, 0);
    case PICTURE_JPEG_RGB:
    case PICTURE_JPEG_PROGRESSIVE: return picture_pixel(0, 0, channel);
    case PICTURE_JPEG_CMYK: /* libjpeg marks it as Adobe's: what is written is light, not ink */
        return (uint8_t)((picture_pixel(0, 0, channel) * 200 + 127) / 255);
    default: return picture_pixel(x, y, channel);
    }
}

/* ---- files ---- */

void picture_write(const char *path, const void *bytes, size_t count) {
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    CHECK_OK(rpi_folder_make(folder));
    FILE *stream = fopen(path, "wb");
    CHECK_MSG(stream && fwrite(bytes, 1, count, stream) == count, "cannot write %s", path);
    if (stream) fclose(stream);
}

static void one_colour(int width, int height, const uint8_t rgb[3], picture_file *file) {
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    uint8_t *row = malloc((size_t)width * 3);
    for (int x = 0; x < width; x++) memcpy(row + x * 3, rgb, 3);
    png_set_write_fn(png, file, append, NULL);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int y = 0; y < height; y++) png_write_row(png, row);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    free(row);
}

void picture_put(const char *root, const char *class_name, const char *name, int width,
                 int height, const uint8_t rgb[3]) {
    char path[1024];
    picture_file file = {0};
    snprintf(path, sizeof path, "%s/%s/%s", root, class_name, name);
    one_colour(width, height, rgb, &file);
    picture_write(path, file.bytes, file.count);
    free(file.bytes);
}
