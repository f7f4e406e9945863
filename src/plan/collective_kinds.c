#include "plan/collective.h"

static const rpi_collective_kind *const catalogue[RPI_COLLECTIVE_KINDS] = {
    [RPI_ALL_REDUCE] = &rpi_collective_all_reduce,
    [RPI_REDUCE_SCATTER] = &rpi_collective_reduce_scatter,
    [RPI_ALL_GATHER] = &rpi_collective_all_gather,
    [RPI_BROADCAST] = &rpi_collective_broadcast,
    [RPI_BARRIER] = &rpi_collective_barrier,
    [RPI_SENDRECV] = &rpi_collective_sendrecv,
    [RPI_REDUCE] = &rpi_collective_reduce,
    [RPI_GATHER] = &rpi_collective_gather,
    [RPI_SCATTER] = &rpi_collective_scatter,
    [RPI_ALL_TO_ALL] = &rpi_collective_all_to_all,
    [RPI_NEIGHBOUR_ALL_REDUCE] = &rpi_collective_neighbour_all_reduce,
};

const rpi_collective_kind *rpi_collective_kind_of(rpi_collective collective) {
    return (unsigned)collective < RPI_COLLECTIVE_KINDS ? catalogue[collective] : NULL;
}

int rpi_collective_received_as(const rpi_collective_kind *kind, int world, int part) {
    return kind->both_ways ? world + part : part;
}

const char *rpi_collective_name(rpi_collective collective) {
    const rpi_collective_kind *kind = rpi_collective_kind_of(collective);
    return kind ? kind->name : "unknown";
}

bool rpi_collective_has_root(rpi_collective collective) {
    const rpi_collective_kind *kind = rpi_collective_kind_of(collective);
    return kind && kind->has_root;
}
