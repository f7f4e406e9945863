#include "cuda/stand_in_world.h"

#include "harness/check.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const rpi_cuda_library *cuda;

#define DONE(expression) CHECK_OK(rpi_cuda_check(cuda, expression, #expression))

const rpi_cuda_library *stand_in_begin(stand_in **out_control) {
    const char *path = getenv("REDPOLL_CUDA_LIBRARY");
    CHECK_OK(rpi_cuda_open(&cuda));
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library ? dlsym(library, STAND_IN_CONTROL) : NULL;
    stand_in_entry entry;
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast between the two */
    if (!entry) {
        check_failed(__FILE__, __LINE__, "REDPOLL_CUDA_LIBRARY does not name the stand-in");
        abort();
    }
    stand_in *control = *out_control = entry();
    atomic_store(&control->pins_left, -1);
    atomic_store(&control->seed, (unsigned)check_seed());
    return cuda;
}

/* By pinned memory, as the stand-in takes no other. */
static void move(void *to, const void *from, size_t bytes, const void *host, void *back) {
    void *pinned = NULL;
    DONE(cuda->pin(bytes + 1, &pinned));
    if (host) memcpy(pinned, host, bytes);
    DONE(cuda->copy(to ? to : pinned, from ? from : pinned, bytes, NULL));
    DONE(cuda->wait(NULL));
    if (back) memcpy(back, pinned, bytes);
    DONE(cuda->unpin(pinned));
}

void *stand_in_take(const void *host, size_t bytes) {
    void *there = NULL;
    DONE(cuda->allocate(bytes + 1, &there));
    if (!there) abort();
    if (host) stand_in_put(there, host, bytes);
    return there;
}

void stand_in_get(const void *there, void *host, size_t bytes) {
    move(NULL, there, bytes, NULL, host);
}

void stand_in_put(void *there, const void *host, size_t bytes) {
    move(there, NULL, bytes, host, NULL);
}

void stand_in_give(void *there) {
    DONE(cuda->release(there));
}
