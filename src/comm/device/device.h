/* Operations whose elements lie in memory of a GPU.
 *
 * The host sends, the GPU encodes, decodes and, where it can, adds (run/device_sums.h); between
 * the two go copies and kernels that are put into streams of the operation's own and done
 * later. Nothing here waits for the GPU: an instruction is begun, put off, and looked at again
 * in later iterations until its mark has come.
 *
 *   an instruction whose turn has come (rpi_device_run)
 *     |
 *     |-- kernels can do it: ENCODE of IN into pinned bytes, DECODE of pinned bytes into OUT,
 *     |   COPY of IN into OUT; all that touches an accumulator which lies on the GPU
 *     |     | put into a lane, a mark behind it
 *     |     v
 *     |   begun -- its mark has come --------------------------------------> finished
 *     |
 *     '-- the host does it, on pinned copies of what it reads
 *           |
 *           |-- a part of IN, or a residual, is not here
 *           |     | copied into pinned memory, a mark behind it
 *           |     v
 *           |   coming -- its mark has come --> here
 *           |
 *           '-- all is here: run as any other (instructions.c), on the copies --> finished
 *                 OUT and residuals that it has written: dirty
 *
 *   a chunk whose instructions are finished (rpi_device_is_finished)
 *     | what is dirty is copied back, a mark behind it
 *     v
 *   closing -- its mark has come --> given back
 *
 * Every instruction of the compiled schedule and every part of a slot has its state
 * (rpi_device_chunk). Steps keep the schedule's order, and a step that the GPU does is finished
 * when the GPU has done it: so the two lanes of a GPU, one each way, need not wait for each
 * other, nor do they wait for anything else. A request's chunks start when the caller's stream,
 * as it was when he called, has come to them, which the host sees: what were put into a lane
 * before that would hold up other requests, and whatever else shares one of the GPU's few
 * queues.
 *
 * No schedule reads OUT but where the host has just written it (plan.h), so OUT is never
 * fetched. Kernels give the bytes and values of the CPU: who does what changes no bit.
 *
 * When an operation fails, the GPU may still be at what it was given. The request completes
 * when that is done, or after RPI_DEVICE_END_S, which is said: until then neither the caller's
 * memory nor ours is given back. */
#ifndef RPI_COMM_DEVICE_H
#define RPI_COMM_DEVICE_H

#include "comm/core/chunk.h"
#include "comm/core/compiled_schedule.h"
#include "comm/values/partition.h"
#include "cuda/cuda.h"
#include "cuda/device_list.h"

#include <stdatomic.h>

enum { RPI_DEVICE_END_S = 5 };
enum { RPI_PINNED_SIZES = 32 };

struct rpi_context;
struct rpi_chunk;
struct rp_request;

/* Memory of the host that the GPU can access; or the GPU's own, for accumulators. */
typedef struct rpi_pinned {
    struct rpi_pinned *next;
    int size;     /* its class: device.c */
    int side;     /* RPI_SIDE_ */
    bool of_pool; /* it was not pinned alone */
    unsigned char *data;
} rpi_pinned;

enum { RPI_SIDE_HOST, RPI_SIDE_GPU, RPI_SIDES };

/* Kept until the context is closed. [progress] */
typedef struct rpi_pinned_pool {
    rpi_pinned *unused[RPI_PINNED_SIZES];
    void *memory; /* made before anything is put into lanes */
    size_t used, bytes;
} rpi_pinned_pool;

/* A place in a lane. */
typedef struct rpi_mark {
    struct rpi_mark *next;
    void *event;
    uint64_t number;
} rpi_mark;

/* What a lane is given. */
typedef enum rpi_lane_operation {
    RPI_LANE_COPY, /* short ones */
    RPI_LANE_ENCODE,
    RPI_LANE_DECODE,
    RPI_LANE_ADD /* decodings that add */
} rpi_lane_operation;

/* [progress] Work in it is done in order; marks are numbered from 1. Consecutive calls of one
 * operation become one launch (or a few, if they need different kernels), and all marks of an
 * iteration one event: rpi_lanes_seal(). */
typedef struct rpi_lane {
    void *stream,
        *bell; /* the second waits for marks of the first and calls the progress owner */
    rpi_device_call *calls; /* [RPI_LIST_MOST] that are not launched yet */
    int count;
    rpi_lane_operation operation; /* of these */
    bool owes;                    /* a mark, of the number behind `marked` */
    rpi_mark *first, **end;
    uint64_t marked, come; /* numbers of the last mark, and of the last that has come */
    uint64_t rung;         /* of the last that the bell has been told of */
} rpi_lane;

enum { RPI_LANE_FROM, RPI_LANE_INTO, RPI_LANES }; /* the device */

/* Wakes the progress owner. The GPU's driver calls it, perhaps after the end of the context. */
typedef struct rpi_bell {
    int fd;
    atomic_int holders;
} rpi_bell;

/* A GPU, as a context uses it. */
typedef struct rpi_device {
    struct rpi_device *next;
    struct rpi_context *context;
    const rpi_cuda_library *cuda;
    int number;
    rpi_bell *bell;
    bool is_lost; /* [progress] it has not come to what a transfer gave it, which is lost: what
                     is pinned for it is kept for good */
    rpi_lane lanes[RPI_LANES]; /* of all requests; made by the first one */
    rpi_mark *marks;           /* [progress] free ones */
    rpi_pinned_pool pools[RPI_SIDES];
} rpi_device;

/* How the input is changed before it is used: calls/contributions.c. */
typedef struct rpi_device_change {
    bool scales;
    double factor;
    float **paid; /* [extents] residuals that are sent with exact values; NULL: none is */
} rpi_device_change;

/* The GPU's part of a request; kept for the next request. */
typedef struct rpi_transfer {
    rpi_device *device;
    void *begun;             /* recorded in the caller's stream */
    void *bell;              /* a stream that only waits for it, and calls the progress owner */
    void *tail;              /* after the last work in RPI_LANE_INTO */
    bool has_begun, is_rung; /* [progress] the stream has reached it; the bell knows */
    bool is_open, has_tail;
    size_t pool_bytes[RPI_SIDES]; /* that its GPU's pools shall have, where it opens them */
    uint64_t marked[RPI_LANES];   /* [progress] its last mark in each lane */
    rpi_device_change change;
    int64_t end_ns; /* after a failure: when to give up; 0: it has not failed */
    bool is_lost;   /* given up: memory that the GPU may still access is never used again */
    rpi_pinned *left_behind; /* of that */
    struct rpi_transfer *next_lost;
} rpi_transfer;

typedef enum rpi_staged_state {
    RPI_STAGED_NOT,
    RPI_STAGED_COMING,
    RPI_STAGED_HERE
} rpi_staged_state;

/* A pinned copy of a part's elements, or of their residuals. */
typedef struct rpi_staged {
    rpi_pinned *memory; /* NULL: no elements */
    uint8_t state;
    bool dirty;
    uint64_t mark; /* of RPI_LANE_FROM */
} rpi_staged;

enum { RPI_STAGED_IN, RPI_STAGED_OUT, RPI_STAGED_RESIDUAL, RPI_STAGED_KINDS };

typedef struct rpi_device_step {
    bool begun;
    bool begins;   /* an addition: its sum begins with the own values, which were not copied */
    bool deferred; /* a decoding that waits for the chunk's others, to be launched with them */
    uint8_t lane;
    uint64_t mark; /* 0: there was nothing to do */
} rpi_device_step;

/* A chunk's, behind it in memory of its own. */
typedef struct rpi_device_chunk {
    rpi_staged *staged[RPI_STAGED_KINDS]; /* [parts] */
    rpi_device_step *steps;               /* [steps] */
    rpi_pinned **encoded_slots;           /* [encoded_slots] the memory of those that are
                                           * RPI_ENCODED_PINNED */
    rpi_pinned **ragged; /* [encoded_slots] the GPU's copies of them (device_steps.h) */
    rpi_pinned **sums;   /* [parts] accumulators on the GPU; NULL: the host adds */
    int decodings;       /* on which nothing depends, and whose turn has not come */
    bool closing;
    uint64_t mark; /* of RPI_LANE_INTO */
} rpi_device_chunk;

/* ---- device.c: GPUs and pinned memory ---- */

/* Under the lock: made at its first use. */
rp_status rpi_device_find(struct rpi_context *context, const rpi_cuda_library *cuda, int number,
                          rpi_device **out_device);
void rpi_devices_free(struct rpi_context *context); /* waits for no GPU that is lost */
/* Every call of the table is made between these two, by any thread: a thread without a GPU
 * would open the first one of the host. */
static inline rp_status rpi_device_enter(const rpi_device *device,
                                         rpi_cuda_before *out_before) {
    const rpi_cuda_library *cuda = device->cuda;
    return rpi_cuda_check(cuda, cuda->enter(device->number, out_before), "choosing the GPU");
}
static inline void rpi_device_leave(const rpi_device *device, const rpi_cuda_before *before) {
    device->cuda->leave(before);
}
void rpi_marks_free(const rpi_device *device, rpi_mark *mark); /* a list of them */
void rpi_bell_ring(void *bell); /* and one holder less; on a thread of the GPU's driver */
void rpi_bell_leave(rpi_bell *bell);
/* [progress] */
rp_status rpi_pinned_take(rpi_device *device, size_t bytes, rpi_pinned **out_pinned);
/* Of the GPU's memory. */
rp_status rpi_accumulator_take(rpi_device *device, size_t bytes, rpi_pinned **out_pinned);
/* For many small ones: if it cannot be allocated, each is pinned when it is needed. */
void rpi_pinned_fill(rpi_device *device, const size_t bytes[RPI_SIDES]);
void rpi_pinned_give(rpi_device *device, rpi_pinned *pinned); /* NULL is fine */

/* ---- device_lane.c [progress]: the lanes of a GPU ---- */

/* Work is about to be put into them, for a request that has begun. */
rp_status rpi_transfer_open(rpi_transfer *transfer);
/* At the lane's end; launched by sealing. */
rp_status rpi_lane_put(rpi_transfer *transfer, int lane, rpi_lane_operation operation,
                       const rpi_device_call *call);
rp_status rpi_lane_divide(rpi_transfer *transfer, int lane, const rpi_device_call *call);
rp_status rpi_lane_copy(rpi_transfer *transfer, int lane, void *to, const void *from,
                        size_t bytes);
/* All work in the lanes is launched, and the promised marks are set. */
rp_status rpi_lanes_seal(rpi_device *device);
/* After the work in the lane; completes after that is sealed. */
rp_status rpi_lane_mark(rpi_transfer *transfer, int lane, uint64_t *out_mark);
void *rpi_lane_stream(const rpi_transfer *transfer, int lane);
bool rpi_lane_has_come(const rpi_transfer *transfer, int lane, uint64_t mark);
rp_status rpi_lanes_look(rpi_device *device); /* which marks have come */
bool rpi_lanes_arm(rpi_device *device);       /* false: the GPU has failed */

/* ---- device_transfer.c: what requests have of them ---- */

/* Posting: the elements and residuals of the request's extents are on one GPU, and its work
 * begins after the current work of `stream`. Any thread that posts. RP_INVALID: they are not.
 * RP_UNSUPPORTED: no GPU can be used; the message says why. */
rp_status rpi_transfer_begin(struct rp_request *request, void *stream);
void rpi_transfer_free(rpi_transfer *transfer); /* NULL is fine; a lost one is kept for good */
/* `stream` waits for all of the GPU's work for a request that is `enqueued`. Any thread. */
rp_status rpi_transfer_follow(const rpi_transfer *transfer, void *stream);
/* Notes what has completed since: its beginning, and marks. [progress] */
rp_status rpi_transfer_look(rpi_transfer *transfer);
/* Whether its beginning, or a mark of its own, has not completed. [progress] */
bool rpi_transfer_is_busy(const rpi_transfer *transfer);
/* Before the progress owner sleeps: the bell rings when the next mark of any request completes.
 * [progress] */
void rpi_devices_arm(struct rpi_context *context);
/* For a communicator that has failed: true while the GPU works on this request. [progress] */
bool rpi_device_ends(struct rp_request *request);
/* Only the GPU's part is left: waits by stream return. [progress] */
void rpi_device_note_enqueued(struct rp_request *request);

/* ---- device_staged.c [progress]: copies on the host ---- */

rp_status rpi_device_chunk_new(const rpi_compiled_schedule *compiled,
                               rpi_device_chunk **out_chunk);
/* All memory of it; what is lost is left with the request's transfer. */
void rpi_device_chunk_release(struct rpi_chunk *chunk);
void rpi_device_encoded_give(struct rpi_chunk *chunk, int encoded_slot);
/* All instructions are finished: its results are in the GPU's memory. RP_PENDING: not yet. */
rp_status rpi_device_is_finished(struct rpi_chunk *chunk);
/* The host's copy of a slice's values of IN or OUT. */
void *rpi_device_values(const struct rpi_chunk *chunk, int slot, int part,
                        const rpi_slice *slice);
/* And its residual; NULL: it has none. */
float *rpi_device_residual(const struct rpi_chunk *chunk, int part, const rpi_slice *slice);
/* Where it is on the GPU, for a kind RPI_STAGED_; NULL: nowhere. */
void *rpi_device_place(const struct rpi_chunk *chunk, int kind, const rpi_slice *slice);
size_t rpi_device_bytes(int kind, const rpi_slice *slice);
/* A part's copy, of a kind RPI_STAGED_. */
rpi_staged *rpi_staged_of(const struct rpi_chunk *chunk, int kind, int part);
/* Memory for a copy; none if there are no elements. */
rp_status rpi_staged_take(struct rpi_chunk *chunk, int part, rpi_staged *staged);
/* RP_PENDING: coming. */
rp_status rpi_device_fetch(struct rpi_chunk *chunk, int kind, int part);
/* IN as it is used: changed if the call changes it. */
rp_status rpi_device_fetch_input(struct rpi_chunk *chunk, int part);
bool rpi_device_changes(const struct rpi_chunk *chunk, int part);

/* ---- device_instructions.c [progress] ---- */

/* The chunk starts: values that the host will add are fetched. */
rp_status rpi_device_chunk_begin(struct rpi_chunk *chunk);
/* RP_OK with *out_done: the GPU has done the instruction. RP_OK without: the values that the
 * host reads for it are here. RP_PENDING: neither yet. */
rp_status rpi_device_run(struct rpi_chunk *chunk, int instruction, bool *out_done);
/* The host has done it. */
void rpi_device_ran(struct rpi_chunk *chunk, const rpi_instruction *instruction);

#endif
