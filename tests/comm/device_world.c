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
    memory_piece piece = {.there = there, .bytes = bytes};
    DONE(cuda->pin(bytes + 1, &piece.host));
    if (!piece.host) abort();
    piece.at = there ? stand_in_take(NULL, bytes) : malloc(bytes + 1);
    if (!piece.at) abort();
    memset(piece.host, 0, bytes);
    return piece;
}

void memory_give(memory_piece *piece) {
    if (piece->there)
        stand_in_give(piece->at);
    else
        free(piece->at);
    DONE(cuda->unpin(piece->host));
}

void memory_set(memory_piece *piece, int byte) {
    memset(piece->host, byte, piece->bytes);
    memory_upload(piece, NULL);
    if (piece->there) DONE(cuda->wait(NULL));
}

void memory_upload(memory_piece *piece, void *stream) {
    if (piece->there)
        DONE(cuda->copy(piece->at, piece->host, piece->bytes, stream));
    else
        memcpy(piece->at, piece->host, piece->bytes);
}

void memory_download(memory_piece *piece, void *stream) {
    if (piece->there)
        DONE(cuda->copy(piece->host, piece->at, piece->bytes, stream));
    else
        memcpy(piece->host, piece->at, piece->bytes);
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
