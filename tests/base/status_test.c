#include "base/status.h"

#include "harness/check.h"

#include <errno.h>
#include <pthread.h>

static void a_failure_records_file_line_and_message(void) {
    CHECK_EQ(RP_FAIL(INVALID, "bits is %d", 9), RP_INVALID);
    CHECK(strcmp(rp_last_error()->message, "bits is 9") == 0);
    CHECK(strstr(rp_last_error()->file, "status_test.c") != NULL);
    CHECK_EQ(rp_last_error()->status, RP_INVALID);
    CHECK(rp_last_error()->line > 0);
}

static void a_failure_may_quote_the_one_before(void) {
    (void)RP_FAIL(IO, "disk is full");
    (void)RP_FAIL(IO, "cannot save: %s", rp_last_error()->message);
    CHECK(strcmp(rp_last_error()->message, "cannot save: disk is full") == 0);
    CHECK_EQ(rpi_fail_context(RP_IO, "epoch %d: ", 3), RP_IO);
    CHECK(strcmp(rp_last_error()->message, "epoch 3: cannot save: disk is full") == 0);
}

static void errno_is_put_into_words(void) {
    errno = ENOENT;
    CHECK_EQ(RP_FAIL_ERRNO(IO, "cannot open %s", "x"), RP_IO);
    CHECK(strcmp(rp_last_error()->message, "cannot open x: No such file or directory") == 0);
}

static void a_kept_failure_comes_back(void) {
    rpi_kept_error kept;
    (void)RP_FAIL(PEER, "rank 2 is gone");
    rpi_error_keep(&kept);
    (void)RP_FAIL(TIMEOUT, "and nobody said goodbye");
    rpi_error_put_back(&kept);
    CHECK_EQ(rp_last_error()->status, RP_PEER);
    CHECK(strcmp(rp_last_error()->message, "rank 2 is gone") == 0);
}

static void *other_thread(void *unused) {
    (void)unused;
    CHECK_EQ(rp_last_error()->status, RP_OK);
    CHECK(strcmp(rp_last_error()->message, "") == 0);
    return NULL;
}

static void records_belong_to_threads(void) {
    (void)RP_FAIL(TIMEOUT, "mine");
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, other_thread, NULL) == 0);
    pthread_join(thread, NULL);
    CHECK_EQ(rp_last_error()->status, RP_TIMEOUT);
}

static void long_messages_are_cut_not_overrun(void) {
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)RP_FAIL(INVALID, "%s", text);
    CHECK_EQ(strlen(rp_last_error()->message), RPI_ERROR_BYTES - 1);
    (void)rpi_fail_context(RP_INVALID, "%s", text);
    CHECK_EQ(strlen(rp_last_error()->message), RPI_ERROR_BYTES - 1);
}

CASES({"a failure records file, line and message", a_failure_records_file_line_and_message},
      {"a failure may quote the one before", a_failure_may_quote_the_one_before},
      {"errno is put into words", errno_is_put_into_words},
      {"a kept failure comes back", a_kept_failure_comes_back},
      {"records belong to threads", records_belong_to_threads},
      {"long messages are cut, not overrun", long_messages_are_cut_not_overrun})
