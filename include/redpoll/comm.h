/** Communicators and collectives.
 *
 * A communicator joins the ranks of a world; it is created from a store on every rank at once.
 * All its collectives must be posted in the same order on every rank (exchanges of neighbours
 * by those who take part); several may be in flight, and waited for in any order. Posting is
 * serialised by the caller, waiting is legal from any thread. Nothing has a thread of its own
 * unless rp_comm_options.progress_thread asks for one: whoever waits makes the transfer
 * progress.
 *
 * Every legal program ends: one that would end if each operation were done as soon as all ranks
 * concerned have posted it, and not before. Short operations are often done sooner on a rank
 * that only sends (the root of a broadcast, the leaves of a reduce); a program that relies on
 * it is not legal. What one rank sends before another has asked for it is bounded in memory:
 * 64 MiB for a process, and 16 KiB for each link of each communicator (docs/comm.md).
 *
 * Wrong arguments are refused before anything is posted, alike in every world: RP_INVALID for
 * NULL where something is needed (count 0 needs no data), numbers out of range, counts that
 * are no counts (a negative number, as a rule). Functions that return no status do nothing
 * then, and record the message. Destroyers take NULL.
 *
 * Results do not depend on the caller's floating-point environment (rounding, flushing of
 * subnormals, traps), which is as it was when a call returns.
 *
 * Failures: when an operation fails on one rank it fails on every rank, with a message that
 * names the rank, the operation and the phase. A rank whose own part of it is done already has
 * returned RP_OK, and has the failure in its next operation: in broadcast, reduce, gather,
 * scatter and all-to-all a rank is done once it has passed its data on and has its own. A
 * communicator with a failed operation refuses further ones with the same failure; destroy it
 * and, if need be, create another.
 */
#ifndef REDPOLL_COMM_H
#define REDPOLL_COMM_H

#include "redpoll/codec.h"
#include "redpoll/log.h"
#include "redpoll/store.h"
#include "redpoll/view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rp_comm rp_comm;
typedef struct rp_request rp_request;

/** Whose operations go first where those of several communicators wait for this rank or for one
 *  link. Bulk (gradients that are averaged while others are computed) takes what is left; what
 *  is urgent (activations of tensor or pipeline parallelism) passes both others wherever
 *  something waits: in this rank, in its links, and in those that `link` shapes. Operations of
 *  16 KiB at most of a normal communicator go with the urgent ones, as far as no earlier frame
 *  of that communicator is still on its way to the same rank. The order of one communicator's
 *  frames stays; results do not depend on it. It is a matter of each rank, and of use where all
 *  say the same. An urgent communicator that never rests leaves bulk what it leaves over. */
typedef enum rp_priority {
    RP_PRIORITY_DEFAULT, /**< The parent's; of a communicator that has none, normal. */
    RP_PRIORITY_BULK,
    RP_PRIORITY_NORMAL,
    RP_PRIORITY_URGENT,
} rp_priority;

/* Structs of options begin with their size: fields are only ever added at the end, and a
 * library and its callers may know different ones. Begin with the initializer, which sets the
 * size:
 *
 *     rp_comm_options options = RP_COMM_OPTIONS(.name = "tp0", .timeout_s = 30);
 *
 * RP_INVALID: the size is none, 0 for one. RP_UNSUPPORTED: a field that this library does not
 * know is set. */

/** An initializer of an rp_comm_options; without arguments: the defaults. */
#define RP_COMM_OPTIONS(...)                                                                   \
    { .size = sizeof(rp_comm_options), __VA_ARGS__ }
/** The same of an rp_collective_options. */
#define RP_COLLECTIVE_OPTIONS(...)                                                             \
    { .size = sizeof(rp_collective_options), __VA_ARGS__ }

/** Where the elements of a call lie. */
typedef enum rp_memory {
    RP_MEMORY_HOST,
    RP_MEMORY_CUDA, /**< On one NVIDIA GPU: all that the call names, residuals too. */
} rp_memory;

/** Zeros mean the defaults. What is wrong here is refused in a world of one, too. */
typedef struct rp_comm_options {
    size_t size;           /**< sizeof(rp_comm_options): RP_COMM_OPTIONS() sets it. */
    const char *name;      /**< In messages and store keys, up to 148 bytes; NULL: "world". Two
                                communicators alive at once on one store need different names. */
    const char *transport; /**< "auto" (NULL), "inproc", "shm", "tcp". */
    const char *bind_host; /**< Interface to listen on; NULL: loopback. */
    const char *link;      /**< "1Gbit,50us": shape this rank's traffic, each way; NULL: not. */
    double connect_timeout_s; /**< For all to arrive, then for links to all; 0: 60. */
    double timeout_s;         /**< No progress for so long, from its posting on, fails an
                                   operation; also beside others that move, where the other
                                   side is stopped or strict_timeout is 1. Ranks that wait for
                                   each other in several communicators fail in all of them.
                                   0: 600. */
    int strict_timeout;       /**< 1: timeout_s also ends a wait for a rank that is alive and
                                   computes. -1: such a rank is named, and left in peace. 0: as
                                   the parent has it; -1 where there is none. */
    double warn_after_s;      /**< No progress for so long names the late rank; 0: 30. */
    int progress_thread; /**< 1: a thread makes transfers progress while the caller computes. */
    uint32_t chunk_bytes;      /**< Elements' bytes in flight as one piece; 0: chosen from the
                                    link. All ranks must agree. */
    uint32_t chunks_in_flight; /**< Up to 4096; 0: chosen. All ranks must agree. */
    uint32_t epoch;            /**< Of the membership: frames of another epoch are refused. */
    const char *host; /**< The host that this rank counts as being on, up to 63 bytes, in
                           place of its own: algorithms then treat ranks of one machine
                           as several hosts, and `link` shapes only between these. All
                           ranks or none; NULL: the host it is on. */
    int tls;          /**< 1: what goes by TCP is encrypted (TLS 1.3), with keys from the job's
                           secret (REDPOLL_SECRET), without which RP_INVALID; all ranks must
                           agree. 0: as REDPOLL_TLS says. */
    rp_priority priority; /**< Of all its operations. RP_INVALID: it is none. */
    rp_memory memory;     /**< Where the elements of most operations lie, for which chunks are
                               cut where chunk_bytes is 0: for a GPU larger ones, which it is
                               given less often. Rank 0's counts for all; calls say for
                               themselves where theirs lie. RP_INVALID: no kind of memory. */
} rp_comm_options;

/** Collective over the store: returns on all ranks or fails on all; options that one rank
 *  refuses fail the others with its name.
 *  store: borrowed until rp_comm_destroy(). rank in [0, world). world 1 needs no store (NULL).
 *  Blocks up to connect_timeout_s for all to arrive and as long for each stage of connecting;
 *  RP_TIMEOUT names the ranks that did not arrive, or the two that could not connect. RP_PEER:
 *  one has died on the way; the launcher of `redpoll run` says so of ranks of its launch. */
RP_API rp_status rp_comm_create(const rp_store *store, int rank, int world,
                                const rp_comm_options *options, rp_comm **comm);
/** Of a process that a launcher has started in the place of a rank that died, before it makes
 * the communicator (REDPOLL_GENERATION of `redpoll run --restart` says so). Not collective;
 * asks the store. store, rank, world, options->name and epoch: as for rp_comm_create(). RP_OK:
 * *has_met 0: the one before had not come yet, and rp_comm_create() or rp_comm_join() takes its
 * place as if it had never been; 1: the ranks had met, and go on without this one, or fail.
 * RP_PEER: it died while they were meeting; all of them fail at once. */
RP_API rp_status rp_comm_replace(const rp_store *store, int rank, int world,
                                 const rp_comm_options *options, int *has_met);
/** Join the world that this process was started in, and create its communicator: the place is
 *  read from the variables that `redpoll run`, torchrun, mpirun or srun set, in that order of
 *  trust; without any it is a world of one. Rank 0 serves the store where the launcher does
 * not; the communicator owns it. options->bind_host NULL: the interface that faces the other
 * ranks. Blocks as rp_comm_create(). RP_INVALID names a variable that is missing or wrong;
 * RP_IO: the port is taken. */
RP_API rp_status rp_comm_join(const rp_comm_options *options, rp_comm **comm);
/** The communicator of the view that this process holds (redpoll/view.h), under its ranks.
 *  Collective over the view's members, and made over the world's store. As rp_comm_create(),
 *  but that nobody waits for one that has gone: RP_PEER names a member that is silent for
 *  silence_s, has left, or has gone on to make the next view; RP_STATE: the world has. Behind
 *  any failure call rp_world_next(): the view after this is without those that are lost. It can
 *  be tried again in the same view, too, by all of its members.
 *  options: name NULL: the world's; bind_host NULL: loopback, or in a world of rp_world_join()
 *  what that says; epoch stays 0 (RP_INVALID), it is the view's number. Groups,
 *  by rp_comm_group() and its kin, are made of it, and belong to the view as it does.
 *  Destroy it, and what was made of it, before rp_world_next(): where it has failed by the loss
 *  of a rank, that one is left out of the next view at once. By the thread that calls
 *  rp_world_next(). RP_STATE: this process holds no view, or the world went on without it. */
RP_API rp_status rp_comm_create_in(rp_world *world, const rp_comm_options *options,
                                   rp_comm **comm);
/** For options.bind_host of rp_comm_create(): the addresses of this host's interfaces that
 *  REDPOLL_SOCKET_IFNAME allows, "10.0.0.1,10.1.0.1"; without it all but loopback.
 * rp_comm_join() follows that variable by itself. facing: the address that faces the other
 * ranks, which comes first if it is among them; NULL: not known. addresses: room for `bytes`;
 * addresses that do not fit are left out, 256 are enough for what rp_comm_create() takes.
 * Local, any thread. RP_INVALID: the variable leaves nothing; the message lists the interfaces.
 */
RP_API rp_status rp_bind_addresses(const char *facing, char *addresses, size_t bytes);
/** A communicator of some of the parent's ranks, over its links: no socket is opened and no
 *  thread is started (but the one that options->progress_thread asks for where the parent has
 *  none). Operations, tags, failures and timeouts of the two are independent; a rank that dies
 *  is named in every communicator that has it. Collective over `ranks` and nobody else: one
 *  barrier among them. Blocks up to options->connect_timeout_s; RP_TIMEOUT names who did not
 *  come.
 *  ranks: `count` different ranks of the parent, in the same order on all members; their places
 *  are the ranks of the new communicator, and the caller is among them. Copied.
 *  options: transport, bind_host, link, host, epoch, tls and memory are the parent's and stay
 *  zeros (RP_INVALID); timeouts, strict_timeout, chunk_bytes, chunks_in_flight and the priority
 *  that are 0 are the parent's.
 *  name: communicators of the same ranks and name must be made in the same order on all
 * members. One whose making failed, or was refused on some members, can be tried again under
 * the same name, as often as need be: the first of `ranks` gives each try a number of its own.
 * (It is linked to all others for that, where links are made on need.) The parent's links live
 * until the last of all that stand on them is destroyed; in which order is free. The parent's
 * store must live as long. Posting to different communicators, and making them, may happen on
 * different threads. */
RP_API rp_status rp_comm_group(rp_comm *parent, const int *ranks, int count,
                               const rp_comm_options *options, rp_comm **comm);
/** One of a list of communicators. */
typedef struct rp_group {
    const int
        *ranks; /**< `count` different ranks of the parent, in the order of their places. */
    int count;
    const rp_comm_options *options; /**< As for rp_comm_group(); NULL: defaults. */
} rp_group;

/** Many communicators of the parent's ranks at once, disjoint or overlapping (those of tensor,
 *  data and pipeline parallelism, say). Collective over the parent, whose ranks all pass the
 *  same list in the same order: two exchanges among them, the second being the barrier of all
 *  groups, where rp_comm_group() has one of its own for each. *comms: room for `count`; gets
 *  NULL for a group that the caller is no member of.
 *  All are made or none: what one rank refuses, or cannot do, fails the call on all ranks with
 *  its name, and the parent lives on; the list can be tried again. Waits for ranks that do not
 *  come as the parent's collectives do; connect_timeout_s does not count. RP_MISMATCH: the
 *  lists differ. */
RP_API rp_status rp_comm_groups(rp_comm *parent, const rp_group *groups, size_t count,
                                rp_comm **comms);
/** As rp_comm_group(), but does not wait for the other members: *request is a barrier among
 * them. Before it is complete nothing may be done with *comm but to wait for that, to abort and
 * to destroy it. timeout_s takes the place of connect_timeout_s. */
RP_API rp_status rp_comm_group_start(rp_comm *parent, const int *ranks, int count,
                                     const rp_comm_options *options, rp_comm **comm,
                                     rp_request **request);
/** After a failure with RP_PEER: a communicator of the ranks that are left, in their order, as
 * rp_comm_group() makes one, and by whoever has died meanwhile without these. Collective over
 * them: each of the others' operations fails, and all who are to go on call this; what was sent
 * before belongs to nobody. The failed one is destroyed as any other, before or after.
 * options: as of rp_comm_group(); connect_timeout_s 0: the parent's timeout_s, since others may
 * compute until they hear of the death. ranks: NULL, or room for rp_comm_world(comm): which
 * of them are left. RP_STATE: it has not failed, not by the loss of a rank, or this rank is the
 * one that is lost. RP_TIMEOUT: a rank that lives did not come. */
RP_API rp_status rp_comm_survivors(rp_comm *comm, const rp_comm_options *options, int *ranks,
                                   rp_comm **survivors);
/** rp_comm_group() by color: collective over the parent, an all-gather and a barrier. Ranks
 * that say the same color are together, in the order of their keys, and of their ranks where
 * keys are equal. color below 0: in none; *comm is NULL. */
RP_API rp_status rp_comm_split(rp_comm *parent, int color, int key,
                               const rp_comm_options *options, rp_comm **comm);
/** Local, but that the other ranks hear of it when operations are still in flight here: these
 *  are cancelled, and the others' fail with RP_CANCELLED and this rank's name. Otherwise blocks
 *  until what was posted has left, five seconds at most. Says goodbye to ranks that are heard
 * of: ten seconds in all at most, three after a failure (five more where a GPU has stopped).
 * Afterwards buffers are free again, requests that were not waited for are gone with the
 * communicator, and the tokens of all (rp_request_notify) are in their queues. No other thread
 * may use it any more, nor wait for one of its requests. NULL is fine. */
RP_API void rp_comm_destroy(rp_comm *comm);
/** -1 and 0 of NULL. */
RP_API int rp_comm_rank(const rp_comm *comm);
RP_API int rp_comm_world(const rp_comm *comm);
/** Transport of the links ("shm", "shm+tcp(tls)", "shaped(shm)"; "none" in a world of one);
 *  static for the comm's life. */
RP_API const char *rp_comm_transport(const rp_comm *comm);

/** How contributions are combined. Values are part of what ranks must agree on.
 *  Lossy codecs take RP_SUM, RP_AVG and RP_PREMUL_SUM. RP_AVG and RP_PREMUL_SUM: floats and
 *  complex. RP_MIN and RP_MAX: all but complex; a NaN among floats wins. Bit operations:
 *  integers and bool. bool: RP_SUM, RP_MAX and RP_BOR are "or", RP_PRODUCT, RP_MIN and RP_BAND
 *  "and", RP_BXOR is "exclusive or"; results are 0 or 1. Integer overflow wraps. */
typedef enum rp_reduction {
    RP_SUM,
    RP_AVG,
    RP_PRODUCT,
    RP_MIN,
    RP_MAX,
    RP_BAND,
    RP_BOR,
    RP_BXOR,
    RP_PREMUL_SUM, /**< The sum of each rank's input times its own options->factor. */
} rp_reduction;

/** Elements of one rank, or for one rank: what is gathered and scattered. */
typedef struct rp_block {
    void *data; /**< Borrowed from posting to completion; NULL when count is 0. */
    size_t count;
} rp_block;

/** A run of elements of one tensor. Collectives take lists of segments: fusing tensors is a
 *  longer list, not a copy. Codec granules never cross a segment. */
typedef struct rp_segment {
    void *data;   /**< Borrowed from posting to completion. */
    size_t count; /**< Elements. */
    rp_dtype dtype;
    rp_codec codec;  /**< Zeros: exact. All ranks must agree. */
    float *residual; /**< Error feedback: `count` floats that belong to the caller's training
                          state, or NULL for none. Elements this rank owns in the schedule hold
                          the owner's residual (of the sum), others the sender's. With an exact
                          codec it goes out with the elements, as part of this rank's
                          contribution, and is zeros then: nothing is lost where training
                          changes from a lossy codec to an exact one. */
    uint32_t tensor; /**< Identity, for stochastic rounding and as a part of what ranks compare;
                          any stable number, equal on all ranks. */
    uint64_t first;  /**< Index in the tensor of data[0]; a multiple of the codec's granule. */
} rp_segment;

/** A segment that one rank owns. A list of them says which rank owns which ranges of which
 *  tensors: in any order, of any lengths, of several dtypes and codecs; a rank may own many or
 *  none. The list is the same on all ranks but for the memory that it names. */
typedef struct rp_owned_segment {
    rp_segment segment; /**< data: what every rank has of it. residual: as the call says. */
    int owner;          /**< The rank that it belongs to; equal on all ranks, and compared. */
    void *own; /**< On the owner: `segment.count` elements of its own beside segment.data,
                    borrowed as that is; NULL: segment.data is that, too. Not looked at on
                    other ranks. */
} rp_owned_segment;

/** RP_OK: calls may name it. RP_UNSUPPORTED: no GPU can be used; the message says why, as the
 *  call would. RP_INVALID: no kind of memory. The first call for RP_MEMORY_CUDA takes as long
 * as a driver takes to start; every call has the same answer. Any thread. */
RP_API rp_status rp_memory_check(rp_memory memory);

typedef struct rp_collective_options {
    size_t size; /**< sizeof(rp_collective_options): RP_COLLECTIVE_OPTIONS() sets it. */
    const char *algorithm; /**< "ring", "sra", "two-level" ... (docs/algorithms.md, `redpoll
                                info`); NULL: chosen. Some take exact codecs only
                                (RP_UNSUPPORTED). */
    rp_reduction reduce;
    uint64_t seed, step; /**< Keys of stochastic rounding; equal on all ranks, and compared
                              as `key` is, whatever the codec: step, with the segments' tensor
                              and first, says which operation this is. */
    int root;      /**< Broadcast, reduce, gather and scatter: equal on all ranks. Where it is
                        not, ranks may wait for each other until timeout_s. */
    double factor; /**< RP_PREMUL_SUM: this rank's own; ranks may differ. */
    rp_memory memory; /**< Of this rank; ranks may differ, results do not. RP_UNSUPPORTED: no
                           GPU can be used, the message says why (`redpoll info`). RP_INVALID:
                           the elements lie elsewhere. */
    void *stream;     /**< RP_MEMORY_CUDA: the caller's cudaStream_t; NULL: the default one. The
                           operation begins behind what is in it when the call is made, and the host
                           does not wait for that. How it ends: rp_request_wait_stream().
                           RP_UNSUPPORTED: it is captured for a CUDA graph. */
    uint64_t key;     /**< What the caller calls this operation: any number, equal on all ranks,
                           0 for none. Ranks compare it, so that operations of one shape that
                           were posted in another order on another rank are RP_MISMATCH on all
                           ranks, with both keys named, and never a wrong result. It costs no
                           message. */
} rp_collective_options;

/** Post an all-reduce over `segments` in place. Afterwards data of every rank holds the sum (or
 *  mean), bit-identical on all ranks for every codec, algorithm and world. f16 and bf16 are
 *  summed in f32 and rounded once by "sra"; "ring" rounds the partial sum at each hop. The mean
 *  divides the sum of floats by the world, before it is encoded for everybody; integers refuse
 *  RP_AVG. "sra" and "oneshot" add in rank order: an exact sum has the bits of the serial one.
 * `segments` is copied; its data is borrowed until completion. Does not block. *request
 * completes exactly once; rp_request_wait() frees it. */
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
/** The same from a block a rank: `output` gets the sum of everybody's inputs[rank]. `inputs`
 *  has `world` blocks, whose counts may differ, equal on all ranks; it is copied, its data
 *  borrowed and only read. */
RP_API rp_status rp_reduce_scatter_v_start(rp_comm *comm, const rp_block *inputs, void *output,
                                           rp_dtype dtype, const rp_codec *codec,
                                           const rp_collective_options *options,
                                           rp_request **request);
/** The same of a list of segments, each of which is reduced to the rank that owns it: its `own`
 *  gets the sum (or mean) of everybody's segment.data, which is only read (and overwritten with
 *  the sum on an owner without `own`). `segments` is copied. RP_SUM, RP_AVG ... and bits are as
 *  of rp_reduce_scatter_start(): "direct" adds in rank order.
 *  Each segment has its codec; buckets begin at its first element. residual: what this rank's
 *  encodings lose of what it sends, with its next contribution to the same elements. The owner
 *  sends nothing of what it owns: what its residual holds, from steps in which it was not the
 *  owner, say, is added to its contribution in full, and is zeros then; NULL if there was none.
 *  So over any number of steps the sum of all results and of all ranks' residuals is the sum of
 *  all contributions, to rounding in f32. "two-level" encodes a host's sum on one of its ranks,
 *  whose residual it is; what ranks give each other inside of a host is exact, and residuals
 *  stay as they are there. Exact codecs pay a residual out as in an all-reduce.
 *  RP_INVALID: an owner that does not exist; elements without data. RP_MISMATCH: ranks differ
 * in a segment or its owner, in seed, step or key. */
RP_API rp_status rp_reduce_scatter_segments_start(rp_comm *comm,
                                                  const rp_owned_segment *segments,
                                                  size_t count,
                                                  const rp_collective_options *options,
                                                  rp_request **request);
/** output[r * count ...] of every rank gets rank r's input; exact unless a codec is given.
 *  input may be output + rank * count. */
RP_API rp_status rp_all_gather_start(rp_comm *comm, const void *input, void *output,
                                     size_t count, rp_dtype dtype, const rp_codec *codec,
                                     const rp_collective_options *options,
                                     rp_request **request);
/** The same into a block a rank: outputs[r] of every rank gets rank r's `input`, which has
 *  outputs[rank].count elements. `world` blocks, whose counts may differ, equal on
 *  all ranks. */
RP_API rp_status rp_all_gather_v_start(rp_comm *comm, const void *input,
                                       const rp_block *outputs, rp_dtype dtype,
                                       const rp_codec *codec,
                                       const rp_collective_options *options,
                                       rp_request **request);
/** The same of a list of segments: segment.data of every rank gets the owner's `own`.
 * `segments` is copied. A segment with a lossy codec is encoded once, by its owner, and decoded
 * by all: data has the same bits on every rank, the owner's too, and `own` stays as it is
 * (where it is NULL, segment.data of the owner is overwritten with what was decoded). Only
 * where all ranks are on one host and the algorithm is "two-level" nothing is encoded.
 *  residual: of the owner alone, not looked at on others. NULL: what the codec loses is lost,
 * in this call, as fits values of which each call brings the new ones (weights). Else it is
 * kept there and sent with the next call of the same elements, and the sum of what was gathered
 * in all calls and of the residual is the sum of what was given, as fits values that are added
 * up (changes of weights). Exact codecs pay it out in full. Statuses: as of
 * rp_reduce_scatter_segments_start(). */
RP_API rp_status rp_all_gather_segments_start(rp_comm *comm, const rp_owned_segment *segments,
                                              size_t count,
                                              const rp_collective_options *options,
                                              rp_request **request);
/** data of every rank gets options->root's. Always exact. */
RP_API rp_status rp_broadcast_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                                    const rp_collective_options *options, rp_request **request);
/** `output` of options->root gets the reduction of everybody's `input`, in rank order; others
 *  pass NULL for it and keep their input as it is. On the root output may be input. Exact. */
RP_API rp_status rp_reduce_start(rp_comm *comm, const void *input, void *output, size_t count,
                                 rp_dtype dtype, const rp_collective_options *options,
                                 rp_request **request);
/** outputs[r] of options->root gets rank r's `count` elements of `input`. `outputs`: on the
 *  root `world` blocks, whose counts may differ and must be what each rank sends; else NULL.
 *  Exact. input may be outputs[root].data. The root compares: RP_MISMATCH names a block that
 *  is not as long as it expects. */
RP_API rp_status rp_gather_start(rp_comm *comm, const void *input, size_t count,
                                 const rp_block *outputs, rp_dtype dtype,
                                 const rp_collective_options *options, rp_request **request);
/** `output` of rank r gets inputs[r] of options->root: the way back of rp_gather_start(). Each
 *  rank compares what comes with its `count`. On the root output may be inputs[root].data. */
RP_API rp_status rp_scatter_start(rp_comm *comm, const rp_block *inputs, void *output,
                                  size_t count, rp_dtype dtype,
                                  const rp_collective_options *options, rp_request **request);
/** outputs[s] gets what rank s has in inputs[this rank]. `world` blocks each, of any counts, as
 *  long as both ends of each pair agree: the receiver compares, and RP_MISMATCH names a pair
 *  that does not. Exact. Inputs and outputs may not overlap, except that a rank's own two
 *  blocks may be the same. */
RP_API rp_status rp_all_to_all_start(rp_comm *comm, const rp_block *inputs,
                                     const rp_block *outputs, rp_dtype dtype,
                                     const rp_collective_options *options,
                                     rp_request **request);
RP_API rp_status rp_barrier_start(rp_comm *comm, rp_request **request);

/** Another rank, and what its vector counts, or what ours counts there. */
typedef struct rp_neighbor {
    int rank;
    double weight; /**< Finite. */
} rp_neighbor;

/** With whom a rank exchanges vectors in one round. Zeros: with nobody. */
typedef struct rp_neighbors {
    double self_weight;              /**< Of this rank's own vector. Finite. */
    const rp_neighbor *sources;      /**< Who sends to this rank: the receiver's weights. */
    const rp_neighbor *destinations; /**< To whom this rank sends: the sender's weights, 1 as a
                                          rule. */
    size_t source_count, destination_count;
    uint64_t round; /**< Number of the round, equal on all that take part. 0: one more than this
                         rank's last, so that every rank calls in every round, with no
                         neighbours where it takes part in none. Ranks that leave rounds out
                         number them, rising. */
} rp_neighbors;

/** Post an exchange with neighbours over `segments`. Afterwards this rank's vector is
 *
 *      self_weight * own + sum over sources j of weight_j * (weight that j gives us * vector_j)
 *
 *  added in the order of ranks, its own in its place and unencoded; each product is rounded.
 *  Where self_weight and all sources' weights are 1 / (sources + 1), vectors are added first
 * and divided once: equal vectors stay what they are. f16 and bf16 are summed in f32 and
 * rounded once; integers are refused.
 *
 *  Each vector crosses each edge once and is encoded once, whatever the number of destinations;
 *  its sender's weight travels with it. residual: of the vector that this rank sends.
 *  outputs: `count` pointers to where each segment's result goes, which may overlap no segment
 *  but its own; NULL: in place. neighbors: copied. options: codecs' seed and step; reduce is
 *  RP_SUM.
 *
 *  Not collective: only neighbours talk, wait and must agree. A rank with no neighbours has its
 *  answer at once, nobody waits for it, and a late rank delays none but those who need what it
 *  sends. Operations that several ranks share must still come in one order (rounds,
 *  collectives), as if some rank had them all.
 *  RP_MISMATCH on all ranks: one rank sends what the other does not expect, or expects what the
 *  other does not send; the message has both ranks' lists. RP_INVALID: a neighbour that does
 * not exist, is named twice or is this rank; a weight that is no number; a round that is not
 * later than the last. RP_PEER names a neighbour that has died. Source: neighbor_allreduce of
 * BlueFog, arXiv 2111.04287. */
RP_API rp_status rp_neighbor_all_reduce_start(rp_comm *comm, const rp_segment *segments,
                                              void *const *outputs, size_t count,
                                              const rp_neighbors *neighbors,
                                              const rp_collective_options *options,
                                              rp_request **request);

/** Point to point, in order between each pair of ranks with the same tag; tags match exactly,
 *  0 ... 2^31 - 1. Count and dtype of both sides must agree (RP_MISMATCH). Data does not leave
 *  before the receive is posted, so a send is complete only then. peer: another rank. */
RP_API rp_status rp_send_start(rp_comm *comm, const void *data, size_t count, rp_dtype dtype,
                               int peer, int tag, rp_request **request);
RP_API rp_status rp_recv_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                               int peer, int tag, rp_request **request);
/** Receive from whoever sends with this tag first. Sends for which an rp_recv_start() with
 *  their rank and tag is posted go there. rp_request_source() tells who it was. A fast rank's
 *  second message may be taken before a slow rank's first, whose send then waits for another
 *  receive: use a tag of its own for each round, unless that one is certain to be posted.
 *  RP_INVALID in a world of one. */
RP_API rp_status rp_recv_any_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                                   int tag, rp_request **request);

/** The same with options, of which memory and stream count; NULL: none. */
RP_API rp_status rp_send_with_start(rp_comm *comm, const void *data, size_t count,
                                    rp_dtype dtype, int peer, int tag,
                                    const rp_collective_options *options, rp_request **request);
RP_API rp_status rp_recv_with_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                                    int peer, int tag, const rp_collective_options *options,
                                    rp_request **request);
RP_API rp_status rp_recv_any_with_start(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                                        int tag, const rp_collective_options *options,
                                        rp_request **request);

/** Make progress until the request is complete, then free it and return its status
 *  (the message is then this thread's rp_last_error()). *request becomes NULL. */
RP_API rp_status rp_request_wait(rp_request **request);
/** RP_PENDING while it runs; makes a little progress; never blocks, never frees. */
RP_API rp_status rp_request_test(rp_request *request);

/** As rp_request_wait(), but at most timeout_s (below 0: no limit, 0: a look), and without
 *  freeing the request. RP_PENDING: still running. Any number of threads may wait, as long as
 *  none of them frees it (nor waits by rp_request_wait()) before the others are back. */
RP_API rp_status rp_request_wait_for(rp_request *request, double timeout_s);
/** Of an operation on memory of a GPU: wait until nothing but the GPU's own part is left, and
 *  let `stream` (a cudaStream_t, NULL: the default one) wait for that: what is put into it from
 *  now on finds the results. The host waits for the network, as in rp_request_wait_for(), and
 *  not for the GPU. The request is not freed; it completes, as for rp_request_wait(), when the
 *  results are there. Other operations: as rp_request_wait_for() without limit. Where an
 *  operation fails, rp_request_wait() returns once the GPU is done with what it was given of it
 *  or five seconds later, and says so in the log; only then it may still write to that
 *  operation's memory. Any thread. */
RP_API rp_status rp_request_wait_stream(rp_request *request, void *stream);
/** The same for at most timeout_s (below 0: no limit, 0: a look). RP_PENDING: more than the
 *  GPU's own part is left, and the stream does not wait yet. */
RP_API rp_status rp_request_wait_stream_for(rp_request *request, void *stream,
                                            double timeout_s);
/** Free a completed request that was not given to rp_request_wait(), whatever its status.
 *  RP_INVALID while it runs. *request becomes NULL. A request that is NULL is fine. */
RP_API rp_status rp_request_free(rp_request **request);
/** The other rank of a send or receive that is complete, or that only a GPU is still at; -1 of
 *  anything else. */
RP_API int rp_request_source(const rp_request *request);

/** A queue of completed requests, for a thread that tells others of them. It serves any number
 *  of communicators, which must have progress threads (somebody has to make progress) and must
 * be destroyed before it. */
typedef struct rp_completions rp_completions;
RP_API rp_status rp_completions_create(rp_completions **completions);
/** Wakes a thread that waits and returns once that has left; nobody may use the queue from then
 *  on. What it still holds is dropped. NULL is fine. */
RP_API void rp_completions_destroy(rp_completions *completions);
/** Put `token` into the queue once the request is complete, well or not: at once when it is
 *  already. At most once a request. The request stays the caller's to wait for or free. Never
 *  blocks. RP_INVALID: the communicator has no progress thread, or the request has a token. */
RP_API rp_status rp_request_notify(rp_request *request, rp_completions *completions,
                                   uint64_t token);
/** Sleep until tokens are there, or rp_completions_wake(), at most timeout_s (below 0: no
 *  limit); *count, at most `capacity`, may be 0. RP_OK. One thread at a time. Tokens come in
 *  the order of completion. */
RP_API rp_status rp_completions_wait(rp_completions *completions, double timeout_s,
                                     uint64_t *tokens, size_t capacity, size_t *count);
/** The wait of now returns, or else the next one. Any thread. */
RP_API void rp_completions_wake(rp_completions *completions);
/** Have the log's messages (log.h) kept here and not printed: for a program whose own log must
 *  not be called by the library's threads, which may hold locks that its threads wait for. A
 *  wait returns when there is one, too, and they are to be taken then. 32 are kept; those
 *  beyond are counted, and told in a line of their own. In the place of the sink, until the
 *  queue is destroyed or another sink is set: then messages are printed again, as they are in a
 *  child of fork(). Again: nothing changes. RP_NOMEM. Any thread. */
RP_API rp_status rp_completions_keep_log(rp_completions *completions);
/** The oldest message that is kept. line: `bytes` long, RP_LOG_LINE are enough. RP_PENDING:
 *  there is none. Never blocks. Any thread. */
RP_API rp_status rp_completions_take_line(rp_completions *completions, rp_log_level *level,
                                          char *line, size_t bytes);

/** Blocking forms: start and wait. They leave the progress thread asleep. */
RP_API rp_status rp_all_reduce(rp_comm *comm, const rp_segment *segments, size_t count,
                               const rp_collective_options *options);
RP_API rp_status rp_reduce_scatter(rp_comm *comm, const void *input, void *output, size_t count,
                                   rp_dtype dtype, const rp_codec *codec,
                                   const rp_collective_options *options);
RP_API rp_status rp_reduce_scatter_v(rp_comm *comm, const rp_block *inputs, void *output,
                                     rp_dtype dtype, const rp_codec *codec,
                                     const rp_collective_options *options);
RP_API rp_status rp_reduce_scatter_segments(rp_comm *comm, const rp_owned_segment *segments,
                                            size_t count, const rp_collective_options *options);
RP_API rp_status rp_all_gather(rp_comm *comm, const void *input, void *output, size_t count,
                               rp_dtype dtype, const rp_codec *codec,
                               const rp_collective_options *options);
RP_API rp_status rp_all_gather_v(rp_comm *comm, const void *input, const rp_block *outputs,
                                 rp_dtype dtype, const rp_codec *codec,
                                 const rp_collective_options *options);
RP_API rp_status rp_all_gather_segments(rp_comm *comm, const rp_owned_segment *segments,
                                        size_t count, const rp_collective_options *options);
RP_API rp_status rp_broadcast(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                              const rp_collective_options *options);
RP_API rp_status rp_reduce(rp_comm *comm, const void *input, void *output, size_t count,
                           rp_dtype dtype, const rp_collective_options *options);
RP_API rp_status rp_gather(rp_comm *comm, const void *input, size_t count,
                           const rp_block *outputs, rp_dtype dtype,
                           const rp_collective_options *options);
RP_API rp_status rp_scatter(rp_comm *comm, const rp_block *inputs, void *output, size_t count,
                            rp_dtype dtype, const rp_collective_options *options);
RP_API rp_status rp_all_to_all(rp_comm *comm, const rp_block *inputs, const rp_block *outputs,
                               rp_dtype dtype, const rp_collective_options *options);
RP_API rp_status rp_barrier(rp_comm *comm);
RP_API rp_status rp_neighbor_all_reduce(rp_comm *comm, const rp_segment *segments,
                                        void *const *outputs, size_t count,
                                        const rp_neighbors *neighbors,
                                        const rp_collective_options *options);
RP_API rp_status rp_send(rp_comm *comm, const void *data, size_t count, rp_dtype dtype,
                         int peer, int tag);
RP_API rp_status rp_recv(rp_comm *comm, void *data, size_t count, rp_dtype dtype, int peer,
                         int tag);

/** For a caller that posts an operation and waits for it at once, on a communicator that has a
 *  progress thread (options, progress_thread) for others. The thread would wake up at the post
 *  though the caller is about to move the bytes itself. Between rp_comm_attend() and
 *  rp_comm_leave() it stays asleep:
 *
 *      rp_comm_attend(comm);
 *      status = rp_all_reduce_start(comm, segments, count, options, &request);
 *      if (status == RP_OK) status = rp_request_wait(&request);
 *      rp_comm_leave(comm);
 *
 *  The blocking forms do that by themselves. Meanwhile only threads that wait or test make
 *  progress: operations and windows of this communicator, of its groups and of the one that it
 *  was made of stand still while no thread does. So do not compute between the two. After the
 *  last rp_comm_leave() the thread goes on with what is not complete.
 *  Each rp_comm_attend() needs one rp_comm_leave(), also after a failure; pairs may be nested,
 *  and pairs of several threads may overlap. Local; neither waits for other ranks. Without a
 *  progress thread they change nothing. comm NULL: nothing is done, and rp_last_error() says
 * so. This is not how a rank leaves a communicator: that is rp_comm_destroy(). */
RP_API void rp_comm_attend(rp_comm *comm);
RP_API void rp_comm_leave(rp_comm *comm);

/** Another rp_comm_options.timeout_s, from now on. Any thread. RP_INVALID: not above 0. */
RP_API rp_status rp_comm_set_timeout(rp_comm *comm, double timeout_s);

/** Statistics since creation, of this rank. Seconds are of wall time inside the library. */
typedef struct rp_comm_stats {
    uint64_t operations;
    uint64_t wire_bytes_sent, wire_bytes_received; /**< Frames and all. */
    uint64_t value_bytes_sent; /**< What the frames sent would have carried unencoded. */
    double encode_s, decode_s; /**< Spent in codecs and sums. */
    double wait_s;             /**< Callers blocked in waits. */
    double busy_s; /**< Wall time during which at least one operation was in flight. */
} rp_comm_stats;
RP_API void rp_comm_get_stats(const rp_comm *comm, rp_comm_stats *stats);

/** Tell all ranks that this one has failed for a reason of its own (a bad file, say): their
 *  operations, now and later, fail with `message`, in this communicator and in all that were
 *  made of it, on whatever ranks. status RP_CANCELLED, which says that one is closed: in this
 *  one alone. */
RP_API void rp_comm_abort(rp_comm *comm, rp_status status, const char *message);

/** End the communicator for all ranks, here at once. Local. Afterwards all its requests are
 *  complete with RP_CANCELLED ("rank 2 revoked communicator 'tp0'"), unless they were complete
 *  or it had failed before; the memory that they had borrowed is the caller's again, and no
 *  other rank reads or writes it. They are still to be waited for or freed, and the
 *  communicator is still to be destroyed. The other ranks hear of it as of rp_comm_abort(). A
 *  communicator of the same ranks and name can be made again at once, since what belongs to the
 *  old one is never taken for the new one's. Waits for no rank; where operations are on a GPU,
 *  for that, five seconds at most. Any thread, but not while another posts to it.
 *  RP_INVALID: comm is NULL. */
RP_API rp_status rp_comm_revoke(rp_comm *comm);

/** RP_OK while the world is well; else the failure for which operations are refused from now
 *  on, its text being this thread's rp_last_error(). Another rank's is known as soon as the
 *  control connection has heard of it, with nothing in flight too: who waits for something
 *  beside the communicator may ask. Never blocks; any thread. */
RP_API rp_status rp_comm_status(const rp_comm *comm);

/** In a child that fork() made without exec(): close the child's copies of the communicator's
 *  descriptors, so that the parent's death is seen by the other ranks at once. The communicator
 *  is unusable in the child from then on, and its memory stays as it is: neither destroy it nor
 *  call anything else with it there. The parent is not disturbed. NULL is fine. */
RP_API void rp_comm_forget(rp_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
