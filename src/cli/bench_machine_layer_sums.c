/* Sums between the products of a layer. Ranks come to them from work of their own, one now a
 * little later and now the other, and what they sum is no more in every cache: both are in the
 * time, as they are in that of a training. */
#include "cli/bench_machine_layer_sums.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>

rp_status rpi_machine_layer_sums_open(rpi_machine_bench *b, size_t count,
                                      rpi_machine_layer_sums *s) {
    const double bytes = (double)count * sizeof(float);
    if (b->ranks == 1) return RP_OK;
    s->count = count;
    RP_TRY(rpi_alloc_array(count, sizeof *s->from, "a sum", &s->from));
    RP_TRY(rpi_alloc_array(count, sizeof *s->to, "a sum", &s->to));
    s->comm = b->comm;
    return rpi_machine_item_open(b, RPI_WORK_LAYER_SUM, 0, "", &bytes, bytes, &s->item);
}

void rpi_machine_layer_sums_close(rpi_machine_layer_sums *s) {
    rpi_free(s->from);
    rpi_free(s->to);
    *s = (rpi_machine_layer_sums){0};
}

void rpi_machine_layer_sums_add(rpi_machine_layer_sums *s) {
    if (!s->is_on || s->status != RP_OK) return;
    const rp_segment segment = {.data = s->to, .count = s->count, .dtype = RP_F32};
    int64_t start = rpi_now_ns();
    memcpy(s->to, s->from, s->count * sizeof *s->to); /* as training keeps a part of its own */
    s->status = rp_all_reduce(s->comm, &segment, 1, NULL);
    s->seconds += rpi_seconds(rpi_now_ns() - start);
    s->times++;
}

void rpi_machine_layer_sums_begin(rpi_machine_layer_sums *s) {
    s->is_on = s->comm != NULL;
    s->times = 0;
    s->seconds = 0;
}

rp_status rpi_machine_layer_sums_end(rpi_machine_bench *b, rpi_machine_layer_sums *s) {
    s->is_on = false;
    if (s->times) rpi_machine_item_time(b, s->item, s->seconds / s->times);
    return s->status;
}
