/* `redpoll data tokenize`: texts to tokens on disk. */
#include "cli/commands.h"

#include "base/clock.h"
#include "base/folder.h"
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "base/suggest.h"
#include "base/units.h"
#include "cli/cores.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "train/data/tokenize.h"
#include "train/tokenizers/tokenizer_train.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct settings {
    const char *tokenizer, *input, *out, *key, *end, *format;
    int64_t threads;
    bool split_lines, special, plain_special, strict, skip_broken, force, json;
    const char **paths;
    int path_count;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"tokenizer", NULL, NULL, RPI_OPTION_TEXT, FIELD(tokenizer), NULL, 0, 0, "NAME",
     "byte, gpt2, llama, bert, one of these with a folder (gpt2:FOLDER), the path of a "
     "tokenizer.json, or one of N tokens that is trained on this text: train:bpe=N, "
     "train:wordpiece=N (BERT's; train:wordpiece-cased=N), train:wordlevel=N",
     NULL},
    {"in", NULL, NULL, RPI_OPTION_TEXT, FIELD(input), NULL, 0, 0, "FILE",
     "text, or JSON objects, one a line or in a list: first bytes tell, also whether it is "
     "packed (gzip, xz, bzip2, zstd); several may follow",
     NULL},
    {"out", NULL, NULL, RPI_OPTION_TEXT, FIELD(out), NULL, 0, 0, "FOLDER",
     "where to write: PATH.ds, PATH.ds.index, PATH.ds.metadata, PATH.tokenizer.json", NULL},
    {"key", NULL, NULL, RPI_OPTION_TEXT, FIELD(key), "text", 0, 0, "NAME",
     "of the text in a JSON object", NULL},
    {"format", NULL, NULL, RPI_OPTION_TEXT, FIELD(format), "auto", 0, 0, "NAME",
     "auto: JSON where it looks like that, else text, and other kinds of files are refused; "
     "text: text, whatever it looks like; json",
     NULL},
    {"split-lines", NULL, NULL, RPI_OPTION_FLAG, FIELD(split_lines), NULL, 0, 0, NULL,
     "each line of a text file is a document, instead of the file", NULL},
    {"end", NULL, NULL, RPI_OPTION_TEXT, FIELD(end), "auto", 0, 0, "TOKEN",
     "behind each document; auto: the eos_token of tokenizer_config.json beside the "
     "tokenizer, else <|endoftext|> or </s> where it has it; none",
     NULL},
    {"special", NULL, NULL, RPI_OPTION_FLAG, FIELD(special), NULL, 0, 0, NULL,
     "add what the tokenizer puts around a text, as [CLS] and [SEP]", NULL},
    {"plain-special", NULL, NULL, RPI_OPTION_FLAG, FIELD(plain_special), NULL, 0, 0, NULL,
     "special tokens that stand in the text are text, as in documents of strangers", NULL},
    {"strict", NULL, NULL, RPI_OPTION_FLAG, FIELD(strict), NULL, 0, 0, NULL,
     "refuse what is not UTF-8, instead of U+FFFD in its place", NULL},
    {"skip-broken", NULL, NULL, RPI_OPTION_FLAG, FIELD(skip_broken), NULL, 0, 0, NULL,
     "leave out rows of JSON that cannot be read, and count them", NULL},
    {"threads", NULL, NULL, RPI_OPTION_COUNT, FIELD(threads), NULL, 1,
     RPI_TOKENIZE_THREADS_MOST, "N", "that tokenize; one a core when absent", NULL},
    {"force", NULL, NULL, RPI_OPTION_FLAG, FIELD(force), NULL, 0, 0, NULL,
     "replace what is there", NULL},
    {"json", NULL, NULL, RPI_OPTION_FLAG, FIELD(json), NULL, 0, 0, NULL,
     "what was done as one JSON object (docs/json.md)", NULL},
    {0},
};

/* ---- words ---- */

/* `--in a b --in c`: every word is an input, so the option itself can be left out. */
static int without_in(int argc, char **argv, char **out) {
    int count = 0;
    bool options_end = false;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        options_end = options_end || strcmp(word, "--") == 0;
        if (!options_end && strcmp(word, "--in") == 0) continue;
        out[count++] = !options_end && strncmp(word, "--in=", 5) == 0 ? word + 5 : word;
    }
    return count;
}

static bool is_there(const char *out, const char *suffix) {
    char path[RPI_PATH_BYTES];
    struct stat facts;
    return snprintf(path, sizeof path, "%s%s", out, suffix) < (int)sizeof path &&
           stat(path, &facts) == 0;
}

static rp_status check(settings *s) {
    if (!s->tokenizer)
        return RP_FAIL(INVALID, "which tokenizer? --tokenizer byte needs no file");
    if (s->path_count == 0 && s->input) s->paths[s->path_count++] = s->input;
    if (s->path_count == 0) return RP_FAIL(INVALID, "which text? --in FILE...");
    if (!s->out) return RP_FAIL(INVALID, "where to? --out data/NAME");
    struct stat facts;
    if (!*s->out || s->out[strlen(s->out) - 1] == '/' ||
        (stat(s->out, &facts) == 0 && S_ISDIR(facts.st_mode)))
        return RP_FAIL(INVALID, "--out %s is a folder; give a name in it: --out %s%sNAME",
                       s->out, s->out, *s->out && s->out[strlen(s->out) - 1] != '/' ? "/" : "");
    if (!s->force && (is_there(s->out, ".ds.metadata") || is_there(s->out, ".ds")))
        return RP_FAIL(INVALID, "%s.ds is there already; --force replaces it", s->out);
    if (s->threads == 0) s->threads = rpi_own_share_of_cores(1);
    return RP_OK;
}

static rp_status read_settings(int argc, char **argv, settings *s, bool *wants_help) {
    rpi_positional positional = {.words = s->paths, .capacity = argc};
    RP_TRY(rpi_options_defaults(options, s));
    RP_TRY(rpi_options_environment(options, getenv, s));
    RP_TRY(rpi_options_parse(options, argc, argv, s, &positional, wants_help));
    s->path_count = positional.count;
    return *wants_help ? RP_OK : check(s);
}

/* Warns: without an end of documents a model does not learn to end. */
static void tell_no_end(const rpi_tokenizer *tokenizer) {
    fprintf(stderr,
            "redpoll: note: %s names no token that ends a text, so nothing stands between "
            "documents; --end TOKEN names one, --end none says that this is meant\n",
            rpi_tokenizer_name(tokenizer));
}

static rp_status find_end(const settings *s, rpi_tokenizer *tokenizer,
                          rpi_tokenize_options *o) {
    if (strcmp(s->end, "none") == 0) return RP_OK;
    if (strcmp(s->end, "auto") == 0) {
        o->has_end = rpi_tokenizer_special(tokenizer, RPI_SPECIAL_END, &o->end);
        if (!o->has_end) tell_no_end(tokenizer);
        return RP_OK;
    }
    o->has_end = rpi_tokenizer_find(tokenizer, s->end, &o->end);
    if (o->has_end) rpi_tokenizer_set_end(tokenizer, o->end);
    return o->has_end ? RP_OK
                      : RP_FAIL(INVALID, "--end: %s has no token '%s'; none is allowed",
                                rpi_tokenizer_name(tokenizer), s->end);
}

/* ---- progress, and an early end ---- */

static volatile sig_atomic_t stop_signal;

static void on_stop(int number) {
    stop_signal = number;
}

static void take_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 3; i++) {
        struct sigaction old,
            action = {.sa_handler = on_stop, .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

typedef struct bar {
    bool shown;
    int64_t started_ns, drawn_ns;
} bar;

static bool draw(void *context, int64_t done, int64_t total) {
    enum { WIDTH = 24, EVERY_NS = 100000000 };
    bar *b = context;
    int64_t now = rpi_now_ns();
    if (stop_signal) return true;
    if (!b->shown || now - b->drawn_ns < EVERY_NS || total <= 0) return false;
    b->drawn_ns = now;
    double share = (double)done / (double)total, seconds = rpi_seconds(now - b->started_ns);
    int filled = (int)(share * WIDTH);
    char left[RPI_TIME_BYTES], line[WIDTH + 1];
    for (int i = 0; i < WIDTH; i++) line[i] = i < filled ? '#' : '.';
    line[WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %3.0f %%  %.1f MB/s  %s left\033[K", line, 100 * share,
            (double)done * 1e-6 / seconds,
            rpi_time_text(share > 0 ? seconds / share - seconds : 0, left));
    fflush(stderr);
    return false;
}

static void end_bar(const bar *b) {
    if (b->shown && b->drawn_ns) fprintf(stderr, "\r\033[K");
}

/* ---- a tokenizer of the text itself ---- */

static bool trains(const settings *s) {
    return strncmp(s->tokenizer, "train:", 6) == 0;
}

static bool is_stopped(void *unused) {
    (void)unused;
    return stop_signal != 0;
}

static rp_status count_words(rpi_text_source *source, rpi_tokenizer_trainer *trainer, bar *b) {
    for (;;) {
        rpi_document d;
        bool at_end = false;
        RP_TRY(rpi_text_source_next(source, &at_end, &d));
        if (at_end) return RP_OK;
        if (draw(b, rpi_text_source_read(source), rpi_text_source_total(source)))
            return RP_FAIL(CANCELLED, "stopped; nothing was written");
        RP_TRY(rpi_tokenizer_trainer_add(trainer, d.text, d.bytes));
    }
}

static rp_status train(const settings *s, rpi_text_source *source,
                       rpi_tokenizer **out_tokenizer) {
    rpi_tokenizer_trainer *trainer = NULL;
    const rpi_tokenizer_training *kind = NULL;
    bar b = {.shown = rpi_is_terminal(stderr), .started_ns = rpi_now_ns()};
    char *json = NULL, name[64];
    uint32_t size = 0;
    RP_TRY(rpi_tokenizer_training_parse(s->tokenizer + strlen("train:"), &kind, &size));
    RP_TRY(rpi_tokenizer_trainer_create(kind, &trainer));
    rp_status status = count_words(source, trainer, &b);
    end_bar(&b);
    if (status == RP_OK)
        status = rpi_tokenizer_trainer_finish(trainer, size,
                                              (rpi_training_stop){.stops = is_stopped}, &json);
    rpi_tokenizer_trainer_destroy(trainer);
    snprintf(name, sizeof name, "%s=%u", kind->name, size);
    if (status == RP_OK) status = rpi_tokenizer_parse(name, json, strlen(json), out_tokenizer);
    cJSON_free(json);
    rpi_text_source_rewind(source);
    return status;
}

/* ---- what was done ---- */

typedef struct done {
    rpi_tokenize_totals totals;
    double seconds;
    int token_bytes;
    uint32_t vocabulary;
} done;

static void print_json(const settings *s, const rpi_tokenizer *tokenizer, const done *d) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "out", s->out);
    cJSON_AddStringToObject(object, "tokenizer", rpi_tokenizer_name(tokenizer));
    cJSON_AddNumberToObject(object, "vocabulary", d->vocabulary);
    cJSON_AddNumberToObject(object, "documents", (double)d->totals.documents);
    cJSON_AddNumberToObject(object, "tokens", (double)d->totals.tokens);
    cJSON_AddNumberToObject(object, "token_bytes", d->token_bytes);
    cJSON_AddNumberToObject(object, "text_bytes", (double)d->totals.bytes);
    cJSON_AddNumberToObject(object, "repaired_documents", (double)d->totals.repaired);
    cJSON_AddNumberToObject(object, "broken_rows", (double)d->totals.broken);
    cJSON_AddNumberToObject(object, "time_s", d->seconds);
    cJSON_AddNumberToObject(object, "threads", (double)s->threads);
    rpi_command_print_json(object);
}

static void print_text(const settings *s, const rpi_tokenizer *tokenizer, const done *d) {
    const rpi_tokenize_totals *t = &d->totals;
    char time[RPI_TIME_BYTES];
    if (t->repaired)
        fprintf(stderr,
                "redpoll: note: %lld document%s not UTF-8: U+FFFD stands in %lld place%s\n",
                (long long)t->repaired, t->repaired == 1 ? " was" : "s were",
                (long long)t->replaced, t->replaced == 1 ? "" : "s");
    printf("%s.ds: %lld document%s, %lld tokens of %d bytes by %s (%u), %.2f bytes of text a "
           "token\n",
           s->out, (long long)t->documents, t->documents == 1 ? "" : "s", (long long)t->tokens,
           d->token_bytes, rpi_tokenizer_name(tokenizer), d->vocabulary,
           t->tokens ? (double)t->bytes / (double)t->tokens : 0);
    printf("%.1f MB in %s, %.1f MB/s by %lld thread%s\n", (double)t->bytes * 1e-6,
           rpi_time_text(d->seconds, time), (double)t->bytes * 1e-6 / d->seconds,
           (long long)s->threads, s->threads == 1 ? "" : "s");
}

/* ---- doing it ---- */

static rp_status make_folder(const char *out) {
    const char *slash = strrchr(out, '/');
    if (!slash || slash == out) return RP_OK;
    char folder[RPI_PATH_BYTES];
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - out), out);
    return rpi_folder_make(folder);
}

static rp_status write_tokens(const settings *s, const rpi_tokenizer *tokenizer,
                              rpi_text_source *source, const rpi_tokenize_options *wanted,
                              done *d) {
    rpi_token_writer *writer = NULL;
    bar b = {.shown = rpi_is_terminal(stderr), .started_ns = rpi_now_ns()};
    rpi_tokenize_options o = *wanted;
    o.progress = draw;
    o.context = &b;
    RP_TRY(make_folder(s->out));
    RP_TRY(rpi_token_writer_open(s->out, tokenizer, &writer));
    d->token_bytes = rpi_token_writer_token_bytes(writer);
    rp_status status = rpi_tokenize(tokenizer, source, writer, &o, &d->totals);
    end_bar(&b);
    d->seconds = rpi_seconds(rpi_now_ns() - b.started_ns);
    return rpi_token_writer_close(writer, status);
}

static rp_status tokenize(const settings *s, rpi_text_source *source, rpi_tokenizer **tokenizer,
                          done *d) {
    rpi_tokenize_options o = {.threads = (int)s->threads, .strict = s->strict};
    o.flags = (s->special ? RPI_ENCODE_ADD_SPECIAL : 0u) |
              (s->plain_special ? RPI_ENCODE_PLAIN_SPECIAL : 0u);
    RP_TRY(trains(s) ? train(s, source, tokenizer)
                     : rpi_tokenizer_open(s->tokenizer, tokenizer));
    d->vocabulary = rpi_tokenizer_size(*tokenizer);
    RP_TRY(find_end(s, *tokenizer, &o));
    return write_tokens(s, *tokenizer, source, &o, d);
}

static const char *format_name_at(const void *context, int index) {
    (void)context;
    return rpi_text_format_name(index);
}

static rp_status read_and_tokenize(const settings *s, rpi_tokenizer **tokenizer, done *d) {
    int format = RPI_FORMAT_AUTO;
    RP_TRY(rpi_name_find("format", s->format, format_name_at, NULL, &format));
    rpi_text_source_options text = {.paths = s->paths,
                                    .path_count = s->path_count,
                                    .key = s->key,
                                    .split_lines = s->split_lines,
                                    .format = (rpi_text_format)format,
                                    .skip_broken = s->skip_broken};
    rpi_text_source *source = NULL;
    RP_TRY(rpi_text_source_open(&text, &source));
    rp_status status = tokenize(s, source, tokenizer, d);
    rpi_text_source_close(source);
    return status;
}

/* 128 and the signal, as shells report it. */
static int failed(rp_status status) {
    if (status == RP_INVALID) return rpi_command_misused("data tokenize", status);
    int code = rpi_command_failed(status);
    return status == RP_CANCELLED && stop_signal ? 128 + stop_signal : code;
}

static int run_with(const settings *s) {
    rpi_tokenizer *tokenizer = NULL;
    done d = {0};
    take_signals();
    rp_status status = read_and_tokenize(s, &tokenizer, &d);
    int code = RPI_EXIT_DONE;
    if (status != RP_OK)
        code = failed(status);
    else if (s->json)
        print_json(s, tokenizer, &d);
    else
        print_text(s, tokenizer, &d);
    rpi_tokenizer_close(tokenizer);
    return code;
}

static int run(int argc, char **argv) {
    settings s = {0};
    char **words = NULL;
    bool wants_help = false;
    int code = RPI_EXIT_DONE;
    rp_status status = rpi_alloc_array((size_t)argc + 1, sizeof *words, "words", &words);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)argc + 1, sizeof *s.paths, "words", &s.paths);
    if (status == RP_OK)
        status = read_settings(without_in(argc, argv, words), words, &s, &wants_help);
    if (status != RP_OK)
        code = rpi_command_misused("data tokenize", status);
    else if (wants_help)
        rpi_command_print_help(&rpi_command_data_tokenize, stdout);
    else
        code = run_with(&s);
    rpi_free(words);
    rpi_free(s.paths);
    return code;
}

const rpi_command rpi_command_data_tokenize = {
    .name = "data tokenize",
    .summary = "turn texts into tokens on disk",
    .words = "--tokenizer NAME --in FILE... --out PATH [OPTIONS]",
    .about =
        "Turns texts into tokens, which training then maps into memory: a file of text is a "
        "document, or each of its lines, or each line of JSON lines. PATH.ds holds the tokens "
        "and PATH.ds.index where documents end, as nanotron's nanosets have them; "
        "PATH.tokenizer.json is the tokenizer, as Hugging Face's are. They appear when all is "
        "done, or not at all.",
    .notes = "gpt2, llama and bert are files that others publish: put tokenizer.json (or "
             "vocab.json and merges.txt, or vocab.txt) into a folder, and name it behind a "
             "colon, or put it as DIR/gpt2 into one of the folders of REDPOLL_TOKENIZERS=DIR.",
    .examples =
        "  redpoll data tokenize --tokenizer byte --in corpus/*.txt --out data/corpus\n"
        "  redpoll data tokenize --tokenizer gpt2:models/gpt2 --in a.jsonl.gz \\\n"
        "      --key content --out data/a\n"
        "  redpoll data tokenize --tokenizer train:bpe=8192 --in corpus/*.txt \\\n"
        "      --out data/corpus\n"
        "  redpoll data tokenize --tokenizer train:wordpiece=8192 --in corpus/*.txt \\\n"
        "      --split-lines --out data/corpus-bert\n",
    .options = options,
    .run = run,
};
