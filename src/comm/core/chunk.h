/* A chunk in flight: one instance of a request's schedule, with its encoded slots and the state
 * of each instruction. */
#ifndef RPI_COMM_CHUNK_H
#define RPI_COMM_CHUNK_H

#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"

typedef enum rpi_encoded_state {
    RPI_ENCODED_EMPTY,
    RPI_ENCODED_FRAME, /* the payload of a frame that is still in its link */
    RPI_ENCODED_BUFFER,
    RPI_ENCODED_VALUES, /* never encoded: readers use the values to which it would decode */
    RPI_ENCODED_SENT,   /* the same, and an ADD has done its SEND already */
    RPI_ENCODED_PUT,    /* the same, and an ADD has written them where the SEND's receiver wants
                         * them */
    RPI_ENCODED_PINNED, /* where a GPU writes or reads it (device.h) */
    RPI_ENCODED_WRITTEN, /* its sender has written the values into the destination */
} rpi_encoded_state;

/* An encoded slot of one chunk. */
typedef struct rpi_encoded_slot {
    uint8_t state;
    uint16_t readers; /* that have yet to run */
    int32_t peer;     /* whose link holds the frame */
    rpi_frame_buffer *buffer;
    const unsigned char *data;
    size_t bytes;
    double
        edge_weight; /* the weight that its sender gives it; 1 except for neighbours' frames */
} rpi_encoded_slot;

/* One instance of a schedule. All arrays are in one allocation after it. */
typedef struct rpi_chunk {
    struct rpi_chunk *next;
    struct rp_request *request;
    uint32_t index;
    int left;           /* instructions to finish */
    uint16_t *waits;    /* [steps]: predecessors to finish */
    uint64_t *ready;    /* [words]: instructions that may run */
    uint64_t *finished; /* [words] */
    uint64_t *in_use;   /* [words]: sends whose payload a peer is still reading (in_place.c) */
    uint64_t *writable; /* [words]: sends into whose payload the answer may be written */
    uint32_t *frame_number;     /* [steps]: the number of their frame in its link */
    int32_t *received;          /* [world]: frames so far */
    rpi_frame_list *unexpected; /* [world]: frames that came before their RECV was due */
    rpi_encoded_slot *encoded_slots;
    unsigned char *sums;
    size_t sums_room, sum_stride;       /* bytes of them, and of one accumulator */
    struct rpi_device_chunk *of_device; /* kept for requests of a GPU */
    struct rpi_device_chunk *device;    /* the GPU's part; NULL: elements are on the host */
} rpi_chunk;

/* A peer is still reading the payload of this SEND (run/in_place.h). */
static inline bool rpi_in_place_is_in_use(const rpi_chunk *chunk, int instruction) {
    return chunk->in_use[instruction / 64] >> (instruction % 64) & 1;
}

/* The slices of a part, in this chunk. */
static inline rpi_walk rpi_chunk_walk(const rpi_chunk *chunk, int part, int level) {
    return rpi_partition_walk(&chunk->request->partition, chunk->index, part, level);
}

/* How a slice is encoded and decoded, except for its role and residual. */
static inline rp_encode_context rpi_slice_context(const rp_request *request,
                                                  const rpi_slice *slice) {
    return (rp_encode_context){.seed = request->seed,
                               .step = request->step,
                               .tensor = slice->extent->tensor,
                               .first = slice->extent->first + slice->offset};
}

#endif
