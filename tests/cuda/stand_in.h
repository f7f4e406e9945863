/* A GPU that is none: a shared object with the entry of libredpoll_cuda.so, which
 * REDPOLL_CUDA_LIBRARY names in tests. It finds what a real GPU would rarely show:
 *
 *  - Memory of a "GPU" is a file in memory that is mapped twice: where its addresses are handed
 *    out nobody may read or write, so that the host that touches it is struck down at once; the
 *    stand-in itself goes through the other mapping.
 *  - What is put into a stream is done later, by other threads, after delays of any length, in
 *    the stream's order and no other. Who changes memory too early changes what is copied.
 *  - Memory of the host has to be pinned, and still be so when its turn comes.
 *  - Kernels, and events, go where the thread's device is, or are refused.
 *  - Kernels are the code of the real ones (lane_loops.h).
 *  - Giving pinned memory back waits for a GPU that is frozen at its work: for a second, and is
 *    counted.
 *
 * And it fails when asked to. */
#ifndef TESTS_CUDA_STAND_IN_H
#define TESTS_CUDA_STAND_IN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { STAND_IN_DEVICES = 8 };

typedef struct stand_in {
    atomic_uint seed;      /* of delays; may be set at any time */
    atomic_int longest_us; /* delay before some of what is done; 0: none */
    /* By device: */
    atomic_bool frozen[STAND_IN_DEVICES];      /* nothing in its streams is begun */
    atomic_long fails_after[STAND_IN_DEVICES]; /* so many calls that put something into streams
                                                  work, later ones fail as after a crash of a
                                                  kernel; below 0: all work */
    atomic_long pins_left; /* so many times memory can be pinned; below 0: always */
    /* What there is, to see that it is given back: */
    atomic_long allocated, pinned, streams, events;
    atomic_long copies,
        kernels;        /* launches done so far; one of several short copies is a copy */
    atomic_long ragged; /* kernels so far that took encodings with the host byte by byte */
    atomic_long records, calls; /* events and functions of the host, done so far */
    atomic_long crossed;        /* bytes of copies between a device and the host, done so far */
    atomic_long pending;        /* put into streams and not done yet */
    atomic_long held_up;        /* calls that waited for what was frozen */
    /* Devices that a thread has opened since the last start: by choosing them, or the first one
     * by any call without having chosen. */
    atomic_bool opened[STAND_IN_DEVICES];
    atomic_int capability[STAND_IN_DEVICES]; /* there are kernels for 7.5, 8.0, 9.0 and later */
    atomic_long unloaded; /* kernels that were put into streams before load() on their device */
    /* Streams, but default ones, that were given what touches memory; and how often that was
     * put behind a wait that had not come, where it holds up what shares a queue of a real GPU.
     */
    atomic_long movers, early;
    atomic_long pins;    /* so many times memory was pinned */
    atomic_int spills;   /* not 0: encoders write a byte there, too, from the encoding on */
    atomic_bool foreign; /* memory of devices is of contexts of its own */
    atomic_bool captures[STAND_IN_DEVICES]; /* its default stream is captured for a graph */
} stand_in;

/* Set: memory of the host that is not pinned counts as the first device's, so that a program
 * without a GPU can hold "its" memory; nothing guards it then. */
#define STAND_IN_HOSTS "STAND_IN_HOSTS"

/* The capability of all devices from the start on, where it is set: "70". */
#define STAND_IN_CAPABILITY "STAND_IN_CAPABILITY"

/* As `spills`. */
#define STAND_IN_SPILLS "STAND_IN_SPILLS"

#define STAND_IN_CONTROL "stand_in_control"
#define STAND_IN_FINISH  "stand_in_finish" /* void (void): its default stream is done */
typedef stand_in *(*stand_in_entry)(void);

#endif
