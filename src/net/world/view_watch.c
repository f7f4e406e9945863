/* What a communicator does with its view when it is made or has failed. */
#include "net/world/view_world.h"

static rp_status look_at(const rp_world *world, int rank) {
    static const char *const how[] = {[RP_MEMBER_LEFT] = "has left",
                                      [RP_MEMBER_SILENT] = "says nothing any more: it is dead, "
                                                           "stopped, or cut off"};
    const rp_member *member = &world->held.members[rank];
    const rpi_view_candidate *one =
        rpi_view_candidate_find(world->candidates, world->candidate_count, member->id);
    rp_departure departure = rpi_view_candidate_departure(one, false, world->silence_ns);
    if (departure != RP_MEMBER_STAYS)
        return RP_FAIL(PEER,
                       "connection closed by peer: rank %d (%s) of view %u of world '%s' %s",
                       rank, member->name, world->held.number, world->name, how[departure]);
    if (one->says.making > world->held.number)
        return RP_FAIL(PEER,
                       "connection closed by peer: rank %d (%s) has gone on to make view %u of "
                       "world '%s': call rp_world_next()",
                       rank, member->name, one->says.making, world->name);
    return RP_OK;
}

rp_status rpi_world_look(rp_world *world) {
    RP_TRY(rpi_world_read(world));
    if (world->newest.number > world->held.number)
        return RP_FAIL(STATE, "world '%s' has gone on to view %u: call rp_world_next()",
                       world->name, world->newest.number);
    RP_TRY(rpi_world_look_around(world));
    for (int rank = 0; rank < world->held.count; rank++)
        if (rank != world->view.rank) RP_TRY(look_at(world, rank));
    return RP_OK;
}

void rpi_world_note_lost(rp_world *world, uint32_t number, int rank) {
    pthread_mutex_lock(&world->lock);
    if (atomic_load(&world->number) == number && world->says.lost < 0) world->says.lost = rank;
    pthread_mutex_unlock(&world->lock);
}
