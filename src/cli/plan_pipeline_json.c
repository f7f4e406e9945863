/* What `redpoll plan pipeline` says, for programs. */
#include "cli/command.h"
#include "cli/plan_pipeline.h"

#include "base/status.h"

#include <cjson/cJSON.h>

static void add_given(const rpi_pipeline_plan *p, cJSON *object) {
    const rpi_pipeline_model *m = &p->shown.model;
    const rpi_pipeline_row *row = &p->rows[p->chosen];
    cJSON_AddStringToObject(object, "op", "pipeline");
    cJSON_AddStringToObject(object, "schedule", row->kind->name);
    cJSON_AddNumberToObject(object, "stages", row->shape.stages);
    cJSON_AddNumberToObject(object, "micro_batches", row->shape.micro_batches);
    cJSON_AddNumberToObject(object, "chunks", row->shape.chunks);
    cJSON_AddItemToObject(object, "forward_s",
                          cJSON_CreateDoubleArray(m->forward_s, m->entries));
    cJSON_AddItemToObject(object, "inputs_s", cJSON_CreateDoubleArray(m->inputs_s, m->entries));
    cJSON_AddItemToObject(object, "weights_s",
                          cJSON_CreateDoubleArray(m->weights_s, m->entries));
    cJSON_AddNumberToObject(object, "activations_bytes", m->border_bytes);
    if (!p->link) return;
    cJSON_AddNumberToObject(object, "hosts", (double)(p->hosts ? p->hosts : p->request.stages));
    cJSON_AddNumberToObject(object, "link_bytes_s", m->bytes_per_s);
    cJSON_AddNumberToObject(object, "link_latency_s", m->latency_s);
    cJSON_AddNumberToObject(object, "local_bytes_s", m->inside_bytes_per_s);
    cJSON_AddNumberToObject(object, "local_latency_s", m->inside_latency_s);
}

static cJSON *pass_json(const rpi_pipeline_plan *p, int number) {
    const rpi_pipeline_pass *pass = &p->shown.orders.passes[number];
    const rpi_pass_span *span = &p->shown.price.spans[number];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "kind", rpi_pass_name((rpi_pass_kind)pass->kind));
    cJSON_AddNumberToObject(object, "micro_batch", pass->micro_batch);
    cJSON_AddNumberToObject(object, "chunk", pass->chunk);
    cJSON_AddNumberToObject(object, "start_s", span->start_s);
    cJSON_AddNumberToObject(object, "end_s", span->end_s);
    return object;
}

static cJSON *stage_json(const rpi_pipeline_plan *p, int stage) {
    const rpi_stage_price *s = &p->shown.price.stage[stage];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "busy_s", s->busy_s);
    cJSON_AddNumberToObject(object, "idle_s", s->idle_s);
    cJSON_AddNumberToObject(object, "link_s", s->link_s);
    cJSON_AddNumberToObject(object, "first_s", s->first_s);
    cJSON_AddNumberToObject(object, "last_s", s->last_s);
    cJSON_AddNumberToObject(object, "kept", s->kept);
    if (p->has_kept) cJSON_AddNumberToObject(object, "kept_bytes", s->kept_bytes);
    cJSON *passes = cJSON_AddArrayToObject(object, "passes");
    for (int k = 0; k < p->shown.orders.each; k++)
        cJSON_AddItemToArray(passes, pass_json(p, stage * p->shown.orders.each + k));
    return object;
}

static cJSON *row_json(const rpi_pipeline_plan *p, const rpi_pipeline_row *row) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "schedule", row->kind->name);
    cJSON_AddNumberToObject(object, "chunks", row->shape.chunks);
    if (row->verdict == RPI_PIPELINE_LAYERS) {
        cJSON_AddBoolToObject(object, "fits", false);
        return object;
    }
    cJSON_AddNumberToObject(object, "step_s", row->time_s);
    cJSON_AddNumberToObject(object, "bubble", row->bubble);
    cJSON_AddNumberToObject(object, "exposed_s", row->exposed_s);
    cJSON_AddNumberToObject(object, "kept", row->kept);
    if (p->has_kept) cJSON_AddNumberToObject(object, "kept_bytes", row->kept_bytes);
    cJSON_AddNumberToObject(object, "messages", (double)row->messages);
    cJSON_AddBoolToObject(object, "fits", row->verdict == RPI_PIPELINE_FITS);
    return object;
}

static cJSON *part_json(const rpi_pipeline_trial *t, int part) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "stage",
                            rpi_pipeline_stage(t->orders.kind, t->orders.shape.stages, part));
    cJSON_AddNumberToObject(object, "first_layer", t->cut.first[part]);
    cJSON_AddNumberToObject(object, "layers", t->cut.first[part + 1] - t->cut.first[part]);
    return object;
}

static rp_status add_cut(const rpi_pipeline_plan *p, cJSON *object) {
    const rpi_pipeline_trial *t = &p->shown;
    rpi_pipeline_tie ties[RPI_PIPELINE_TIES];
    int count = 0;
    if (!p->request.layers) return RP_OK;
    RP_TRY(rpi_pipeline_ties(p->request.layers, p->request.layer_count, &t->cut, &t->orders,
                             ties, RPI_PIPELINE_TIES, &count));
    cJSON *parts = cJSON_AddArrayToObject(object, "parts");
    for (int part = 0; part < t->cut.parts; part++)
        cJSON_AddItemToArray(parts, part_json(t, part));
    cJSON *list = cJSON_AddArrayToObject(object, "ties");
    for (int i = 0; i < count && i < RPI_PIPELINE_TIES; i++) {
        cJSON *tie = cJSON_CreateObject();
        cJSON_AddStringToObject(tie, "tie", ties[i].tie);
        cJSON_AddNumberToObject(tie, "first_stage", ties[i].first_stage);
        cJSON_AddNumberToObject(tie, "last_stage", ties[i].last_stage);
        cJSON_AddItemToArray(list, tie);
    }
    return RP_OK;
}

static rp_status fill(const rpi_pipeline_plan *p, cJSON *object) {
    const rpi_pipeline_price *price = &p->shown.price;
    add_given(p, object);
    RP_TRY(add_cut(p, object));
    cJSON_AddNumberToObject(object, "step_s", price->time_s);
    cJSON_AddNumberToObject(object, "bubble", price->bubble);
    cJSON_AddNumberToObject(object, "exposed_s", price->exposed_s);
    cJSON_AddNumberToObject(object, "messages", (double)price->messages);
    cJSON_AddNumberToObject(object, "messages_under_way",
                            rpi_pipeline_room(p->shown.orders.kind, &p->shown.orders.shape));
    cJSON *stages = cJSON_AddArrayToObject(object, "stage");
    for (int s = 0; s < price->stages; s++) cJSON_AddItemToArray(stages, stage_json(p, s));
    cJSON *rows = cJSON_AddArrayToObject(object, "schedules");
    for (int i = 0; i < p->row_count; i++) cJSON_AddItemToArray(rows, row_json(p, &p->rows[i]));
    if (p->best >= 0) cJSON_AddStringToObject(object, "best", p->rows[p->best].kind->name);
    return RP_OK;
}

rp_status rpi_pipeline_plan_print_json(const rpi_pipeline_plan *p) {
    cJSON *object = cJSON_CreateObject();
    rp_status status = fill(p, object);
    if (status == RP_OK)
        rpi_command_print_json(object);
    else
        cJSON_Delete(object);
    return status;
}
