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
