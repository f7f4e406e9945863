#include "cli/plan_scaling.h"

#include "base/memory.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/option_rows.h"
#include "cli/plan_model.h"
#include "cli/plan_training.h"
#include "cli/plan_words.h"
#include "net/shaped/link_shape.h"
#include "train/models/network.h"

#include <math.h>
#include <string.h>

enum { MOST_RANKS = 4096, USUAL_SIDE = 224, USUAL_CLASSES = 1000 };

typedef struct settings {
    const char *strategies, *ranks, *codec, *algorithm, *svg;
    rpi_plan_training training; /* of a rank alone: what computes, and on what */
    int64_t bytes, samples, accumulate;
    double step_s, backward_s, jitter_s, bucket_mb;
    bool json;
} settings;

static rp_status check_ranks(const char *text) {
    int ranks[RPI_SCALING_RANKS], count;
    return rpi_scaling_ranks_parse(text, MOST_RANKS, ranks, &count);
}

#define FIELD(name) offsetof(settings, name)
#define SAID(name)  offsetof(settings, training.name)
static const rpi_option options[] = {
    {"model", "m", NULL, RPI_OPTION_TEXT, SAID(model), NULL, 0, 0, "MODEL",
     "whose gradients travel, as in redpoll train: resnet50, llama:7b", NULL},
    {"size", NULL, NULL, RPI_OPTION_BYTES, FIELD(bytes), NULL, 4, 1e15, "BYTES",
     "of the gradients as floats of 32 bits, in the place of --model", NULL},
    {"strategy", NULL, NULL, RPI_OPTION_TEXT, FIELD(strategies), "all-reduce", 0, 0, "LIST",
     "as in redpoll train: all-reduce, gossip:topology=exponential, local-sgd:every=20, "
     "parameter-server:servers=2",
     NULL},
    {"ranks", "n", NULL, RPI_OPTION_TEXT, FIELD(ranks), "1,2,4..64", 0, 0, "LIST",
     "of the world: 1,2,4..128 goes on as it began", check_ranks},
    {"ranks-per-host", NULL, NULL, RPI_OPTION_COUNT, SAID(ranks_per_host), "1", 1, 1024, "N",
     "that share a host and its link", NULL},
    RPI_ROW_LINK(SAID(link), NULL, "25Gbit,20us", "of each host, each way"),
    RPI_ROW_LOCAL(SAID(local), "5GB,2us", "between ranks of one host"),
    {"step", NULL, NULL, RPI_OPTION_SECONDS, FIELD(step_s), NULL, 0, 1e6, "TIME",
     "that a rank alone computes for in a step; when absent a forecast, of transformers on "
     "--device or --machine",
     NULL},
    {"backward", NULL, NULL, RPI_OPTION_SECONDS, FIELD(backward_s), NULL, 0, 1e6, "TIME",
     "of that, which hides sums; two thirds when absent", NULL},
    {"samples", NULL, NULL, RPI_OPTION_COUNT, FIELD(samples), NULL, 1, 1e9, "N",
     "of a rank and step, for rates in samples a second", NULL},
    {"jitter", NULL, NULL, RPI_OPTION_SECONDS, FIELD(jitter_s), NULL, 0, 1e6, "TIME",
     "standard deviation of a rank's step: whoever waits for many waits for the slowest", NULL},
    RPI_ROW_BUCKET(FIELD(bucket_mb), NULL, "gradients in one all-reduce, as in redpoll train"),
    RPI_ROW_CODEC(FIELD(codec), NULL, "fp32", "of what travels; fp32 is exact"),
    RPI_ROW_ALGORITHM(FIELD(algorithm), NULL,
                      "of all-reduces: ring or sra, ...; what a run would choose when absent",
                      rpi_check_all_reduce),
    {"device", NULL, NULL, RPI_OPTION_TEXT, SAID(device), NULL, 0, 0, "NAME",
     "that each rank has, as in redpoll plan train", NULL},
    RPI_ROW_DEVICES(SAID(devices)),
    RPI_ROW_MACHINE(SAID(machine), NULL, "a machine as redpoll bench machine -o measured it"),
    {"precision", NULL, NULL, RPI_OPTION_TEXT, SAID(precision), NULL, 0, 0, "NAME",
     "of the forecast: bf16, bf16-fp32, fp16, amp or fp32", rpi_check_precision},
    {"seq-length", NULL, NULL, RPI_OPTION_COUNT, SAID(sequence), NULL, 1, 16777216, "N",
     "tokens of a sample, of the forecast", NULL},
    {"svg", NULL, NULL, RPI_OPTION_TEXT, FIELD(svg), NULL, 0, 0, "FILE",
     "the curves as a picture, too", NULL},
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

/* ---- the model, and what a rank computes ---- */

static rp_status count_parameters(const char *model, const settings *s, double *out) {
    rpi_model_choice choice;
    rpi_network network = {0};
    rpi_data_shape shape = {0};
    RP_TRY(rpi_model_parse(model, &choice));
    if (choice.model->transformer) {
        rpi_transformer t;
        choice.model->transformer(choice.options, &t);
        *out = rpi_transformer_count(&t).all;
        return rpi_transformer_check(&t);
    }
    if (strcmp(rpi_model_task(&choice), "classification") == 0)
        shape = (rpi_data_shape){3, USUAL_SIDE, USUAL_SIDE, USUAL_CLASSES, 0, 0};
    else
        shape.sequence = (int)(s->training.sequence ? s->training.sequence : 128);
    RP_TRY(rpi_network_build(model, &shape, &network));
    for (int i = 0; i < network.parameter_count; i++)
        if (!network.parameters[i].is_state)
            *out += (double)rpi_shape_count(&network.parameters[i].shape);
    rpi_network_close(&network);
    return RP_OK;
}

/* A rank alone, of the forecast that redpoll plan train makes of it. */
static rp_status forecast_step(const settings *s, rpi_scaling_plan *p) {
    rpi_plan_training said = s->training;
    rpi_planned_training planned;
    rpi_forecast f;
    said.codec = "fp32";
    said.link = said.local = NULL;
    said.hosts = said.ranks_per_host = said.tp = said.pp = said.dp = said.interleave = 1;
    said.global_batch = said.micro_batch = s->samples ? s->samples : 1;
    said.zero = "0";
    said.fused_attention = true;
    rp_status status = rpi_plan_training_read(&said, true, &planned);
    if (status == RP_OK) status = rpi_layout_check(&planned.layout);
    if (status == RP_OK) status = rpi_forecast_step(&planned.layout, &planned.machine, &f);
    if (status == RP_OK)
        rpi_scaling_know_cores(&planned.machine, s->bucket_mb * 1048576, &p->work);
    rpi_planned_training_close(&planned);
    RP_TRY(status);
    p->work.compute_s = f.step_s;
    p->work.backward_s = (double)f.terms.layers * f.terms.backward_s;
    p->source = "forecast";
    return RP_OK;
}

static rp_status read_work(const settings *s, rpi_scaling_plan *p) {
    bool has_device = s->training.device || s->training.machine;
    p->work.jitter_s = s->jitter_s;
    p->samples = (double)s->samples;
    p->source = "given";
    if (s->step_s > 0 && has_device)
        return RP_FAIL(INVALID,
                       "--step and --device both say what a rank computes: one of them");
    if (!(s->step_s > 0) && !(has_device && s->training.model))
        return RP_FAIL(INVALID,
                       "for how long does a rank alone compute in a step? --step 0.2s, "
                       "or --model and --device of a transformer");
    if (!(s->step_s > 0)) return forecast_step(s, p);
    p->work.compute_s = s->step_s;
    p->work.backward_s = s->backward_s > 0 ? s->backward_s : s->step_s * 2 / 3;
    if (p->work.backward_s > s->step_s)
        return RP_FAIL(INVALID, "--backward is a part of --step, and longer than that");
    return RP_OK;
}

static rp_status read_size(const settings *s, rpi_scaling_plan *p) {
    p->model = s->training.model;
    if (s->bytes && s->training.model)
        return RP_FAIL(INVALID, "--model and --size both say what travels: one of them");
    if (s->bytes) p->parameters = (double)s->bytes / sizeof(float);
    if (s->bytes) return RP_OK;
    if (!s->training.model)
        return RP_FAIL(INVALID, "whose gradients? --model resnet50, or --size 100MB");
    return count_parameters(s->training.model, s, &p->parameters);
}

/* ---- prices ---- */

static rp_status price(const settings *s, const rpi_scaling_plan *p, rpi_scaling_series *series,
                       const rpi_cost_model *model, rpi_scaling_point *point) {
    rpi_scaling_job job = {.strategy = series->text,
                           .codec = s->codec,
                           .algorithm = s->algorithm,
                           .ranks = point->ranks,
                           .ranks_per_host = (int)p->ranks_per_host,
                           .count = p->parameters,
                           .bucket_bytes = s->bucket_mb * 1048576,
                           .work = p->work,
                           .model = *model};
    return rpi_scaling_price(&job, &point->exchange);
}

/* A strategy that so many ranks cannot run has the reason in its place, and the others go
 * on. */
static rp_status make_point(const settings *s, const rpi_scaling_plan *p,
                            rpi_scaling_series *series, const rpi_cost_model *model,
                            rpi_scaling_point *point) {
    rp_status status = price(s, p, series, model, point);
    point->step_s = point->exposed_s = point->speedup = point->efficiency = NAN;
    if (status == RP_INVALID || status == RP_UNSUPPORTED) {
        snprintf(point->why, sizeof point->why, "%s", rp_last_error()->message);
        return RP_OK;
    }
    RP_TRY(status);
    point->step_s = rpi_scaling_step_s(&p->work, &point->exchange);
    point->exposed_s = rpi_scaling_exposed_s(&point->exchange);
    point->speedup = point->exchange.workers * p->work.compute_s / point->step_s;
    point->efficiency = point->speedup / point->ranks;
    return RP_OK;
}

static rp_status make_plan(const settings *s, rpi_scaling_plan *p) {
    rpi_cost_model model;
    rp_codec codec;
    RP_TRY(read_size(s, p));
    RP_TRY(read_work(s, p));
    RP_TRY(rpi_scaling_strategies_parse(s->strategies, p));
    RP_TRY(rpi_scaling_ranks_parse(s->ranks, MOST_RANKS, p->ranks, &p->rank_count));
    RP_TRY(rp_codec_parse(s->codec, &codec));
    rp_codec_text(&codec, p->codec, sizeof p->codec);
    p->link = s->training.link;
    p->local = s->training.local;
    p->ranks_per_host = s->training.ranks_per_host;
    RP_TRY(rpi_plan_model_make(p->link, p->local, &codec, &model));
    if (rp_codec_is_exact(&codec, RP_F32)) model.encode_bytes_s = model.decode_add_bytes_s = 0;
    for (int i = 0; i < p->series_count; i++)
        for (int k = 0; k < p->rank_count; k++) {
            p->series[i].points[k].ranks = p->ranks[k];
            RP_TRY(make_point(s, p, &p->series[i], &model, &p->series[i].points[k]));
        }
    return RP_OK;
}

static rp_status work(void *context) {
    const settings *s = context;
    rpi_scaling_plan *p = NULL;
    RP_TRY(rpi_alloc(sizeof *p, "a plan", &p));
    rp_status status = make_plan(s, p);
    if (status == RP_OK && s->svg) status = rpi_scaling_draw(p, s->svg);
    if (status == RP_OK && s->json) rpi_scaling_print_json(p);
    if (status == RP_OK && !s->json) rpi_scaling_print(p);
    rpi_free(p);
    return rpi_plan_mistake(status);
}

static int run(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_plan_scaling, argc, argv, &s, NULL, work);
}

const rpi_command rpi_command_plan_scaling = {
    .name = "plan scaling",
    .summary = "how much faster more ranks are, by strategy, beside the ideal",
    .about =
        "Predicts what so many ranks come to by all-reduces, gossip, local SGD and parameter "
        "servers: the exchange of each is priced by the schedule that runs (simulated up to 32 "
        "ranks, beyond by its closed form), what the backward pass hides of it is taken off, "
        "and with --jitter the wait for the slowest of those that a rank waits for is added. "
        "Efficiency is the work that gets done over that of as many ranks that need nobody. "
        "docs/planning.md has published curves beside it.",
    .examples = "  redpoll plan scaling --model resnet50 --step 183ms --samples 64 \\\n"
                "      --ranks 1,2,4..128 --ranks-per-host 8 --link 25Gbit,20us \\\n"
                "      --strategy all-reduce,local-sgd:every=20,parameter-server \\\n"
                "      --svg curves.svg\n"
                "  redpoll plan scaling --model llama:7b --device a100-80g --samples 2 \\\n"
                "      --seq-length 4096 --link 100Gbit,10us --codec q4 --json\n",
    .options = options,
    .run = run,
};
