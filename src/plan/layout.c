#include "plan/layout.h"

#include "base/memory.h"

/* Of each rank the first one that is on its host, and how many of them come before. */
static void number_hosts(const rpi_plan_request *request, rpi_host_layout *layout) {
    if (!request->host_of) { /* at once, since worlds may be large */
        for (int rank = 0; rank < request->world; rank++) layout->host_of[rank] = rank;
        layout->hosts = request->world;
        layout->widest = 1;
        return;
    }
    for (int rank = 0; rank < request->world; rank++) {
        int earlier = rank - 1;
        while (earlier >= 0 && !rpi_same_host(request, earlier, rank)) earlier--;
        layout->host_of[rank] = earlier < 0 ? layout->hosts++ : layout->host_of[earlier];
        layout->place[rank] = earlier < 0 ? 0 : layout->place[earlier] + 1;
        if (layout->place[rank] >= layout->widest) layout->widest = layout->place[rank] + 1;
    }
}

static void list_ranks(rpi_host_layout *layout) {
    for (int rank = 0; rank < layout->world; rank++) layout->first[layout->host_of[rank] + 1]++;
    for (int host = 0; host < layout->hosts; host++)
        layout->first[host + 1] += layout->first[host];
    for (int rank = 0; rank < layout->world; rank++)
        layout->ranks[layout->first[layout->host_of[rank]] + layout->place[rank]] = rank;
}

rp_status rpi_layout_make(const rpi_plan_request *request, rpi_host_layout *out_layout) {
    size_t world = (size_t)request->world;
    int *memory = NULL;
    *out_layout = (rpi_host_layout){.world = request->world};
    RP_TRY(rpi_alloc_array(4 * world + 1, sizeof *memory, "a layout of hosts", &memory));
    out_layout->host_of = memory;
    out_layout->place = memory + world;
    out_layout->ranks = memory + 2 * world;
    out_layout->first = memory + 3 * world;
    number_hosts(request, out_layout);
    list_ranks(out_layout);
    return RP_OK;
}

void rpi_layout_free(rpi_host_layout *layout) {
    rpi_free(layout->host_of);
    *layout = (rpi_host_layout){0};
}

int rpi_layout_size(const rpi_host_layout *layout, int host) {
    return layout->first[host + 1] - layout->first[host];
}

int rpi_layout_rank(const rpi_host_layout *layout, int host, int place) {
    return layout->ranks[layout->first[host] + place % rpi_layout_size(layout, host)];
}
