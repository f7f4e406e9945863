/* Memory for other processes: sealed, or a file without a name where nothing can be sealed. */
#include "net/memory/sealed_memory.h"

#include "harness/check.h"
#include "harness/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 3 * 65536 + 1000 };

static bool is_closed_by_exec(int fd) {
    return fcntl(fd, F_GETFD) & FD_CLOEXEC;
}

static void its_size_can_never_change(void) {
    int fd = -1, before = check_descriptors();
    void *memory = NULL;
    REQUIRE_OK(rpi_sealed_make(BYTES, &fd));
    CHECK(is_closed_by_exec(fd));
    CHECK_OK(rpi_sealed_check(fd, BYTES));
    CHECK_FAILS(rpi_sealed_check(fd, BYTES - 1), CORRUPT, "no sealed memory of");
    CHECK(ftruncate(fd, BYTES - 1) != 0 && ftruncate(fd, BYTES + 1) != 0);
    REQUIRE_OK(rpi_sealed_map(fd, BYTES, PROT_READ | PROT_WRITE, &memory));
    CHECK_EQ(((unsigned char *)memory)[BYTES - 1], 0);
    munmap(memory, BYTES);
    close(fd);
    CHECK_FAILS(rpi_sealed_map(-1, BYTES, PROT_READ, &memory), NOMEM, "cannot map");
    CHECK_FAILS(rpi_sealed_check(-1, BYTES), CORRUPT, "no sealed memory");
    CHECK_EQ(check_descriptors(), before);
}

/* What is made of a file of this user, as it has a name and as it has none. */
static void check_file_of_ours(rp_status named, rp_status unnamed) {
    char path[] = "/tmp/redpoll-sealed-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, BYTES) == 0);
    CHECK_EQ(rpi_sealed_check(fd, BYTES), named);
    unlink(path);
    CHECK_EQ(rpi_sealed_check(fd, BYTES), unnamed);
    close(fd);
}

static void what_is_not_sealed_is_refused(void) {
    for (int seals = 0; seals < 8; seals++) {
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(ftruncate(fd, BYTES) == 0);
        CHECK(fcntl(fd, F_ADD_SEALS,
                    (seals & 1 ? F_SEAL_SHRINK : 0) | (seals & 2 ? F_SEAL_GROW : 0) |
                        (seals & 4 ? F_SEAL_SEAL : 0)) == 0);
        CHECK_EQ(rpi_sealed_check(fd, BYTES), seals == 7 ? RP_OK : RP_CORRUPT);
        close(fd);
    }
    check_file_of_ours(RP_CORRUPT, RP_CORRUPT);
}

/* ---- where memfd_create() is forbidden ---- */

static bool forbid_memfd(unsigned error) {
    return process_forbid(SYS_memfd_create, error) && memfd_create("test", 0) < 0;
}

static bool has_all_its_pages(int fd) {
    struct stat about;
    return fstat(fd, &about) == 0 && about.st_nlink == 0 && about.st_size == BYTES &&
           about.st_blocks * 512 >= BYTES;
}

/* 0 where a file without a name is made instead, and no other is taken. */
static int make_a_file(void) {
    int fd = -1, before = check_descriptors(), ends[2];
    if (rpi_sealed_make(BYTES, &fd) != RP_OK) return 1;
    if (!is_closed_by_exec(fd) || check_descriptors() != before + 1) return 2;
    if (!has_all_its_pages(fd)) return 3;
    if (rpi_sealed_check(fd, BYTES) != RP_OK) return 4;
    if (rpi_sealed_check(fd, BYTES + 1) != RP_CORRUPT) return 5;
    if (pipe(ends) != 0 || rpi_sealed_check(ends[0], 0) != RP_CORRUPT) return 6;
    check_file_of_ours(RP_CORRUPT, RP_OK);
    return check_failures() ? 7 : 0;
}

/* The folder of the session is for where /dev/shm does not serve. */
static int without_memfd(unsigned error) {
    if (!forbid_memfd(error)) return PROCESS_CANNOT_FORBID;
    setenv("XDG_RUNTIME_DIR", "/tmp", 1);
    return make_a_file();
}

static void a_file_without_a_name_serves_instead(void) {
    CHECK_EQ(process_code_of(without_memfd, ENOSYS), 0);
    CHECK_EQ(process_code_of(without_memfd, EPERM), 0);
    CHECK_EQ(process_code_of(without_memfd, EACCES), 0);
}

/* Its pages are then written. */
static int without_fallocate(unsigned error) {
    if (!forbid_memfd(ENOSYS) || !process_forbid(SYS_fallocate, error))
        return PROCESS_CANNOT_FORBID;
    return make_a_file();
}

static void its_pages_are_there_at_once(void) {
    CHECK_EQ(process_code_of(without_fallocate, ENOSYS), 0);
    CHECK_EQ(process_code_of(without_fallocate, EPERM), 0);
}

/* 0 where that is an error with these words, and nothing is left open. */
static int fail_with(rp_status status, const char *words) {
    int fd = -1, before = check_descriptors();
    if (rpi_sealed_make(BYTES, &fd) != status || fd != -1) return 1;
    if (!strstr(rp_last_error()->message, words)) return 2;
    return check_descriptors() == before ? 0 : 3;
}

static int without_room(unsigned error) {
    if (!forbid_memfd(ENOSYS) || !process_forbid(SYS_fallocate, error))
        return PROCESS_CANNOT_FORBID;
    return fail_with(RP_NOMEM,
                     "of shared memory in /dev/shm, where memfd_create() is forbidden");
}

static int without_descriptors(unsigned error) {
    return forbid_memfd(error) ? fail_with(RP_IO, "cannot make shared memory")
                               : PROCESS_CANNOT_FORBID;
}

static void what_else_fails_is_an_error(void) {
    CHECK_EQ(process_code_of(without_room, ENOSPC), 0);
    CHECK_EQ(process_code_of(without_descriptors, EMFILE), 0);
}

/* A process looks once whether it is forbidden: children look for themselves where this one has
 * not. */
CASES({"a file without a name serves instead", a_file_without_a_name_serves_instead},
      {"its pages are there at once", its_pages_are_there_at_once},
      {"what else fails is an error", what_else_fails_is_an_error},
      {"its size can never change", its_size_can_never_change},
      {"what is not sealed is refused", what_is_not_sealed_is_refused})
