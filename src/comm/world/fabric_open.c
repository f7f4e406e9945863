/* Fabrics: made, closed, and forgotten by children that fork() made. */
#include "comm/core/communicator.h"
#include "comm/core/frame_blocks.h"
#include "comm/device/device.h"
#include "comm/protocol/numbering.h"
#include "comm/protocol/offers.h"
#include "comm/run/progress_loop.h"
#include "comm/world/create.h"

#include "base/clock.h"
#include "base/event.h"
#include "base/memory.h"
#include "base/status.h"
#include "net/bytes/forget.h"
#include "net/world/join.h"
#include "plan/choose.h"

#include <unistd.h>

static void initialise_locks(rpi_fabric *fabric) {
    pthread_mutex_init(&fabric->lock, NULL); /* neither fails on Linux */
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&fabric->changed, &attributes);
    pthread_cond_init(&fabric->work, &attributes);
    pthread_condattr_destroy(&attributes);
}

static rp_status open_fabric(rpi_fabric *fabric) {
    RP_TRY(rpi_event_open(&fabric->wake_fd));
    RP_TRY(rpi_rank_set_make(fabric->world, &fabric->polled));
    RP_TRY(rpi_rank_set_make(fabric->world, &fabric->heads));
    RP_TRY(
        rpi_alloc_array((size_t)fabric->world, sizeof *fabric->ports, "links", &fabric->ports));
    for (int rank = 0; rank < fabric->world; rank++) fabric->ports[rank].fabric = fabric;
    return RP_OK;
}

rp_status rpi_fabric_new(int rank, int world, rpi_fabric **out_fabric) {
    rpi_fabric *fabric = NULL;
    RP_TRY(rpi_alloc(sizeof *fabric, "a fabric", &fabric));
    fabric->rank = rank;
    fabric->world = world;
    fabric->links = rpi_nominal_links;
    fabric->gap_after_ns = RPI_NEVER_NS;
    fabric->active_end = &fabric->active;
    initialise_locks(fabric);
    rp_status status = open_fabric(fabric);
    if (status != RP_OK)
        rpi_fabric_close(fabric);
    else
        *out_fabric = fabric;
    return status;
}

static void free_early(rpi_fabric *fabric) {
    for (rpi_early *early = fabric->early, *next; early; early = next) {
        next = early->next;
        rpi_free(early);
    }
}

void rpi_fabric_close(rpi_fabric *fabric) {
    if (!fabric) return;
    rpi_progress_thread_stop(fabric);
    rpi_control_close(fabric->control); /* goodbye first: closed links are then no deaths */
    rpi_mesh_close(fabric->mesh);
    if (fabric->failed)
        rpi_join_abandon(fabric->join);
    else
        rpi_join_close(fabric->join);
    free_early(fabric);
    rpi_offers_free(fabric);
    for (rpi_left *left = fabric->left, *next; left; left = next) {
        next = left->next;
        rpi_left_free(left);
    }
    rpi_blocks_free(fabric);
    rpi_devices_free(fabric);
    rpi_index_free(&fabric->open);
    if (fabric->wake_fd >= 0) close(fabric->wake_fd);
    pthread_mutex_destroy(&fabric->lock);
    pthread_cond_destroy(&fabric->changed);
    pthread_cond_destroy(&fabric->work);
    rpi_free(fabric->scratch);
    rpi_rank_set_free(&fabric->polled);
    rpi_rank_set_free(&fabric->heads);
    rpi_free(fabric->ports);
    rpi_free(fabric);
}

void rpi_fabric_forget(rpi_fabric *fabric) {
    rpi_fd_forget(&fabric->wake_fd);
    for (rpi_device *device = fabric->devices; device; device = device->next)
        rpi_fd_forget(&device->bell->fd);
    if (fabric->mesh) rpi_mesh_forget(fabric->mesh);
    if (fabric->control) rpi_control_forget(fabric->control);
    if (fabric->join) rpi_join_forget(fabric->join);
    fabric->mesh = NULL; /* another communicator of this fabric may be forgotten, too */
    fabric->control = NULL;
    fabric->join = NULL;
}
