/* How far the making of a communicator has come.
 *
 *      UNNUMBERED ---- it takes a number, or is told one ----> NUMBERED ---- its first barrier,
 *                                                               |            or of a list: all
 *                                         a member has left it  |            know ----.
 *                                                               v                     v
 *                                                            GIVEN_UP -- it was   --> MET
 *                                                                        done, here
 *                                                                        it is now
 *
 * A member that was done with the barrier may leave before this one is. */
#include "comm/core/communicator.h"

#include "base/states.h"

static const rpi_states next[] = {
    [RPI_COMM_UNNUMBERED] = RPI_STATE(RPI_COMM_NUMBERED),
    [RPI_COMM_NUMBERED] = RPI_STATE(RPI_COMM_GIVEN_UP) | RPI_STATE(RPI_COMM_MET),
    [RPI_COMM_GIVEN_UP] = RPI_STATE(RPI_COMM_GIVEN_UP) | RPI_STATE(RPI_COMM_MET),
    [RPI_COMM_MET] = 0,
};

void rpi_comm_go_to(rp_comm *comm, rpi_comm_making making) {
    RPI_ENTER(next, comm->making, making);
}
