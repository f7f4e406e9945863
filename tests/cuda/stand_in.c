/* See stand_in.h. One lock; workers take it to choose what is done next, not to do it. */
#include "cuda/stand_in.h"

#include "cuda/cuda_library.h"
#include "cuda/device_list.h"
#include "cuda/lane_loops.h"
#include "cuda/octet.h"
#include "cuda/place.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 3, LANES = 32, DEFAULT_DELAY_US = 300 };
#define DEVICE_BYTES ((size_t)256 << 20) /* address space: pages come when they are touched */
#define GAP          ((size_t)4096)      /* between two pieces of memory */

enum {
    NONE = 0,
    INVALID_VALUE = 1,
    NO_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_HANDLE = 400,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILURE = 719
};

/* ---- memory ---- */

typedef struct piece {
    struct piece *next;
    char *at;
    size_t bytes;
    int device; /* RPI_CUDA_HOST: pinned memory of the host */
    int pinned_for;
} piece;

typedef struct event {
    int device;
    unsigned long recorded, done; /* times */
    int uses;                     /* in streams */
    bool freed;
} event;

typedef enum op_kind { COPY, ENCODE, DECODE, DIVIDE, RECORD, WAIT, CALL } op_kind;

typedef struct op {
    struct op *next;
    op_kind kind;
    void *to;
    const void *from;
    size_t bytes;
    rpi_device_call *calls; /* of one launch; owned */
    int count;
    int adds;
    event *event;
    unsigned long time;
    void (*function)(void *);
    void *context;
} op;

typedef struct stream {
    struct stream *next;
    int device;
    op *first, **end;
    bool busy, freed, moves; /* has been given what touches memory */
    bool works;              /* a kernel or a copy is at memory */
} stream;

static struct {
    pthread_once_t once;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char *guarded[STAND_IN_DEVICES], *real[STAND_IN_DEVICES];
    piece *pieces;
    stream *streams;
    stream default_stream[STAND_IN_DEVICES];
    int sticky[STAND_IN_DEVICES];
    bool loaded[STAND_IN_DEVICES];
    unsigned drawn;
} state = {.once = PTHREAD_ONCE_INIT,
           .lock = PTHREAD_MUTEX_INITIALIZER,
           .changed = PTHREAD_COND_INITIALIZER};

static stand_in control = {
    .seed = 1,
    .longest_us = DEFAULT_DELAY_US,
    .fails_after = {-1, -1, -1, -1, -1, -1, -1, -1},
    .pins_left = -1,
};

enum { NO_DEVICE = -1 };

static _Thread_local int chosen_device = NO_DEVICE;
static bool hosts_memory; /* STAND_IN_HOSTS */

/* The thread's, as any call needs one: the first where none was chosen, which opens it. */
static int current(void) {
    if (chosen_device == NO_DEVICE) chosen_device = 0;
    atomic_store(&control.opened[chosen_device], true);
    return chosen_device;
}

static int device_at(const void *address) {
    const char *at = address;
    for (int d = 0; d < STAND_IN_DEVICES; d++)
        if (state.guarded[d] && at >= state.guarded[d] && at < state.guarded[d] + DEVICE_BYTES)
            return d;
    return RPI_CUDA_HOST;
}

/* Under the lock: a place that the stand-in may touch; NULL: nobody has these bytes. */
static void *reach(const void *address, size_t bytes) {
    const char *at = address;
    for (const piece *p = state.pieces; p; p = p->next) {
        if (at < p->at || at + bytes > p->at + p->bytes) continue;
        if (p->device == RPI_CUDA_HOST) return (void *)(uintptr_t)at;
        return state.real[p->device] + (at - state.guarded[p->device]);
    }
    return hosts_memory ? (void *)(uintptr_t)at : NULL;
}

static void map_device(int device) {
    int file = memfd_create("stand-in", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)DEVICE_BYTES) != 0) abort();
    state.guarded[device] =
        mmap(NULL, DEVICE_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    state.real[device] =
        mmap(NULL, DEVICE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (state.guarded[device] == MAP_FAILED || state.real[device] == MAP_FAILED) abort();
}

/* ---- what is put into streams ---- */

/* Under the lock: one use less, or freed. */
static void leave_event(event *e) {
    if (e->freed && e->uses == 0) free(e);
}

static double uniform(void) {
    unsigned x = state.drawn += atomic_load(&control.seed) * 2654435761u + 0x9e3779b9u;
    x ^= x >> 16, x *= 0x85ebca6bu, x ^= x >> 13, x *= 0xc2b2ae35u, x ^= x >> 16;
    return x / 4294967296.0;
}

static bool may_run(const stream *s) {
    if (s->busy || !s->first || atomic_load(&control.frozen[s->device])) return false;
    return s->first->kind != WAIT || s->first->event->done >= s->first->time;
}

static stream *next_stream(stream *after) {
    if (!after) return state.streams;
    return after->next;
}

/* Any of those that may. */
static stream *choose(void) {
    stream *chosen = NULL;
    int seen = 0;
    for (stream *s = next_stream(NULL); s; s = next_stream(s))
        if (may_run(s) && uniform() * ++seen < 1) chosen = s;
    return chosen;
}

static void sleep_us(int us) {
    struct timespec span = {.tv_nsec = 1000L * us};
    nanosleep(&span, NULL);
}

/* Of its elements; of a copy's bytes. */
static size_t element_bytes(const rpi_device_call *call, int adds) {
    if (call->kind == RPI_DEVICE_COPY) return 1;
    return call->type == RPI_DEVICE_F32 || adds ? 4 : 2;
}

static bool translate_call(const op *o, rpi_device_call *call) {
    bool encodes = o->kind == ENCODE;
    size_t element = element_bytes(call, o->adds);
    if (o->kind == DIVIDE) {
        call->y = reach(call->y, call->count * element);
        return call->y != NULL;
    }
    if (!encodes && call->x) {
        call->x = reach(call->x, call->count * element);
        if (!call->x) return false;
    }
    call->encoded = reach(call->encoded, 1);
    if (encodes) call->x = reach(call->x, call->count * element);
    if (!encodes) call->y = reach(call->y, call->count * element);
    if (encodes && call->bytes) call->bytes = reach(call->bytes, sizeof *call->bytes);
    if (!encodes && call->offsets) call->offsets = reach(call->offsets, 1);
    bool feeds = encodes && call->residual;
    if (feeds) call->residual = reach(call->residual, call->count * sizeof(float));
    return call->encoded && (encodes ? call->x : call->y) && (!feeds || call->residual);
}

static bool translate(op *o) {
    bool all = true;
    if (o->kind == COPY) {
        o->to = reach(o->to, o->bytes);
        o->from = reach(o->from, o->bytes);
        return o->to && o->from;
    }
    for (int i = 0; i < o->count; i++) all &= translate_call(o, &o->calls[i]);
    return all;
}

static void encode_call(const rpi_device_call *call) {
    lane_loops_encode(call, LANES);
    if (atomic_load(&control.spills)) call->encoded[atomic_load(&control.spills)] ^= 1;
}

/* Calls of one launch in any order. */
static void work(op *o) {
    for (int i = o->count - 1; i >= 0; i--) {
        if (o->kind == ENCODE) encode_call(&o->calls[i]);
        if (o->kind == DECODE) lane_loops_decode(&o->calls[i], o->adds, LANES);
        if (o->kind == DIVIDE) lane_loops_divide(&o->calls[i]);
    }
    switch (o->kind) {
    case COPY: memmove(o->to, o->from, o->bytes); break;
    case ENCODE:
    case DECODE:
    case DIVIDE: break;
    case CALL: o->function(o->context); break;
    case RECORD:
    case WAIT: break;
    }
}

static bool touches_memory(const op *o) {
    return o->kind == COPY || o->kind == ENCODE || o->kind == DECODE || o->kind == DIVIDE;
}

/* By a copy engine, or by the kernel for short ones. */
static bool copies(const op *o) {
    bool encodes = o->kind == ENCODE || o->kind == DECODE;
    return o->kind == COPY || (encodes && o->calls[0].kind == RPI_DEVICE_COPY);
}

/* Between a device and the host. */
static bool is_crossing(const void *to, const void *from) {
    return (device_at(to) == RPI_CUDA_HOST) != (device_at(from) == RPI_CUDA_HOST);
}

/* Under the lock, before the places are those of the stand-in. */
static void note(const op *o) {
    if (o->kind == COPY && is_crossing(o->to, o->from)) control.crossed += (long)o->bytes;
    for (int i = 0; i < o->count; i++) {
        const rpi_device_call *call = &o->calls[i];
        const void *other = o->kind == ENCODE ? call->x : call->y;
        if (copies(o) && is_crossing(other, call->encoded))
            control.crossed += (long)call->count;
        control.ragged += !copies(o) && o->kind != DIVIDE &&
                          device_at(call->encoded) == RPI_CUDA_HOST &&
                          !rpi_is_aligned(call->encoded, rpi_device_alignment(call));
    }
}

static bool is_at_memory(int device) {
    for (const stream *s = state.streams; s; s = s->next)
        if (s->device == device && s->works) return true;
    return false;
}

/* Under the lock. Once it is told, nothing of the device touches memory any more. */
static void crash(int device, int error) {
    state.sticky[device] = error;
    while (is_at_memory(device)) pthread_cond_wait(&state.changed, &state.lock);
}

/* Under the lock, which it releases meanwhile. After an error nothing touches memory. */
static void run_first(stream *s) {
    op *o = s->first;
    int delay_us = uniform() < 0.3 ? (int)(uniform() * atomic_load(&control.longest_us)) : 0;
    s->busy = true;
    if (delay_us) {
        pthread_mutex_unlock(&state.lock);
        sleep_us(delay_us);
        pthread_mutex_lock(&state.lock);
    }
    note(o);
    bool dead = state.sticky[s->device] != NONE && touches_memory(o);
    if (!dead && touches_memory(o) && !translate(o)) {
        crash(s->device, ILLEGAL_ADDRESS);
        dead = true;
    }
    s->works = !dead && touches_memory(o);
    pthread_mutex_unlock(&state.lock);
    if (!dead) work(o);
    pthread_mutex_lock(&state.lock);
    s->works = false;
    if (copies(o)) control.copies++;
    if (touches_memory(o) && !copies(o)) control.kernels++;
    if (o->kind == RECORD) control.records++;
    if (o->kind == CALL) control.calls++;
    if (o->kind == RECORD && o->event->done < o->time) o->event->done = o->time;
    s->first = o->next;
    if (!s->first) s->end = &s->first;
    s->busy = false;
    control.pending--;
    if (o->event) {
        o->event->uses--;
        leave_event(o->event);
    }
    free(o->calls);
    free(o);
    pthread_cond_broadcast(&state.changed);
}

static void remove_stream(stream *s) {
    stream **at = &state.streams;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    free(s);
}

static void *worker(void *context) {
    (void)context;
    pthread_mutex_lock(&state.lock);
    for (;;) {
        stream *s = choose();
        if (!s) {
            /* Thawing is told to nobody. */
            struct timespec at;
            clock_gettime(CLOCK_REALTIME, &at);
            at.tv_nsec += 20000000;
            if (at.tv_nsec >= 1000000000) at.tv_sec++, at.tv_nsec -= 1000000000;
            pthread_cond_timedwait(&state.changed, &state.lock, &at);
            continue;
        }
        run_first(s);
        if (s->freed && !s->first && !s->busy) remove_stream(s);
    }
    return NULL;
}

static void enlist(stream *s, int device) {
    *s = (stream){.next = state.streams, .device = device};
    s->end = &s->first;
    state.streams = s;
}

static void begin(void) {
    const char *capability = getenv(STAND_IN_CAPABILITY), *spills = getenv(STAND_IN_SPILLS);
    atomic_store(&control.spills, spills ? atoi(spills) : 0);
    hosts_memory = getenv(STAND_IN_HOSTS) != NULL;
    for (int d = 0; d < STAND_IN_DEVICES; d++) {
        atomic_store(&control.capability[d], capability ? atoi(capability) : 80);
        map_device(d);
        enlist(&state.default_stream[d], d);
    }
}

/* Not by whoever only asks what GPUs there are: a launcher does, and starts ranks by fork(). */
static void start_workers(void) {
    for (int i = 0; i < WORKERS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, NULL) != 0) abort();
        pthread_detach(thread);
    }
}

static void lock(void) {
    static pthread_once_t workers = PTHREAD_ONCE_INIT;
    pthread_once(&state.once, begin);
    pthread_once(&workers, start_workers);
    pthread_mutex_lock(&state.lock);
}

static int unlock(int error) {
    pthread_mutex_unlock(&state.lock);
    return error;
}

static stream *stream_of(void *handle) {
    int device = current();
    return handle ? handle : &state.default_stream[device];
}

/* Under the lock: what is put in touches memory behind a wait that has not come. */
static void note_early(stream *s) {
    bool is_default = s == &state.default_stream[s->device];
    if (!is_default && !s->moves) control.movers++;
    s->moves = true;
    for (const op *o = s->first; o && !is_default; o = o->next)
        if (o->kind == WAIT && o->event->done < o->time) {
            control.early++;
            return;
        }
}

/* Under the lock. */
static int put(stream *s, const op *what) {
    atomic_long *left = &control.fails_after[s->device];
    if (atomic_load(left) >= 0 && atomic_fetch_sub(left, 1) <= 0) {
        atomic_store(left, 0);
        crash(s->device, LAUNCH_FAILURE);
    }
    if (state.sticky[s->device]) return state.sticky[s->device];
    if (touches_memory(what)) note_early(s);
    op *o = malloc(sizeof *o);
    if (!o) abort();
    *o = *what;
    o->next = NULL;
    if (o->event) o->event->uses++;
    *s->end = o;
    s->end = &o->next;
    control.pending++;
    pthread_cond_broadcast(&state.changed);
    return NONE;
}

/* ---- the table ---- */

static int driver(int *version) {
    *version = 99000;
    return NONE;
}

static int devices(int *count) {
    *count = STAND_IN_DEVICES;
    return NONE;
}

static int device_name(char *text, size_t bytes) {
    snprintf(text, bytes, "a stand-in for a GPU");
    return NONE;
}

static const char *error_name(int error) {
    switch (error) {
    case INVALID_VALUE: return "cudaErrorInvalidValue";
    case NO_MEMORY: return "cudaErrorMemoryAllocation";
    case INVALID_DEVICE: return "cudaErrorInvalidDevice";
    case INVALID_HANDLE: return "cudaErrorInvalidResourceHandle";
    case ILLEGAL_ADDRESS: return "cudaErrorIllegalAddress";
    case LAUNCH_FAILURE: return "cudaErrorLaunchFailure";
    default: return "cudaSuccess";
    }
}

static const char *error_text(int error) {
    return error == LAUNCH_FAILURE ? "unspecified launch failure" : error_name(error);
}

/* Kernels, and records of events, are refused on another device than the thread's. */
static int launch(op_kind kind, const rpi_device_call *calls, int count, int adds,
                  void *handle) {
    op o = {.kind = kind, .count = count, .adds = adds};
    lock();
    stream *s = stream_of(handle);
    if (s->device != current()) return unlock(INVALID_HANDLE);
    if (!state.loaded[s->device]) control.unloaded++;
    o.calls = malloc((size_t)count * sizeof *calls);
    if (!o.calls) abort();
    memcpy(o.calls, calls, (size_t)count * sizeof *calls);
    int error = put(s, &o);
    if (error) free(o.calls);
    return unlock(error);
}

/* Loops take theirs from the host; what varies needs some all the same, as on a GPU. */
static int scratch_bytes(const rpi_device_call *call, size_t *out) {
    bool varies = call->kind == RPI_DEVICE_TOPK || call->kind == RPI_DEVICE_VARIED;
    *out = varies ? 256 : 0;
    return NONE;
}

static int encode(const rpi_device_call *call, void *handle) {
    return launch(ENCODE, call, 1, 0, handle);
}

static int decode(const rpi_device_call *call, int adds, void *handle) {
    return launch(DECODE, call, 1, adds, handle);
}

static int divide(const rpi_device_call *call, void *handle) {
    return launch(DIVIDE, call, 1, 0, handle);
}

/* As many launches as there are lists, as on a GPU. */
static int launch_all(op_kind kind, const rpi_device_call *calls, int count, int adds,
                      void *handle) {
    uint64_t taken = 0;
    rpi_device_list list;
    int error = count > RPI_LIST_MOST ? INVALID_VALUE : NONE;
    while (!error && rpi_device_list_take(calls, count, &taken, &list))
        error = launch(kind, list.call, list.count, adds, handle);
    return error;
}

static int encode_all(const rpi_device_call *calls, int count, void *handle) {
    return launch_all(ENCODE, calls, count, 0, handle);
}

static int decode_all(const rpi_device_call *calls, int count, int adds, void *handle) {
    return launch_all(DECODE, calls, count, adds, handle);
}

/* The first gap that is long enough. */
static char *find_room(int device, size_t bytes) {
    char *at = state.guarded[device], *end = at + DEVICE_BYTES;
    for (bool moved = true; moved;) {
        moved = false;
        for (const piece *p = state.pieces; p; p = p->next) {
            if (p->device != device || at + bytes + GAP <= p->at ||
                at >= p->at + p->bytes + GAP)
                continue;
            at = p->at + (p->bytes + 255) / 256 * 256 + GAP;
            moved = true;
        }
    }
    return at + bytes <= end ? at : NULL;
}

static void note_piece(char *at, size_t bytes, int device) {
    piece *p = malloc(sizeof *p);
    if (!p) abort();
    *p = (piece){state.pieces, at, bytes, device, current()};
    state.pieces = p;
}

static int drop_piece(const void *memory, piece *out) {
    for (piece **at = &state.pieces; *at; at = &(*at)->next) {
        piece *p = *at;
        if (p->at != memory) continue;
        *at = p->next;
        *out = *p;
        free(p);
        return NONE;
    }
    return INVALID_VALUE;
}

static int allocate(size_t bytes, void **out) {
    lock();
    char *at = find_room(current(), bytes);
    if (!at) return unlock(NO_MEMORY);
    note_piece(at, bytes, current());
    control.allocated++;
    *out = at;
    return unlock(NONE);
}

static int release(void *memory) {
    piece p = {0};
    if (!memory) return NONE;
    lock();
    (void)current();
    int error = drop_piece(memory, &p);
    if (!error) control.allocated--;
    return unlock(error);
}

static int pin(size_t bytes, void **out) {
    lock();
    if (atomic_load(&control.pins_left) >= 0 && atomic_fetch_sub(&control.pins_left, 1) <= 0) {
        atomic_store(&control.pins_left, 0);
        return unlock(NO_MEMORY);
    }
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return unlock(NO_MEMORY);
    memset(at, 0xee, bytes); /* nobody counts on zeros */
    note_piece(at, bytes, RPI_CUDA_HOST);
    control.pinned++;
    control.pins++;
    *out = at;
    return unlock(NONE);
}

static bool stands_still(int device) {
    bool frozen = atomic_load(&control.frozen[device]), works = false;
    for (const stream *s = state.streams; s && frozen; s = s->next)
        works |= s->device == device && s->first;
    return works;
}

/* Under the lock, which it releases meanwhile. A real one waits for as long as it takes. */
static void wait_for_frozen(int device) {
    if (!stands_still(device)) return;
    control.held_up++;
    for (int i = 0; i < 50 && stands_still(device); i++) {
        pthread_mutex_unlock(&state.lock);
        sleep_us(20000);
        pthread_mutex_lock(&state.lock);
    }
}

static int unpin(void *memory) {
    piece p = {0};
    if (!memory) return NONE;
    lock();
    (void)current();
    int error = drop_piece(memory, &p);
    if (!error) {
        wait_for_frozen(p.pinned_for);
        munmap(p.at, p.bytes);
        control.pinned--;
    }
    return unlock(error);
}

static int copy(void *to, const void *from, size_t bytes, void *handle) {
    lock();
    return unlock(
        put(stream_of(handle), &(op){.kind = COPY, .to = to, .from = from, .bytes = bytes}));
}

static int wait_for_stream(void *handle) {
    lock();
    stream *s = stream_of(handle);
    while (s->first) pthread_cond_wait(&state.changed, &state.lock);
    return unlock(state.sticky[s->device]);
}

static int mark_make(void **out) {
    event *e = calloc(1, sizeof *e);
    if (!e) return NO_MEMORY;
    e->device = current();
    control.events++;
    *out = e;
    return NONE;
}

static void event_free(void *handle) {
    event *e = handle;
    if (!e) return;
    lock();
    (void)current();
    control.events--;
    e->freed = true;
    leave_event(e);
    (void)unlock(NONE);
}

static int event_record(void *handle, void *stream_handle) {
    lock();
    event *e = handle;
    stream *s = stream_of(stream_handle);
    if (s->device != e->device) return unlock(INVALID_HANDLE);
    int error = put(s, &(op){.kind = RECORD, .event = e, .time = e->recorded + 1});
    if (!error) e->recorded++;
    return unlock(error);
}

static int event_seconds(void *begin_event, void *end_event, double *out) {
    const event *end = end_event;
    (void)begin_event;
    *out = 1e-3;
    lock();
    while (end->done < end->recorded) pthread_cond_wait(&state.changed, &state.lock);
    return unlock(state.sticky[end->device]);
}

static int capability(int device, int *out) {
    if (device < 0 || device >= STAND_IN_DEVICES) return INVALID_DEVICE;
    pthread_once(&state.once, begin);
    *out = atomic_load(&control.capability[device]);
    return NONE;
}

static int load(void) {
    lock();
    state.loaded[current()] = true;
    return unlock(NONE);
}

static int device_set(int device) {
    if (device < 0 || device >= STAND_IN_DEVICES) return INVALID_DEVICE;
    chosen_device = device;
    (void)current();
    return NONE;
}

/* Contexts are numbers of devices, from 1 on. */
static int enter(int device, rpi_cuda_before *before) {
    before->context = (void *)(intptr_t)(chosen_device + 1);
    return device_set(device);
}

static void leave(const rpi_cuda_before *before) {
    chosen_device = (int)(intptr_t)before->context - 1;
}

static bool is_pinned(const char *at) {
    for (const piece *p = state.pieces; p; p = p->next)
        if (p->device == RPI_CUDA_HOST && at >= p->at && at < p->at + p->bytes) return true;
    return false;
}

/* The driver's calls of place.h, which take no notice of what the thread has chosen. Under the
 * lock. Contexts are numbers of devices, from 1 on; a foreign one's is behind those. */
static int attribute_of(void *out, int attribute, unsigned long long address) {
    const void *memory = (const void *)(uintptr_t)address;
    int device = device_at(memory);
    bool pinned = device == RPI_CUDA_HOST && is_pinned(memory);
    if (device == RPI_CUDA_HOST && hosts_memory && !pinned) device = 0;
    if (device == RPI_CUDA_HOST && !pinned) return INVALID_VALUE;
    bool is_there = device != RPI_CUDA_HOST;
    int context = device + 1 + (atomic_load(&control.foreign) ? STAND_IN_DEVICES : 0);
    switch (attribute) {
    case RPI_POINTER_CONTEXT: *(void **)out = (void *)(intptr_t)context; return NONE;
    case RPI_POINTER_TYPE: *(unsigned *)out = is_there ? RPI_TYPE_DEVICE : 1; return NONE;
    case RPI_POINTER_IS_MANAGED: *(unsigned char *)out = 0; return NONE;
    default: *(int *)out = is_there ? device : 0; return NONE;
    }
}

static int primary_state(int device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = 1;
    return NONE;
}

static int primary_retain(void **context, int device) {
    *context = (void *)(intptr_t)(device + 1);
    return NONE;
}

static int primary_release(int device) {
    (void)device;
    return NONE;
}

static int device_of(const void *memory, int *device) {
    static const rpi_driver_calls calls = {attribute_of, primary_state, primary_retain,
                                           primary_release};
    lock();
    return unlock(rpi_place_of(&calls, memory, device));
}

static int stream_make(void **out) {
    stream *s = malloc(sizeof *s);
    if (!s) return NO_MEMORY;
    lock();
    enlist(s, current());
    control.streams++;
    *out = s;
    return unlock(NONE);
}

static void stream_free(void *handle) {
    if (!handle) return;
    lock();
    (void)current();
    stream *s = handle;
    control.streams--;
    s->freed = true;
    if (!s->first && !s->busy) remove_stream(s);
    (void)unlock(NONE);
}

static int stream_wait_for(void *stream_handle, void *handle) {
    lock();
    event *e = handle;
    return unlock(
        put(stream_of(stream_handle), &(op){.kind = WAIT, .event = e, .time = e->recorded}));
}

static int stream_call(void *handle, void (*call)(void *), void *context) {
    lock();
    return unlock(
        put(stream_of(handle), &(op){.kind = CALL, .function = call, .context = context}));
}

static int event_done(void *handle, int *done) {
    lock();
    (void)current();
    const event *e = handle;
    *done = e->done >= e->recorded;
    return unlock(*done ? NONE : state.sticky[e->device]);
}

static int is_captured(void *handle, int *captured) {
    lock();
    const stream *s = stream_of(handle);
    bool is_default = s == &state.default_stream[s->device];
    *captured = is_default && atomic_load(&control.captures[s->device]);
    return unlock(NONE);
}

static const rpi_cuda_library table = {
    .interface = RPI_CUDA_INTERFACE,
    .call_bytes = sizeof(rpi_device_call),
    .runtime = 13000,
    .architectures = "75-real 80-real 90",
    .driver = driver,
    .devices = devices,
    .device_name = device_name,
    .error_name = error_name,
    .error_text = error_text,
    .scratch_bytes = scratch_bytes,
    .encode = encode,
    .decode = decode,
    .encode_all = encode_all,
    .decode_all = decode_all,
    .divide = divide,
    .allocate = allocate,
    .release = release,
    .pin = pin,
    .unpin = unpin,
    .copy = copy,
    .wait = wait_for_stream,
    .event_make = mark_make,
    .event_free = event_free,
    .event_record = event_record,
    .event_seconds = event_seconds,
    .capability = capability,
    .load = load,
    .device_set = device_set,
    .enter = enter,
    .leave = leave,
    .device_of = device_of,
    .stream_make = stream_make,
    .waiter_make = stream_make,
    .stream_free = stream_free,
    .stream_wait_for = stream_wait_for,
    .stream_call = stream_call,
    .mark_make = mark_make,
    .event_done = event_done,
    .is_captured = is_captured,
};

__attribute__((visibility("default"))) const rpi_cuda_library *rpi_cuda_library_table(void);
const rpi_cuda_library *rpi_cuda_library_table(void) {
    return &table;
}

static bool all_done(void) {
    for (const stream *s = state.streams; s; s = s->next)
        if (s->first) return false;
    return true;
}

/* A new start for the next test: what was frozen is done, what failed is whole again. */
__attribute__((visibility("default"))) stand_in *stand_in_control(void);
stand_in *stand_in_control(void) {
    lock();
    for (int d = 0; d < STAND_IN_DEVICES; d++) {
        atomic_store(&control.frozen[d], false);
        atomic_store(&control.fails_after[d], -1);
        atomic_store(&control.captures[d], false);
    }
    while (!all_done()) pthread_cond_wait(&state.changed, &state.lock);
    memset(state.sticky, 0, sizeof state.sticky);
    for (int d = 0; d < STAND_IN_DEVICES; d++) atomic_store(&control.opened[d], false);
    atomic_store(&control.foreign, false);
    atomic_store(&control.spills, 0);
    chosen_device = NO_DEVICE;
    (void)unlock(NONE);
    return &control;
}

/* The first device's default stream is captured for a graph, or is not. */
__attribute__((visibility("default"))) void stand_in_capture(int captures);
void stand_in_capture(int captures) {
    atomic_store(&control.captures[0], captures);
}

__attribute__((visibility("default"))) void stand_in_finish(void);
void stand_in_finish(void) {
    (void)wait_for_stream(NULL);
}
