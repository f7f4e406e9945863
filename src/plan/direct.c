#include "plan/direct.h"

void rpi_direct_sum(rpi_writer *writer, int part) {
    int world = writer->schedule->world, rank = writer->schedule->rank;
    for (int source = 0; source < world; source++) {
        int from = source == rank ? RPI_SLOT_IN : rpi_write_recv(writer, part, source);
        rpi_write_accumulate(writer, part, from, source == 0);
    }
}

void rpi_direct_reduce(rpi_writer *writer, int round) {
    int world = writer->schedule->world, rank = writer->schedule->rank;
    rpi_writer_round(writer, round);
    for (int distance = 1; distance < world; distance++) {
        int owner = rpi_wrap(rank, distance, world);
        int wire = rpi_write_encode(writer, owner, RPI_SLOT_IN, RPI_ROLE_SENDER);
        rpi_write_send(writer, owner, wire, owner);
    }
    rpi_writer_round(writer, round + 1);
    rpi_direct_sum(writer, rank);
}

void rpi_direct_gather(rpi_writer *writer, int wire, int round) {
    int world = writer->schedule->world, rank = writer->schedule->rank;
    rpi_writer_round(writer, round);
    for (int distance = 1; distance < world; distance++)
        rpi_write_send(writer, rank, wire, rpi_wrap(rank, distance, world));
    rpi_write_decode(writer, rank, wire, RPI_SLOT_OUT);
    rpi_writer_round(writer, round + 1);
    for (int distance = 1; distance < world; distance++) {
        int owner = rpi_wrap(rank, -distance, world);
        int got = rpi_write_recv(writer, owner, owner);
        rpi_write_decode(writer, owner, got, RPI_SLOT_OUT);
    }
}
