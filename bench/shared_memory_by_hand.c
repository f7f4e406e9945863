/* The yardstick of shared memory: two processes that all-reduce floats by hand, in place.
 *
 *     shared_memory_by_hand private|registered BYTES ITERS [cached]
 *
 * private: neither process sees the other's vector. Piece by piece each copies the other's half
 * of its own into memory that both see, adds what the other one has put there to its own half
 * (written where it belongs and, in the same pass, for the other to read), and copies the
 * finished other half: three passes over half a vector.
 * registered: the vectors themselves lie in shared memory. Each adds its half of both, and
 * writes the sum into both: one pass.
 *
 * What goes into the vectors passes by the caches (non-temporal stores) unless `cached` is
 * said: whichever is faster here is the yardstick. There are no frames, no checks and no
 * sleeping. Prints the median and the least of the repeats' seconds, of the slower process. */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#    include <immintrin.h>
#endif

enum { PIECE = 32 * 1024, SLOTS = 4, WARMUP = 3 }; /* floats of a piece: 128 KiB */

/* What one process tells the other, in a cache line of its own each. */
typedef struct told {
    _Alignas(64) atomic_size_t pieces; /* contributions put into slots, since the beginning */
    _Alignas(64) atomic_size_t sums;   /* and finished sums */
    _Alignas(64) atomic_size_t taken;  /* sums of the other that were copied */
    _Alignas(64) atomic_size_t rounds; /* barriers reached */
} told;

typedef struct shared {
    told side[2];
    float piece[2][SLOTS][PIECE], sum[2][SLOTS][PIECE];
} shared;

typedef struct process {
    int rank;
    bool streams;
    size_t half; /* floats of half a vector */
    shared *memory;
    told *mine;
    const told *theirs;
    float *vector[2]; /* of both; registered only, else ours alone */
    size_t begun;     /* pieces of all rounds before this one */
    size_t rounds;
} process;

static void die(const char *what) {
    fprintf(stderr, "shared_memory_by_hand: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void wait_for(const atomic_size_t *number, size_t least) {
    while (atomic_load_explicit(number, memory_order_acquire) < least) {
#if defined(__x86_64__)
        _mm_pause();
#endif
    }
}

static void tell(atomic_size_t *number, size_t value) {
#if defined(__x86_64__)
    _mm_sfence(); /* streamed stores are seen before what announces them */
#endif
    atomic_store_explicit(number, value, memory_order_release);
}

static void meet(process *p) {
    tell(&p->mine->rounds, ++p->rounds);
    wait_for(&p->theirs->rounds, p->rounds);
}

#if defined(__x86_64__)
static bool is_aligned(const void *a) {
    return (size_t)a % 16 == 0;
}

/* Both outputs are written once; `into` past the caches, `also` (NULL: nothing) as it says. */
static size_t stream(const float *a, const float *b, size_t count, float *into, float *also,
                     bool streams_also) {
    size_t i = 0;
    if (!is_aligned(into) || (also && !is_aligned(also))) return 0;
    for (; i + 4 <= count; i += 4) {
        __m128 v =
            b ? _mm_add_ps(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i)) : _mm_loadu_ps(a + i);
        _mm_stream_ps(into + i, v);
        if (also && streams_also)
            _mm_stream_ps(also + i, v);
        else if (also)
            _mm_store_ps(also + i, v);
    }
    return i;
}
#else
static size_t stream(const float *a, const float *b, size_t count, float *into, float *also,
                     bool streams_also) {
    (void)a, (void)b, (void)count, (void)into, (void)also, (void)streams_also;
    return 0;
}
#endif

/* into = also = a + b */
static void add(const process *p, const float *a, const float *b, size_t count, float *into,
                float *also, bool streams_also) {
    size_t i = p->streams ? stream(a, b, count, into, also, streams_also) : 0;
    for (; i < count; i++) also[i] = into[i] = a[i] + b[i];
}

static void copy(const process *p, const float *from, size_t count, float *into) {
    size_t done = p->streams ? stream(from, NULL, count, into, NULL, false) : 0;
    memcpy(into + done, from + done, (count - done) * sizeof *from);
}

static size_t count_of(const process *p, size_t piece) {
    size_t left = p->half - piece * PIECE;
    return left < PIECE ? left : PIECE;
}

/* Sums are of rank 0's and rank 1's, in this order. */
static void reduce_private(process *p) {
    int rank = p->rank;
    size_t pieces = (p->half + PIECE - 1) / PIECE;
    float *own = p->vector[rank] + (rank ? p->half : 0);
    float *other = p->vector[rank] + (rank ? 0 : p->half);
    for (size_t i = 0; i < pieces + 2; i++) { /* three stages, a piece apart */
        size_t all = p->begun + i;
        if (i < pieces) { /* the slot's last reader was two stages ago */
            memcpy(p->memory->piece[rank][all % SLOTS], other + i * PIECE,
                   count_of(p, i) * sizeof(float));
            tell(&p->mine->pieces, all + 1);
        }
        if (i >= 1 && i - 1 < pieces) {
            size_t k = i - 1, slot = (all - 1) % SLOTS;
            float *at = own + k * PIECE;
            const float *theirs = p->memory->piece[!rank][slot];
            wait_for(&p->theirs->pieces, all);
            if (all > SLOTS) wait_for(&p->theirs->taken, all - SLOTS);
            add(p, rank ? theirs : at, rank ? at : theirs, count_of(p, k), at,
                p->memory->sum[rank][slot], false);
            tell(&p->mine->sums, all);
        }
        if (i >= 2) {
            size_t k = i - 2;
            wait_for(&p->theirs->sums, all - 1);
            copy(p, p->memory->sum[!rank][(all - 2) % SLOTS], count_of(p, k),
                 other + k * PIECE);
            tell(&p->mine->taken, all - 1);
        }
    }
    p->begun += pieces;
}

static void reduce_registered(process *p) {
    size_t first = p->rank ? p->half : 0;
    for (size_t i = 0; i < p->half; i += PIECE) {
        size_t at = first + i, count = p->half - i < PIECE ? p->half - i : PIECE;
        float *a = p->vector[0] + at, *b = p->vector[1] + at;
        add(p, a, b, count, a, b, true);
    }
}

static void *map_shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap");
    return memory;
}

static float *map_private(size_t bytes) {
    float *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!memory) die("memory");
    return memory;
}

static void fill(const process *p) {
    for (size_t i = 0; i < 2 * p->half; i++)
        p->vector[p->rank][i] = (float)((i + (size_t)p->rank) % 1000);
}

static void check(const process *p) {
    for (size_t i = 0; i < 2 * p->half; i++)
        if (p->vector[p->rank][i] != (float)(i % 1000) + (float)((i + 1) % 1000)) {
            fprintf(stderr, "shared_memory_by_hand: element %zu is wrong\n", i);
            exit(1);
        }
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Each repeat begins with new vectors, as `redpoll bench` has it, and ends when both are done.
 */
static void measure(process *p, bool registered, int iters, double *seconds) {
    for (int i = -WARMUP; i < iters; i++) {
        fill(p);
        meet(p);
        double start = now();
        if (registered)
            reduce_registered(p);
        else
            reduce_private(p);
        meet(p); /* the slower one's end */
        if (i >= 0) seconds[i] = now() - start;
        check(p);
        meet(p);
    }
}

int main(int argc, char **argv) {
    bool registered = argc > 1 && strcmp(argv[1], "registered") == 0;
    if (argc < 4 || (!registered && strcmp(argv[1], "private") != 0)) {
        fputs("usage: shared_memory_by_hand private|registered BYTES ITERS [cached]\n", stderr);
        return 2;
    }
    size_t bytes = strtoull(argv[2], NULL, 10) / 32 * 32;
    int iters = atoi(argv[3]);
    if (bytes < 32 || iters < 1) {
        fputs("shared_memory_by_hand: 32 bytes and one repeat at least\n", stderr);
        return 2;
    }
    double *seconds = calloc((size_t)iters, sizeof *seconds);
    if (!seconds) die("memory");
    process p = {.half = bytes / 8, .streams = argc < 5, .memory = map_shared(sizeof(shared))};
    if (registered)
        for (int side = 0; side < 2; side++) p.vector[side] = map_shared(bytes);
    pid_t child = fork();
    if (child < 0) die("fork");
    p.rank = child == 0;
    p.mine = &p.memory->side[p.rank];
    p.theirs = &p.memory->side[!p.rank];
    if (!registered) p.vector[p.rank] = map_private(bytes);
    measure(&p, registered, iters, seconds);
    if (child == 0) _exit(0);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) return 1;
    qsort(seconds, (size_t)iters, sizeof *seconds, by_size);
    printf("%.9f %.9f\n", seconds[iters / 2], seconds[0]);
    return 0;
}
