/* A communicator of a view: its members, with their ranks, and its number as epoch. */
#include "comm/core/communicator.h"
#include "comm/world/create.h"

#include "base/fpenv.h"
#include "base/status.h"
#include "net/world/join.h"
#include "net/world/view_world.h"

static rp_status check_world(const rp_world *world) {
    if (!world) return RP_FAIL(INVALID, "world is NULL");
    if (world->state == RPI_WORLD_MEMBER) return RP_OK;
    if (world->state == RPI_WORLD_LEFT_OUT)
        return RP_FAIL(STATE,
                       "world '%s' went on without this process: close it, and open it "
                       "again to come back",
                       world->name);
    return RP_FAIL(STATE,
                   "this process holds no view of world '%s': call rp_world_next() first",
                   world->name);
}

rp_status rp_comm_create_in(rp_world *world, const rp_comm_options *options,
                            rp_comm **out_comm) {
    RPI_FPENV_SCOPE;
    rp_comm_options own;
    RP_TRY(check_world(world));
    if (!out_comm) return RP_FAIL(INVALID, "there is nowhere to put the communicator");
    RP_TRY(rpi_comm_options_read(options, &own));
    if (own.epoch)
        return RP_FAIL(INVALID,
                       "epoch is %u; that of a view's communicator is the view's number, "
                       "and the option stays 0",
                       own.epoch);
    const rp_view *view = &world->view;
    rpi_bootstrap_place place = {.store = &world->store, .world = world};
    own.epoch = view->number;
    if (!own.name) own.name = world->name;
    if (!own.bind_host && world->join) own.bind_host = world->join->bind_host;
    RP_TRY(rpi_comm_make(&place, view->rank, view->count, &own, out_comm));
    rpi_world_keep(world);
    (*out_comm)->context->view_world = world;
    (*out_comm)->context->view = view->number;
    return RP_OK;
}
