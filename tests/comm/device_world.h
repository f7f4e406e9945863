/* Worlds whose ranks have a stand-in for a GPU each, and memory there or on the host. */
#ifndef COMM_DEVICE_WORLD_H
#define COMM_DEVICE_WORLD_H

#include "comm/serial.h"
#include "comm/thread_world.h"
#include "cuda/stand_in_world.h"

enum { DEVICE_WORLD = 5 };

/* The stand-in is whole again; first in each case. */
stand_in *device_begin(void);
void device_rank(int rank);    /* this thread's GPU */
void device_check_empty(void); /* nothing is left on any */

/* Bytes that lie with the host or with the thread's GPU, and what the host has of them. */
typedef struct memory_piece {
    bool there;
    size_t bytes;
    void *at;   /* where they lie */
    void *host; /* pinned */
} memory_piece;

memory_piece memory_take(bool there, size_t bytes);
void memory_give(memory_piece *slice);
void memory_set(memory_piece *slice, int byte); /* waits */
/* Behind what is in the stream; at once where they lie with the host. */
void memory_upload(memory_piece *slice, void *stream);
void memory_download(memory_piece *slice, void *stream);
void *memory_stream(bool there);              /* NULL with the host */
void memory_finish(bool there, void *stream); /* waits for it, and frees it */

#endif
