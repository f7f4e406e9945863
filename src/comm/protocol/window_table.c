/* Windows: whose slot, and whose destination. */
#include "comm/protocol/window_table.h"

int rpi_window_find_in(const rp_window *window, int rank) {
    for (int i = 0; i < window->in_count; i++)
        if (window->ins[i].rank == rank) return i;
    return -1;
}

int rpi_window_find_out(const rp_window *window, int rank) {
    for (int i = 0; i < window->out_count; i++)
        if (window->outs[i].rank == rank) return i;
    return -1;
}
