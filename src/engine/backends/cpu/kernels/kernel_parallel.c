#include "engine/backends/cpu/kernels/kernel.h"

#include "engine/team/team.h"

typedef struct cut_call {
    rpi_kernel_body body;
    const void *args;
    int64_t count, grain, grains;
    int parts;
} cut_call;

static void run_part(const void *context, int part) {
    const cut_call *call = context;
    int64_t begin = call->grains * part / call->parts * call->grain;
    int64_t end = call->grains * (part + 1) / call->parts * call->grain;
    call->body(call->args, begin, end < call->count ? end : call->count);
}

void rpi_kernel_parallel(const rpi_kernel_run *run, int64_t count, int64_t grain,
                         const rpi_kernel_body bodies[RPI_ISA_COUNT], const void *args) {
    int64_t grains = (count + grain - 1) / grain;
    int threads = run->threads < grains ? run->threads : (int)grains;
    if (threads <= 1) {
        if (count > 0) bodies[run->isa](args, 0, count);
        return;
    }
    int64_t parts = rpi_team_cut(threads);
    cut_call call = {
        bodies[run->isa], args, count, grain, grains, (int)(parts < grains ? parts : grains)};
    rpi_team_share(threads, call.parts, run_part, &call);
}
