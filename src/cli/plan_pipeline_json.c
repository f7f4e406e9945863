/* What `redpoll plan pipeline` says, for programs. */
#include "cli/command.h"
#include "cli/plan_pipeline.h"

#include <cjson/cJSON.h>

static void add_given(const rpi_pipeline_plan *p, cJSON *object) {
    const rpi_pipeline_model *m = &p->request.model;
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
    const rpi_pipeline_pass *pass = &p->orders.passes[number];
    const rpi_pass_span *span = &p->price.spans[number];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "kind", rpi_pass_name((rpi_pass_kind)pass->kind));
    cJSON_AddNumberToObject(object, "micro_batch", pass->micro_batch);
    cJSON_AddNumberToObject(object, "chunk", pass->chunk);
    cJSON_AddNumberToObject(object, "start_s", span->start_s);
    cJSON_AddNumberToObject(object, "end_s", span->end_s);
    return object;
}

static cJSON *stage_json(const rpi_pipeline_plan *p, int stage) {
    const rpi_stage_price *s = &p->price.stage[stage];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "busy_s", s->busy_s);
    cJSON_AddNumberToObject(object, "idle_s", s->idle_s);
    cJSON_AddNumberToObject(object, "link_s", s->link_s);
    cJSON_AddNumberToObject(object, "first_s", s->first_s);
    cJSON_AddNumberToObject(object, "last_s", s->last_s);
    cJSON_AddNumberToObject(object, "kept", s->kept);
    if (p->has_kept) cJSON_AddNumberToObject(object, "kept_bytes", s->kept_bytes);
    cJSON *passes = cJSON_AddArrayToObject(object, "passes");
    for (int k = 0; k < p->orders.each; k++)
        cJSON_AddItemToArray(passes, pass_json(p, stage * p->orders.each + k));
    return object;
}

static cJSON *row_json(const rpi_pipeline_plan *p, const rpi_pipeline_row *row) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "schedule", row->kind->name);
    cJSON_AddNumberToObject(object, "chunks", row->shape.chunks);
    cJSON_AddNumberToObject(object, "step_s", row->time_s);
    cJSON_AddNumberToObject(object, "bubble", row->bubble);
    cJSON_AddNumberToObject(object, "exposed_s", row->exposed_s);
    cJSON_AddNumberToObject(object, "kept", row->kept);
    if (p->has_kept) cJSON_AddNumberToObject(object, "kept_bytes", row->kept_bytes);
    cJSON_AddNumberToObject(object, "messages", (double)row->messages);
    cJSON_AddBoolToObject(object, "fits", row->fits);
    return object;
}

void rpi_pipeline_plan_print_json(const rpi_pipeline_plan *p) {
    cJSON *object = cJSON_CreateObject();
    add_given(p, object);
    cJSON_AddNumberToObject(object, "step_s", p->price.time_s);
    cJSON_AddNumberToObject(object, "bubble", p->price.bubble);
    cJSON_AddNumberToObject(object, "exposed_s", p->price.exposed_s);
    cJSON_AddNumberToObject(object, "messages", (double)p->price.messages);
    cJSON *stages = cJSON_AddArrayToObject(object, "stage");
    for (int s = 0; s < p->price.stages; s++) cJSON_AddItemToArray(stages, stage_json(p, s));
    cJSON *rows = cJSON_AddArrayToObject(object, "schedules");
    for (int i = 0; i < p->row_count; i++) cJSON_AddItemToArray(rows, row_json(p, &p->rows[i]));
    if (p->best >= 0) cJSON_AddStringToObject(object, "best", p->rows[p->best].kind->name);
    rpi_command_print_json(object);
}
