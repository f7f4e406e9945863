/* A build without liblzma, libbz2 and libzstd: it compiles, and says what to install. The
 * sources are compiled for this test as such a build does. */
#include "harness/check.h"
#include "train/texts/unpacked_file.h"

#include <stdio.h>

static void the_package_is_named(void) {
    static const struct {
        const char *name, *bytes;
        size_t count;
        const char *package;
    } rows[] = {{"a.xz", "\xfd\x37\x7a\x58\x5a\0", 6, "reads no xz: install liblzma-dev"},
                {"a.bz2", "BZh91AY&SY", 10, "reads no bzip2: install libbz2-dev"},
                {"a.zst", "\x28\xb5\x2f\xfd", 4, "reads no zstd: install libzstd-dev"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char path[700];
        rpi_unpacked_file *file = NULL;
        snprintf(path, sizeof path, "%s/%s", check_folder(), rows[i].name);
        FILE *stream = fopen(path, "wb");
        REQUIRE(stream);
        fwrite(rows[i].bytes, 1, rows[i].count, stream);
        fclose(stream);
        CHECK_FAILS(rpi_unpacked_file_open(path, &file), UNSUPPORTED, rows[i].package);
        CHECK_FAILS(rpi_unpacked_file_open(path, &file), UNSUPPORTED, rows[i].name);
    }
}

CASES({"the package is named", the_package_is_named})
