#include "train/parallel/border_dtypes.h"

#include "base/status.h"
#include "train/program_set.h"

/* Finds the dtypes of a part whose predecessors are known. */
static rp_status look_at(const rpi_program_set *set, int64_t samples, int index,
                         rpi_model_stage *s) {
    rpi_program *program = NULL;
    rpi_network_part *part = &s->all[index];
    RP_TRY(rpi_program_set_compile_part(set, part, true, samples, &program));
    part->seed_as.value = rpi_program_handed_on(program, part->seed);
    part->given_as.gradient = rpi_program_handed_on(program, part->given);
    rpi_program_destroy(program);
    if (index + 1 < s->stages * s->chunks)
        s->all[index + 1].given_as.value = part->seed_as.value;
    if (index) s->all[index - 1].seed_as.gradient = part->given_as.gradient;
    return RP_OK;
}

static rp_status look_at_all(const rpi_program_set *set, int64_t samples, rpi_model_stage *s) {
    for (int i = 0; i < s->stages * s->chunks; i++) RP_TRY(look_at(set, samples, i, s));
    for (int k = 0; k < s->chunks; k++) s->parts[k] = s->all[s->parts[k].part];
    return RP_OK;
}

rp_status rpi_border_dtypes_find(const rpi_network *network, const rpi_backend *backend,
                                 rp_dtype compute, bool recompute, int64_t samples,
                                 rpi_model_stage *stage) {
    static const rpi_backend_options usual;
    rpi_weights *weights = NULL;
    rpi_program_set set = {0};
    if (compute != RP_BF16) return RP_OK;
    RP_TRY(rpi_weights_create_table(network->graph, network->loss, &weights));
    rp_status status = rpi_program_set_open(
        network, weights, backend ? backend : rpi_backend_default(), &usual, compute, &set);
    if (status == RP_OK) {
        set.recompute = recompute;
        set.in_flight = true;
        set.halves = stage->schedule->splits;
        status = look_at_all(&set, samples, stage);
    }
    rpi_program_set_close(&set);
    rpi_weights_destroy(weights);
    return status;
}
