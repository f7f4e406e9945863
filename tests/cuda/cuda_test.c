/* Where there is no GPU, why. Each case asks in a process of its own, since the answer is kept.
 */
#include "cuda/cuda.h"

#include "harness/check.h"
#include "harness/process.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_or_unset(const char *name, const char *value) {
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* In a child with these variables: the reason, or "" where CUDA can be used. */
static void reason_with(const char *cuda, const char *library, char *text, size_t bytes) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const rpi_cuda_library *table = NULL;
        set_or_unset("REDPOLL_CUDA", cuda);
        set_or_unset("REDPOLL_CUDA_LIBRARY", library);
        rp_status status = rpi_cuda_open(&table);
        const char *message = status == RP_OK ? "" : rp_last_error()->message;
        ssize_t written = write(ends[1], message, strlen(message));
        _exit(written < 0 || (status == RP_OK) != (table != NULL) ||
              (status != RP_OK && status != RP_UNSUPPORTED));
    }
    close(ends[1]);
    size_t got = 0;
    ssize_t n;
    while (got + 1 < bytes && (n = read(ends[0], text + got, bytes - 1 - got)) > 0)
        got += (size_t)n;
    text[got] = '\0';
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK_MSG(status == 0, "the child ended with %d", status);
}

static void turned_off(void) {
    char text[1024];
    reason_with("off", NULL, text, sizeof text);
    CHECK_MSG(strcmp(text, "CUDA: turned off by REDPOLL_CUDA=off") == 0, "%s", text);
}

static void no_such_library(void) {
    char text[1024];
    reason_with(NULL, "/nowhere/libredpoll_cuda.so", text, sizeof text);
    CHECK_MSG(strncmp(text, "CUDA: REDPOLL_CUDA_LIBRARY: /nowhere/", 37) == 0, "%s", text);
}

/* Some library that is not it. */
static void another_library(void) {
    char text[1024];
    reason_with(NULL, "libm.so.6", text, sizeof text);
    CHECK_MSG(strstr(text, "has no rpi_cuda_library_table") != NULL, "%s", text);
}

static void usable_or_why(void) {
    char text[1024], summary[512];
    /* As they are: where a library is named, that one. */
    reason_with(getenv("REDPOLL_CUDA"), getenv("REDPOLL_CUDA_LIBRARY"), text, sizeof text);
    const rpi_cuda_library *cuda = NULL;
    rp_status status = rpi_cuda_open(&cuda);
    rpi_cuda_summary(summary, sizeof summary);
    if (status == RP_OK) {
        CHECK(text[0] == '\0');
        CHECK(strstr(summary, "kernels by CUDA") != NULL);
        CHECK_OK(rpi_cuda_check(cuda, 0, "nothing"));
        CHECK_FAILS(rpi_cuda_check(cuda, 2, "a test"), NOMEM, "a test");
        CHECK_FAILS(rpi_cuda_check(cuda, 1, "a test"), IO, "cudaErrorInvalidValue");
        return;
    }
    CHECK(strncmp(text, "CUDA: ", 6) == 0 && strlen(text) > 20);
    CHECK(strncmp(summary, "no: ", 4) == 0 && strcmp(summary + 4, text + 6) == 0);
}

CASES({"turned_off", turned_off}, {"no_such_library", no_such_library},
      {"another_library", another_library}, {"usable_or_why", usable_or_why})
