/* `redpoll generate`: a language model goes on with a text. */
#include "cli/commands.h"

#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "cli/cores.h"
#include "cli/progress.h"
#include "train/generation/generate.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    const char *model, *prompt, *prompt_file, *tokenizer, *backend;
    int64_t most, memory, top_k, seed, threads;
    double temperature, top_p;
    bool echo, ignores_end, stats, json;
    char *read; /* the prompt, where it was read; else NULL */
} settings;

enum { MOST_PROMPT = 64 << 20 };

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"model", NULL, NULL, RPI_OPTION_TEXT, FIELD(model), NULL, 0, 0, "MODEL",
     "the folder of a run, or hf:FOLDER, a Hugging Face checkpoint", NULL},
    {"prompt", "p", NULL, RPI_OPTION_TEXT, FIELD(prompt), NULL, 0, 0, "TEXT",
     "the text that goes on; - reads it from standard input", NULL},
    {"prompt-file", NULL, NULL, RPI_OPTION_TEXT, FIELD(prompt_file), NULL, 0, 0, "FILE",
     "the text, from a file", NULL},
    {"max-new-tokens", NULL, NULL, RPI_OPTION_COUNT, FIELD(most), "100", 1, 1 << 20, "N",
     "tokens at most", NULL},
    {"memory", NULL, NULL, RPI_OPTION_COUNT, FIELD(memory), NULL, 1, 1 << 20, "N",
     "tokens that a model with a memory (transformer-xl) remembers; its own when absent", NULL},
    {"temperature", NULL, NULL, RPI_OPTION_REAL, FIELD(temperature), "0.8", 0, 1000, "T",
     "logits are divided by it: low is likely, high is varied; 0 takes the likeliest token",
     NULL},
    {"top-k", NULL, NULL, RPI_OPTION_COUNT, FIELD(top_k), NULL, 1, 16777216, "K",
     "draw from the K likeliest tokens; from all when absent", NULL},
    {"top-p", NULL, NULL, RPI_OPTION_REAL, FIELD(top_p), "1", 1e-9, 1, "P",
     "draw from the likeliest tokens that together have probability P", NULL},
    {"seed", NULL, NULL, RPI_OPTION_COUNT, FIELD(seed), "1", 0, 9e15, "N",
     "of the draws: the same gives the same text", NULL},
    {"ignore-end", NULL, NULL, RPI_OPTION_FLAG, FIELD(ignores_end), NULL, 0, 0, NULL,
     "the token that ends a text is not chosen", NULL},
    {"echo", NULL, NULL, RPI_OPTION_FLAG, FIELD(echo), "on", 0, 0, NULL,
     "print the prompt before what follows", NULL},
    {"tokenizer", NULL, NULL, RPI_OPTION_TEXT, FIELD(tokenizer), NULL, 0, 0, "NAME",
     "as of redpoll data tokenize; the model's own when absent", NULL},
    {"backend", NULL, NULL, RPI_OPTION_TEXT, FIELD(backend), NULL, 0, 0, "NAME",
     "of the engine; the fastest when absent", NULL},
    {"threads", NULL, NULL, RPI_OPTION_COUNT, FIELD(threads), NULL, 1, 4096, "N",
     "one a core when absent", NULL},
    {"stats", NULL, NULL, RPI_OPTION_FLAG, FIELD(stats), NULL, 0, 0, NULL,
     "tokens/s on standard error; there anyway when it is a terminal", NULL},
    {"json", NULL, NULL, RPI_OPTION_FLAG, FIELD(json), NULL, 0, 0, NULL,
     "as one JSON object, when all is there (docs/json.md)", NULL},
    {0},
};

/* ---- the prompt ---- */

static rp_status read_stream(FILE *stream, rpi_text *out) {
    char part[4096];
    for (size_t count; (count = fread(part, 1, sizeof part, stream)) > 0;) {
        if (out->count + count > MOST_PROMPT)
            return RP_FAIL(INVALID, "the prompt is longer than %d bytes", (int)MOST_PROMPT);
        RP_TRY(rpi_text_append(out, part, count));
    }
    return ferror(stream) ? RP_FAIL_ERRNO(IO, "cannot read standard input") : RP_OK;
}

/* A line that was typed, or a file, ends with a newline that is not part of the text. */
static void cut_newline(const char *text, size_t *bytes) {
    if (*bytes && text[*bytes - 1] == '\n') --*bytes;
    if (*bytes && text[*bytes - 1] == '\r') --*bytes;
}

static rp_status take_prompt(settings *s, rpi_generate_options *o) {
    if (!s->prompt == !s->prompt_file)
        return RP_FAIL(INVALID, s->prompt ? "--prompt or --prompt-file, not both"
                                          : "which text? --prompt TEXT, --prompt - (standard "
                                            "input) or --prompt-file FILE");
    o->prompt = s->prompt;
    if (s->prompt_file) {
        RP_TRY(rpi_regular_file_read(s->prompt_file, MOST_PROMPT, &s->read, &o->prompt_bytes));
    } else if (strcmp(s->prompt, "-") == 0) {
        rpi_text text = {0};
        rp_status status = read_stream(stdin, &text);
        s->read = text.at;
        o->prompt_bytes = text.count;
        RP_TRY(status);
    } else {
        o->prompt_bytes = strlen(s->prompt);
        return RP_OK;
    }
    o->prompt = s->read ? s->read : "";
    cut_newline(o->prompt, &o->prompt_bytes);
    return RP_OK;
}

/* ---- what is printed ---- */

/* Text is printed as it comes, or kept for JSON. */
typedef struct output {
    const settings *settings;
    const rpi_generate_options *options;
    rpi_text kept;
} output;

static rp_status put(void *context, const char *text, size_t bytes) {
    output *out = context;
    if (out->settings->json) return rpi_text_append(&out->kept, text, bytes);
    if (fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0) return RP_OK;
    return RP_FAIL_ERRNO(IO, "cannot write to standard output");
}

static rp_status begin(void *context) {
    output *out = context;
    if (!out->settings->echo || out->settings->json) return RP_OK;
    return put(context, out->options->prompt, out->options->prompt_bytes);
}

static double rate(double count, double seconds) {
    return seconds > 0 ? count / seconds : 0;
}

static const char *stop_text(const rpi_generated *g) {
    static const char *const texts[] = {
        [RPI_STOP_END] = "end", [RPI_STOP_MOST] = "length", [RPI_STOP_POSITIONS] = "positions"};
    return texts[g->stop];
}

static rp_status print_json(const rpi_generated *g, rpi_text *text) {
    cJSON *object = cJSON_CreateObject(), *tokens;
    RP_TRY(rpi_text_append(text, "", 1));
    cJSON_AddStringToObject(object, "model", g->model);
    cJSON_AddStringToObject(object, "text", text->at);
    tokens = cJSON_AddArrayToObject(object, "tokens");
    for (size_t i = 0; i < g->tokens.count; i++)
        cJSON_AddItemToArray(tokens, cJSON_CreateNumber(g->tokens.at[i]));
    cJSON_AddStringToObject(object, "stopped_by", stop_text(g));
    cJSON_AddNumberToObject(object, "prompt_tokens", (double)g->prompt_tokens);
    cJSON_AddNumberToObject(object, "prompt_s", g->prompt_s);
    cJSON_AddNumberToObject(object, "tokens_s", g->tokens_s);
    rpi_command_print_json(object);
    return RP_OK;
}

static void print_end(const settings *s, const rpi_generated *g) {
    putchar('\n');
    fflush(stdout);
    if (g->stop == RPI_STOP_POSITIONS)
        fprintf(stderr, "redpoll: note: it stops here: the model has %lld positions\n",
                (long long)g->positions);
    if (!s->stats && !rpi_is_terminal(stderr)) return;
    fprintf(
        stderr,
        "prompt %lld tokens, %.1f tokens/s; then %zu tokens, %.1f tokens/s; stopped by %s\n",
        (long long)g->prompt_tokens, rate((double)g->prompt_tokens, g->prompt_s),
        g->tokens.count, rate((double)g->tokens.count, g->tokens_s), stop_text(g));
}

/* ---- the command ---- */

static rp_status generate_and_print(settings *s) {
    rpi_generated done;
    rpi_generate_options o = {.model = s->model,
                              .tokenizer = s->tokenizer,
                              .most = s->most,
                              .memory = s->memory,
                              .choice = {.temperature = s->temperature,
                                         .top_k = s->top_k,
                                         .top_p = s->top_p,
                                         .seed = (uint64_t)s->seed},
                              .ignores_end = s->ignores_end,
                              .backend = s->backend,
                              .threads = (int)s->threads,
                              .on_begin = begin,
                              .on_text = put};
    output out = {.settings = s, .options = &o};
    o.context = &out;
    if (!s->model) return RP_FAIL(INVALID, "which model? --model RUN or --model hf:FOLDER");
    if (!o.threads) o.threads = rpi_own_share_of_cores(1);
    RP_TRY(take_prompt(s, &o));
    rp_status status = rpi_generate(&o, &done);
    if (status == RP_OK && s->json) status = print_json(&done, &out.kept);
    if (status == RP_OK && !s->json) print_end(s, &done);
    if (status == RP_OK && done.note[0]) fprintf(stderr, "redpoll: note: %s\n", done.note);
    rpi_ids_free(&done.tokens);
    rpi_text_free(&out.kept);
    return status;
}

static rp_status generate(void *of_command) {
    settings *s = of_command;
    rp_status status = generate_and_print(s);
    rpi_free(s->read);
    return status;
}

static int run(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_generate, argc, argv, &s, NULL, generate);
}

const rpi_command rpi_command_generate = {
    .name = "generate",
    .summary = "a language model goes on with a text",
    .about =
        "Reads a prompt and prints it with what the model writes behind it, as it comes: the "
        "newest checkpoint of a run, or a Hugging Face folder, of gpt2, llama or "
        "transformer-xl. "
        "Keys and values of what was read are kept, so a token costs the same wherever it "
        "stands. It ends where the model ends the text, after --max-new-tokens, or where the "
        "model's positions run out; transformer-xl has no last one. The tokenizer is the "
        "folder's, or that of the run's data.",
    .examples = "  redpoll generate --model runs/kjv --prompt 'In the beginning'\n"
                "  redpoll generate --model hf:models/gpt2 --prompt 'In the beginning' \\\n"
                "      --temperature 0.8 --top-k 40 --top-p 0.9 --seed 7\n"
                "  echo 'In the beginning' | redpoll generate --model runs/kjv --prompt - \\\n"
                "      --temperature 0 --no-echo\n",
    .options = options,
    .run = run,
};
