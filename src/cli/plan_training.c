#include "cli/plan_training.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "cli/machine_file.h"
#include "net/shaped/link_shape.h"
#include "redpoll/codec.h"
#include "train/models/blocks.h"
#include "train/models/model.h"
#include "train/parallel/activation_codec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_FILE = 1 << 22, USUAL_RANKS = 8 };

rp_status rpi_check_zero(const char *text) {
    if (strlen(text) == 1 && text[0] >= '0' && text[0] <= '0' + RPI_ZERO_MOST) return RP_OK;
    return RP_FAIL(INVALID, "'%s' is not 0, 1, 2 or 3", text);
}

/* A switch is taken, too, as redpoll train takes REDPOLL_RECOMPUTE. */
static rp_status read_recompute(const char *text, rpi_recompute *out) {
    bool on;
    if (!rpi_parse_switch(text, &on)) return rpi_recompute_parse(text, out);
    *out = on ? RPI_RECOMPUTE_FULL : RPI_RECOMPUTE_NONE;
    return RP_OK;
}

rp_status rpi_check_recompute(const char *text) {
    rpi_recompute recompute;
    return read_recompute(text, &recompute);
}

rp_status rpi_check_precision(const char *text) {
    const rpi_precision *precision;
    return rpi_precision_find(text, &precision);
}

static rp_status read_model(const rpi_plan_training *said, rpi_training_layout *l) {
    rpi_model_choice choice;
    RP_TRY(rpi_model_parse(said->model, &choice));
    if (!choice.model->transformer)
        return RP_FAIL(INVALID, "%s is no decoder of transformer blocks: gpt2 and llama are",
                       choice.model->name);
    choice.model->transformer(choice.options, &l->model);
    int64_t positions = rpi_model_number(&choice, "positions");
    l->sequence = said->sequence ? said->sequence : positions;
    RP_TRY(rpi_check_positions(l->sequence, positions));
    return rpi_transformer_check(&l->model);
}

static rp_status read_layout(const rpi_plan_training *said, bool needs_batch,
                             rpi_planned_training *out) {
    rpi_training_layout *l = &out->layout;
    RP_TRY(read_model(said, l));
    RP_TRY(rpi_precision_find(said->precision ? said->precision
                              : said->machine ? "fp32"
                                              : "bf16",
                              &l->precision));
    if (said->recompute) RP_TRY(read_recompute(said->recompute, &l->recompute));
    if (needs_batch && !said->global_batch)
        return RP_FAIL(INVALID, "of how many samples is a step? --global-batch-size 1024");
    l->micro_batch = said->micro_batch ? said->micro_batch : 1;
    l->global_batch = said->global_batch ? said->global_batch : 1;
    l->tensor = said->tp ? said->tp : 1;
    l->context = said->cp ? said->cp : 1;
    l->pipeline = said->pp ? said->pp : 1;
    l->data = said->dp ? said->dp : 1;
    l->interleave = said->interleave;
    l->zero = said->zero ? said->zero[0] - '0' : 0;
    l->sequence_parallel = said->sequence_parallel && (needs_batch ? said->tp != 1 : true);
    l->fused_attention = said->fused_attention;
    out->open = (rpi_open_choices){.tensor = !said->tp,
                                   .context = !said->cp,
                                   .pipeline = !said->pp,
                                   .data = !said->dp,
                                   .zero = !said->zero,
                                   .micro_batch = !said->micro_batch,
                                   .recompute = !said->recompute};
    return RP_OK;
}

static rp_status ask_for_device(const rpi_plan_device_table *table) {
    char names[512] = "";
    const rpi_plan_device *device;
    for (int i = 0; (device = rpi_plan_device_at(table, i)) != NULL; i++)
        rpi_append(names, sizeof names, "%s%s", i ? ", " : "", device->name);
    return RP_FAIL(INVALID, "which device does a rank have? --device a100-80g; there are %s",
                   names);
}

/* A device that was measured, with as many ranks on a host as then. */
static rp_status read_machine(const rpi_plan_training *said, rpi_planned_training *out) {
    rpi_machine *m = &out->machine;
    if (said->device)
        return RP_FAIL(INVALID, "--device and --machine both say what a rank has: one of them");
    RP_TRY(rpi_alloc(sizeof *out->account, "a machine", &out->account));
    RP_TRY(rpi_alloc(sizeof *out->rates, "rates of a machine", &out->rates));
    RP_TRY(rpi_machine_file_read(said->machine, out->account));
    snprintf(out->source, sizeof out->source, "%.80s, %d ranks at the same time", said->machine,
             out->account->ranks);
    rp_status status =
        rpi_machine_account_device(out->account, out->source, &m->device, out->rates);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", said->machine);
    m->rates = out->rates;
    if (!said->ranks_per_host) m->ranks_per_host = out->account->ranks;
    return RP_OK;
}

static rp_status read_devices(const rpi_plan_training *said, rpi_planned_training *out) {
    RP_TRY(rpi_plan_device_table_make(&out->table));
    for (int i = 0; i < said->devices.count; i++) {
        char *text = NULL;
        size_t bytes;
        const char *path = said->devices.items[i];
        RP_TRY(rpi_regular_file_read(path, MOST_FILE, &text, &bytes));
        rp_status status = rpi_plan_device_table_add(out->table, text, path);
        rpi_free(text);
        RP_TRY(status);
    }
    if (said->machine) return read_machine(said, out);
    if (!said->device) return ask_for_device(out->table);
    return rpi_plan_device_find(out->table, said->device, &out->machine.device);
}

static rp_status read_links(const rpi_plan_training *said, rpi_machine *m) {
    rpi_link_shape link = {0}, local = {0};
    m->local_bytes_s = rpi_plan_device_value(&m->device, RPI_FACT_LOCAL_RATE);
    m->local_latency_s = rpi_plan_device_value(&m->device, RPI_FACT_LOCAL_LATENCY);
    if (said->hosts > 1 && !said->link)
        return RP_FAIL(INVALID, "how fast is the link of a host? --link 200Gbit,5us");
    if (said->link) RP_TRY(rpi_link_shape_parse(said->link, &link));
    if (said->local) RP_TRY(rpi_link_shape_parse(said->local, &local));
    if (said->link && !(link.bytes_per_s > 0))
        return RP_FAIL(INVALID, "--link %s has no rate", said->link);
    m->link_bytes_s = link.bytes_per_s;
    m->link_latency_s = link.latency_s;
    if (local.bytes_per_s > 0) m->local_bytes_s = local.bytes_per_s;
    if (said->local) m->local_latency_s = local.latency_s;
    return RP_OK;
}

enum { LONG = 1 << 20 }; /* elements of a vector whose ends do not count */

/* Bytes of an element as the codec encodes a long vector, and how long that takes where it was
 * measured. */
rp_status rpi_plan_training_codec(const rpi_plan_training *said, rpi_planned_training *out) {
    rp_codec codec;
    char text[RPI_MACHINE_NAME];
    rpi_machine *m = &out->machine;
    RP_TRY(rp_codec_parse(said->codec, &codec));
    m->codec_bytes = m->codec_s = 0;
    if (rp_codec_is_exact(&codec, RP_F32)) return RP_OK;
    m->codec_bytes = (double)rp_codec_encoded_bytes(&codec, RP_F32, LONG) / LONG;
    rp_codec_text(&codec, text, sizeof text);
    if (out->account) m->codec_s = fmax(0, rpi_machine_account_codec_s(out->account, text));
    return RP_OK;
}

static rp_status read_activations(const rpi_plan_training *said, rpi_machine *m) {
    rp_codec codec;
    RP_TRY(rpi_activation_codec_parse(said->activations_codec, &codec));
    if (rp_codec_is_exact(&codec, RP_F32)) return RP_OK;
    m->activation_bytes = (double)rpi_activation_codec_bytes(&codec, LONG) / LONG;
    return RP_OK;
}

rp_status rpi_plan_training_read(const rpi_plan_training *said, bool needs_batch,
                                 rpi_planned_training *out) {
    *out = (rpi_planned_training){.hosts = said->hosts,
                                  .local_given = said->local != NULL,
                                  .link_given = said->link != NULL};
    out->machine.ranks_per_host = said->ranks_per_host ? said->ranks_per_host : USUAL_RANKS;
    RP_TRY(read_layout(said, needs_batch, out));
    RP_TRY(read_devices(said, out));
    out->ranks = said->hosts * out->machine.ranks_per_host;
    RP_TRY(read_links(said, &out->machine));
    RP_TRY(read_activations(said, &out->machine));
    return rpi_plan_training_codec(said, out);
}

void rpi_planned_training_close(rpi_planned_training *planned) {
    rpi_plan_device_table_destroy(planned->table);
    rpi_free(planned->account);
    rpi_free(planned->rates);
    planned->table = NULL;
    planned->account = NULL;
    planned->rates = NULL;
}
