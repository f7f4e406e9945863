/* Recomputation: what backward computes again in place of keeping it. */
#include "engine/compile.h"

#include "base/status.h"

static bool takes(const rpi_compiled_unit *unit, int input, const rpi_compiled_unit *maker) {
    for (int i = 0; i < maker->unit.output_count; i++)
        if (unit->inputs[input] == maker->outputs[i]) return true;
    return false;
}

/* Does backward need the outputs of this unit? Either its own backward, or units after it in
 * its segment, of which `again` says which are recomputed. External nodes say whether they may
 * be recomputed; otherwise their outputs are kept. */
static bool needs_repeat(const rpi_compiler *compiler, int index, const bool *again) {
    const rpi_compiled_unit *unit = &compiler->units[index];
    if (rpi_is_external(unit->unit.nodes[0]->op) && !rpi_external_repeats(unit)) return false;
    const rpi_kernel *own = unit->kernel;
    if (own && unit->unit.wanted && (own->saved_bytes || own->needs_outputs)) return true;
    for (int i = index + 1; i < compiler->unit_count; i++) {
        const rpi_compiled_unit *next = &compiler->units[i];
        if (next->segment != unit->segment) continue;
        for (int j = 0; j < next->unit.input_count; j++) {
            bool reads =
                next->kernel && next->unit.wanted && next->kernel->needs_inputs >> j & 1u;
            if ((again[i] || reads) && takes(next, j, unit)) return true;
        }
    }
    return false;
}

rp_status rpi_repeat_segment(rpi_compiler *compiler, int segment, bool *repeated) {
    bool *again = NULL;
    if (segment < 0 || repeated[segment]) return RP_OK;
    repeated[segment] = true;
    RP_TRY(rpi_arena_alloc(compiler->program->memory, (size_t)compiler->unit_count, &again));
    for (int i = compiler->unit_count - 1; i >= 0; i--)
        again[i] = compiler->units[i].segment == segment && needs_repeat(compiler, i, again);
    for (int i = 0; i < compiler->unit_count; i++) {
        if (!again[i]) continue;
        compiler->units[i].is_repeated = true;
        RP_TRY(rpi_emit_unit_again(compiler, &compiler->units[i]));
    }
    return RP_OK;
}

/* Recomputes what external nodes did not keep and the unit's backward reads. */
static rp_status repeat_inputs(rpi_compiler *compiler, int index) {
    const rpi_compiled_unit *unit = &compiler->units[index];
    if (!unit->kernel || !unit->unit.wanted) return RP_OK;
    for (int i = index - 1; i >= 0; i--) {
        rpi_compiled_unit *maker = &compiler->units[i];
        bool reads = false;
        if (maker->is_repeated || !rpi_external_always_repeats(maker)) continue;
        for (int j = 0; j < unit->unit.input_count; j++)
            reads |= (unit->kernel->needs_inputs >> j & 1u) && takes(unit, j, maker);
        if (!reads) continue;
        maker->is_repeated = true;
        RP_TRY(rpi_emit_unit_again(compiler, maker));
    }
    return RP_OK;
}

/* Recomputation begins so many units ahead of use, to overlap with their backward passes; but
 * not beyond segments that are recomputed. */
enum { REPEATED_AHEAD = 3 };

rp_status rpi_repeat_ahead(rpi_compiler *compiler, int index) {
    int segment = compiler->units[index].segment;
    for (int i = index; i >= 0 && i >= index - REPEATED_AHEAD; i--)
        if (compiler->units[i].segment == segment) RP_TRY(repeat_inputs(compiler, i));
    return RP_OK;
}
