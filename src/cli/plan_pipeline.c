#include "cli/plan_pipeline.h"

#include "base/status.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/option_rows.h"
#include "cli/plan_model.h"
#include "net/shaped/link_shape.h"
#include "plan/pipelines/pipeline_picture.h"

#include <string.h>

typedef struct settings {
    const char *schedule, *forward, *backward, *weights, *link, *local, *kept, *svg;
    int64_t stages, micro_batches, chunks, hosts, activations, memory, width;
    bool json;
    /* What the texts say, for each stage. */
    double forward_s[RPI_PIPELINE_STAGES], inputs_s[RPI_PIPELINE_STAGES];
    double weights_s[RPI_PIPELINE_STAGES];
    double kept_bytes[RPI_PIPELINE_STAGES], weights_bytes[RPI_PIPELINE_STAGES];
} settings;

/* ---- lists: one value, or one for each stage ---- */

enum { ITEM_BYTES = 64 };

/* The next of a list into `item`; NULL: it was the last one. */
static const char *next_item(const char *text, char item[ITEM_BYTES]) {
    const char *end = text + strcspn(text, ",");
    size_t length = (size_t)(end - text);
    if (length >= ITEM_BYTES) length = ITEM_BYTES - 1;
    memcpy(item, text, length);
    item[length] = '\0';
    return *end ? end + 1 : NULL;
}

static rp_status read_times(const char *text, double *out, int *out_count) {
    char item[ITEM_BYTES];
    int count = 0;
    for (const char *at = text; at; count++) {
        double value;
        at = next_item(at, item);
        RP_TRY(rpi_parse_duration(item, &value));
        if (count == RPI_PIPELINE_STAGES)
            return RP_FAIL(INVALID, "more times than a pipeline has stages");
        if (out) out[count] = value;
    }
    *out_count = count;
    return RP_OK;
}

static rp_status check_times(const char *text) {
    int count;
    return read_times(text, NULL, &count);
}

static rp_status read_bytes(const char *text, int64_t out[2], int *out_count) {
    char item[ITEM_BYTES];
    int count = 0;
    for (const char *at = text; at; count++) {
        int64_t value;
        at = next_item(at, item);
        RP_TRY(rpi_parse_bytes(item, &value));
        if (count == 2)
            return RP_FAIL(INVALID,
                           "'%s' is more than what is kept, and what of it for weights", text);
        out[count] = value;
    }
    *out_count = count;
    return RP_OK;
}

static rp_status check_kept(const char *text) {
    int64_t bytes[2];
    int count;
    return read_bytes(text, bytes, &count);
}

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"schedule", "s", NULL, RPI_OPTION_TEXT, FIELD(schedule), "auto", 0, 0, "NAME",
     "a row of the table that is printed; auto: the quickest", NULL},
    {"stages", NULL, NULL, RPI_OPTION_COUNT, FIELD(stages), "4", 1, RPI_PIPELINE_STAGES, "N",
     "of the pipeline, a rank each", NULL},
    {"micro-batches", "m", NULL, RPI_OPTION_COUNT, FIELD(micro_batches), "8", 1,
     RPI_PIPELINE_MICRO_BATCHES, "N", "of a step", NULL},
    {"chunks", NULL, NULL, RPI_OPTION_COUNT, FIELD(chunks), NULL, 1, RPI_PIPELINE_CHUNKS, "N",
     "that a stage has in interleaved; 2 when absent", NULL},
    {"forward", NULL, NULL, RPI_OPTION_TEXT, FIELD(forward), "10ms", 0, 0, "TIME[,TIME...]",
     "that a stage takes for a micro-batch: one for all, or one for each", check_times},
    {"backward", NULL, NULL, RPI_OPTION_TEXT, FIELD(backward), NULL, 0, 0, "TIME[,TIME...]",
     "the same, of a whole backward pass; twice the forward one when absent", check_times},
    {"weights", NULL, NULL, RPI_OPTION_TEXT, FIELD(weights), NULL, 0, 0, "TIME[,TIME...]",
     "of that, for gradients of weights; half of it when absent", check_times},
    RPI_ROW_LINK(FIELD(link), NULL, NULL, "of each host, each way; costs nothing when absent"),
    {"activations", NULL, NULL, RPI_OPTION_BYTES, FIELD(activations), "4MiB", 0, 1e15, "BYTES",
     "of a micro-batch that go from stage to stage, and of their gradient back", NULL},
    {"hosts", NULL, NULL, RPI_OPTION_COUNT, FIELD(hosts), NULL, 1, RPI_PIPELINE_STAGES, "N",
     "that the stages are on, evenly; each is on its own when absent", NULL},
    {"local", NULL, NULL, RPI_OPTION_TEXT, FIELD(local), "5GB,2us", 0, 0, "RATE,LATENCY",
     "between stages of one host", rpi_check_link},
    {"kept", NULL, NULL, RPI_OPTION_TEXT, FIELD(kept), NULL, 0, 0, "BYTES[,BYTES]",
     "of a micro-batch on a stage, from its forward pass on; of these, what only weights need",
     check_kept},
    {"memory", NULL, NULL, RPI_OPTION_BYTES, FIELD(memory), NULL, 1, 1e18, "BYTES",
     "of a stage for what it keeps: auto leaves out what needs more", NULL},
    {"width", NULL, NULL, RPI_OPTION_COUNT, FIELD(width), NULL, 16, RPI_PICTURE_COLUMNS,
     "COLUMNS", "of the picture, at most; 120 when absent", NULL},
    {"svg", NULL, NULL, RPI_OPTION_TEXT, FIELD(svg), NULL, 0, 0, "FILE",
     "the picture as a file, too", NULL},
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

/* ---- what was said ---- */

static rp_status stage_times(const char *option, const char *text, int64_t stages,
                             double *out) {
    int count = 0;
    RP_TRY(read_times(text, out, &count));
    if (count != 1 && count != stages)
        return RP_FAIL(INVALID,
                       "--%s has %d times, and there %s %lld stage%s; say one, or %lld", option,
                       count, stages == 1 ? "is" : "are", (long long)stages,
                       stages == 1 ? "" : "s", (long long)stages);
    for (int64_t s = count; s < stages; s++) out[s] = out[0];
    return RP_OK;
}

/* Inputs are what weights leave of a whole backward pass. */
static rp_status read_stage_times(settings *s) {
    RP_TRY(stage_times("forward", s->forward, s->stages, s->forward_s));
    if (s->backward) RP_TRY(stage_times("backward", s->backward, s->stages, s->inputs_s));
    if (s->weights) RP_TRY(stage_times("weights", s->weights, s->stages, s->weights_s));
    for (int64_t i = 0; i < s->stages; i++) {
        double whole_s = s->backward ? s->inputs_s[i] : 2 * s->forward_s[i];
        if (!s->weights) s->weights_s[i] = whole_s / 2;
        if (s->weights_s[i] > whole_s)
            return RP_FAIL(
                INVALID,
                "--weights are %.4g s of stage %lld, whose whole backward pass takes "
                "%.4g s: say --backward, too, of which they are a part",
                s->weights_s[i], (long long)i, whole_s);
        s->inputs_s[i] = whole_s - s->weights_s[i];
    }
    return RP_OK;
}

static rp_status read_kept(settings *s) {
    int64_t bytes[2] = {0};
    int count = 0;
    if (!s->kept) return RP_OK;
    RP_TRY(read_bytes(s->kept, bytes, &count));
    if (count == 1) bytes[1] = bytes[0];
    if (bytes[1] > bytes[0])
        return RP_FAIL(INVALID, "--kept %s: weights need no more than what is kept in all",
                       s->kept);
    for (int64_t i = 0; i < s->stages; i++) {
        s->kept_bytes[i] = (double)bytes[0];
        s->weights_bytes[i] = (double)bytes[1];
    }
    return RP_OK;
}

static rp_status check_said(const settings *s) {
    if (s->hosts > s->stages)
        return RP_FAIL(INVALID, "--hosts %lld is more than the %lld stages; say --stages, too",
                       (long long)s->hosts, (long long)s->stages);
    if (s->memory > 0 && !s->kept)
        return RP_FAIL(INVALID, "--memory for what? --kept 100MB says what a stage keeps of a "
                                "micro-batch");
    if (s->hosts > 0 && !s->link)
        return RP_FAIL(INVALID, "--hosts that are joined by what? --link 1Gbit,5ms");
    return RP_OK;
}

static rp_status read_link(const settings *s, rpi_pipeline_model *model) {
    rpi_link_shape between, inside;
    if (!s->link) return RP_OK;
    RP_TRY(rpi_link_shape_parse(s->link, &between));
    RP_TRY(rpi_link_shape_parse(s->local, &inside));
    model->bytes_per_s = between.bytes_per_s;
    model->latency_s = between.latency_s;
    model->inside_bytes_per_s = inside.bytes_per_s;
    model->inside_latency_s = inside.latency_s;
    model->host_of = rpi_plan_layout(s->stages, s->hosts);
    return RP_OK;
}

static rp_status make_request(settings *s, rpi_pipeline_plan *p) {
    *p = (rpi_pipeline_plan){.request = {.stages = s->stages,
                                         .micro_batches = s->micro_batches,
                                         .chunks = s->chunks,
                                         .memory_bytes = (double)s->memory},
                             .link = s->link,
                             .local = s->local,
                             .hosts = s->hosts,
                             .has_kept = s->kept != NULL};
    rpi_pipeline_model *model = &p->request.model;
    RP_TRY(check_said(s));
    RP_TRY(read_stage_times(s));
    RP_TRY(read_kept(s));
    model->entries = (int)s->stages;
    model->forward_s = s->forward_s;
    model->inputs_s = s->inputs_s;
    model->weights_s = s->weights_s;
    model->kept_bytes = s->kept ? s->kept_bytes : NULL;
    model->weights_bytes = s->kept ? s->weights_bytes : NULL;
    model->border_bytes = (double)s->activations;
    return read_link(s, model);
}

/* ---- the plan ---- */

static rp_status find_row(const rpi_pipeline_plan *p, const rpi_pipeline_kind *kind,
                          int *out_row) {
    for (int i = 0; i < p->row_count; i++)
        if (p->rows[i].kind == kind) *out_row = i;
    return RP_OK;
}

static rp_status fail_memory(const rpi_pipeline_plan *p) {
    const rpi_pipeline_row *least = &p->rows[0];
    for (int i = 1; i < p->row_count; i++)
        if (p->rows[i].kept_bytes < least->kept_bytes) least = &p->rows[i];
    return RP_FAIL(INVALID,
                   "no schedule fits into --memory, %.4g MB; %s keeps the least, %.4g MB: take "
                   "more stages, or smaller micro-batches",
                   p->request.memory_bytes * 1e-6, least->kind->name, least->kept_bytes * 1e-6);
}

/* A schedule that is asked for is shown with --chunks as it is, and refused where it has
 * others.
 */
static rp_status choose(const settings *s, rpi_pipeline_plan *p) {
    const rpi_pipeline_kind *kind = NULL;
    rpi_pipeline_shape shape;
    if (strcmp(s->schedule, "auto") != 0) {
        RP_TRY(rpi_pipeline_kind_find(s->schedule, &kind));
        RP_TRY(rpi_pipeline_shape_make(kind, s->stages, s->micro_batches, s->chunks, &shape));
    }
    if (s->chunks == 1 && !kind)
        return RP_FAIL(INVALID,
                       "--chunks 1 is what all schedules but interleaved and zb-v have; "
                       "leave it out");
    if (s->chunks == 1) p->request.chunks = 0;
    RP_TRY(rpi_pipeline_choose(&p->request, p->rows, &p->row_count, &p->best));
    p->chosen = p->best;
    if (kind) return find_row(p, kind, &p->chosen);
    return p->best < 0 ? fail_memory(p) : RP_OK;
}

static rp_status make_plan(const settings *s, rpi_pipeline_plan *p) {
    RP_TRY(choose(s, p));
    const rpi_pipeline_row *row = &p->rows[p->chosen];
    RP_TRY(rpi_pipeline_orders_build(row->kind, &row->shape, &p->orders));
    return rpi_pipeline_price_make(&p->orders, &p->request.model, &p->price);
}

static rp_status show(const settings *s, const rpi_pipeline_plan *p) {
    if (s->svg) RP_TRY(rpi_pipeline_plan_draw(p, s->svg));
    if (s->json)
        rpi_pipeline_plan_print_json(p);
    else
        rpi_pipeline_plan_print(p, s->width > 0 ? (int)s->width : RPI_PIPELINE_COLUMNS);
    return RP_OK;
}

static rp_status work(void *context) {
    settings *s = context;
    rpi_pipeline_plan p;
    RP_TRY(make_request(s, &p));
    rp_status status = make_plan(s, &p);
    if (status == RP_OK) status = show(s, &p);
    rpi_pipeline_price_free(&p.price);
    rpi_pipeline_orders_destroy(&p.orders);
    return status;
}

static int run(int argc, char **argv) {
    static settings s;
    return rpi_command_work(&rpi_command_plan_pipeline, argc, argv, &s, NULL, work);
}

const rpi_command rpi_command_plan_pipeline = {
    .name = "plan pipeline",
    .summary = "a step of a pipeline as a picture, and the quickest schedule for a link",
    .about = "Prints who does what when in a step of a pipeline, for how long each stage is "
             "idle and "
             "why, what it keeps in memory, and the same of every schedule, so that the "
             "quickest one "
             "for this link is seen. Prices come from a simulation of all passes and messages: "
             "what a "
             "stage sends leaves beside its passes, one message at a time each way. "
             "docs/parallel.md says how to choose.",
    .notes =
        "In the picture F is a forward pass, D a whole backward pass, B its half for inputs, "
        "which other stages wait for, W that for weights; the number is the micro-batch, and a "
        "letter behind it the chunk. TIME needs its unit: 10ms.",
    .examples = "  redpoll plan pipeline --stages 4 --micro-batches 8 --link 1Gbit,5ms\n"
                "  redpoll plan pipeline --schedule zb-h1 --stages 4 --micro-batches 8 \\\n"
                "      --forward 10ms --backward 20ms --weights 10ms --svg step.svg\n"
                "  redpoll plan pipeline --stages 3 --forward 10ms,10ms,14ms --kept 100MB "
                "--memory 1GB\n",
    .options = options,
    .run = run,
};
