#include "cuda/fibers/fibers.h"

#include "base/rng.h"
#include "harness/check.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { MOST = 1024, WARP = 32, STACK_BYTES = 128 << 10, KERNELS_MOST = 1000 };

typedef enum fiber_state { READY, AT_BARRIER, AT_BARRIER_OF_WARP, DONE } fiber_state;

typedef struct fiber {
    fiber_state state;
    unsigned mask; /* of those for whom it waits in its warp */
    uint64_t word; /* what it tells the others */
    jmp_buf place; /* where it goes on, once it has begun: setjmp() costs no system call */
    bool begun;
    ucontext_t begin;
    char *stack;
} fiber;

static fiber all[MOST];
static unsigned running;
static jmp_buf scheduler;
static fibers_index thread, block, threads, blocks;
static void (*body_of)(void *);
static void *context_of;

const fibers_index *fibers_thread(void) {
    return &thread;
}
const fibers_index *fibers_block(void) {
    return &block;
}
const fibers_index *fibers_threads(void) {
    return &threads;
}
const fibers_index *fibers_blocks(void) {
    return &blocks;
}

/* ---- one fiber ---- */

static void give_way(fiber_state state) {
    fiber *self = &all[running];
    self->state = state;
    if (!_setjmp(self->place)) _longjmp(scheduler, 1);
}

static void begin(void) {
    body_of(context_of);
    give_way(DONE);
}

static void go_on(unsigned i) {
    running = thread.x = i;
    if (_setjmp(scheduler)) return; /* it has given way */
    if (all[i].begun) _longjmp(all[i].place, 1);
    all[i].begun = true;
    setcontext(&all[i].begin);
}

static void prepare(fiber *f) {
    if (!f->stack) f->stack = malloc(STACK_BYTES);
    REQUIRE(f->stack && getcontext(&f->begin) == 0);
    f->begin.uc_stack.ss_sp = f->stack;
    f->begin.uc_stack.ss_size = STACK_BYTES;
    f->begin.uc_link = NULL;
    makecontext(&f->begin, begin, 0);
    f->begun = false;
    f->state = READY;
}

/* ---- meeting ---- */

void fibers_meet(void) {
    give_way(AT_BARRIER);
}

void fibers_meet_of_warp(unsigned mask) {
    all[running].mask = mask;
    give_way(AT_BARRIER_OF_WARP);
}

uint64_t fibers_exchange(unsigned mask, uint64_t own, unsigned from) {
    unsigned warp = thread.x / WARP * WARP;
    all[thread.x].word = own;
    fibers_meet_of_warp(mask);
    uint64_t word = all[warp + from].word;
    fibers_meet_of_warp(mask); /* all have read it */
    return word;
}

int fibers_any(int own) {
    int any = 0;
    all[thread.x].word = (uint64_t)own;
    fibers_meet();
    for (unsigned i = 0; i < threads.x; i++) any |= (int)all[i].word;
    fibers_meet();
    return any;
}

static bool waits_with(const fiber *f, unsigned mask) {
    return f->state == AT_BARRIER_OF_WARP && f->mask == mask;
}

/* Those of a warp in `mask`, if all have come. */
static void release_of_warp(fiber *warp, unsigned mask) {
    for (unsigned i = 0; i < WARP; i++)
        if (mask >> i & 1 && !waits_with(&warp[i], mask)) return;
    for (unsigned i = 0; i < WARP; i++)
        if (mask >> i & 1) warp[i].state = READY;
}

static void release_warps(void) {
    for (unsigned i = 0; i < threads.x; i++)
        if (all[i].state == AT_BARRIER_OF_WARP)
            release_of_warp(&all[i / WARP * WARP], all[i].mask);
}

static unsigned count_in(fiber_state state) {
    unsigned count = 0;
    for (unsigned i = 0; i < threads.x; i++) count += all[i].state == state;
    return count;
}

static bool release_block(void) {
    if (count_in(AT_BARRIER) < threads.x) return false;
    for (unsigned i = 0; i < threads.x; i++) all[i].state = READY;
    return true;
}

/* ---- a block ---- */

typedef struct turn {
    unsigned warps; /* those that go on */
    unsigned first, step;
} turn;

/* Half the warps, from any of their threads on, up or down. */
static turn draw_turn(rpi_rng *rng) {
    turn t = {.warps = rpi_rng_u32(rng), .first = rpi_rng_below(rng, threads.x)};
    t.step = rpi_rng_below(rng, 2) ? 1 : threads.x - 1;
    return t;
}

/* False: none of them can go on. */
static bool take(const turn *t) {
    volatile bool some = false; /* lives through longjmp() */
    for (volatile unsigned k = 0; k < threads.x; k++) {
        unsigned i = (t->first + k * t->step) % threads.x;
        if (all[i].state != READY || !(t->warps >> i / WARP & 1)) continue;
        some = true;
        go_on(i);
    }
    return some;
}

/* Until those of a turn wait for the others: they are as far ahead as they can be. */
static void run_block(rpi_rng *rng) {
    for (unsigned i = 0; i < threads.x; i++) prepare(&all[i]);
    while (count_in(DONE) < threads.x) {
        turn t = draw_turn(rng);
        while (take(&t)) release_warps();
        if (count_in(READY) || release_block() || count_in(DONE) == threads.x) continue;
        fprintf(stderr, "block %u never meets: of %u threads %u have ended, %u wait for all\n",
                block.x, threads.x, count_in(DONE), count_in(AT_BARRIER));
        exit(1);
    }
}

void fibers_run(unsigned grid, unsigned a_block, void (*body)(void *), void *context) {
    REQUIRE(a_block <= MOST && a_block % WARP == 0);
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, grid);
    body_of = body;
    context_of = context;
    blocks.x = grid;
    threads.x = a_block;
    for (block.x = 0; block.x < grid; block.x++) run_block(&rng);
}

/* ---- which kernels are loaded ---- */

static const void *loaded[KERNELS_MOST];
static int loaded_count;
static long unloaded;

static bool is_loaded(const void *kernel) {
    for (int i = 0; i < loaded_count; i++)
        if (loaded[i] == kernel) return true;
    return false;
}

void fibers_load(const void *kernel) {
    if (is_loaded(kernel)) return;
    REQUIRE(loaded_count < KERNELS_MOST);
    loaded[loaded_count++] = kernel;
}

void fibers_note_launch(const void *kernel) {
    unloaded += !is_loaded(kernel);
}

long fibers_unloaded(void) {
    return unloaded;
}
