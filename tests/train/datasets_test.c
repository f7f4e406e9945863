#include "train/data/dataset.h"

#include "base/memory.h"
#include "harness/check.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

typedef struct idx_bytes {
    const char *name;
    size_t count;
    uint8_t bytes[64];
} idx_bytes;

/* Two training images of 2x3 pixels, one test image. */
static const idx_bytes train_images = {
    "train-images-idx3-ubyte", 28, {0,   0,   8,   3,   0,   0,   0,  2,  0,   0,
                                    0,   2,   0,   0,   0,   3,   0,  51, 102, 153,
                                    204, 255, 255, 204, 153, 102, 51, 0}};
static const idx_bytes train_labels = {
    "train-labels-idx1-ubyte", 10, {0, 0, 8, 1, 0, 0, 0, 2, 0, 2}};
static const idx_bytes test_images = {"t10k-images-idx3-ubyte", 22, {0, 0, 8, 3, 0, 0, 0, 1,
                                                                     0, 0, 0, 2, 0, 0, 0, 3,
                                                                     1, 2, 3, 4, 5, 6}};
static const idx_bytes test_labels = {"t10k-labels-idx1-ubyte", 9, {0, 0, 8, 1, 0, 0, 0, 1, 1}};

static char folder[512];

static void put(const idx_bytes *file, size_t count, bool gzip) {
    char path[640];
    snprintf(path, sizeof path, "%s/%s%s", folder, file->name, gzip ? ".gz" : "");
    if (gzip) {
        gzFile stream = gzopen(path, "wb");
        gzwrite(stream, file->bytes, (unsigned)count);
        gzclose(stream);
        return;
    }
    FILE *stream = fopen(path, "wb");
    fwrite(file->bytes, 1, count, stream);
    fclose(stream);
}

static void put_folder(bool gzip) {
    static int folders;
    snprintf(folder, sizeof folder, "%s/%d", check_folder(), folders++);
    mkdir(folder, 0700);
    put(&train_images, train_images.count, gzip);
    put(&train_labels, train_labels.count, gzip);
    put(&test_images, test_images.count, gzip);
    put(&test_labels, test_labels.count, gzip);
}

static rp_status open_folder(const char *kind, rpi_dataset *dataset) {
    *dataset = (rpi_dataset){0};
    return rpi_dataset_open(kind, &(rpi_dataset_options){.folder = folder}, dataset);
}

static void idx_files_are_read_plain_and_gzipped(void) {
    for (int gzip = 0; gzip < 2; gzip++) {
        put_folder(gzip);
        rpi_dataset dataset;
        REQUIRE_OK(open_folder("idx", &dataset));
        CHECK_EQ(dataset.train.count, 2);
        CHECK_EQ(dataset.train.height, 2);
        CHECK_EQ(dataset.train.width, 3);
        CHECK_EQ(dataset.classes, 3);
        CHECK_NEAR(dataset.mean, 0.5, 1e-6);
        float x[6];
        int32_t label;
        uint32_t index = 1;
        rpi_dataset_batch(&dataset, &dataset.train, &index, 1, x, &label);
        CHECK_EQ(label, 2);
        CHECK_NEAR(x[0] * dataset.deviation + dataset.mean, 1.0, 1e-6);
        rpi_dataset_close(&dataset);
    }
}

static void four_dimensions_are_channels(void) {
    put_folder(false);
    idx_bytes colour = {"train-images-idx3-ubyte", 32, {0, 0, 8, 4, 0, 0, 0, 2,  0,  0, 0,
                                                        3, 0, 0, 0, 2, 0, 0, 0,  1,  1, 2,
                                                        3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
    idx_bytes colour_test = {"t10k-images-idx3-ubyte", 26, {0, 0, 8, 4, 0, 0, 0, 1, 0,
                                                            0, 0, 3, 0, 0, 0, 2, 0, 0,
                                                            0, 1, 1, 2, 3, 4, 5, 6}};
    put(&colour, colour.count, false);
    put(&colour_test, colour_test.count, false);
    rpi_dataset dataset;
    REQUIRE_OK(open_folder("idx", &dataset));
    CHECK_EQ(dataset.train.channels, 3);
    CHECK_EQ(dataset.train.height, 2);
    rpi_dataset_close(&dataset);
}

static void damaged_files_are_named(void) {
    rpi_dataset dataset;
    idx_bytes changed;
    put_folder(false);
    put(&train_images, train_images.count - 1, false);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT,
                "train-images-idx3-ubyte is truncated: 1 bytes");
    put(&train_images, 3, false);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT, "truncated");
    put(&train_images, train_images.count + 1, false);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT, "longer than its header says");
    changed = train_images, changed.bytes[2] = 9;
    put(&changed, changed.count, false);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT, "starts with 00 00 09 03");
    changed = train_images, changed.bytes[11] = 0;
    put(&changed, changed.count, false);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT, "dimension 1 is 0");
    changed = train_images,
    changed.bytes[4] = 0xff; /* billions of images: no memory is asked for */
    put(&changed, changed.count, false);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT, "truncated");
    put(&train_images, train_images.count, false);
    changed = train_labels, changed.bytes[7] = 1;
    put(&changed, 9, false);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT, "holds 1 labels for 2 images");
    put(&train_labels, train_labels.count, false);
    changed = test_labels, changed.bytes[8] = 3;
    put(&changed, changed.count, false);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT,
                "label 3 of test image 0 is out of range");
    changed = test_images, changed.bytes[11] = 3, changed.bytes[15] = 2;
    put(&changed, changed.count, false);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT, "1x2x3, test images 1x3x2");
}

static void damaged_gzip_is_named(void) {
    rpi_dataset dataset;
    put_folder(true);
    char path[640];
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte.gz", folder);
    REQUIRE(truncate(path, 30) == 0);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT,
                "train-images-idx3-ubyte.gz is truncated");
    FILE *stream = fopen(path, "wb");
    fwrite(train_images.bytes, 1, train_images.count, stream);
    fclose(stream);
    CHECK_FAILS(open_folder("fashion-mnist", &dataset), CORRUPT, "is not a gzip file");
    stream = fopen(path, "wb");
    fwrite("\x1f\x8b\x08\0\0\0\0\0\0\3garbage", 1, 17, stream);
    fclose(stream);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT, "train-images-idx3-ubyte.gz is");
}

/* A gzip is whole only with its trailer: length and CRC of what was in it. */
static void a_gzip_without_its_end_is_refused(void) {
    rpi_dataset dataset;
    char path[640];
    for (int cut = 1; cut <= 8; cut++) {
        put_folder(true);
        snprintf(path, sizeof path, "%s/train-images-idx3-ubyte.gz", folder);
        struct stat facts;
        REQUIRE(stat(path, &facts) == 0 && truncate(path, facts.st_size - cut) == 0);
        CHECK_FAILS(open_folder("idx", &dataset), CORRUPT,
                    "train-images-idx3-ubyte.gz is truncated");
    }
}

/* 100,000 images of 256 x 230 pixels: 5.9 GB. */
static idx_bytes gigabytes_of_images(void) {
    static const uint8_t sizes[12] = {0, 1, 0x86, 0xa0, 0, 0, 1, 0, 0, 0, 0, 0xe6};
    idx_bytes claims = train_images;
    memcpy(claims.bytes + 4, sizes, sizeof sizes);
    claims.count = 4 + sizeof sizes;
    return claims;
}

/* Memory follows the data, not the claim; the limit would fail the case where it does not. */
static void a_claim_of_gigabytes_costs_no_memory(void) {
    rpi_dataset dataset;
    idx_bytes claims = gigabytes_of_images();
    for (int gzip = 0; gzip < 2; gzip++) {
        put_folder(gzip);
        put(&claims, claims.count, gzip);
        CHECK_FAILS(open_folder("idx", &dataset), CORRUPT,
                    "is truncated: its header says 5888 MB");
    }
    put_folder(false);
    char path[640];
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", folder);
    static const uint8_t terabytes[12] = {0, 2, 0, 0, 0, 0, 0x7f, 0xff, 0, 0, 0xff, 0xff};
    memcpy(claims.bytes + 4, terabytes, sizeof terabytes);
    put(&claims, claims.count, false);
    if (truncate(path, 16 + 0x20000LL * 0x7fff * 0xffff) != 0) return; /* no holes here */
    CHECK_FAILS(open_folder("idx", &dataset), NOMEM, "data is held in memory");
}

/* 5.9 GB of zeros that really are in a file of six megabytes: one member of a gzip, again and
 * again. There are two labels, which is known before any of it is unpacked. */
static void a_bomb_is_not_unpacked(void) {
    enum { MEMBERS = 92, ZEROS = 64000000 };
    rpi_dataset dataset;
    idx_bytes claims = gigabytes_of_images();
    put_folder(true);
    put(&claims, claims.count, true);
    char path[640];
    static uint8_t member[1 << 20];
    uint8_t *zeros = calloc(1, ZEROS);
    REQUIRE(zeros);
    snprintf(path, sizeof path, "%s/zeros.gz", check_folder());
    gzFile packed = gzopen(path, "wb1");
    gzwrite(packed, zeros, ZEROS);
    gzclose(packed);
    free(zeros);
    FILE *stream = fopen(path, "rb");
    REQUIRE(stream);
    size_t bytes = fread(member, 1, sizeof member, stream);
    fclose(stream);
    REQUIRE(bytes < sizeof member);
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte.gz", folder);
    stream = fopen(path, "ab");
    REQUIRE(stream);
    for (int i = 0; i < MEMBERS; i++) fwrite(member, 1, bytes, stream);
    fclose(stream);
    alarm(5);
    CHECK_FAILS(open_folder("idx", &dataset), CORRUPT, "holds 2 labels for 100000 images");
    alarm(0);
}

/* What does not end is not read, and what would block is not waited for. */
static void what_is_no_file_is_refused(void) {
    rpi_dataset dataset;
    char path[640];
    alarm(30);
    for (int kind = 0; kind < 3; kind++) {
        put_folder(false);
        snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", folder);
        REQUIRE(unlink(path) == 0);
        if (kind == 0) REQUIRE(mkfifo(path, 0600) == 0);
        if (kind == 1) REQUIRE(symlink("/dev/zero", path) == 0);
        if (kind == 2) REQUIRE(mkdir(path, 0700) == 0);
        static const char *const said[] = {"idx3-ubyte is a named pipe, not a regular file",
                                           "idx3-ubyte is a device, not a regular file",
                                           "idx3-ubyte is a folder, not a regular file"};
        CHECK_FAILS(open_folder("idx", &dataset), CORRUPT, said[kind]);
    }
    alarm(0);
}

static void a_missing_file_says_what_to_install(void) {
    rpi_dataset dataset = {0};
    snprintf(folder, sizeof folder, "%s/none", check_folder());
    CHECK_FAILS(open_folder("fashion-mnist", &dataset), NOT_FOUND,
                "train-images-idx3-ubyte.gz is missing; install it with `apt-get install "
                "dataset-fashion-mnist`");
    CHECK_FAILS(open_folder("idx", &dataset), IO, "cannot open the folder");
    CHECK_FAILS(rpi_dataset_open("idx", &(rpi_dataset_options){0}, &dataset), INVALID,
                "--data-dir");
    put_folder(false);
    idx_bytes second = train_images;
    second.name = "emnist-train-images";
    put(&second, second.count, false);
    CHECK_FAILS(open_folder("idx", &dataset), INVALID, "both look like train images");
    CHECK_FAILS(rpi_dataset_open("fashion", &(rpi_dataset_options){0}, &dataset), INVALID,
                "unknown data 'fashion'");
    CHECK_FAILS(rpi_dataset_open("sinthetic", &(rpi_dataset_options){0}, &dataset), INVALID,
                "did you mean 'synthetic'");
    CHECK_FAILS(rpi_dataset_open("uint16:x.bin", &(rpi_dataset_options){0}, &dataset), INVALID,
                "ids without a header are read as tokens:uint16:x.bin");
}

static void debians_package_is_read(void) {
    if (access("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", R_OK) != 0) {
        check_skip("dataset-fashion-mnist is not installed");
        return;
    }
    rpi_dataset dataset = {0};
    REQUIRE_OK(rpi_dataset_open("fashion-mnist", &(rpi_dataset_options){0}, &dataset));
    CHECK_EQ(dataset.train.count, 60000);
    CHECK_EQ(dataset.test.count, 10000);
    CHECK_EQ(dataset.train.height, 28);
    float mean, deviation;
    rpi_dataset_measure(&dataset.train, &mean, &deviation);
    CHECK_NEAR(mean, dataset.mean, 1e-4);
    CHECK_NEAR(deviation, dataset.deviation, 1e-4);
    rpi_dataset_close(&dataset);
}

/* The class whose mean training image is nearest is the right one far more often than not. */
static void synthetic_data_repeats_and_can_be_learnt(void) {
    rpi_dataset_options options = {
        .seed = 3, .train_count = 400, .test_count = 100, .height = 8, .width = 8};
    rpi_dataset a = {0}, b = {0};
    REQUIRE_OK(rpi_dataset_open("synthetic", &options, &a));
    REQUIRE_OK(rpi_dataset_open("synthetic", &options, &b));
    CHECK(memcmp(a.train.pixels, b.train.pixels, 400 * 64) == 0);
    CHECK(memcmp(a.train.labels, b.train.labels, 400) == 0);
    double means[10][64] = {{0}};
    int counts[10] = {0}, right = 0;
    for (int i = 0; i < 400; i++, counts[a.train.labels[i - 1]]++)
        for (int p = 0; p < 64; p++) means[a.train.labels[i]][p] += a.train.pixels[i * 64 + p];
    for (int i = 0; i < 100; i++) {
        int best = 0;
        double nearest = HUGE_VAL;
        for (int c = 0; c < 10; c++) {
            double distance = 0;
            for (int p = 0; p < 64 && counts[c]; p++) {
                double d = a.test.pixels[i * 64 + p] - means[c][p] / counts[c];
                distance += d * d;
            }
            if (counts[c] && distance < nearest) nearest = distance, best = c;
        }
        right += best == a.test.labels[i];
    }
    CHECK_MSG(right >= 90, "%d of 100 are right", right);
    rpi_dataset_close(&a);
    rpi_dataset_close(&b);
}

static void memory_that_runs_out_is_reported(void) {
    put_folder(false);
    for (long n = 1; n < 20; n++) {
        rpi_dataset dataset;
        rpi_memory_fail_after(n);
        rp_status status = open_folder("idx", &dataset);
        rpi_memory_fail_after(0);
        if (status == RP_OK) {
            CHECK(n > 4);
            rpi_dataset_close(&dataset);
            break;
        }
        CHECK_EQ(status, RP_NOMEM);
    }
}

/* ---- CIFAR ---- */

enum { CIFAR_PIXELS = 3 * 32 * 32 };

/* Image i of a file: labels as given, pixel p of colour c is i + c + p % 7. */
static void put_cifar(const char *name, int images, int labels, const uint8_t *label,
                      size_t cut) {
    char path[640];
    uint8_t record[2 + CIFAR_PIXELS];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *stream = fopen(path, "wb");
    REQUIRE(stream);
    for (int i = 0; i < images; i++) {
        memcpy(record, label + i * labels, (size_t)labels);
        for (int p = 0; p < CIFAR_PIXELS; p++)
            record[labels + p] = (uint8_t)(i + p / 1024 + p % 1024 % 7);
        fwrite(record, 1, (size_t)labels + CIFAR_PIXELS - (i == images - 1 ? cut : 0), stream);
    }
    fclose(stream);
}

static void put_cifar10(void) {
    put_folder(false);
    for (int batch = 1; batch <= 5; batch++) {
        char name[32];
        uint8_t labels[2] = {(uint8_t)batch, (uint8_t)(batch + 4)};
        snprintf(name, sizeof name, "data_batch_%d.bin", batch);
        put_cifar(name, 2, 1, labels, 0);
    }
    put_cifar("test_batch.bin", 3, 1, (const uint8_t[]){9, 0, 4}, 0);
}

static rp_status open_text(const char *kind, const char *path, rpi_dataset *dataset) {
    char text[700];
    snprintf(text, sizeof text, "%s:%s", kind, path);
    *dataset = (rpi_dataset){0};
    return rpi_dataset_open(text, &(rpi_dataset_options){0}, dataset);
}

static void cifar10_is_read(void) {
    rpi_dataset dataset;
    float x[CIFAR_PIXELS];
    int32_t label;
    uint32_t index = 5; /* the second of data_batch_3 */
    put_cifar10();
    REQUIRE_OK(open_text("cifar10", folder, &dataset));
    CHECK_EQ(dataset.train.count, 10);
    CHECK_EQ(dataset.test.count, 3);
    CHECK_EQ(dataset.classes, 10);
    CHECK_EQ(dataset.train.channels, 3);
    CHECK_EQ(dataset.test.labels[0], 9);
    rpi_dataset_batch(&dataset, &dataset.train, &index, 1, x, &label);
    CHECK_EQ(label, 7);
    CHECK_NEAR(x[1], (2 / 255.0 - 0.4914) / 0.2470, 1e-5);
    CHECK_NEAR(x[1024 + 1], (3 / 255.0 - 0.4822) / 0.2435, 1e-5);
    CHECK_NEAR(x[2048 + 1], (4 / 255.0 - 0.4465) / 0.2616, 1e-5);
    rpi_dataset_close(&dataset);
}

/* Of two labels the second, fine one is learnt; the folder that unpacking makes is found. */
static void cifar100_is_read(void) {
    rpi_dataset dataset;
    char parent[512];
    put_folder(false);
    snprintf(parent, sizeof parent, "%s", folder);
    snprintf(folder, sizeof folder, "%.400s/cifar-100-binary", parent);
    mkdir(folder, 0700);
    put_cifar("train.bin", 2, 2, (const uint8_t[]){19, 99, 3, 0}, 0);
    put_cifar("test.bin", 1, 2, (const uint8_t[]){1, 42}, 0);
    REQUIRE_OK(open_text("cifar100", parent, &dataset));
    CHECK_EQ(dataset.classes, 100);
    CHECK_EQ(dataset.train.labels[0], 99);
    CHECK_EQ(dataset.train.labels[1], 0);
    CHECK_EQ(dataset.test.labels[0], 42);
    CHECK_EQ(dataset.train.pixels[0], 0);
    rpi_dataset_close(&dataset);
}

static void broken_cifar_is_named(void) {
    rpi_dataset dataset;
    char path[640];
    put_cifar10();
    put_cifar("data_batch_4.bin", 2, 1, (const uint8_t[]){1, 2}, 100);
    CHECK_FAILS(open_text("cifar10", folder, &dataset), CORRUPT,
                "data_batch_4.bin has 6046 bytes, which is no multiple of 3073");
    put_cifar("data_batch_4.bin", 2, 1, (const uint8_t[]){1, 10}, 0);
    CHECK_FAILS(open_text("cifar10", folder, &dataset), CORRUPT,
                "data_batch_4.bin: label 10 at byte 3073; there are 10 classes");
    snprintf(path, sizeof path, "%s/data_batch_4.bin", folder);
    unlink(path);
    CHECK_FAILS(open_text("cifar10", folder, &dataset), NOT_FOUND,
                "data_batch_4.bin is missing: unpack CIFAR-10's binary version");
    put_cifar("data_batch_1", 1, 1, (const uint8_t[]){1}, 0);
    CHECK_FAILS(open_text("cifar10", folder, &dataset), NOT_FOUND,
                "data_batch_1 is of the version for Python: take the binary one");
    CHECK_FAILS(open_text("cifar10", "", &dataset), INVALID, "name the folder");
}

CASES({"IDX files are read, plain and gzipped", idx_files_are_read_plain_and_gzipped},
      {"four dimensions are channels", four_dimensions_are_channels},
      {"damaged files are named", damaged_files_are_named},
      {"damaged gzip is named", damaged_gzip_is_named},
      {"a gzip without its end is refused", a_gzip_without_its_end_is_refused},
      {"a claim of gigabytes costs no memory", a_claim_of_gigabytes_costs_no_memory},
      {"a bomb is not unpacked", a_bomb_is_not_unpacked},
      {"what is no file is refused", what_is_no_file_is_refused},
      {"a missing file says what to install", a_missing_file_says_what_to_install},
      {"CIFAR-10 is read", cifar10_is_read}, {"CIFAR-100 is read", cifar100_is_read},
      {"broken CIFAR is named", broken_cifar_is_named},
      {"Debian's package is read", debians_package_is_read},
      {"synthetic data repeats and can be learnt", synthetic_data_repeats_and_can_be_learnt},
      {"memory that runs out is reported", memory_that_runs_out_is_reported})
