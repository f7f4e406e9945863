/* Reduce-scatter and all-gather of lists: blocks cut into segments, as tensors are among ranks.
 */
#include "base/memory.h"
#include "base/status.h"
#include "cli/bench_collective.h"

/* The blocks of all ranks, and this rank's own. */
typedef struct places {
    const rp_block *all;
    const void *own;
} places;

static rp_owned_segment segment_at(const rpi_bench_call *call, const places *at, int block,
                                   size_t begin, size_t end) {
    size_t first = begin * rp_dtype_bytes(call->dtype);
    bool is_empty = begin == end, is_own = block == call->rank && !is_empty;
    unsigned char *data = at->all[block].data, *own = (unsigned char *)(uintptr_t)at->own;
    return (rp_owned_segment){.segment = {.data = is_empty ? NULL : data + first,
                                          .count = end - begin,
                                          .dtype = call->dtype,
                                          .codec = call->codec},
                              .owner = block,
                              .own = is_own ? own + first : NULL};
}

static void list(const rpi_bench_call *call, const places *at, rp_owned_segment *segments) {
    size_t parts = (size_t)call->segments, each = call->count / parts;
    size_t longer = call->count % parts;
    for (int block = 0; block < call->world; block++)
        for (size_t i = 0, begin = 0; i < parts; i++, segments++) {
            size_t end = begin + each + (i < longer);
            *segments = segment_at(call, at, block, begin, end);
            segments->segment.tensor = (uint32_t)i;
            begin = end;
        }
}

rp_status rpi_bench_start_segments(const rpi_bench_call *call, const rp_block *all,
                                   const void *own, rpi_bench_segments_start start,
                                   rp_request **out_request) {
    rp_owned_segment *segments = NULL;
    size_t count = (size_t)call->world * (size_t)call->segments;
    RP_TRY(rpi_alloc_array(count, sizeof *segments, "a list of segments", &segments));
    list(call, &(places){all, own}, segments);
    rp_status status = start(call->comm, segments, count, &call->options, out_request);
    rpi_free(segments);
    return status;
}
