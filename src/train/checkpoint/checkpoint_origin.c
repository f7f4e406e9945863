#include "train/checkpoint/checkpoint_origin.h"

#include "base/status.h"
#include "train/checkpoint/checkpoint_files.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

rp_status rpi_checkpoint_origin_read(const rpi_safetensors *file, const char *path,
                                     const char *strategy_now, rpi_checkpoint_origin *o) {
    RP_TRY(rpi_checkpoint_number(file, path, "step", 0, INT64_MAX, &o->step));
    RP_TRY(rpi_checkpoint_number(file, path, "world", 1, 1 << 20, &o->world));
    RP_TRY(rpi_checkpoint_number(file, path, "seed", INT64_MIN, INT64_MAX, &o->seed));
    RP_TRY(rpi_checkpoint_number(file, path, "global_batch_size", 1, INT64_MAX, &o->batch));
    const char *kept = rpi_safetensors_metadata(file, "error_feedback");
    o->feedback = kept && strcmp(kept, "on") == 0;
    const char *name = rpi_safetensors_metadata(file, "strategy");
    const char *alone = rpi_safetensors_metadata(file, "strategy_state");
    const rpi_strategy *strategy = NULL;
    o->apart = name && rpi_strategy_find(name, &strategy) == RP_OK &&
               strategy->replicas_differ &&
               (o->world > 1 || (alone && strcmp(alone, "on") == 0));
    o->met = o->apart && strategy->run;
    if (strategy && strategy->servers)
        o->servers = strategy->servers(rpi_strategy_options(name));
    o->stages = 1;
    if (rpi_safetensors_metadata(file, "stages"))
        RP_TRY(rpi_checkpoint_number(file, path, "stages", 1, o->world, &o->stages));
    o->tensor_ranks = 1;
    if (rpi_safetensors_metadata(file, "tensor_ranks"))
        RP_TRY(
            rpi_checkpoint_number(file, path, "tensor_ranks", 1, o->world, &o->tensor_ranks));
    o->parts = (o->world - o->servers) / o->stages / o->tensor_ranks;
    if (rpi_safetensors_metadata(file, "batch_parts"))
        RP_TRY(rpi_checkpoint_number(file, path, "batch_parts", 1, 1 << 20, &o->parts));
    o->alike = name && rpi_strategy_alike(name, strategy_now);
    return RP_OK;
}

bool rpi_checkpoint_goes_on_apart(const rpi_trainer *t, const rpi_checkpoint_origin *o) {
    return o->apart && o->alike && o->world == t->place.world && t->strategy->replicas_differ;
}

bool rpi_checkpoint_remembers(const rpi_trainer *t, const rpi_checkpoint_origin *o) {
    return t->network.memory_count && o->world == t->place.world &&
           o->parts == t->place.workers && o->batch == t->global_batch;
}

bool rpi_checkpoint_is_same_layout(const rpi_trainer *t, const rpi_checkpoint_origin *o) {
    return o->world == t->place.world && o->servers == t->place.servers &&
           o->stages == t->place.grid.size[RPI_AXIS_STAGE] &&
           o->tensor_ranks == t->place.grid.size[RPI_AXIS_TENSOR];
}

void rpi_checkpoint_add_note(char *note, size_t bytes, const char *format, ...) {
    size_t used = strlen(note);
    if (used && used < bytes) used += (size_t)snprintf(note + used, bytes - used, "; ");
    if (used >= bytes) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(note + used, bytes - used, format, arguments);
    va_end(arguments);
}

void rpi_checkpoint_note_changes(const rpi_trainer *t, const rpi_checkpoint_origin *o,
                                 char *note, size_t bytes) {
    if (o->world != t->place.world)
        rpi_checkpoint_add_note(note, bytes, "saved by %lld ranks, continued by %d",
                                (long long)o->world, t->place.world);
    if (o->stages != t->place.grid.size[RPI_AXIS_STAGE])
        rpi_checkpoint_add_note(note, bytes, "saved by %lld stage%s, continued by %d",
                                (long long)o->stages, o->stages == 1 ? "" : "s",
                                t->place.grid.size[RPI_AXIS_STAGE]);
    if (o->tensor_ranks != t->place.grid.size[RPI_AXIS_TENSOR])
        rpi_checkpoint_add_note(note, bytes, "layers were shared by %lld rank%s, now by %d",
                                (long long)o->tensor_ranks, o->tensor_ranks == 1 ? "" : "s",
                                t->place.grid.size[RPI_AXIS_TENSOR]);
    if (o->seed != t->options->seed)
        rpi_checkpoint_add_note(note, bytes, "the seed was %lld, now %lld", (long long)o->seed,
                                (long long)t->options->seed);
    if (o->batch != t->global_batch)
        rpi_checkpoint_add_note(note, bytes, "the global batch was %lld, now %lld",
                                (long long)o->batch, (long long)t->global_batch);
    if (o->apart && o->world == 1 && !rpi_checkpoint_goes_on_apart(t, o))
        rpi_checkpoint_add_note(note, bytes, "this run begins without its strategy's state");
    else if (o->apart && !rpi_checkpoint_goes_on_apart(t, o))
        rpi_checkpoint_add_note(note, bytes,
                                "its ranks had %s of their own; this run begins from %s, "
                                "without the strategy's state",
                                o->met ? "optimizers" : "parameters",
                                o->met ? "the first worker's" : "their mean");
    if (t->network.memory_count && !rpi_checkpoint_remembers(t, o))
        rpi_checkpoint_add_note(note, bytes, "its rows were others, and remember nothing now");
    if (o->feedback && !t->residual)
        rpi_checkpoint_add_note(note, bytes,
                                "its error feedback has no use here and is dropped");
}
