#include "cli/bench_memory.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

enum { BOUNCE_BYTES = 1 << 20 };

static rp_status check(const rpi_bench_memory *memory, int error, const char *what) {
    return rpi_cuda_check(memory->cuda, error, what);
}

rp_status rpi_bench_memory_open(rpi_bench_memory *memory, int rank, int world) {
    int devices = 0;
    RP_TRY(rpi_cuda_open(&memory->cuda));
    RP_TRY(check(memory, memory->cuda->devices(&devices), "counting GPUs"));
    RP_TRY(rpi_cuda_prepare(memory->cuda, rank % devices));
    RP_TRY(check(memory, memory->cuda->device_set(rank % devices), "choosing a GPU"));
    RP_TRY(rpi_cuda_pin(memory->cuda, BOUNCE_BYTES, &memory->pinned));
    return rpi_alloc_array(2 * (size_t)world, sizeof *memory->blocks, "blocks",
                           &memory->blocks);
}

void rpi_bench_memory_close(rpi_bench_memory *memory) {
    if (!memory->cuda) return;
    for (int i = 0; i < memory->count; i++)
        (void)memory->cuda->release(memory->buffers[i].there);
    (void)memory->cuda->unpin(memory->pinned);
    rpi_free(memory->blocks);
    *memory = (rpi_bench_memory){0};
}

rp_status rpi_bench_memory_add(rpi_bench_memory *memory, unsigned char *host, size_t bytes) {
    if (!memory->cuda || !host || !bytes) return RP_OK;
    rpi_bench_buffer *buffer = &memory->buffers[memory->count];
    *buffer = (rpi_bench_buffer){.host = host, .bytes = bytes};
    RP_TRY(check(memory, memory->cuda->allocate(bytes, &buffer->there), "a buffer"));
    memory->count++;
    return RP_OK;
}

/* Copies a part of a buffer to the GPU or back. */
static rp_status move(const rpi_bench_memory *memory, const rpi_bench_buffer *buffer,
                      size_t first, bool back) {
    size_t left = buffer->bytes - first, bytes = left < BOUNCE_BYTES ? left : BOUNCE_BYTES;
    char *there = (char *)buffer->there + first;
    if (!back) memcpy(memory->pinned, buffer->host + first, bytes);
    int error = memory->cuda->copy(back ? memory->pinned : there, back ? there : memory->pinned,
                                   bytes, NULL);
    RP_TRY(check(memory, error, "copying"));
    RP_TRY(check(memory, memory->cuda->wait(NULL), "copying"));
    if (back) memcpy(buffer->host + first, memory->pinned, bytes);
    return RP_OK;
}

static rp_status move_all(const rpi_bench_memory *memory, bool back) {
    for (int i = 0; i < memory->count; i++)
        for (size_t first = 0; first < memory->buffers[i].bytes; first += BOUNCE_BYTES)
            RP_TRY(move(memory, &memory->buffers[i], first, back));
    return RP_OK;
}

rp_status rpi_bench_memory_upload(rpi_bench_memory *memory) {
    return move_all(memory, false);
}

rp_status rpi_bench_memory_download(rpi_bench_memory *memory) {
    return move_all(memory, true);
}

/* The address in GPU memory for one on the host. NULL stays NULL, and an address without
 * elements stays as it is. */
static void *twin_of(const rpi_bench_memory *memory, const void *host) {
    const unsigned char *at = host;
    for (int i = 0; at && i < memory->count; i++) {
        const rpi_bench_buffer *buffer = &memory->buffers[i];
        if (at >= buffer->host && at < buffer->host + buffer->bytes)
            return (char *)buffer->there + (at - buffer->host);
    }
    return (void *)(uintptr_t)at;
}

static const rp_block *twins_of(const rpi_bench_memory *memory, const rp_block *blocks,
                                int world, rp_block *out) {
    for (int i = 0; blocks && i < world; i++)
        out[i] = (rp_block){twin_of(memory, blocks[i].data), blocks[i].count};
    return blocks ? out : NULL;
}

rpi_bench_call rpi_bench_memory_call(const rpi_bench_memory *memory,
                                     const rpi_bench_call *call) {
    rpi_bench_call there = *call;
    if (!memory->cuda) return there;
    there.input = twin_of(memory, call->input);
    there.output = twin_of(memory, call->output);
    there.inputs = twins_of(memory, call->inputs, call->world, memory->blocks);
    there.outputs = twins_of(memory, call->outputs, call->world, memory->blocks + call->world);
    there.options.memory = RP_MEMORY_CUDA;
    return there;
}
