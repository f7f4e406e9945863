/* Pictures: decoding of every kind, resizing beside Pillow, what an augmentation shows. */
#include "train/pictures/picture.h"

#include "harness/check.h"
#include "picture_files.h"
#include "train/pictures/augment.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ---- decoding ---- */

enum { WIDTH = 21, HEIGHT = 13 };

typedef struct canvas {
    int allows; /* reduction by so much; 0: none is asked for */
    int width, height, rows;
    uint8_t *rgb;
} canvas;

static int reduce(void *context, int width, int height) {
    CHECK(width > 0 && height > 0);
    return ((canvas *)context)->allows;
}

static rp_status begin(void *context, int width, int height, int by) {
    canvas *c = context;
    c->width = rpi_picture_reduced(width, by);
    c->height = rpi_picture_reduced(height, by);
    c->rgb = realloc(c->rgb, (size_t)c->width * (size_t)c->height * 3);
    return RP_OK;
}

static void row(void *context, int y, const uint8_t *rgb) {
    canvas *c = context;
    c->rows += y == c->rows;
    memcpy(c->rgb + (size_t)y * (size_t)c->width * 3, rgb, (size_t)c->width * 3);
}

static rp_status decode(const uint8_t *bytes, size_t count, canvas *c) {
    rpi_picture_sink sink = {
        .context = c, .reduce = c->allows ? reduce : NULL, .begin = begin, .row = row};
    c->rows = 0;
    return rpi_picture_decode(bytes, count, &sink);
}

static void every_kind_is_decoded(void) {
    canvas c = {0};
    for (picture_kind kind = 0; kind < PICTURE_KINDS; kind++) {
        int tolerance = kind < PICTURE_JPEG_RGB ? 0 : 2, worst = 0;
        picture_file file = picture_encode(kind, WIDTH, HEIGHT);
        CHECK_OK(decode(file.bytes, file.count, &c));
        CHECK_EQ(c.rows, HEIGHT);
        CHECK_EQ(c.width, WIDTH);
        for (int i = 0; i < WIDTH * HEIGHT * 3; i++) {
            int wanted = picture_wanted(kind, i / 3 % WIDTH, i / 3 / WIDTH, i % 3);
            int off = abs(c.rgb[i] - wanted);
            worst = off > worst ? off : worst;
        }
        CHECK_MSG(worst <= tolerance, "kind %d is off by %d", kind, worst);
        free(file.bytes);
    }
    free(c.rgb);
}

/* JPEGs come so, others whole; of each size that blocks of 8 x 8 can be left over. */
static void pictures_come_reduced(void) {
    static const int sizes[][2] = {{64, 48}, {WIDTH, HEIGHT}, {1, 9}, {17, 8}};
    for (picture_kind kind = 0; kind < PICTURE_KINDS; kind++)
        for (int i = 0; i < 12; i++) {
            int by = 2 << i / 4, scale = kind < PICTURE_JPEG_RGB ? 1 : by, worst = 0;
            int width = sizes[i % 4][0], height = sizes[i % 4][1];
            canvas c = {.allows = by};
            picture_file file = picture_encode(kind, width, height);
            REQUIRE_OK(decode(file.bytes, file.count, &c));
            CHECK_EQ(c.width, (width + scale - 1) / scale);
            CHECK_EQ(c.rows, (height + scale - 1) / scale);
            for (int p = 0; p < c.width * c.rows * 3 && scale > 1; p++) {
                int off = abs(c.rgb[p] - picture_wanted(kind, 0, 0, p % 3));
                worst = off > worst ? off : worst;
            }
            CHECK_MSG(worst <= 2, "kind %d by %d is off by %d", kind, by, worst);
            free(file.bytes);
            free(c.rgb);
        }
}

/* Wherever a file ends too early, that is said; and nothing is lost or read beyond its end. */
static void truncated_files_are_named(void) {
    static const picture_kind kinds[] = {PICTURE_PNG_RGB, PICTURE_PNG_INTERLACED,
                                         PICTURE_JPEG_RGB, PICTURE_JPEG_PROGRESSIVE,
                                         PICTURE_JPEG_CMYK};
    canvas c = {0};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        picture_file file = picture_encode(kinds[k], WIDTH, HEIGHT);
        bool is_jpeg = kinds[k] >= PICTURE_JPEG_RGB;
        for (size_t count = 0; count + (is_jpeg ? 2 : 0) < file.count; count++) {
            uint8_t *part = malloc(count + 1); /* so that a sanitizer sees the end */
            memcpy(part, file.bytes, count);
            rp_status status = decode(part, count, &c);
            CHECK_MSG(status == RP_CORRUPT, "kind %d cut to %zu bytes: %s", kinds[k], count,
                      rp_status_name(status));
            free(part);
        }
        CHECK_FAILS(decode(file.bytes, file.count / 2, &c), CORRUPT,
                    is_jpeg ? "JPEG: " : "PNG: ");
        CHECK_FAILS(decode(file.bytes, file.count / 2, &c), CORRUPT, "at byte ");
        free(file.bytes);
    }
    free(c.rgb);
}

/* Bytes changed at random: any answer but a crash, a hang or a wrong size is right. */
static void damaged_files_do_no_harm(void) {
    uint64_t state = check_seed();
    canvas c = {0};
    for (picture_kind kind = 0; kind < PICTURE_KINDS; kind++) {
        picture_file file = picture_encode(kind, WIDTH, HEIGHT);
        uint8_t *bytes = malloc(file.count);
        for (int turn = 0; turn < 200; turn++) {
            memcpy(bytes, file.bytes, file.count);
            for (int change = 0; change < 3; change++) {
                state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                bytes[(state >> 33) % file.count] = (uint8_t)(state >> 24);
            }
            rp_status status = decode(bytes, file.count, &c);
            CHECK(status == RP_OK || status == RP_CORRUPT);
        }
        free(bytes);
        free(file.bytes);
    }
    free(c.rgb);
}

static uint32_t crc(const uint8_t *bytes, size_t count) {
    uint32_t value = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        value ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0xedb88320 : 0);
    }
    return ~value;
}

static void put_big_endian(uint8_t *to, uint32_t value) {
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* A header of a few bytes cannot make anybody allocate gigabytes. */
static void large_headers_are_refused(void) {
    canvas c = {0};
    picture_file png = picture_encode(PICTURE_PNG_RGB, WIDTH, HEIGHT);
    put_big_endian(png.bytes + 16, 20000);
    put_big_endian(png.bytes + 20, 20000);
    put_big_endian(png.bytes + 29, crc(png.bytes + 12, 17));
    CHECK_FAILS(decode(png.bytes, png.count, &c), CORRUPT,
                "its header says 20000x20000 pixels; 65535 a side and 67108864 in all are");
    put_big_endian(png.bytes + 16, 66000);
    put_big_endian(png.bytes + 20, 1);
    put_big_endian(png.bytes + 29, crc(png.bytes + 12, 17));
    CHECK_FAILS(decode(png.bytes, png.count, &c), CORRUPT, "its header says 66000x1 pixels");
    picture_file jpeg = picture_encode(PICTURE_JPEG_RGB, WIDTH, HEIGHT);
    for (size_t i = 0; i + 9 < jpeg.count; i++)
        if (jpeg.bytes[i] == 0xff && jpeg.bytes[i + 1] == 0xc0) { /* start of the frame */
            put_big_endian(jpeg.bytes + i + 5, 20000u << 16 | 20000u);
            break;
        }
    CHECK_FAILS(decode(jpeg.bytes, jpeg.count, &c), CORRUPT, "its header says 20000x20000");
    CHECK(c.rgb == NULL);
    free(png.bytes);
    free(jpeg.bytes);
}

/* ---- a few pixels, and much behind them ---- */

static size_t put_chunk(uint8_t *to, const char *type, const uint8_t *data, size_t count) {
    put_big_endian(to, (uint32_t)count);
    memcpy(to + 4, type, 4);
    if (count) memcpy(to + 8, data, count);
    put_big_endian(to + 8 + count, crc(to + 4, count + 4));
    return count + 12;
}

/* A black PNG of 24 x 20 with so many bytes of pixels more than it needs, not packed. */
static picture_file make_overfull(int bits, bool is_interlaced, size_t more) {
    static const uint8_t magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    enum { NEEDED = 24 * 20 * 6 + 64 };
    uint8_t head[13] = {0, 0, 0, 24, 0, 0, 0, 20, (uint8_t)bits, 2, 0, 0, is_interlaced};
    uLongf packed = compressBound(NEEDED + more);
    uint8_t *zeros = calloc(1, NEEDED + more), *data = malloc(packed);
    picture_file file = {.bytes = malloc(packed + 200), .count = 8};
    size_t needed = (size_t)(20 * (1 + 24 * 3 * bits / 8)); /* of rows one by one */
    CHECK(compress2(data, &packed, zeros, (is_interlaced ? NEEDED : needed) + more, 0) == Z_OK);
    memcpy(file.bytes, magic, 8);
    file.count += put_chunk(file.bytes + file.count, "IHDR", head, sizeof head);
    file.count += put_chunk(file.bytes + file.count, "IDAT", data, packed);
    file.count += put_chunk(file.bytes + file.count, "IEND", NULL, 0);
    free(zeros);
    free(data);
    return file;
}

static void what_is_packed_behind_pixels_is_refused(void) {
    for (int i = 0; i < 4; i++) {
        canvas c = {0};
        int bits = i % 2 ? 16 : 8;
        picture_file good = make_overfull(bits, i / 2, 1000);
        CHECK_OK(decode(good.bytes, good.count, &c));
        CHECK_EQ(c.rows, 20);
        picture_file bad = make_overfull(bits, i / 2, 1 << 21);
        CHECK_FAILS(
            decode(bad.bytes, bad.count, &c), CORRUPT,
            "bytes of packed pixels follow the last row of its 24x20; 65536 are the most");
        free(good.bytes);
        free(bad.bytes);
        free(c.rgb);
    }
}

static void other_files_are_named(void) {
    canvas c = {0};
    const uint8_t gif[] = "GIF89a and more";
    CHECK_FAILS(decode(gif, 0, &c), CORRUPT, "0 bytes are no JPEG or PNG");
    CHECK_FAILS(decode(gif, sizeof gif, &c), CORRUPT,
                "it is no JPEG or PNG: it begins with 47 49 46 38");
}

static void formats_are_known_by_their_names(void) {
    static const struct {
        const char *name, *format;
    } names[] = {{"a.jpg", "JPEG"},   {"a.JPEG", "JPEG"},  {"b.c.jpe", "JPEG"},
                 {"a.PNG", "PNG"},    {"a.png.txt", NULL}, {".png", NULL},
                 {"notes.txt", NULL}, {"png", NULL},       {"\xc3\xa9t\xc3\xa9.jfif", "JPEG"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const rpi_picture_format *format = rpi_picture_format_of_name(names[i].name);
        const char *got = format ? format->name : "none";
        CHECK_MSG(!strcmp(got, names[i].format ? names[i].format : "none"), "%s: %s",
                  names[i].name, got);
    }
}

/* ---- resizing ---- */

static void resample(rpi_resampler *r, const rpi_resampling *how, int width, int height,
                     uint8_t *out) {
    uint8_t *pixels = picture_draw(width, height, 3);
    CHECK_OK(rpi_resampler_begin(r, how, 1));
    for (int y = 0; y < height; y++)
        rpi_resampler_row(r, y, pixels + (size_t)y * (size_t)width * 3);
    rpi_resampler_finish(r, out);
    free(pixels);
}

/* One resampler for all: its memory is used again. */
static void resizing_equals_pillow(void) {
    FILE *stream = fopen(RESAMPLE_GOLDEN, "rb");
    rpi_resampler r = {0};
    int32_t n[12];
    int cases = 0;
    REQUIRE(stream);
    while (fread(n, sizeof n, 1, stream) == 1) {
        rpi_resampling how = {n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], 0};
        size_t bytes = (size_t)n[10] * (size_t)n[11] * 3;
        uint8_t *wanted = malloc(bytes), *got = malloc(bytes);
        CHECK(fread(wanted, 1, bytes, stream) == bytes);
        resample(&r, &how, n[0], n[1], got);
        CHECK_MSG(memcmp(got, wanted, bytes) == 0, "case %d differs", cases);
        cases++;
        free(wanted);
        free(got);
    }
    CHECK_EQ(cases, 11);
    rpi_resampler_close(&r);
    fclose(stream);
}

/* A slope, of whole pixels or of those reduced by `by`: their mean. */
static void resample_slope(const rpi_resampling *how, int side, int by, uint8_t *out) {
    rpi_resampler r = {0};
    int count = side / by;
    uint8_t *line = malloc((size_t)count * 3);
    CHECK(by <= rpi_resampling_reduction(how));
    CHECK_OK(rpi_resampler_begin(&r, how, by));
    for (int y = 0; y < count; y++) {
        for (int i = 0; i < count * 3; i++) {
            double x = i / 3 * by + (by - 1) / 2., middle = y * by + (by - 1) / 2.;
            line[i] = (uint8_t)(i % 3 == 0   ? x / 3
                                : i % 3 == 1 ? middle / 3
                                             : (x + middle) / 6);
        }
        rpi_resampler_row(&r, y, line);
    }
    rpi_resampler_finish(&r, out);
    rpi_resampler_close(&r);
    free(line);
}

/* Wherever it begins, and whatever it is reduced by. A reduced pixel is two levels or more. */
static void a_reduced_picture_shows_the_same_box(void) {
    enum { SIDE = 640, TO = 16 };
    uint8_t whole[TO * TO * 3], reduced[TO * TO * 3];
    for (int turn = 0; turn < 60; turn++) {
        int by = 4 << turn % 2, at = 5 * turn, width = 320 - turn;
        rpi_resampling how = {at, 300 - at, width, 320, TO, TO, 0, 0, TO, TO, turn % 3 == 0};
        resample_slope(&how, SIDE, 1, whole);
        resample_slope(&how, SIDE, by, reduced);
        int worst = 0;
        for (int i = 0; i < TO * TO * 3; i++) {
            int off = abs(whole[i] - reduced[i]);
            worst = off > worst ? off : worst;
        }
        CHECK_MSG(worst <= 1, "from %d, %d wide, by %d: off by %d", at, width, by, worst);
    }
}

/* Small pictures keep their bits: those come whole that would not be twice as large still. */
static void only_large_pictures_are_reduced(void) {
    static const struct {
        int width, height, by;
    } wanted[] = {{500, 375, 1},   {1023, 1023, 1}, {1024, 1024, 2}, {65535, 600, 1},
                  {2047, 3000, 2}, {2048, 2048, 4}, {4000, 3000, 4}, {6000, 4096, 8},
                  {8192, 8192, 8}, {65535, 1023, 1}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        rpi_resampling how;
        rpi_centre_crop(wanted[i].width, wanted[i].height, 224, &how);
        CHECK_MSG(rpi_resampling_reduction(&how) == wanted[i].by, "%dx%d by %d",
                  wanted[i].width, wanted[i].height, rpi_resampling_reduction(&how));
    }
}

static void mirrored_is_the_other_way_round(void) {
    enum { SIDE = 9 };
    rpi_resampler r = {0};
    rpi_resampling how = {0, 0, 30, 20, SIDE, SIDE, 0, 0, SIDE, SIDE, false};
    uint8_t plain[SIDE][SIDE][3], turned[SIDE][SIDE][3];
    resample(&r, &how, 30, 20, plain[0][0]);
    how.flips = true;
    resample(&r, &how, 30, 20, turned[0][0]);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++)
            CHECK(memcmp(plain[y][x], turned[y][SIDE - 1 - x], 3) == 0);
    rpi_resampler_close(&r);
}

/* ---- what is shown ---- */

/* As torchvision's Resize(256) and CenterCrop(224). */
static void the_centre_is_torchvisions(void) {
    static const struct {
        int width, height, size;
        int64_t to_width, to_height, column, row;
    } wanted[] = {{500, 375, 224, 341, 256, 58, 16}, {375, 500, 224, 256, 341, 16, 58},
                  {256, 256, 224, 256, 256, 16, 16}, {1, 1, 224, 256, 256, 16, 16},
                  {501, 333, 224, 385, 256, 80, 16}, {65535, 1, 32, 2424795, 37, 1212382, 2}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        rpi_resampling how;
        rpi_centre_crop(wanted[i].width, wanted[i].height, wanted[i].size, &how);
        CHECK_EQ(how.to_width, wanted[i].to_width);
        CHECK_EQ(how.to_height, wanted[i].to_height);
        CHECK_EQ(how.first_column, wanted[i].column);
        CHECK_EQ(how.first_row, wanted[i].row);
    }
}

static rpi_resampling augmented(const char *name, int64_t epoch, int64_t picture, int width,
                                int height) {
    const rpi_augmentation *augmentation = NULL;
    rpi_draw draw = {.seed = 7, .epoch = epoch, .picture = picture};
    rpi_resampling how = {0};
    CHECK_OK(rpi_augmentation_find(name, &augmentation));
    rpi_augment(augmentation, &draw, width, height, 224, &how);
    return how;
}

/* Boxes lie in the picture, areas are spread evenly over 8 to 75 %, and in a square picture up
 * to 100 % as far as their ratio fits: the mean is 0.4778; ratios over 3:4 to 4:3 in their
 * logarithm; half of all are mirrored. Means of 4000 differ by 0.004, 0.003 and 0.008. */
static void random_boxes_are_spread(void) {
    enum { WIDE = 500, HIGH = 500, TURNS = 4000 };
    double areas = 0, ratios = 0, flips = 0;
    for (int i = 0; i < TURNS; i++) {
        rpi_resampling how = augmented("standard", i / 100, i % 100, WIDE, HIGH);
        CHECK(how.x >= 0 && how.y >= 0 && how.x + how.width <= WIDE &&
              how.y + how.height <= HIGH);
        double area = (double)how.width * how.height / WIDE / HIGH;
        double ratio = (double)how.width / how.height;
        CHECK_MSG(area > 0.079 && area <= 1, "area %g", area);
        CHECK_MSG(ratio > 0.74 && ratio < 1.35, "ratio %g", ratio);
        areas += area / TURNS;
        ratios += log(ratio) / TURNS;
        flips += (double)how.flips / TURNS;
    }
    CHECK_NEAR(areas, 0.4778, 0.016);
    CHECK_NEAR(ratios, 0, 0.012);
    CHECK_NEAR(flips, 0.5, 0.032);
}

static bool same(const rpi_resampling *a, const rpi_resampling *b) {
    return a->x == b->x && a->y == b->y && a->width == b->width && a->height == b->height &&
           a->flips == b->flips;
}

static void a_draw_is_of_seed_epoch_and_picture(void) {
    rpi_resampling first = augmented("standard", 3, 5, 640, 480);
    rpi_resampling again = augmented("standard", 3, 5, 640, 480);
    rpi_resampling other = augmented("standard", 4, 5, 640, 480);
    rpi_resampling another = augmented("standard", 3, 6, 640, 480);
    CHECK(same(&first, &again));
    CHECK(!same(&first, &other) && !same(&first, &another));
    /* Pinned: another release must cut the same boxes. */
    CHECK_EQ(first.x, 284);
    CHECK_EQ(first.y, 64);
    CHECK_EQ(first.width, 304);
    CHECK_EQ(first.height, 332);
}

static void odd_pictures_have_boxes(void) {
    static const int sizes[][2] = {{1, 1}, {1, 65535}, {65535, 1}, {2, 3}, {3000, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int turn = 0; turn < 50; turn++) {
            int width = sizes[i][0], height = sizes[i][1];
            rpi_resampling how = augmented("standard", turn, 0, width, height);
            CHECK(how.width >= 1 && how.height >= 1 && how.x >= 0 && how.y >= 0);
            CHECK(how.x + how.width <= width && how.y + how.height <= height);
        }
}

static void augmentations_are_named(void) {
    const rpi_augmentation *augmentation = NULL;
    CHECK_OK(rpi_augmentation_find(NULL, &augmentation));
    CHECK(strcmp(augmentation->name, "none") == 0);
    CHECK_FAILS(rpi_augmentation_find("standart", &augmentation), INVALID,
                "there are none, flip, standard; did you mean 'standard'?");
    bool mirrored = false;
    for (int i = 0; i < 20; i++) {
        CHECK(!augmented("none", i, 0, 50, 40).flips);
        rpi_resampling how = augmented("flip", i, 0, 50, 40);
        CHECK(how.width == 50 && how.height == 40);
        mirrored = mirrored || how.flips;
    }
    CHECK(mirrored);
}

CASES({"every kind is decoded", every_kind_is_decoded},
      {"pictures come reduced", pictures_come_reduced},
      {"truncated files are named", truncated_files_are_named},
      {"damaged files do no harm", damaged_files_do_no_harm},
      {"large headers are refused", large_headers_are_refused},
      {"what is packed behind pixels is refused", what_is_packed_behind_pixels_is_refused},
      {"other files are named", other_files_are_named},
      {"formats are known by their names", formats_are_known_by_their_names},
      {"resizing equals Pillow", resizing_equals_pillow},
      {"a reduced picture shows the same box", a_reduced_picture_shows_the_same_box},
      {"only large pictures are reduced", only_large_pictures_are_reduced},
      {"mirrored is the other way round", mirrored_is_the_other_way_round},
      {"the centre is torchvision's", the_centre_is_torchvisions},
      {"random boxes are spread", random_boxes_are_spread},
      {"a draw is of seed, epoch and picture", a_draw_is_of_seed_epoch_and_picture},
      {"odd pictures have boxes", odd_pictures_have_boxes},
      {"augmentations are named", augmentations_are_named})
