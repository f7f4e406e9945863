#include "plan/circle.h"

void rpi_circle_reduce(rpi_writer *writer, int round) {
    int world = writer->schedule->world, rank = writer->schedule->rank;
    int next = rpi_wrap(rank, 1, world), previous = rpi_wrap(rank, -1, world);
    for (int hop = 0; hop < world - 1; hop++) {
        rpi_writer_round(writer, round + hop);
        int sent = rpi_wrap(rank, -1 - hop, world), got = rpi_wrap(sent, -1, world);
        int wire =
            rpi_write_encode(writer, sent, hop ? RPI_SLOT_SUM : RPI_SLOT_IN, RPI_ROLE_SENDER);
        rpi_write_send(writer, sent, wire, next);
        /* Before the frame is there, so that only the addition waits for it. */
        rpi_write_copy(writer, got, RPI_SLOT_IN, RPI_SLOT_SUM);
        rpi_write_add(writer, got, rpi_write_recv(writer, got, previous), RPI_SLOT_SUM);
    }
}

void rpi_circle_gather(rpi_writer *writer, int wire, int round) {
    int world = writer->schedule->world, rank = writer->schedule->rank;
    int next = rpi_wrap(rank, 1, world), previous = rpi_wrap(rank, -1, world);
    for (int hop = 0; hop < world - 1; hop++) {
        rpi_writer_round(writer, round + hop);
        int sent = rpi_wrap(rank, -hop, world), got = rpi_wrap(sent, -1, world);
        rpi_write_send(writer, sent, wire, next);
        rpi_write_decode(writer, sent, wire, RPI_SLOT_OUT);
        wire = rpi_write_recv(writer, got, previous);
    }
    rpi_write_decode(writer, rpi_wrap(rank, 1, world), wire, RPI_SLOT_OUT);
}
