#include "plan/foresight/group_sums.h"

rpi_group rpi_group_of(const rpi_machine *m, int64_t ranks, int64_t stride) {
    int64_t inside = m->ranks_per_host / stride;
    if (inside < 1) inside = 1;
    if (inside > ranks) inside = ranks;
    while (ranks % inside) inside--;
    return (rpi_group){ranks, inside, ranks / inside};
}

double rpi_group_half_s(const rpi_machine *m, const rpi_group *g, double bytes,
                        double between) {
    double n = (double)g->inside, hosts = (double)g->hosts;
    double start_s =
        g->inside > 1 ? rpi_plan_device_value(&m->device, RPI_FACT_LOCAL_START) : 0;
    double inside_s =
        start_s / 2 + (n - 1) * m->local_latency_s + (n - 1) / n * bytes / m->local_bytes_s;
    if (g->hosts == 1) return inside_s;
    double groups = (double)m->ranks_per_host / n;
    double rate = m->link_bytes_s * rpi_plan_device_value(&m->device, RPI_FACT_LINK_SHARE);
    return inside_s + (hosts - 1) * m->link_latency_s +
           (hosts - 1) / hosts * between * groups / rate;
}
