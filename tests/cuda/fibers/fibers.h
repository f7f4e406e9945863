/* The threads of a block as fibers of one thread of the CPU, which take turns where they wait
 * for each other; in an order that is drawn each time, so that what needs a barrier and has
 * none differs. Blocks follow each other. All warps must be whole. */
#ifndef TESTS_CUDA_FIBERS_FIBERS_H
#define TESTS_CUDA_FIBERS_FIBERS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fibers_index {
    unsigned x;
} fibers_index;

/* Of the fiber that asks. */
const fibers_index *fibers_thread(void);
const fibers_index *fibers_block(void);
const fibers_index *fibers_threads(void);
const fibers_index *fibers_blocks(void);

/* They return when all of the block, or of the warp those in `mask`, have come. A block that
 * can never meet ends the process. */
void fibers_meet(void);
void fibers_meet_of_warp(unsigned mask);
/* The word of lane `from`, of which all in `mask` bring one. */
uint64_t fibers_exchange(unsigned mask, uint64_t own, unsigned from);
/* True: that of a thread of the block is. */
int fibers_any(int own);

void fibers_run(unsigned blocks, unsigned threads, void (*body)(void *context), void *context);

/* A kernel is loaded; it is launched; how many launches there have been of one that was not. */
void fibers_load(const void *kernel);
void fibers_note_launch(const void *kernel);
long fibers_unloaded(void);

#ifdef __cplusplus
}

#    include <tuple>

template <typename... OF> struct fibers_kernel {
    void (*kernel)(OF...);
    std::tuple<OF...> of;
    static void run(void *context) {
        const fibers_kernel *self = (const fibers_kernel *)context;
        std::apply(self->kernel, self->of);
    }
};

template <typename... OF>
static inline int fibers_launch(void (*kernel)(OF...), unsigned blocks, unsigned threads,
                                void *stream, const OF &...of) {
    (void)stream; /* nothing is late */
    fibers_kernel<OF...> all = {kernel, std::tuple<OF...>(of...)};
    fibers_note_launch((const void *)kernel);
    fibers_run(blocks, threads, fibers_kernel<OF...>::run, &all);
    return 0;
}
#endif

#endif
