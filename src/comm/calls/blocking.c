/* The blocking forms: start and wait. */
#include "comm/calls/posting.h"
#include "comm/core/communicator.h"

/* `start` sets *request. */
#define BLOCKING(comm, start)                                                                  \
    rp_request *request = NULL;                                                                \
    if (comm) rp_comm_attend(comm);                                                            \
    return rpi_blocking_end(comm, start, &request)

rp_status rp_all_reduce(rp_comm *comm, const rp_segment *segments, size_t count,
                        const rp_collective_options *options) {
    BLOCKING(comm, rp_all_reduce_start(comm, segments, count, options, &request));
}

rp_status rp_reduce_scatter(rp_comm *comm, const void *input, void *output, size_t count,
                            rp_dtype dtype, const rp_codec *codec,
                            const rp_collective_options *options) {
    BLOCKING(comm, rp_reduce_scatter_start(comm, input, output, count, dtype, codec, options,
                                           &request));
}

rp_status rp_reduce_scatter_v(rp_comm *comm, const rp_block *inputs, void *output,
                              rp_dtype dtype, const rp_codec *codec,
                              const rp_collective_options *options) {
    BLOCKING(comm,
             rp_reduce_scatter_v_start(comm, inputs, output, dtype, codec, options, &request));
}

rp_status rp_reduce_scatter_segments(rp_comm *comm, const rp_owned_segment *segments,
                                     size_t count, const rp_collective_options *options) {
    BLOCKING(comm, rp_reduce_scatter_segments_start(comm, segments, count, options, &request));
}

rp_status rp_all_gather(rp_comm *comm, const void *input, void *output, size_t count,
                        rp_dtype dtype, const rp_codec *codec,
                        const rp_collective_options *options) {
    BLOCKING(comm,
             rp_all_gather_start(comm, input, output, count, dtype, codec, options, &request));
}

rp_status rp_all_gather_v(rp_comm *comm, const void *input, const rp_block *outputs,
                          rp_dtype dtype, const rp_codec *codec,
                          const rp_collective_options *options) {
    BLOCKING(comm,
             rp_all_gather_v_start(comm, input, outputs, dtype, codec, options, &request));
}

rp_status rp_all_gather_segments(rp_comm *comm, const rp_owned_segment *segments, size_t count,
                                 const rp_collective_options *options) {
    BLOCKING(comm, rp_all_gather_segments_start(comm, segments, count, options, &request));
}

rp_status rp_broadcast(rp_comm *comm, void *data, size_t count, rp_dtype dtype,
                       const rp_collective_options *options) {
    BLOCKING(comm, rp_broadcast_start(comm, data, count, dtype, options, &request));
}

rp_status rp_reduce(rp_comm *comm, const void *input, void *output, size_t count,
                    rp_dtype dtype, const rp_collective_options *options) {
    BLOCKING(comm, rp_reduce_start(comm, input, output, count, dtype, options, &request));
}

rp_status rp_gather(rp_comm *comm, const void *input, size_t count, const rp_block *outputs,
                    rp_dtype dtype, const rp_collective_options *options) {
    BLOCKING(comm, rp_gather_start(comm, input, count, outputs, dtype, options, &request));
}

rp_status rp_scatter(rp_comm *comm, const rp_block *inputs, void *output, size_t count,
                     rp_dtype dtype, const rp_collective_options *options) {
    BLOCKING(comm, rp_scatter_start(comm, inputs, output, count, dtype, options, &request));
}

rp_status rp_all_to_all(rp_comm *comm, const rp_block *inputs, const rp_block *outputs,
                        rp_dtype dtype, const rp_collective_options *options) {
    BLOCKING(comm, rp_all_to_all_start(comm, inputs, outputs, dtype, options, &request));
}

rp_status rp_barrier(rp_comm *comm) {
    BLOCKING(comm, rp_barrier_start(comm, &request));
}

rp_status rp_neighbor_all_reduce(rp_comm *comm, const rp_segment *segments,
                                 void *const *outputs, size_t count,
                                 const rp_neighbors *neighbors,
                                 const rp_collective_options *options) {
    BLOCKING(comm, rp_neighbor_all_reduce_start(comm, segments, outputs, count, neighbors,
                                                options, &request));
}

rp_status rp_send(rp_comm *comm, const void *data, size_t count, rp_dtype dtype, int peer,
                  int tag) {
    BLOCKING(comm, rp_send_start(comm, data, count, dtype, peer, tag, &request));
}

rp_status rp_recv(rp_comm *comm, void *data, size_t count, rp_dtype dtype, int peer, int tag) {
    BLOCKING(comm, rp_recv_start(comm, data, count, dtype, peer, tag, &request));
}
