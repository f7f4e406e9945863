/* Where random bytes come from: the system call, or the device where that is forbidden. */
#include "net/bytes/random_bytes.h"

#include "harness/check.h"
#include "harness/process.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 64 };

/* 0 where they are drawn, differ, and leave no descriptor. */
static int draw_twice(void) {
    unsigned char first[BYTES] = {0}, second[BYTES] = {0};
    int before = check_descriptors();
    if (rpi_random_bytes("a test", first, BYTES) != RP_OK) return 1;
    if (rpi_random_bytes("a test", second, BYTES) != RP_OK) return 2;
    if (!memcmp(first, second, BYTES)) return 3;
    if (!memcmp(first + BYTES / 2, (unsigned char[BYTES]){0}, BYTES / 2)) return 4;
    return check_descriptors() == before ? 0 : 5;
}

static int draw_without_the_call(unsigned error) {
    char byte;
    if (!process_forbid(SYS_getrandom, error) || getrandom(&byte, 1, 0) >= 0)
        return PROCESS_CANNOT_FORBID;
    int way = draw_twice();
    if (way) return way;
    close(STDIN_FILENO); /* the device's descriptor is then 0 */
    way = draw_twice();
    return way ? 10 + way : 0;
}

static void the_call_gives_them(void) {
    CHECK_EQ(draw_twice(), 0);
}

static void the_device_gives_them_where_the_call_is_forbidden(void) {
    CHECK_EQ(process_code_of(draw_without_the_call, ENOSYS), 0);
}

CASES({"the call gives them", the_call_gives_them},
      {"the device gives them where the call is forbidden",
       the_device_gives_them_where_the_call_is_forbidden})
