/* Contexts: made, closed, and forgotten by children made by fork(). */
#include "comm/core/communicator.h"
#include "comm/core/frame_buffers.h"
#include "comm/device/device.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/offers.h"
#include "comm/run/progress_loop.h"
#include "comm/world/create.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/memory.h"
#include "base/status.h"
#include "net/bytes/close_after_fork.h"
#include "net/world/join.h"
#include "net/world/view_world.h"
#include "plan/choose.h"

#include <unistd.h>

static void initialise_locks(rpi_context *context) {
    pthread_mutex_init(&context->lock, NULL); /* neither fails on Linux */
    rpi_condition_init(&context->changed);
    rpi_condition_init(&context->work);
}

static rp_status open_context(rpi_context *context) {
    RP_TRY(rpi_event_open(&context->wake_fd));
    RP_TRY(rpi_rank_set_make(context->world, &context->polled));
    RP_TRY(rpi_rank_set_make(context->world, &context->heads));
    RP_TRY(rpi_alloc_array((size_t)context->world, sizeof *context->connections, "links",
                           &context->connections));
    for (int rank = 0; rank < context->world; rank++)
        context->connections[rank].context = context;
    return RP_OK;
}

rp_status rpi_context_new(int rank, int world, rpi_context **out_context) {
    rpi_context *context = NULL;
    RP_TRY(rpi_alloc(sizeof *context, "a context", &context));
    context->rank = rank;
    context->world = world;
    context->links = rpi_nominal_links;
    context->gap_after_ns = RPI_NEVER_NS;
    context->active_end = &context->active;
    initialise_locks(context);
    rp_status status = open_context(context);
    if (status != RP_OK)
        rpi_context_close(context);
    else
        *out_context = context;
    return status;
}

static void free_unopened(rpi_context *context) {
    for (rpi_unopened *unopened = context->unopened, *next; unopened; unopened = next) {
        next = unopened->next;
        rpi_free(unopened);
    }
}

void rpi_context_close(rpi_context *context) {
    if (!context) return;
    rpi_progress_thread_stop(context);
    rpi_control_close(context->control); /* goodbye first: closed links are then no deaths */
    rpi_mesh_close(context->mesh);
    if (context->failed)
        rpi_join_abandon(context->join);
    else
        rpi_join_close(context->join);
    rpi_world_release(context->view_world);
    free_unopened(context);
    rpi_offers_free(context);
    for (rpi_fin *fin = context->fins, *next; fin; fin = next) {
        next = fin->next;
        rpi_fin_free(fin);
    }
    rpi_frame_buffers_free(context);
    rpi_devices_free(context);
    rpi_index_free(&context->open);
    if (context->wake_fd >= 0) close(context->wake_fd);
    pthread_mutex_destroy(&context->lock);
    pthread_cond_destroy(&context->changed);
    pthread_cond_destroy(&context->work);
    rpi_free(context->scratch);
    rpi_rank_set_free(&context->polled);
    rpi_rank_set_free(&context->heads);
    rpi_free(context->connections);
    rpi_free(context);
}

void rpi_context_close_after_fork(rpi_context *context) {
    rpi_fd_close_after_fork(&context->wake_fd);
    for (rpi_device *device = context->devices; device; device = device->next)
        rpi_fd_close_after_fork(&device->bell->fd);
    if (context->mesh) rpi_mesh_close_after_fork(context->mesh);
    if (context->control) rpi_control_close_after_fork(context->control);
    if (context->join) rpi_join_close_after_fork(context->join);
    context->mesh = NULL; /* another communicator of this context may be forgotten, too */
    context->control = NULL;
    context->join = NULL;
}
