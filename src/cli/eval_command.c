/* `redpoll eval`: how good a model is on data. */
#include "cli/commands.h"

#include "base/status.h"
#include "cli/cores.h"
#include "cli/numbers.h"
#include "train/eval_model.h"

#include <cjson/cJSON.h>
#include <math.h>

typedef struct settings {
    rpi_eval_options eval;
    bool json;
} settings;

#define FIELD(name) offsetof(settings, eval.name)
static const rpi_option options[] = {
    {"model", NULL, NULL, RPI_OPTION_TEXT, FIELD(model), NULL, 0, 0, "MODEL",
     "the folder of a run, or hf:FOLDER, a Hugging Face checkpoint", NULL},
    {"data", NULL, NULL, RPI_OPTION_TEXT, FIELD(data), NULL, 0, 0, "NAME",
     "as of redpoll train; those of the run when absent", NULL},
    {"data-dir", NULL, NULL, RPI_OPTION_TEXT, FIELD(data_dir), NULL, 0, 0, "FOLDER",
     "where the data's files are", NULL},
    {"all", NULL, NULL, RPI_OPTION_FLAG, FIELD(all), NULL, 0, 0, NULL,
     "every sequence of tokens:PATH, not only those held out", NULL},
    {"seq-length", NULL, NULL, RPI_OPTION_COUNT, FIELD(seq_length), NULL, 1, 1 << 20, "N",
     "tokens that a language model sees at once; the run's when absent, else 256, or what the "
     "model has positions",
     NULL},
    {"memory", NULL, NULL, RPI_OPTION_COUNT, FIELD(memory), NULL, 1, 1 << 20, "N",
     "tokens before a segment that a model with a memory sees; the model's own when absent",
     NULL},
    {"batch-size", NULL, NULL, RPI_OPTION_COUNT, FIELD(batch_size), "16", 1, 1e9, "N",
     "samples that are run at once", NULL},
    {"samples", NULL, NULL, RPI_OPTION_COUNT, FIELD(samples), NULL, 0, 1e12, "N",
     "first images, or sequences, that are used; 0: all", NULL},
    {"skip-broken", NULL, NULL, RPI_OPTION_FLAG, FIELD(skip_broken), NULL, 0, 0, NULL,
     "of images, and of rows of questions and pairs: go on without those that cannot be read, "
     "as a run does that was told so",
     NULL},
    {"backend", NULL, NULL, RPI_OPTION_TEXT, FIELD(backend), NULL, 0, 0, "NAME",
     "of the engine; the fastest when absent", NULL},
    {"threads", NULL, NULL, RPI_OPTION_COUNT, FIELD(threads), NULL, 1, 4096, "N",
     "one a core when absent", NULL},
    {"json", NULL, NULL, RPI_OPTION_FLAG, offsetof(settings, json), NULL, 0, 0, NULL,
     "as one JSON object (docs/json.md)", NULL},
    {0},
};

/* "nsp_loss", "nsp_accuracy" */
static void add_sample_metric(cJSON *object, const rpi_evaluation *e) {
    char key[64];
    snprintf(key, sizeof key, "%s_loss", e->sample_metric);
    cJSON_AddNumberToObject(object, key, e->sample_loss);
    snprintf(key, sizeof key, "%s_accuracy", e->sample_metric);
    cJSON_AddNumberToObject(object, key, e->sample_accuracy);
}

static void print_json(const rpi_eval_result *r) {
    const rpi_evaluation *e = &r->evaluation;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "model", r->model);
    cJSON_AddStringToObject(object, "data", r->data);
    cJSON_AddNumberToObject(object, "parameters", (double)r->parameters);
    if (e->count > 0) cJSON_AddNumberToObject(object, "loss", e->loss);
    if (!isnan(e->perplexity)) cJSON_AddNumberToObject(object, "perplexity", e->perplexity);
    if (e->count > 0) cJSON_AddNumberToObject(object, "accuracy", e->accuracy);
    if (e->sample_metric) add_sample_metric(object, e);
    for (int i = 0; i < e->scores.count; i++)
        cJSON_AddNumberToObject(object, e->scores.at[i].key, e->scores.at[i].percent);
    if (e->scores.count)
        cJSON_AddNumberToObject(object, e->scores.unit, (double)e->scores.over);
    cJSON_AddNumberToObject(object, e->unit, (double)e->count);
    rpi_command_print_json(object);
}

static void print_text(const rpi_eval_result *r) {
    const rpi_evaluation *e = &r->evaluation;
    char text[RPI_NUMBER_BYTES];
    printf("model       %s, %lld parameters", r->model, (long long)r->parameters);
    if (r->step >= 0) printf(", after %lld steps", (long long)r->step);
    printf("\ndata        %s, %lld %s\n", r->data, (long long)e->count, e->unit);
    if (e->count > 0) printf("loss        %s\n", rpi_loss_text(e->loss, text));
    if (!isnan(e->perplexity)) printf("perplexity  %s\n", rpi_loss_text(e->perplexity, text));
    if (e->count > 0) printf("accuracy    %.2f %%\n", 100 * e->accuracy);
    if (e->sample_metric)
        printf("%-11s loss %s, accuracy %.2f %%\n", e->sample_metric,
               rpi_loss_text(e->sample_loss, text), 100 * e->sample_accuracy);
    for (int i = 0; i < e->scores.count; i++)
        printf("%-11s %.2f %% of %lld %s\n", e->scores.at[i].label, e->scores.at[i].percent,
               (long long)e->scores.over, e->scores.unit);
}

static rp_status evaluate(void *of_command) {
    settings *s = of_command;
    rpi_eval_result result;
    if (!s->eval.model)
        return RP_FAIL(INVALID, "which model? --model RUN or --model hf:FOLDER");
    if (!s->eval.threads) s->eval.threads = rpi_own_share_of_cores(1);
    RP_TRY(rpi_eval(&s->eval, &result));
    if (result.note[0]) fprintf(stderr, "redpoll: note: %s\n", result.note);
    if (s->json)
        print_json(&result);
    else
        print_text(&result);
    return RP_OK;
}

static int run(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_eval, argc, argv, &s, NULL, evaluate);
}

const rpi_command rpi_command_eval = {
    .name = "eval",
    .summary = "loss, perplexity and accuracy of a model",
    .about =
        "Runs a model on held-out samples, without training: the newest checkpoint of a run, "
        "or a Hugging Face folder. Samples are held out as redpoll train holds them out, so "
        "that a run's numbers come again; --all takes every sequence of a file of tokens.",
    .examples = "  redpoll eval --model runs/kjv\n"
                "  redpoll eval --model hf:models/gpt2 --data tokens:data/kjv --all \\\n"
                "      --seq-length 1024\n"
                "  redpoll eval --model runs/transformer-xl --seq-length 64 --memory 640\n",
    .options = options,
    .run = run,
};
