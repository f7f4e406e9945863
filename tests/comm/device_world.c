#include "comm/device_world.h"

#include <stdlib.h>
#include <string.h>

static const rpi_cuda_library *cuda;
static stand_in *control;

#define DONE(expression) CHECK_OK(rpi_cuda_check(cuda, expression, #expression))

stand_in *device_begin(void) {
    cuda = stand_in_begin(&control);
    atomic_store(&control->longest_us, 200);
    return control;
}

void device_rank(int rank) {
    DONE(cuda->device_set(rank));
}

void device_check_empty(void) {
    CHECK_EQ(atomic_load(&control->allocated), 0);
    CHECK_EQ(atomic_load(&control->pinned), 0);
    CHECK_EQ(atomic_load(&control->streams), 0);
    CHECK_EQ(atomic_load(&control->events), 0);
}

memory_piece memory_take(bool there, size_t bytes) {
    memory_piece slice = {.there = there, .bytes = bytes};
    DONE(cuda->pin(bytes + 1, &slice.host));
    if (!slice.host) abort();
    slice.at = there ? stand_in_take(NULL, bytes) : malloc(bytes + 1);
    if (!slice.at) abort();
    memset(slice.host, 0, bytes);
    return slice;
}

void memory_give(memory_piece *slice) {
    if (slice->there)
        stand_in_give(slice->at);
    else
        free(slice->at);
    DONE(cuda->unpin(slice->host));
}

void memory_set(memory_piece *slice, int byte) {
    memset(slice->host, byte, slice->bytes);
    memory_upload(slice, NULL);
    if (slice->there) DONE(cuda->wait(NULL));
}

void memory_upload(memory_piece *slice, void *stream) {
    if (slice->there)
        DONE(cuda->copy(slice->at, slice->host, slice->bytes, stream));
    else
        memcpy(slice->at, slice->host, slice->bytes);
}

void memory_download(memory_piece *slice, void *stream) {
    if (slice->there)
        DONE(cuda->copy(slice->host, slice->at, slice->bytes, stream));
    else
        memcpy(slice->host, slice->at, slice->bytes);
}

void *memory_stream(bool there) {
    void *stream = NULL;
    if (there) DONE(cuda->stream_make(&stream));
    return stream;
}

void memory_finish(bool there, void *stream) {
    if (!there) return;
    DONE(cuda->wait(stream));
    cuda->stream_free(stream);
}
