#include "cli/plan_pipeline.h"

#include "base/status.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/option_rows.h"
#include "cli/plan_layers.h"
#include "cli/plan_model.h"
#include "net/shaped/link_shape.h"
#include "plan/pipelines/pipeline_picture.h"

#include <string.h>

typedef struct settings {
    const char *schedule, *forward, *backward, *weights, *layers, *link, *local, *kept, *svg;
    int64_t stages, micro_batches, chunks, hosts, activations, memory, width;
    bool json;
    /* What the texts say, for each stage. */
    double forward_s[RPI_PIPELINE_STAGES], inputs_s[RPI_PIPELINE_STAGES];
    double weights_s[RPI_PIPELINE_STAGES];
    double kept_bytes[RPI_PIPELINE_STAGES], weights_bytes[RPI_PIPELINE_STAGES];
    rpi_layer_list list;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"schedule", "s", NULL, RPI_OPTION_TEXT, FIELD(schedule), "auto", 0, 0, "NAME",
     "a schedule of the printed table; auto: the fastest", NULL},
    {"stages", NULL, NULL, RPI_OPTION_COUNT, FIELD(stages), "4", 1, RPI_PIPELINE_STAGES, "N",
     "stages of the pipeline, one rank each", NULL},
    {"micro-batches", "m", NULL, RPI_OPTION_COUNT, FIELD(micro_batches), "8", 1,
     RPI_PIPELINE_MICRO_BATCHES, "N", "micro-batches of a step", NULL},
    {"chunks", NULL, NULL, RPI_OPTION_COUNT, FIELD(chunks), NULL, 1, RPI_PIPELINE_CHUNKS, "N",
     "chunks of a stage with interleaved; 2 when absent", NULL},
    {"forward", NULL, NULL, RPI_OPTION_TEXT, FIELD(forward), NULL, 0, 0, "TIME[,TIME...]",
     "forward pass of a micro-batch on a stage: one time for all stages, or one for each; "
     "10ms when absent",
     rpi_times_check},
    {"backward", NULL, NULL, RPI_OPTION_TEXT, FIELD(backward), NULL, 0, 0, "TIME[,TIME...]",
     "the same for a whole backward pass; twice the forward pass when absent", rpi_times_check},
    {"weights", NULL, NULL, RPI_OPTION_TEXT, FIELD(weights), NULL, 0, 0, "TIME[,TIME...]",
     "the part of the backward pass for gradients of weights; half of it when absent",
     rpi_times_check},
    {"layers", NULL, NULL, RPI_OPTION_TEXT, FIELD(layers), NULL, 0, 0, "LAYER[,LAYER...]",
     "times of layers instead, which are cut into stages by these times", rpi_layers_check},
    RPI_ROW_LINK(FIELD(link), NULL, NULL,
                 "of each host, each way; when absent links take no time"),
    {"activations", NULL, NULL, RPI_OPTION_BYTES, FIELD(activations), "4MiB", 0, 1e15, "BYTES",
     "sent from stage to stage for a micro-batch, and as many for their gradients", NULL},
    {"hosts", NULL, NULL, RPI_OPTION_COUNT, FIELD(hosts), NULL, 1, RPI_PIPELINE_STAGES, "N",
     "hosts with equally many stages; when absent each stage has a host", NULL},
    RPI_ROW_LOCAL(FIELD(local), "5GB,2us", "between stages of one host"),
    {"kept", NULL, NULL, RPI_OPTION_TEXT, FIELD(kept), NULL, 0, 0, "BYTES[,BYTES]",
     "that a stage (with --layers a layer) keeps of a micro-batch from its forward pass on; "
     "then those of them that only gradients of weights need",
     rpi_byte_pair_check},
    {"memory", NULL, NULL, RPI_OPTION_BYTES, FIELD(memory), NULL, 1, 1e18, "BYTES",
     "for what a stage keeps: auto leaves out schedules that need more", NULL},
    {"width", NULL, NULL, RPI_OPTION_COUNT, FIELD(width), NULL, 16, RPI_PICTURE_COLUMNS,
     "COLUMNS", "width of the picture, at most; 120 when absent", NULL},
    {"svg", NULL, NULL, RPI_OPTION_TEXT, FIELD(svg), NULL, 0, 0, "FILE",
     "also writes the picture to this file", NULL},
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

/* ---- what was said ---- */

static rp_status stage_times(const char *option, const char *text, int64_t stages,
                             double *out) {
    int count = 0;
    RP_TRY(rpi_times_parse(text, RPI_PIPELINE_STAGES, out, &count));
    if (count != 1 && count != stages)
        return RP_FAIL(INVALID, "--%s has %d times for %lld stage%s; give one time, or %lld",
                       option, count, (long long)stages, stages == 1 ? "" : "s",
                       (long long)stages);
    for (int64_t s = count; s < stages; s++) out[s] = out[0];
    return RP_OK;
}

/* Backward for inputs is the whole backward pass without the part for weights. */
static rp_status read_stage_times(settings *s) {
    const char *forward = s->forward ? s->forward : "10ms";
    RP_TRY(stage_times("forward", forward, s->stages, s->forward_s));
    if (s->backward) RP_TRY(stage_times("backward", s->backward, s->stages, s->inputs_s));
    if (s->weights) RP_TRY(stage_times("weights", s->weights, s->stages, s->weights_s));
    for (int64_t i = 0; i < s->stages; i++) {
        double whole_s = s->backward ? s->inputs_s[i] : 2 * s->forward_s[i];
        if (!s->weights) s->weights_s[i] = whole_s / 2;
        if (s->weights_s[i] > whole_s)
            return RP_FAIL(
                INVALID,
                "--weights takes %.4g s on stage %lld, whose whole backward pass takes "
                "%.4g s: give --backward, too, which includes --weights",
                s->weights_s[i], (long long)i, whole_s);
        s->inputs_s[i] = whole_s - s->weights_s[i];
    }
    return RP_OK;
}

static rp_status read_kept(settings *s) {
    double bytes[2];
    if (!s->kept) return RP_OK;
    RP_TRY(rpi_byte_pair_parse(s->kept, bytes));
    for (int64_t i = 0; i < s->stages; i++) {
        s->kept_bytes[i] = bytes[0];
        s->weights_bytes[i] = bytes[1];
    }
    for (int i = 0; i < s->list.count; i++) {
        s->list.layers[i].kept_bytes = bytes[0];
        s->list.layers[i].weights_bytes = bytes[1];
    }
    return RP_OK;
}

static rp_status read_layers(settings *s) {
    if (!s->layers) return RP_OK;
    if (s->forward || s->backward || s->weights)
        return RP_FAIL(
            INVALID,
            "--layers gives times of layers, and --%s times of stages; give only one of "
            "them",
            s->forward    ? "forward"
            : s->backward ? "backward"
                          : "weights");
    return rpi_layers_parse(s->layers, &s->list);
}

static rp_status check_said(const settings *s) {
    if (s->hosts > s->stages)
        return RP_FAIL(INVALID, "--hosts %lld is more than the %lld stages; give --stages, too",
                       (long long)s->hosts, (long long)s->stages);
    if (s->memory > 0 && !s->kept)
        return RP_FAIL(INVALID, "--memory needs --kept 100MB, what a stage keeps of a "
                                "micro-batch");
    if (s->hosts > 0 && !s->link)
        return RP_FAIL(INVALID, "--hosts needs the link between them: --link 1Gbit,5ms");
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
    RP_TRY(read_layers(s));
    RP_TRY(read_stage_times(s));
    RP_TRY(read_kept(s));
    p->request.layers = s->list.layers;
    p->request.layer_count = s->list.count;
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

static int find_row(const rpi_pipeline_plan *p, const rpi_pipeline_kind *kind) {
    int row = 0;
    while (p->rows[row].kind != kind) row++;
    return row;
}

/* Fails with the memory of the pipeline that keeps least, among those for which there are
 * enough layers. */
static rp_status fail_best(const rpi_pipeline_plan *p) {
    const rpi_pipeline_row *least = NULL;
    for (int i = 0; i < p->row_count; i++)
        if (p->rows[i].verdict == RPI_PIPELINE_MEMORY &&
            (!least || p->rows[i].kept_bytes < least->kept_bytes))
            least = &p->rows[i];
    if (!least)
        return RP_FAIL(INVALID,
                       "%d layer%s cannot be cut into %lld stages; 1 to %d are possible",
                       p->request.layer_count, p->request.layer_count == 1 ? "" : "s",
                       (long long)p->request.stages, p->request.layer_count);
    return RP_FAIL(INVALID,
                   "no schedule fits into --memory, %.4g MB; %s keeps the least, %.4g MB: take "
                   "more stages, or smaller micro-batches",
                   p->request.memory_bytes * 1e-6, least->kind->name, least->kept_bytes * 1e-6);
}

/* A schedule that is asked for is shown with the given --chunks, and refused if it has another
 * number. */
static rp_status choose(const settings *s, rpi_pipeline_plan *p) {
    const rpi_pipeline_kind *kind = NULL;
    rpi_pipeline_shape shape;
    if (strcmp(s->schedule, "auto") != 0) {
        RP_TRY(rpi_pipeline_kind_find(s->schedule, &kind));
        RP_TRY(rpi_pipeline_shape_make(kind, s->stages, s->micro_batches, s->chunks, &shape));
    }
    if (s->chunks == 1 && !kind)
        return RP_FAIL(INVALID,
                       "all schedules except interleaved and zb-v have one chunk; leave "
                       "--chunks out");
    if (s->chunks == 1) p->request.chunks = 0;
    RP_TRY(rpi_pipeline_choose(&p->request, p->rows, &p->row_count, &p->best));
    p->chosen = p->best;
    if (kind) p->chosen = find_row(p, kind);
    return p->chosen < 0 ? fail_best(p) : RP_OK;
}

static rp_status make_plan(const settings *s, rpi_pipeline_plan *p) {
    RP_TRY(choose(s, p));
    const rpi_pipeline_row *row = &p->rows[p->chosen];
    return rpi_pipeline_trial_make(&p->request, row->kind, row->shape.chunks, &p->shown);
}

static rp_status show(const settings *s, const rpi_pipeline_plan *p) {
    if (s->svg) RP_TRY(rpi_pipeline_plan_draw(p, s->svg));
    int columns = s->width > 0 ? (int)s->width : RPI_PIPELINE_COLUMNS;
    return s->json ? rpi_pipeline_plan_print_json(p) : rpi_pipeline_plan_print(p, columns);
}

static rp_status work(void *context) {
    settings *s = context;
    rpi_pipeline_plan p;
    rp_status status = make_request(s, &p);
    if (status == RP_OK) status = make_plan(s, &p);
    if (status == RP_OK) status = show(s, &p);
    rpi_pipeline_trial_free(&p.shown);
    rpi_layers_free(&s->list);
    return status;
}

static int run(int argc, char **argv) {
    static settings s;
    return rpi_command_work(&rpi_command_plan_pipeline, argc, argv, &s, NULL, work);
}

const rpi_command rpi_command_plan_pipeline = {
    .name = "plan pipeline",
    .summary = "a step of a pipeline as a picture, and the fastest schedule for a link",
    .about = "Prints the passes of each stage in a step of a pipeline, how long each stage is "
             "idle and why, and what it keeps in memory. A table compares all schedules and "
             "shows the fastest for this link. Times come from a simulation of all passes and "
             "messages: a stage sends while it computes, one message at a time each way. "
             "docs/parallel.md says how to choose.",
    .notes =
        "In the picture F is a forward pass, D a whole backward pass, B its half for inputs, "
        "for which other stages wait, and W its half for weights. The number is the "
        "micro-batch, and a letter after it the chunk. TIME needs its unit: 10ms. A LAYER is "
        "[N*][NAME[:TIE]=]FORWARD[/BACKWARD[/WEIGHTS]]: N equal layers and the times of each "
        "for a micro-batch, the last two as --backward and --weights; layers of one TIE share "
        "a table.",
    .examples = "  redpoll plan pipeline --stages 4 --micro-batches 8 --link 1Gbit,5ms\n"
                "  redpoll plan pipeline --schedule zb-h1 --stages 4 --micro-batches 8 \\\n"
                "      --forward 10ms --backward 20ms --weights 10ms --svg step.svg\n"
                "  redpoll plan pipeline --stages 4 --layers \\\n"
                "      embedding:table=1ms,24*block=10ms,head:table=30ms\n"
                "  redpoll plan pipeline --stages 3 --forward 10ms,10ms,14ms \\\n"
                "      --kept 100MB --memory 1GB\n",
    .options = options,
    .run = run,
};
