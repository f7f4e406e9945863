/** Communicators and collectives.
 *
 * A communicator joins the ranks of a world; it is created from a store on every rank at once.
 * All its collectives must be posted in the same order on every rank; several may be in flight,
 * and waited for in any order. Posting is serialised by the caller, waiting is legal from any
 * thread. Nothing has a thread of its own unless
 * rp_comm_options.progress_thread asks for one: whoever waits drives the transfer.
 *
 * Failures: when an operation fails on one rank it fails on every rank, with a message that
 * names the rank, the operation and the phase. A communicator with a failed operation refuses
 * further ones with the same failure; destroy it and, if need be, create another.
 */
#ifndef REDPOLL_COMM_H
#define REDPOLL_COMM_H

#include "redpoll/codec.h"
#include "redpoll/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rp_comm rp_comm;
typedef struct rp_request rp_request;

/** Zeros mean the defaults. */
typedef struct rp_comm_options {
    const char *name;      /**< In messages and store keys; NULL: "world". Two communicators
                                alive at once on one store need different names. */
    const char *transport; /**< "auto" (NULL), "inproc", "shm", "tcp". */
    const char *bind_host; /**< Interface to listen on; NULL: loopback. */
    const char *link;      /**< "1Gbit,50us": shape this rank's traffic, each way; NULL: not. */
    double connect_timeout_s;  /**< For everybody to arrive; 0: 60. */
    double timeout_s;          /**< No progress for so long fails an operation; 0: 600. */
    double warn_after_s;       /**< No progress for so long names the late rank; 0: 30. */
    int progress_thread;       /**< 1: a thread drives transfers while the caller computes. */
    uint32_t chunk_bytes;      /**< Elements' bytes in flight as one piece; 0: chosen from the
                                    link. All ranks must agree. */
    uint32_t chunks_in_flight; /**< 0: chosen. All ranks must agree. */
    uint32_t epoch;            /**< Of the membership: frames of another epoch are refused. */
} rp_comm_options;

/** Collective over the store: returns on all ranks or fails on all.
 *  store: borrowed until rp_comm_destroy(). rank in [0, world). world 1 needs no store (NULL).
 *  Blocks up to connect_timeout_s; RP_TIMEOUT names the ranks that did not arrive. */
RP_API rp_status rp_comm_create(const rp_store *store, int rank, int world,
                                const rp_comm_options *options, rp_comm **comm);
/** Join the world that this process was started in, and create its communicator: the place is
 *  read from the variables that `redpoll run`, torchrun, mpirun or srun set, in that order of
 *  trust; without any it is a world of one. Rank 0 serves the store where the launcher does
 * not; the communicator owns it. options->bind_host NULL: the interface that faces the other
 * ranks. Blocks as rp_comm_create(). RP_INVALID names a variable that is missing or wrong;
 * RP_IO: the port is taken. */
RP_API rp_status rp_comm_join(const rp_comm_options *options, rp_comm **comm);
/** Local, but that the other ranks hear of it when operations are still in flight here: these
 *  are cancelled, and the others' fail with RP_CANCELLED and this rank's name. Otherwise blocks
 *  until what was posted has left, at most five seconds. Afterwards buffers are free again and
 *  requests that were not waited for are gone with the communicator. NULL is fine. */
RP_API void rp_comm_destroy(rp_comm *comm);
RP_API int rp_comm_rank(const rp_comm *comm);
RP_API int rp_comm_world(const rp_comm *comm);
/** Transport of the links ("shm", "shm+tcp", "shaped(shm)"); static for the comm's life. */
RP_API const char *rp_comm_transport(const rp_comm *comm);

typedef enum rp_reduce { RP_SUM, RP_AVG } rp_reduce;

/** A run of elements of one tensor. Collectives take lists of segments: fusing tensors is a
 *  longer list, not a copy. Codec granules never cross a segment. */
typedef struct rp_segment {
    void *data;   /**< Borrowed from posting to completion. */
    size_t count; /**< Elements. */
    rp_dtype dtype;
    rp_codec codec;  /**< Zeros: exact. All ranks must agree. */
    float *residual; /**< Error feedback: `count` floats that belong to the caller's training
                          state, or NULL for none. Elements this rank owns in the schedule hold
                          the owner's residual (of the sum), others the sender's. */
    uint32_t tensor; /**< Identity for stochastic rounding; any stable number. */
    uint64_t first;  /**< Index in the tensor of data[0]; a multiple of the codec's granule. */
} rp_segment;

typedef struct rp_collective_options {
    const char *algorithm; /**< "ring", "sra"; NULL: chosen (SRA for lossy codecs). */
    rp_reduce reduce;
    uint64_t seed, step; /**< Keys of stochastic rounding; equal on all ranks. */
    int root;            /**< Broadcast only. */
} rp_collective_options;

/** Post an all-reduce over `segments` in place. Afterwards data of every rank holds the sum (or
 *  mean), bit-identical on all ranks for every codec, algorithm and world. f16 and bf16 are
 *  summed in f32 and rounded once by "sra"; "ring" rounds the partial sum at each hop. The mean
 *  divides the sum of floats by the world, before it is encoded for everybody; integers refuse
 *  RP_AVG. "sra" adds in rank order: an exact sum has the bits of the serial one. `segments` is
 * copied; its data is borrowed until completion. Does not block. *request completes exactly
 * once; rp_request_wait() frees it. */
RP_API rp_status rp_all_reduce_start(rp_comm *comm, const rp_segment *segments, size_t count,
                                     const rp_collective_options *options,
                                     rp_request **request);
/** Reduce `world * count` elements to `count` a rank: rank r's `output` gets the sum of
 *  everybody's input[r * count ... (r + 1) * count). input and output may not overlap, except
 *  that output may be input + rank * count. */
RP_API rp_status rp_reduce_scatter_start(rp_comm *comm, const void *input, void *output,
                                         size_t count, rp_dtype dtype, const rp_codec *codec,
                                         const rp_collective_options *options,
                                         rp_request **request);
/** output[r * count ...] of every rank gets rank r's input; exact unless a codec is given. */
RP_API rp_status rp_all_gather_start(rp_comm *comm, const void *input, void *output,
                                     size_t count, rp_dtype dtype, const rp_codec *codec,
                                     const rp_collective_options *options,
                                     rp_request **request);
/** data of every rank gets options->root's. Always exact. A rank that has passed its data on is
 *  done: when ranks disagree it may learn of it in its next operation. */
RP_API rp_status rp_broadcast_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                                    const rp_collective_options *options, rp_request **request);
RP_API rp_status rp_barrier_start(rp_comm *comm, rp_request **request);
/** Point to point; matched in order between each pair of ranks. */
RP_API rp_status rp_send_start(rp_comm *comm, const void *data, size_t count, rp_dtype dtype,
                               int peer, rp_request **request);
RP_API rp_status rp_recv_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                               int peer, rp_request **request);

/** Drive the communicator until the request is complete, then free it and return its status
 *  (the message is then this thread's rp_last_error()). *request becomes NULL. */
RP_API rp_status rp_request_wait(rp_request **request);
/** RP_PENDING while it runs; drives a little; never blocks, never frees. */
RP_API rp_status rp_request_test(rp_request *request);

/** Blocking forms: start and wait. */
RP_API rp_status rp_all_reduce(rp_comm *comm, const rp_segment *segments, size_t count,
                               const rp_collective_options *options);
RP_API rp_status rp_reduce_scatter(rp_comm *comm, const void *input, void *output, size_t count,
                                   rp_dtype dtype, const rp_codec *codec,
                                   const rp_collective_options *options);
RP_API rp_status rp_all_gather(rp_comm *comm, const void *input, void *output, size_t count,
                               rp_dtype dtype, const rp_codec *codec,
                               const rp_collective_options *options);
RP_API rp_status rp_broadcast(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                              const rp_collective_options *options);
RP_API rp_status rp_barrier(rp_comm *comm);
RP_API rp_status rp_send(rp_comm *comm, const void *data, size_t count, rp_dtype dtype,
                         int peer);
RP_API rp_status rp_recv(rp_comm *comm, void *data, size_t count, rp_dtype dtype, int peer);

/** Accounts since creation, of this rank. Seconds are of wall time inside the library. */
typedef struct rp_comm_stats {
    uint64_t operations;
    uint64_t wire_bytes_sent, wire_bytes_received; /**< Frames and all. */
    double encode_s, decode_s;                     /**< Spent in codecs and sums. */
    double wait_s;                                 /**< Callers blocked in waits. */
    double busy_s; /**< Wall time during which at least one operation was in flight. */
} rp_comm_stats;
RP_API void rp_comm_get_stats(const rp_comm *comm, rp_comm_stats *stats);

/** Tell all ranks that this one has failed for a reason of its own (a bad file, say): their
 *  operations, now and later, fail with `message`. */
RP_API void rp_comm_abort(rp_comm *comm, rp_status status, const char *message);

#ifdef __cplusplus
}
#endif
#endif
