#include "engine/code.h"

void rpi_program_destroy(rpi_program *program) {
    if (!program) return;
    for (rpi_kernel_list *entry = program->kernels; entry; entry = entry->next)
        if (entry->kernel.destroy) entry->kernel.destroy(entry->kernel.self);
    rpi_free(program->steps);
    rpi_arena_destroy(program->memory);
    rpi_free(program);
}

rpi_session *rpi_program_session(const rpi_program *program) {
    return program->session;
}

rpi_program_facts rpi_program_get_facts(const rpi_program *program) {
    return program->facts;
}

rpi_node_facts rpi_program_get_node_facts(const rpi_program *program, int node) {
    return program->node_facts[node];
}

int rpi_program_needs(const rpi_program *program, rpi_pass pass, int at) {
    int step = pass == RPI_FORWARD ? 0 : program->forward_count;
    int end = pass == RPI_FORWARD ? program->forward_count : program->step_count;
    for (int i = rpi_first_use(program, step); i < program->use_count; i++) {
        const rpi_parameter_use *use = &program->uses[i];
        if (use->step >= end) break;
        if (use->event == RPI_VALUES_NEEDED && at-- == 0) return use->parameter;
    }
    return -1;
}
