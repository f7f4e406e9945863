/* A chunk in flight: one instance of a request's schedule, with its wire slots and the state of
 * each action. */
#ifndef RPI_COMM_CHUNK_H
#define RPI_COMM_CHUNK_H

#include "comm/core/communicator.h"
#include "comm/core/frame_blocks.h"

typedef enum rpi_wire_state {
    RPI_WIRE_EMPTY,
    RPI_WIRE_FRAME, /* the payload of a frame that still lies in its link */
    RPI_WIRE_BLOCK,
    RPI_WIRE_VALUES, /* never encoded: readers take the values it would decode to */
    RPI_WIRE_SENT,   /* the same, and an ADD has done its SEND already */
    RPI_WIRE_PUT, /* the same, and an ADD has put them where the SEND's receiver wants them */
    RPI_WIRE_PINNED, /* where a GPU writes or reads it (device.h) */
    RPI_WIRE_THERE,  /* its sender has put the values where they are decoded to */
} rpi_wire_state;

/* A wire slot of one chunk. */
typedef struct rpi_wire {
    uint8_t state;
    uint16_t readers; /* that have yet to run */
    int32_t peer;     /* whose link holds the frame */
    rpi_block *block;
    const unsigned char *data;
    size_t bytes;
    double share; /* what its sender has it multiplied by; of all but neighbours' frames 1 */
} rpi_wire;

/* One instance of a schedule. All arrays lie behind it in one piece of memory. */
typedef struct rpi_chunk {
    struct rpi_chunk *next;
    struct rp_request *request;
    uint32_t index;
    int left;           /* actions to finish */
    uint16_t *waits;    /* [steps]: predecessors to finish */
    uint64_t *ready;    /* [words]: actions that may run */
    uint64_t *finished; /* [words] */
    uint64_t *lent;     /* [words]: sends whose payload a peer still reads (in_place.c) */
    uint64_t *writable; /* [words]: sends whose answer may be written there */
    uint32_t *lent_as;  /* [steps]: the number of their frame in its link */
    int32_t *received;  /* [world]: frames so far */
    rpi_frames *aside;  /* [world]: frames whose RECV was not due when they came */
    rpi_wire *wires;
    unsigned char *sums;
    size_t sums_room, sum_stride;       /* bytes of them, and of one accumulator */
    struct rpi_device_chunk *of_device; /* kept for requests of a GPU */
    struct rpi_device_chunk *device;    /* that, or NULL: elements lie with the host */
} rpi_chunk;

/* A peer still reads the payload of this SEND (run/in_place.h). */
static inline bool rpi_in_place_is_lent(const rpi_chunk *chunk, int action) {
    return chunk->lent[action / 64] >> (action % 64) & 1;
}

/* The pieces of a part, in this chunk. */
static inline rpi_walk rpi_chunk_walk(const rpi_chunk *chunk, int part, int level) {
    return rpi_cut_walk(&chunk->request->cut, chunk->index, part, level);
}

/* How a piece is encoded and decoded, but for its role and residual. */
static inline rp_encode_context rpi_piece_context(const rp_request *request,
                                                  const rpi_piece *piece) {
    return (rp_encode_context){.seed = request->seed,
                               .step = request->step,
                               .tensor = piece->run->tensor,
                               .first = piece->run->first + piece->offset};
}

#endif
