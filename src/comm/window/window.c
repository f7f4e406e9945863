/* Windows: created by all ranks at once, and freed. */
#include "comm/core/progress_owner.h"
#include "comm/run/progress_loop.h"
#include "comm/window/window_calls.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/sized_options.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

enum { SLICE_BYTES = 256 * 1024 }; /* of an encoding, as long as a bucket allows */

/* ---- arguments ---- */

static rp_status check_ranks(const rp_comm *comm, const int *ranks, size_t count,
                             const char *what) {
    if (count && !ranks) return RP_FAIL(INVALID, "%s is NULL, and there are %zu", what, count);
    for (size_t i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->world || ranks[i] == comm->rank)
            return RP_FAIL(INVALID, "%s: rank %d cannot be one of rank %d in a world of %d",
                           what, ranks[i], comm->rank, comm->world);
        for (size_t j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                return RP_FAIL(INVALID, "%s: rank %d is named twice", what, ranks[i]);
    }
    return RP_OK;
}

/* A codec that cannot encode one element of zero, with error feedback if that is needed, cannot
 * be used at all. */
static rp_status check_codec(const rp_window_setup *setup) {
    unsigned char zero[16] = {0}, *encoding = NULL;
    float residual = 0;
    rp_encode_context context = {0};
    if (!rp_codec_supports(&setup->codec, setup->dtype)) {
        char text[64];
        return RP_FAIL(UNSUPPORTED, "codec %s does not take %s",
                       rp_codec_text(&setup->codec, text, sizeof text),
                       rp_dtype_name(setup->dtype));
    }
    if (!rp_codec_is_exact(&setup->codec, setup->dtype)) context.residual = &residual;
    size_t bytes = rp_codec_encoded_bytes(&setup->codec, setup->dtype, 1);
    RP_TRY(rpi_alloc(bytes, "an element", &encoding));
    rp_status status =
        rp_codec_encode(&setup->codec, setup->dtype, zero, 1, &context, encoding, NULL);
    rpi_free(encoding);
    return status;
}

static rp_status read_setup(const rp_window_setup *given, rp_window_setup *out_own) {
    static const rpi_sized sized = {.name = "rp_window_setup",
                                    .initializer = "RP_WINDOW_SETUP",
                                    .least = RPI_SIZE_UP_TO(rp_window_setup, follow_p),
                                    .known = sizeof(rp_window_setup)};
    if (!given) return RP_FAIL(INVALID, "setup is NULL");
    return rpi_sized_read(&sized, given, out_own);
}

static rp_status check_setup(const rp_comm *comm, const rp_window_setup *setup) {
    if (!setup->name || !*setup->name) return RP_FAIL(INVALID, "a window needs a name");
    if (strlen(setup->name) > RPI_WINDOW_NAME_BYTES)
        return RP_FAIL(INVALID, "a name of %zu bytes; up to %d are allowed",
                       strlen(setup->name), RPI_WINDOW_NAME_BYTES);
    if (!rpi_window_takes_dtype(setup->dtype))
        return RP_FAIL(INVALID, "dtype is %s; a window has f32, f64, i32 or i64",
                       rp_dtype_name(setup->dtype));
    if (setup->count > RPI_ELEMENTS_MAX)
        return RP_FAIL(INVALID, "%zu elements are more than can be; is that negative?",
                       setup->count);
    if (setup->count && !setup->data)
        return RP_FAIL(INVALID, "data is NULL, and there are %zu elements", setup->count);
    RP_TRY(check_codec(setup));
    RP_TRY(check_ranks(comm, setup->sources, setup->source_count, "sources"));
    RP_TRY(check_ranks(comm, setup->destinations, setup->destination_count, "destinations"));
    for (const rp_window *other = comm->windows; other; other = other->next)
        if (strcmp(other->name, setup->name) == 0)
            return RP_FAIL(INVALID, "the name is taken: free the window that has it first");
    return RP_OK;
}

/* ---- memory ---- */

static void free_edges(rp_window *window) {
    for (int i = 0; window->ins && i < window->in_count; i++) {
        rpi_free(window->ins[i].slot);
        rpi_free(window->ins[i].staging);
    }
    for (int i = 0; window->outs && i < window->out_count; i++) {
        rpi_free(window->outs[i].pending.values);
        rpi_free(window->outs[i].sending.values);
        rpi_free(window->outs[i].residual);
    }
    rpi_free(window->ins);
    rpi_free(window->outs);
}

static void destroy(rp_window *window) {
    for (rp_window_operation *operation = window->operations, *next; operation;
         operation = next) {
        next = operation->next;
        rpi_free(operation);
    }
    free_edges(window);
    pthread_mutex_destroy(&window->lock);
    rpi_free(window->cells);
    rpi_free(window->claims);
    rpi_free(window->gone);
    rpi_free(window->name);
    rpi_free(window);
}

static int by_rank(const void *a, const void *b) {
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static rp_status sorted(const int *ranks, size_t count, int **out_ranks) {
    RP_TRY(rpi_alloc_array(count, sizeof **out_ranks, "ranks", out_ranks));
    if (count) memcpy(*out_ranks, ranks, count * sizeof **out_ranks);
    if (count) qsort(*out_ranks, count, sizeof **out_ranks, by_rank);
    return RP_OK;
}

static rp_status make_ins(rp_window *window, const rp_window_setup *setup) {
    size_t count = setup->source_count, bytes = window->count * window->element_bytes;
    int *ranks = NULL;
    RP_TRY(rpi_alloc_array(count, sizeof *window->ins, "slots", &window->ins));
    window->in_count = (int)count;
    RP_TRY(sorted(setup->sources, count, &ranks));
    rp_status status = RP_OK;
    for (size_t i = 0; i < count && status == RP_OK; i++) {
        window->ins[i].rank = ranks[i];
        status = rpi_alloc(bytes, "a slot", &window->ins[i].slot);
        if (status == RP_OK && !setup->zero_slots && bytes)
            memcpy(window->ins[i].slot, window->data, bytes);
    }
    rpi_free(ranks);
    return status;
}

static rp_status make_outs(rp_window *window, const rp_window_setup *setup) {
    size_t count = setup->destination_count;
    int *ranks = NULL;
    RP_TRY(rpi_alloc_array(count, sizeof *window->outs, "destinations", &window->outs));
    window->out_count = (int)count;
    RP_TRY(sorted(setup->destinations, count, &ranks));
    rp_status status = RP_OK;
    for (size_t i = 0; i < count && status == RP_OK; i++) {
        window->outs[i].rank = ranks[i];
        if (window->is_lossy)
            status = rpi_alloc_array(window->count, sizeof(float), "error feedback",
                                     &window->outs[i].residual);
    }
    rpi_free(ranks);
    return status;
}

static rp_status fill(rp_window *window, const rp_window_setup *setup) {
    size_t world = (size_t)window->comm->world;
    RP_TRY(rpi_strdup(setup->name, &window->name));
    RP_TRY(rpi_alloc_array(world, sizeof *window->cells, "mutexes", &window->cells));
    RP_TRY(rpi_alloc_array(world, sizeof *window->claims, "mutexes", &window->claims));
    RP_TRY(rpi_alloc_array(world, sizeof *window->gone, "ranks", &window->gone));
    RP_TRY(make_ins(window, setup));
    return make_outs(window, setup);
}

/* A frame has whole granules; if a bucket alone is longer it has one. */
static void partition(rp_window *window) {
    size_t granule = rp_codec_granule(&window->codec);
    size_t bytes = rp_codec_encoded_bytes(&window->codec, window->dtype, granule);
    size_t granules = bytes ? SLICE_BYTES / bytes : 1;
    window->slice = granule * (granules ? granules : 1);
    window->slices = (uint32_t)((window->count + window->slice - 1) / window->slice);
    if (!window->slices) window->slices = 1;
}

static rp_status make(rp_comm *comm, const rp_window_setup *given, rp_window_setup *setup,
                      rp_window **out_window) {
    rp_window *window = NULL;
    RP_TRY(read_setup(given, setup));
    RP_TRY(check_setup(comm, setup));
    RP_TRY(rpi_alloc(sizeof *window, "a window", &window));
    window->comm = comm;
    window->data = setup->data;
    window->count = setup->count;
    window->dtype = setup->dtype;
    window->element_bytes = rp_dtype_bytes(setup->dtype);
    window->codec = setup->codec;
    window->is_lossy = !rp_codec_is_exact(&setup->codec, setup->dtype);
    window->p = 1;
    window->follows_p = setup->follow_p != 0;
    pthread_mutex_init(&window->lock, NULL);
    partition(window);
    rp_status status = fill(window, setup);
    if (status != RP_OK)
        destroy(window);
    else
        *out_window = window;
    return status;
}

/* ---- create ---- */

static void link_window(rp_window *window) {
    rp_comm *comm = window->comm;
    rpi_progress_acquire(comm->context);
    rp_window **end = &comm->windows;
    while (*end) end = &(*end)->next;
    *end = window;
    window->number = ++comm->last_window;
    atomic_fetch_add(&comm->context->windows, 1);
    rpi_progress_release(comm->context);
}

static void unlink_window(rp_window *window) {
    rp_comm *comm = window->comm;
    if (!comm) return;
    rpi_progress_acquire(comm->context);
    rp_window **at = &comm->windows;
    while (*at && *at != window) at = &(*at)->next;
    if (*at) *at = window->next;
    if (!comm->windows) comm->windows_due = false;
    atomic_fetch_sub(&comm->context->windows, 1);
    rpi_progress_release(comm->context);
}

/* When a rank leaves the barrier, all accept pushes. */
static rp_status create(rp_comm *comm, const rp_window_setup *given, rp_window_setup *setup,
                        rp_window **out_window) {
    rp_window *window = NULL;
    RP_TRY(rp_comm_status(comm));
    rp_status status = make(comm, given, setup, &window);
    status = rpi_window_agree(comm, window, status);
    if (status != RP_OK) {
        if (window) destroy(window);
        return status;
    }
    link_window(window);
    status = rpi_progress_thread_start(comm->context);
    if (status == RP_OK) status = rp_barrier(comm);
    if (status == RP_OK) {
        *out_window = window;
        return RP_OK;
    }
    unlink_window(window);
    destroy(window);
    return status;
}

rp_status rp_window_create(rp_comm *comm, const rp_window_setup *setup, rp_window **window) {
    RPI_FPENV_SCOPE;
    if (!comm) return RP_FAIL(INVALID, "comm is NULL");
    if (!window) return RP_FAIL(INVALID, "there is nowhere to put the window");
    rp_window_setup own = {0}; /* as far as it could be read */
    rp_status status = create(comm, setup, &own, window);
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status, "creating window '%.200s': ", own.name ? own.name : "");
}

/* ---- free ---- */

static rp_status leave(rp_window *window) {
    RP_TRY(rpi_window_check(window));
    rpi_window_release_all(window);
    rp_status status = rp_window_flush(window, 0);
    if (status != RP_OK && status != RP_TIMEOUT && status != RP_PEER) return status;
    rpi_kept_error reason;
    rpi_error_keep(&reason);
    rp_status met = rp_barrier(window->comm); /* also after a timeout: others wait for us */
    if (met != RP_OK || status == RP_OK) return met;
    rpi_error_put_back(&reason);
    return status;
}

rp_status rp_window_free(rp_window **in_out_window) {
    RPI_FPENV_SCOPE;
    rp_window *window = in_out_window ? *in_out_window : NULL;
    if (!window) return RP_OK;
    rp_status status = window->comm ? leave(window) : RP_OK;
    unlink_window(window);
    destroy(window);
    *in_out_window = NULL;
    return status;
}
