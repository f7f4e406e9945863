#include "train/checkpoint/safetensors.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *in_folder(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", check_folder(), name);
    return path;
}

static void write_bytes(const char *path, const void *data, size_t bytes) {
    FILE *stream = fopen(path, "wb");
    if (!stream) return;
    fwrite(data, 1, bytes, stream);
    fclose(stream);
}

/* A file of this header and `data` bytes of zeros. */
static const char *file_of(const char *header, size_t data) {
    static char bytes[4096];
    memset(bytes, 0, sizeof bytes);
    size_t length = strlen(header);
    for (int i = 0; i < 8; i++) bytes[i] = (char)((uint64_t)length >> (8 * i));
    snprintf(bytes + 8, sizeof bytes - 8, "%s", header);
    const char *path = in_folder("made.safetensors");
    write_bytes(path, bytes, 8 + length + data);
    return path;
}

static const float weight[6] = {1, 2, 3, 4, 5, 6};
static const int64_t steps[1] = {77};
static const rpi_named_tensor tensors[] = {
    {"z.weight", RP_F32, {2, {2, 3}}, weight},
    {"a.step", RP_I64, {0, {0}}, steps},
    {"empty", RP_F32, {1, {0}}, NULL},
};
static const rpi_metadata notes[] = {{"model", "mlp"}, {"quote", "\"\\\n\xc3\xa4"}};

static void what_is_written_is_read_back(void) {
    const char *path = in_folder("a.safetensors");
    REQUIRE_OK(rpi_safetensors_write(path, tensors, 3, notes, 2));
    rpi_safetensors *file = NULL;
    REQUIRE_OK(rpi_safetensors_open(path, &file));
    CHECK_EQ(rpi_safetensors_count(file), 3);
    CHECK(strcmp(rpi_safetensors_metadata(file, "model"), "mlp") == 0);
    CHECK(strcmp(rpi_safetensors_metadata(file, "quote"), notes[1].value) == 0);
    CHECK(rpi_safetensors_metadata(file, "none") == NULL);
    float back[6];
    int64_t step;
    CHECK_OK(rpi_safetensors_read(file, "z.weight", RP_F32, &tensors[0].shape, back));
    for (int i = 0; i < 6; i++) CHECK_NEAR(back[i], weight[i], 0);
    CHECK_OK(rpi_safetensors_read(file, "a.step", RP_I64, &tensors[1].shape, &step));
    CHECK_EQ(step, 77);
    CHECK_FAILS(rpi_safetensors_read(file, "b", RP_F32, &tensors[0].shape, back), NOT_FOUND,
                "no tensor b");
    CHECK_FAILS(rpi_safetensors_read(file, "z.weight", RP_F32, &tensors[2].shape, back),
                MISMATCH, "f32 2x3, not f32 0");
    CHECK(rpi_safetensors_find(file, "empty") != NULL);
    rpi_safetensors_close(file);
    CHECK(access(in_folder("a.safetensors.tmp"), F_OK) != 0);
}

/* Every dtype there is: as the format calls it, or refused by name before anything is made. */
static void every_dtype_is_kept_or_refused(void) {
    static const unsigned char bytes[2 * 16] = {1, 2, 3};
    for (int d = RP_F32; rp_dtype_bytes((rp_dtype)d); d++) {
        rp_dtype dtype = (rp_dtype)d;
        const rpi_named_tensor tensor = {"t", dtype, {1, {2}}, bytes};
        unlink(in_folder("dtype"));
        if (dtype == RP_C64 || dtype == RP_C128) {
            CHECK_FAILS(rpi_safetensors_write(in_folder("dtype"), &tensor, 1, NULL, 0), INVALID,
                        rp_dtype_name(dtype));
            CHECK(access(in_folder("dtype"), F_OK) != 0);
            continue;
        }
        REQUIRE_OK(rpi_safetensors_write(in_folder("dtype"), &tensor, 1, NULL, 0));
        rpi_safetensors *file = NULL;
        unsigned char back[sizeof bytes] = {0};
        REQUIRE_OK(rpi_safetensors_open(in_folder("dtype"), &file));
        CHECK_OK(rpi_safetensors_read(file, "t", dtype, &tensor.shape, back));
        CHECK(memcmp(back, bytes, 2 * rp_dtype_bytes(dtype)) == 0);
        rpi_safetensors_close(file);
    }
    const rpi_named_tensor none = {"t", (rp_dtype)99, {1, {0}}, NULL};
    CHECK_FAILS(rpi_safetensors_write(in_folder("dtype"), &none, 1, NULL, 0), INVALID,
                "unknown");
}

static void a_failed_write_leaves_the_old_file(void) {
    const char *path = in_folder("keep.safetensors");
    REQUIRE_OK(rpi_safetensors_write(path, tensors, 1, NULL, 0));
    mkdir(in_folder("keep.safetensors.tmp"), 0700); /* what is written aside cannot be opened */
    path = in_folder("keep.safetensors");
    CHECK_FAILS(rpi_safetensors_write(path, tensors, 2, NULL, 0), IO, "keep.safetensors");
    rmdir(in_folder("keep.safetensors.tmp"));
    rpi_safetensors *file = NULL;
    REQUIRE_OK(rpi_safetensors_open(in_folder("keep.safetensors"), &file));
    CHECK_EQ(rpi_safetensors_count(file), 1);
    rpi_safetensors_close(file);
    CHECK_FAILS(rpi_safetensors_write("/nowhere/x", tensors, 1, NULL, 0), IO, "No such file");
}

static void a_full_disk_is_an_error(void) {
    if (access("/dev/full", W_OK) != 0) {
        check_skip("no /dev/full here");
        return;
    }
    REQUIRE(symlink("/dev/full", in_folder("full.safetensors.tmp")) == 0);
    CHECK_FAILS(rpi_safetensors_write(in_folder("full.safetensors"), tensors, 3, NULL, 0), IO,
                "No space left");
    CHECK(access(in_folder("full.safetensors"), F_OK) != 0);
    CHECK(access(in_folder("full.safetensors.tmp"), F_OK) != 0);
}

static void damage_is_named(void) {
    static const struct {
        const char *header;
        size_t data;
        const char *part;
    } bad[] = {
        {"[]", 0, "no JSON object"},
        {"\xef\xbb\xbf{}", 0, "no JSON object"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}} garbage", 0,
         "something stands behind the JSON"},
        {"{}{}", 0, "something stands behind the JSON"},
        {"{\"a\": 1}", 0, "no tensor under a"},
        {"{", 0, "no JSON"},
        {"{\"a\":{\"dtype\":8,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "no dtype for a"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,8]}}", 4,
         "is truncated, or damaged: a ends 4 bytes behind its end"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,0]}}", 4, "offsets for a"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[-4,0]}}", 4,
         "offsets for a"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0.5,4]}}", 4,
         "offsets for a"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "do not fit"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "a bad shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
         "a bad shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],"
         "\"data_offsets\":[0,4]}}",
         4, "too many elements"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, "overlap"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 3, "belong to no"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
         2, "comes twice: a"},
        {"{\"__metadata__\":3}", 0, "bad metadata"},
        {"{\"__metadata__\":{\"k\":3}}", 0, "must be text: k"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rpi_safetensors *file = NULL;
        CHECK_FAILS(rpi_safetensors_open(file_of(bad[i].header, bad[i].data), &file), CORRUPT,
                    bad[i].part);
    }
    rpi_safetensors *file = NULL;
    CHECK_FAILS(
        rpi_safetensors_open(
            file_of("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4),
            &file),
        UNSUPPORTED, "a is of dtype F8_E4M3, which is not read");
    CHECK_FAILS(rpi_safetensors_open("/nowhere/x", &file), NOT_FOUND, "missing");
    CHECK_FAILS(rpi_safetensors_open(check_folder(), &file), CORRUPT, "not a regular file");
    write_bytes(in_folder("short"), "abc", 3);
    CHECK_FAILS(rpi_safetensors_open(in_folder("short"), &file), CORRUPT, "too short");
    write_bytes(in_folder("long"), "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    CHECK_FAILS(rpi_safetensors_open(in_folder("long"), &file), CORRUPT,
                "longer than the file");
}

static void what_would_block_is_refused(void) {
    rpi_safetensors *file = NULL;
    alarm(30);
    REQUIRE(mkfifo(in_folder("pipe"), 0600) == 0);
    CHECK_FAILS(rpi_safetensors_open(in_folder("pipe"), &file), CORRUPT,
                "pipe is a named pipe, not a regular file");
    CHECK_FAILS(rpi_safetensors_open("/dev/zero", &file), CORRUPT, "is a device");
    REQUIRE(mkfifo(in_folder("out.tmp"), 0600) == 0);
    CHECK(rpi_safetensors_write(in_folder("out"), tensors, 3, NULL, 0) != RP_OK);
    alarm(0);
}

/* A header may be 100 MB long; a list of zeros of that length would be gigabytes as JSON. */
static void a_header_of_nothing_but_values_costs_no_memory(void) {
    enum { LENGTH = 32 << 20 };
    char *bytes = malloc(8 + LENGTH);
    REQUIRE(bytes);
    for (int i = 0; i < 8; i++) bytes[i] = (char)((uint64_t)LENGTH >> (8 * i));
    memcpy(bytes + 8, "{\"a\":[", 6);
    for (int i = 14; i < 8 + LENGTH; i += 2) memcpy(bytes + i, "0,", 2);
    memcpy(bytes + 8 + LENGTH - 4, "0]} ", 4);
    char path[600];
    snprintf(path, sizeof path, "%s", in_folder("values"));
    write_bytes(path, bytes, 8 + LENGTH);
    free(bytes);
    rpi_safetensors *file = NULL;
    CHECK_FAILS(rpi_safetensors_open(path, &file), CORRUPT, "too many values");
    unlink(path);
}

/* Read every tensor that a file claims to hold. */
static void use(const rpi_safetensors *file) {
    static char buffer[4096];
    for (int i = 0; i < rpi_safetensors_count(file); i++) {
        const rpi_named_tensor *tensor = rpi_safetensors_at(file, i);
        size_t bytes = (size_t)rpi_shape_count(&tensor->shape) * rp_dtype_bytes(tensor->dtype);
        CHECK(bytes <= sizeof buffer);
        if (bytes <= sizeof buffer)
            CHECK_OK(rpi_safetensors_read(file, tensor->name, tensor->dtype, &tensor->shape,
                                          buffer));
    }
}

/* Whole files with some bytes changed, cut or added: opened or refused, never a crash. */
static void any_bytes_are_survived(void) {
    static unsigned char good[4096], bad[4096];
    REQUIRE_OK(rpi_safetensors_write(in_folder("good"), tensors, 3, notes, 2));
    FILE *stream = fopen(in_folder("good"), "rb");
    REQUIRE(stream);
    size_t bytes = fread(good, 1, sizeof good, stream);
    fclose(stream);
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    char path[512];
    snprintf(path, sizeof path, "%s", in_folder("bad"));
    for (int trial = 0; trial < 3000; trial++) {
        memcpy(bad, good, bytes);
        size_t length =
            rpi_rng_below(&rng, 4) ? bytes : rpi_rng_below(&rng, (uint32_t)bytes + 1);
        for (int change = (int)rpi_rng_below(&rng, 4); change >= 0; change--)
            bad[rpi_rng_below(&rng, (uint32_t)bytes)] = (unsigned char)rpi_rng_u32(&rng);
        write_bytes(path, bad, length);
        rpi_safetensors *file = NULL;
        if (rpi_safetensors_open(path, &file) != RP_OK) continue;
        use(file);
        rpi_safetensors_close(file);
    }
}

static void memory_that_runs_out_is_reported(void) {
    REQUIRE_OK(rpi_safetensors_write(in_folder("good"), tensors, 3, notes, 2));
    rpi_safetensors *file = NULL;
    int failed = 0;
    for (long n = 1; n < 100; n++) {
        rpi_memory_fail_after(n);
        rp_status status = rpi_safetensors_open(in_folder("good"), &file);
        rpi_memory_fail_after(0);
        if (status == RP_OK) break;
        CHECK_EQ(status, RP_NOMEM);
        failed++;
    }
    CHECK(failed >= 3);
    rpi_safetensors_close(file);
}

CASES({"what is written is read back", what_is_written_is_read_back},
      {"every dtype is kept or refused", every_dtype_is_kept_or_refused},
      {"a failed write leaves the old file", a_failed_write_leaves_the_old_file},
      {"a full disk is an error", a_full_disk_is_an_error},
      {"damage is named", damage_is_named},
      {"what would block is refused", what_would_block_is_refused},
      {"a header of nothing but values costs no memory",
       a_header_of_nothing_but_values_costs_no_memory},
      {"any bytes are survived", any_bytes_are_survived},
      {"memory that runs out is reported", memory_that_runs_out_is_reported})
