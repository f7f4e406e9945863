#include "train/program_set.h"

#include "base/status.h"

rp_status rpi_program_set_get(rpi_program_set *set, bool training, int64_t batch,
                              rpi_program **out_program) {
    for (int i = 0; i < set->count; i++) {
        if (set->entries[i].batch != batch || set->entries[i].training != training) continue;
        *out_program = set->entries[i].program;
        return RP_OK;
    }
    rpi_program_options options = {.backend = set->backend,
                                   .backend_options = set->backend_options,
                                   .training = training,
                                   .batch = batch,
                                   .result_count = 1,
                                   .results = {set->network->correct}};
    rpi_program *program = NULL;
    RP_TRY(rpi_program_compile(set->network->graph, set->weights, set->network->loss, &options,
                               &program));
    rpi_program_destroy(set->entries[set->next].program);
    set->entries[set->next].program = program;
    set->entries[set->next].batch = batch;
    set->entries[set->next].training = training;
    set->next = (set->next + 1) % RPI_PROGRAM_SET;
    if (set->count < RPI_PROGRAM_SET) set->count++;
    *out_program = program;
    return RP_OK;
}

void rpi_program_set_close(rpi_program_set *set) {
    for (int i = 0; i < set->count; i++) rpi_program_destroy(set->entries[i].program);
    *set = (rpi_program_set){0};
}
