#include "train/parallel/stage_runs.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* ---- what there is ---- */

static int stage_of(const rpi_model_stage *s, int part) {
    if (part < 0 || part >= s->stages * s->chunks) return -1;
    return rpi_pipeline_stage(s->schedule, s->stages, part);
}

rp_status rpi_stage_runs_open(const rpi_replica_setup *setup, rpi_stage_runs *out_runs) {
    rpi_stage_runs runs = {.setup = setup, .stage = setup->stage};
    RP_TRY(rp_codec_parse("bf16", &runs.half));
    RP_TRY(rpi_alloc_array((size_t)setup->stage->chunks, sizeof *runs.chunks, "parts",
                           &runs.chunks));
    for (int k = 0; k < setup->stage->chunks; k++) {
        const rpi_network_part *part = &setup->stage->parts[k];
        runs.chunks[k] = (rpi_stage_chunk){.part = part,
                                           .before = stage_of(setup->stage, part->part - 1),
                                           .behind = stage_of(setup->stage, part->part + 1)};
    }
    *out_runs = runs;
    return RP_OK;
}

static void close_size(rpi_stage_size *size) {
    for (int i = 0; i < size->instance_count; i++) rpi_instance_destroy(size->instances[i]);
    rpi_free(size->instances);
    rpi_program_destroy(size->program);
    *size = (rpi_stage_size){0};
}

static rp_status settle_slot(const rpi_stage_links *links, rpi_stage_slot *slot) {
    rp_status forward = rpi_link_settle(links, &slot->forward_sent);
    rp_status backward = rpi_link_settle(links, &slot->backward_sent);
    return forward != RP_OK ? forward : backward;
}

/* Requests that a failure has left in flight still use the slot's memory. */
static void close_slot(rpi_stage_slot *slot) {
    (void)settle_slot(NULL, slot);
    (void)rpi_link_settle(NULL, &slot->given_request);
    (void)rpi_link_settle(NULL, &slot->seed_request);
    rpi_free(slot->given);
    rpi_free(slot->seed);
    for (int way = 0; way < RPI_LINK_WAYS; way++) {
        rpi_free(slot->arriving[way]);
        rpi_free(slot->leaving[way]);
    }
}

void rpi_stage_runs_close(rpi_stage_runs *runs) {
    for (int k = 0; runs->chunks && k < runs->stage->chunks; k++) {
        rpi_stage_chunk *chunk = &runs->chunks[k];
        for (int i = 0; i < chunk->slot_count; i++) close_slot(&chunk->slots[i]);
        for (int i = 0; i < chunk->size_count; i++) close_size(&chunk->sizes[i]);
        rpi_free(chunk->slots);
    }
    rpi_free(runs->chunks);
    *runs = (rpi_stage_runs){0};
}

int rpi_stage_runs_chunk_of(const rpi_stage_runs *runs, int part) {
    for (int k = 0; k < runs->stage->chunks; k++)
        if (runs->chunks[k].part->part == part) return k;
    return -1;
}

/* ---- room ---- */

static rp_status settle_all(const rpi_stage_runs *runs, rpi_stage_chunk *chunk) {
    for (int i = 0; i < chunk->slot_count; i++)
        RP_TRY(settle_slot(runs->setup->links, &chunk->slots[i]));
    return RP_OK;
}

static int64_t crossing(const rpi_stage_runs *runs, rpi_value_id value, int64_t samples) {
    return value == RPI_NO_VALUE ? 0 : rpi_stage_crossing(runs->setup->network, value, samples);
}

/* The codec of a message of elements in this dtype: the requested one, or bf16 where f32 would
 * carry no more bits. */
static rp_codec codec_of(const rpi_stage_runs *runs, rp_dtype dtype) {
    rp_codec codec = rpi_activation_codec_now(runs->setup->links->codec);
    return codec.kind || dtype != RP_BF16 ? codec : runs->half;
}

/* The dtypes of received, or sent, messages in that direction. */
static rp_dtype dtype_of(const rpi_network_part *part, rpi_link_way way, bool arrives) {
    bool forward = way == RPI_LINK_ACTIVATION;
    const rpi_border_dtypes *at = forward == arrives ? &part->given_as : &part->seed_as;
    return forward ? at->value : at->gradient;
}

static rp_status make_wire(const rpi_stage_runs *runs, int64_t count, rp_dtype dtype,
                           void **out_wire) {
    const rp_codec codec = codec_of(runs, dtype);
    if (!codec.kind || !count) return RP_OK;
    return rpi_alloc(rpi_activation_codec_bytes(&codec, count), "messages", out_wire);
}

/* Received activations and sent gradients have the shape of the given value. */
static rp_status make_wires(const rpi_stage_runs *runs, const rpi_stage_chunk *chunk,
                            size_t given, size_t seed, rpi_stage_slot *slot) {
    int own = runs->stage->stage;
    for (int way = 0; way < RPI_LINK_WAYS; way++)
        for (int arrives = 0; arrives < 2; arrives++) {
            bool at_front = (way == RPI_LINK_ACTIVATION) == arrives;
            int stage = at_front ? chunk->before : chunk->behind;
            rp_dtype dtype = dtype_of(chunk->part, (rpi_link_way)way, arrives);
            if (stage == own) continue;
            RP_TRY(make_wire(runs, (int64_t)(at_front ? given : seed), dtype,
                             arrives ? &slot->arriving[way] : &slot->leaving[way]));
        }
    return RP_OK;
}

static rp_status make_slot(const rpi_stage_runs *runs, rpi_stage_chunk *chunk) {
    rpi_stage_slot *slot = &chunk->slots[chunk->slot_count++];
    int64_t most = runs->setup->micro_batch;
    size_t given = (size_t)crossing(runs, chunk->part->given, most);
    size_t seed = (size_t)crossing(runs, chunk->part->seed, most);
    RP_TRY(rpi_alloc_array(given, sizeof(float), "activations of a stage", &slot->given));
    RP_TRY(rpi_alloc_array(seed, sizeof(float), "gradients of a stage", &slot->seed));
    return make_wires(runs, chunk, given, seed, slot);
}

rp_status rpi_stage_runs_reserve(rpi_stage_runs *runs, int index, int slots) {
    rpi_stage_chunk *chunk = &runs->chunks[index];
    if (slots <= chunk->slot_count) return RP_OK;
    RP_TRY(settle_all(runs, chunk));
    RP_TRY(rpi_grow_array((size_t)chunk->slot_count, (size_t)slots, sizeof *chunk->slots,
                          "runs in flight", &chunk->slots));
    while (chunk->slot_count < slots) RP_TRY(make_slot(runs, chunk));
    return RP_OK;
}

/* ---- programs ---- */

static rp_status add_instances(rpi_stage_size *size, int count) {
    if (count <= size->instance_count) return RP_OK;
    RP_TRY(rpi_grow_array((size_t)size->instance_count, (size_t)count, sizeof *size->instances,
                          "runs in flight", &size->instances));
    for (; size->instance_count < count; size->instance_count++)
        RP_TRY(rpi_instance_create(size->program, &size->instances[size->instance_count]));
    return RP_OK;
}

static void move_to_front(rpi_stage_chunk *chunk, int index) {
    rpi_stage_size moved = chunk->sizes[index];
    for (; index > 0; index--) chunk->sizes[index] = chunk->sizes[index - 1];
    chunk->sizes[0] = moved;
}

/* The size that makes room has nothing in flight. */
static rp_status add_size(rpi_stage_runs *runs, rpi_stage_chunk *chunk, bool training,
                          int64_t samples) {
    rpi_stage_size size = {.samples = samples, .training = training};
    RP_TRY(settle_all(runs, chunk));
    RP_TRY(rpi_program_set_compile_part(runs->setup->programs, chunk->part, training, samples,
                                        &size.program));
    if (chunk->size_count == RPI_STAGE_SIZES)
        close_size(&chunk->sizes[RPI_STAGE_SIZES - 1]);
    else
        chunk->size_count++;
    chunk->sizes[chunk->size_count - 1] = size;
    move_to_front(chunk, chunk->size_count - 1);
    return RP_OK;
}

rp_status rpi_stage_runs_compile(rpi_stage_runs *runs, int index, bool training,
                                 int64_t samples) {
    rpi_stage_chunk *chunk = &runs->chunks[index];
    int at = 0;
    while (at < chunk->size_count &&
           (chunk->sizes[at].samples != samples || chunk->sizes[at].training != training))
        at++;
    if (at < chunk->size_count)
        move_to_front(chunk, at);
    else
        RP_TRY(add_size(runs, chunk, training, samples));
    return add_instances(&chunk->sizes[0], training ? chunk->slot_count : 1);
}

/* ---- a share ---- */

rp_status rpi_stage_runs_begin(rpi_stage_runs *runs, bool training, int64_t samples) {
    int64_t most = runs->setup->micro_batch;
    for (int k = 0; k < runs->stage->chunks; k++) {
        RP_TRY(settle_all(runs, &runs->chunks[k]));
        runs->chunks[k].acquired = runs->chunks[k].done = 0;
    }
    runs->samples = samples;
    runs->training = training;
    runs->micro_batches = (int)((samples + most - 1) / most);
    return RP_OK;
}

int64_t rpi_stage_runs_samples(const rpi_stage_runs *runs, int micro_batch) {
    int64_t most = runs->setup->micro_batch, left = runs->samples - micro_batch * most;
    return left < 0 ? 0 : left < most ? left : most;
}

/* The message that a slot receives for a micro-batch in that direction. */
static rpi_link_message arriving(const rpi_stage_runs *runs, const rpi_stage_chunk *chunk,
                                 int micro_batch, rpi_link_way way) {
    const rpi_stage_slot *slot = &chunk->slots[micro_batch % chunk->slot_count];
    bool forward = way == RPI_LINK_ACTIVATION;
    int part = chunk->part->part;
    return (rpi_link_message){
        .stage = forward ? chunk->before : chunk->behind,
        .border = forward ? part - 1 : part,
        .way = way,
        .data = forward ? slot->given : slot->seed,
        .count = crossing(runs, forward ? chunk->part->given : chunk->part->seed,
                          rpi_stage_runs_samples(runs, micro_batch)),
        .codec = codec_of(runs, runs->training ? dtype_of(chunk->part, way, true) : RP_F32),
        .wire = slot->arriving[way]};
}

/* Posts the receives of a micro-batch, whose slot is free. What a part of this same stage makes
 * is handed over when it is there. */
static rp_status post(rpi_stage_runs *runs, rpi_stage_chunk *chunk, bool training) {
    int micro_batch = chunk->acquired, own = runs->stage->stage;
    rpi_stage_slot *slot = &chunk->slots[micro_batch % chunk->slot_count];
    const rpi_stage_links *links = runs->setup->links;
    RP_TRY(settle_slot(links, slot));
    chunk->acquired++;
    if (!rpi_stage_runs_samples(runs, micro_batch))
        return RP_OK; /* no stage of this replica has samples in it */
    const rpi_link_message given = arriving(runs, chunk, micro_batch, RPI_LINK_ACTIVATION);
    if (chunk->before >= 0 && chunk->before != own)
        RP_TRY(rpi_link_receive(links, &given, &slot->given_request));
    if (!training || chunk->behind < 0 || chunk->behind == own) return RP_OK;
    const rpi_link_message seed = arriving(runs, chunk, micro_batch, RPI_LINK_GRADIENT);
    return rpi_link_receive(links, &seed, &slot->seed_request);
}

rp_status rpi_stage_runs_take(rpi_stage_runs *runs, int index, int micro_batch,
                              rpi_link_way way) {
    rpi_stage_chunk *chunk = &runs->chunks[index];
    rpi_stage_slot *slot = &chunk->slots[micro_batch % chunk->slot_count];
    rp_request **request =
        way == RPI_LINK_ACTIVATION ? &slot->given_request : &slot->seed_request;
    if (!*request) return RP_OK;
    const rpi_link_message message = arriving(runs, chunk, micro_batch, way);
    return rpi_link_wait(runs->setup->links, &message, micro_batch, request);
}

static bool is_free(const rpi_stage_chunk *chunk) {
    const rpi_stage_slot *slot = &chunk->slots[chunk->acquired % chunk->slot_count];
    return chunk->acquired - chunk->done < chunk->slot_count &&
           rpi_link_is_done(slot->forward_sent) && rpi_link_is_done(slot->backward_sent);
}

rp_status rpi_stage_runs_post_ahead(rpi_stage_runs *runs, bool training) {
    for (int k = 0; k < runs->stage->chunks; k++) {
        rpi_stage_chunk *chunk = &runs->chunks[k];
        while (chunk->acquired < runs->micro_batches && is_free(chunk))
            RP_TRY(post(runs, chunk, training));
    }
    return RP_OK;
}

rp_status rpi_stage_runs_acquire(rpi_stage_runs *runs, int index, int micro_batch,
                                 bool training, rpi_stage_slot **out_slot) {
    rpi_stage_chunk *chunk = &runs->chunks[index];
    while (chunk->acquired <= micro_batch) {
        if (chunk->acquired - chunk->done >= chunk->slot_count)
            return RP_FAIL(INTERNAL, "the schedule %s keeps more than %d micro-batches",
                           runs->stage->schedule->name, chunk->slot_count);
        RP_TRY(post(runs, chunk, training));
    }
    *out_slot = &chunk->slots[micro_batch % chunk->slot_count];
    return RP_OK;
}

static rp_status made_by(const rpi_stage_chunk *chunk, const rpi_stage_slot *slot,
                         rpi_link_way way, rpi_tensor *out) {
    return way == RPI_LINK_ACTIVATION
               ? rpi_instance_result(slot->instance, chunk->part->seed, out)
               : rpi_instance_gradient(slot->instance, chunk->part->given, out);
}

/* The next part in that direction is on this stage. Its activations are read where they lie;
 * gradients are copied, because their slot may be free before they are used. */
static void hand_over(rpi_stage_runs *runs, int part, int micro_batch, rpi_link_way way,
                      const rpi_tensor *tensor) {
    rpi_stage_chunk *chunk = &runs->chunks[rpi_stage_runs_chunk_of(runs, part)];
    if (way == RPI_LINK_ACTIVATION) return;
    memcpy(chunk->slots[micro_batch % chunk->slot_count].seed, tensor->data,
           (size_t)rpi_shape_count(&tensor->shape) * sizeof(float));
}

rp_status rpi_stage_runs_send(rpi_stage_runs *runs, int index, int micro_batch,
                              rpi_link_way way) {
    rpi_stage_chunk *chunk = &runs->chunks[index];
    rpi_stage_slot *slot = &chunk->slots[micro_batch % chunk->slot_count];
    bool forward = way == RPI_LINK_ACTIVATION;
    int to = forward ? chunk->behind : chunk->before, part = chunk->part->part;
    rpi_tensor tensor;
    if (to < 0) return RP_OK;
    RP_TRY(made_by(chunk, slot, way, &tensor));
    if (to == runs->stage->stage) {
        hand_over(runs, forward ? part + 1 : part - 1, micro_batch, way, &tensor);
        return RP_OK;
    }
    const rpi_link_message message = {
        .stage = to,
        .border = forward ? part : part - 1,
        .way = way,
        .data = tensor.data,
        .count = rpi_shape_count(&tensor.shape),
        .codec = codec_of(runs, runs->training ? dtype_of(chunk->part, way, false) : RP_F32),
        .wire = slot->leaving[way]};
    return rpi_link_send(runs->setup->links, &message,
                         forward ? &slot->forward_sent : &slot->backward_sent);
}
