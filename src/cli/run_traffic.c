#include "cli/run_traffic.h"

#include "base/status.h"
#include "train/models/network.h"
#include "train/models/parameter.h"

/* Elements that the codec takes, and those that travel as they are. */
static rp_status count_elements(const rpi_run_record *r, double *coded, double *exact) {
    rpi_network network = {0};
    const rpi_data_shape shape = {.sequence = (int)r->sequence};
    RP_TRY(rpi_network_build(r->model, &shape, &network));
    *coded = *exact = 0;
    for (int i = 0; i < network.parameter_count; i++) {
        const rpi_parameter *p = &network.parameters[i];
        if (p->is_state) continue;
        double *sum = rpi_parameter_compresses(p) ? coded : exact;
        *sum += (double)rpi_shape_count(&p->shape);
    }
    rpi_network_close(&network);
    return RP_OK;
}

static rp_status add_bytes(const rpi_scaling_job *job, double count, const char *codec,
                           double *sum) {
    rpi_scaling_exchange exchange;
    rpi_scaling_job part = *job;
    if (count == 0) return RP_OK;
    part.count = count;
    part.codec = codec;
    RP_TRY(rpi_scaling_price(&part, &exchange));
    *sum += exchange.wire_bytes;
    return RP_OK;
}

/* Ranks of a layout share tensors evenly. */
rp_status rpi_run_traffic(const rpi_run_record *r, const rpi_scaling_job *job, double *out) {
    double coded, exact, sum = 0;
    if (job->ranks == 1) return RP_OK;
    RP_TRY(count_elements(r, &coded, &exact));
    double share = job->count / (coded + exact);
    RP_TRY(add_bytes(job, coded * share, job->codec, &sum));
    RP_TRY(add_bytes(job, exact * share, "fp32", &sum));
    *out = sum;
    return RP_OK;
}
