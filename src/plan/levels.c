#include "plan/levels.h"

rp_status rpi_levels_open(const rpi_plan_request *request, rpi_levels *out_levels) {
    *out_levels = (rpi_levels){0};
    RP_TRY(rpi_layout_make(request, &out_levels->layout));
    out_levels->host = out_levels->layout.host_of[request->rank];
    out_levels->place = out_levels->layout.place[request->rank];
    out_levels->size = rpi_layout_size(&out_levels->layout, out_levels->host);
    return RP_OK;
}

rp_status rpi_levels_finish(rpi_levels *levels) {
    rpi_layout_free(&levels->layout);
    return rpi_writer_finish(&levels->writer);
}

int rpi_levels_leader(const rpi_levels *levels, int host, int place) {
    return rpi_layout_rank(&levels->layout, host, place);
}

int rpi_levels_host_at(const rpi_levels *levels, int distance) {
    return rpi_wrap(levels->host, distance, levels->layout.hosts);
}

/* ---- sums ---- */

void rpi_levels_give(rpi_levels *levels, int part, int place) {
    int wire = rpi_write_encode_inside(&levels->writer, part, RPI_SLOT_IN, RPI_ROLE_SENDER);
    rpi_write_send(&levels->writer, part, wire, rpi_levels_leader(levels, levels->host, place));
}

void rpi_levels_collect(rpi_levels *levels, int part) {
    for (int place = 0; place < levels->size; place++) {
        int peer = rpi_levels_leader(levels, levels->host, place), from = RPI_SLOT_IN;
        if (place != levels->place) from = rpi_write_recv_inside(&levels->writer, part, peer);
        rpi_write_accumulate(&levels->writer, part, from, place == 0);
    }
}

int rpi_levels_sum_slot(const rpi_levels *levels) {
    return levels->size == 1 ? RPI_SLOT_IN : RPI_SLOT_SUM;
}

/* What this host has is in SUM already where it has several ranks: it steps aside, exactly, for
 * those that come before it. */
void rpi_levels_add_hosts(rpi_levels *levels, int part, int place) {
    rpi_writer *writer = &levels->writer;
    int own = rpi_levels_sum_slot(levels);
    bool aside = own == RPI_SLOT_SUM && levels->host > 0;
    if (aside) own = rpi_write_encode_inside(writer, part, RPI_SLOT_SUM, RPI_ROLE_SENDER);
    for (int host = 0; host < levels->layout.hosts; host++) {
        int from = own;
        if (host != levels->host)
            from = rpi_write_recv(writer, part, rpi_levels_leader(levels, host, place));
        if (from != RPI_SLOT_SUM) rpi_write_accumulate(writer, part, from, host == 0);
    }
}

/* ---- copies ---- */

void rpi_levels_pass_on(rpi_levels *levels, int part, int wire) {
    for (int d = 1; d < levels->size; d++)
        rpi_write_send(&levels->writer, part, wire,
                       rpi_levels_leader(levels, levels->host, levels->place + d));
}

void rpi_levels_take(rpi_levels *levels, int part, int place) {
    int peer = rpi_levels_leader(levels, levels->host, place);
    int wire = levels->layout.hosts == 1 ? rpi_write_recv_inside(&levels->writer, part, peer)
                                         : rpi_write_recv(&levels->writer, part, peer);
    rpi_write_decode(&levels->writer, part, wire, RPI_SLOT_OUT);
}
