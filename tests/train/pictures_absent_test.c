/* A build without libjpeg and libpng: it compiles, and says what to install. The sources are
 * compiled for this test as such a build does. */
#include "harness/check.h"
#include "train/data/picture_folder.h"
#include "train/pictures/picture.h"

#include <stdio.h>
#include <sys/stat.h>

static void put(const char *name) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", check_folder(), name);
    FILE *stream = fopen(path, "wb");
    REQUIRE(stream);
    fclose(stream);
}

static void make_class(const char *name) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", check_folder(), name);
    CHECK(mkdir(path, 0700) == 0);
}

static void the_package_is_named(void) {
    const rpi_picture_format *format;
    for (int i = 0; (format = rpi_picture_format_at(i)) != NULL; i++)
        CHECK_FAILS(rpi_picture_format_check(format), UNSUPPORTED, format->package);
    const uint8_t jpeg[] = {0xff, 0xd8, 0xff, 0xe0};
    CHECK_FAILS(rpi_picture_decode(jpeg, sizeof jpeg, &(rpi_picture_sink){0}), UNSUPPORTED,
                "this build of redpoll reads no JPEG: install libjpeg-dev");
}

/* Before anything is decoded, and with the file for which it is wanted. */
static void a_folder_is_refused_at_once(void) {
    rpi_picture_folder folder;
    make_class("a");
    make_class("b");
    put("a/one.png");
    put("b/two.png");
    CHECK_FAILS(rpi_picture_folder_open(check_folder(), 2, &folder), UNSUPPORTED,
                "/a/one.png: this build of redpoll reads no PNG: install libpng-dev");
}

CASES({"the package is named", the_package_is_named},
      {"a folder is refused at once", a_folder_is_refused_at_once})
