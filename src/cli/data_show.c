/* `redpoll data info` and `redpoll data decode`: what is in a file of tokens. */
#include "cli/commands.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/data/token_file.h"
#include "train/tokenizers/tokenizer.h"
#include "train/tokenizers/utf8_text.h"

#include <cjson/cJSON.h>
#include <string.h>

enum { SHOWN_TOKENS = 24, DECODED_AT_ONCE = 1 << 20 };

typedef struct settings {
    const char *path, *tokenizer;
    int64_t first, from;
    bool json;
} settings;

#define FIELD(name) offsetof(settings, name)
#define ROW_TOKENIZER                                                                          \
    {                                                                                          \
        "tokenizer", NULL, NULL, RPI_OPTION_TEXT, FIELD(tokenizer), NULL, 0, 0, "NAME",        \
            "as of redpoll data tokenize; what the data say when absent", NULL                 \
    }

static const rpi_option info_options[] = {
    ROW_TOKENIZER,
    {"first", NULL, NULL, RPI_OPTION_COUNT, FIELD(first), "3", 0, 1e9, "N",
     "documents whose beginning is shown", NULL},
    {"json", NULL, NULL, RPI_OPTION_FLAG, FIELD(json), NULL, 0, 0, NULL,
     "as one JSON object (docs/json.md)", NULL},
    {0},
};

static const rpi_option decode_options[] = {
    ROW_TOKENIZER,
    {"first", NULL, NULL, RPI_OPTION_COUNT, FIELD(first), "1", 1, 1e12, "N",
     "documents to decode", NULL},
    {"from", NULL, NULL, RPI_OPTION_COUNT, FIELD(from), "0", 0, 1e15, "N",
     "the document to begin with, counted from 0", NULL},
    {"json", NULL, NULL, RPI_OPTION_FLAG, FIELD(json), NULL, 0, 0, NULL,
     "one JSON object a document (docs/json.md)", NULL},
    {0},
};

/* ---- the data and their tokenizer ---- */

typedef struct opened {
    rpi_token_file *file;
    rpi_tokenizer *tokenizer; /* NULL: there is none at hand */
    rpi_encoder *encoder;
} opened;

static void close_all(opened *o) {
    rpi_encoder_destroy(o->encoder);
    rpi_tokenizer_close(o->tokenizer);
    rpi_token_file_close(o->file);
}

static rp_status open_tokenizer(const settings *s, opened *o) {
    const char *spec = s->tokenizer ? s->tokenizer : o->file->tokenizer_json;
    if (!spec) spec = o->file->tokenizer;
    if (!spec)
        return RP_FAIL(INVALID, "the %s layout does not name its tokenizer: --tokenizer NAME",
                       o->file->layout->name);
    RP_TRY(rpi_tokenizer_open(spec, &o->tokenizer));
    uint32_t size = rpi_tokenizer_size(o->tokenizer);
    if (s->tokenizer && (!o->file->vocabulary || size < o->file->vocabulary)) {
        o->file->vocabulary = size;
        rpi_free(o->file->tokenizer);
        o->file->tokenizer = NULL;
        RP_TRY(rpi_strdup(rpi_tokenizer_name(o->tokenizer), &o->file->tokenizer));
    }
    return rpi_encoder_create(o->tokenizer, &o->encoder);
}

/* Tokens of a document to text, in parts: a token never spans two, but a character may. */
static rp_status decode(const opened *o, int64_t first, int64_t count, rpi_text *out) {
    uint32_t *ids = NULL;
    int64_t most = count < DECODED_AT_ONCE ? count : DECODED_AT_ONCE;
    RP_TRY(rpi_alloc_array((size_t)most + 1, sizeof *ids, "tokens", &ids));
    rp_status status = RP_OK;
    for (int64_t done = 0; done < count && status == RP_OK; done += most) {
        int64_t some = count - done < most ? count - done : most;
        status = rpi_token_file_read(o->file, first + done, some, ids);
        if (status == RP_OK) status = rpi_decode(o->encoder, ids, (size_t)some, 0, out);
    }
    rpi_free(ids);
    return status;
}

/* JSON contains text: bytes that are not text become U+FFFD. */
static rp_status add_text(cJSON *object, const char *key, const rpi_text *text) {
    rpi_text repaired = {0};
    size_t replaced;
    rp_status status = rpi_utf8_repair(text->at, text->count, &repaired, &replaced);
    if (status == RP_OK) status = rpi_text_append(&repaired, "", 1);
    if (status == RP_OK) cJSON_AddStringToObject(object, key, repaired.at);
    rpi_text_free(&repaired);
    return status;
}

/* ---- info ---- */

typedef struct lengths {
    int64_t shortest, longest;
} lengths;

static lengths measure(const rpi_token_file *file) {
    lengths l = {INT64_MAX, 0};
    for (int64_t i = 0; i < file->documents; i++) {
        int64_t count = rpi_token_file_end(file, i) - rpi_token_file_end(file, i - 1);
        if (count < l.shortest) l.shortest = count;
        if (count > l.longest) l.longest = count;
    }
    return l;
}

/* Prints one line, without characters that would move a cursor. */
static void print_line(const rpi_text *text) {
    for (size_t i = 0; i < text->count; i++) {
        unsigned char c = (unsigned char)text->at[i];
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c < 0x20 || c == 0x7f)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
}

static rp_status beginning(const opened *o, int64_t document, rpi_text *out,
                           int64_t *out_count) {
    int64_t first = rpi_token_file_end(o->file, document - 1);
    *out_count = rpi_token_file_end(o->file, document) - first;
    out->count = 0;
    return decode(o, first, *out_count < SHOWN_TOKENS ? *out_count : SHOWN_TOKENS, out);
}

static rp_status print_beginnings(const settings *s, const opened *o) {
    rpi_text text = {0};
    rp_status status = RP_OK;
    for (int64_t d = 0; d < s->first && d < o->file->documents && status == RP_OK; d++) {
        int64_t count;
        status = beginning(o, d, &text, &count);
        if (status != RP_OK) break;
        printf("%6lld: ", (long long)d);
        print_line(&text);
        printf("%s\n", count > SHOWN_TOKENS ? " ..." : "");
    }
    rpi_text_free(&text);
    return status;
}

static rp_status print_info(const settings *s, const opened *o) {
    const rpi_token_file *f = o->file;
    lengths l = measure(f);
    printf("layout      %s: %s\n", f->layout->name, f->layout->summary);
    printf("tokenizer   %s\n", f->tokenizer ? f->tokenizer : "not named");
    if (f->vocabulary) printf("vocabulary  %u\n", f->vocabulary);
    printf("tokens      %lld, %d byte%s each\n", (long long)f->count, f->token_bytes,
           f->token_bytes == 1 ? "" : "s");
    printf("documents   %lld, of %lld", (long long)f->documents, (long long)l.shortest);
    if (l.longest > l.shortest) printf(" to %lld", (long long)l.longest);
    printf(" tokens\n");
    if (f->part_count > 1) printf("shards      %d\n", f->part_count);
    if (!o->encoder) {
        fprintf(stderr, "redpoll: note: nothing is decoded: %s\n", rp_last_error()->message);
        return RP_OK;
    }
    return print_beginnings(s, o);
}

static rp_status print_info_json(const settings *s, const opened *o) {
    const rpi_token_file *f = o->file;
    lengths l = measure(f);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "path", s->path);
    cJSON_AddStringToObject(object, "layout", f->layout->name);
    if (f->tokenizer)
        cJSON_AddStringToObject(object, "tokenizer", f->tokenizer);
    else
        cJSON_AddNullToObject(object, "tokenizer");
    if (f->vocabulary)
        cJSON_AddNumberToObject(object, "vocabulary", f->vocabulary);
    else
        cJSON_AddNullToObject(object, "vocabulary");
    cJSON_AddNumberToObject(object, "tokens", (double)f->count);
    cJSON_AddNumberToObject(object, "token_bytes", f->token_bytes);
    cJSON_AddNumberToObject(object, "documents", (double)f->documents);
    cJSON_AddNumberToObject(object, "shortest_document", (double)l.shortest);
    cJSON_AddNumberToObject(object, "longest_document", (double)l.longest);
    cJSON_AddNumberToObject(object, "shards", f->part_count);
    rpi_command_print_json(object);
    return RP_OK;
}

static rp_status show_info(const settings *s, opened *o) {
    RP_TRY(rpi_token_file_open(s->path, &o->file));
    rp_status status = open_tokenizer(s, o);
    /* Without a tokenizer there is still something to print, unless one was asked for. */
    if (status != RP_OK && s->tokenizer) return status;
    return s->json ? print_info_json(s, o) : print_info(s, o);
}

/* ---- decode ---- */

static rp_status print_document(const settings *s, const opened *o, int64_t document) {
    int64_t first = rpi_token_file_end(o->file, document - 1);
    int64_t count = rpi_token_file_end(o->file, document) - first;
    rpi_text text = {0};
    rp_status status = decode(o, first, count, &text);
    if (status == RP_OK && s->json) {
        cJSON *object = cJSON_CreateObject();
        cJSON_AddNumberToObject(object, "document", (double)document);
        cJSON_AddNumberToObject(object, "tokens", (double)count);
        status = add_text(object, "text", &text);
        rpi_command_print_json(object);
    } else if (status == RP_OK) {
        if (s->first > 1)
            printf("==> document %lld, %lld tokens <==\n", (long long)document,
                   (long long)count);
        fwrite(text.at, 1, text.count, stdout);
        if (text.count == 0 || text.at[text.count - 1] != '\n') putchar('\n');
    }
    rpi_text_free(&text);
    return status;
}

static rp_status show_documents(const settings *s, opened *o) {
    RP_TRY(rpi_token_file_open(s->path, &o->file));
    RP_TRY(open_tokenizer(s, o));
    if (s->from >= o->file->documents)
        return RP_FAIL(INVALID, "--from %lld: %s has %lld documents, counted from 0",
                       (long long)s->from, s->path, (long long)o->file->documents);
    for (int64_t d = s->from; d < o->file->documents && d - s->from < s->first; d++)
        RP_TRY(print_document(s, o, d));
    return RP_OK;
}

/* ---- the commands ---- */

static rp_status show(const settings *s,
                      rp_status (*show_opened)(const settings *s, opened *o)) {
    opened o = {0};
    rpi_kept_error why;
    if (!s->path)
        return RP_FAIL(INVALID,
                       "which data? the path that redpoll data tokenize --out was given");
    rp_status status = show_opened(s, &o);
    rpi_error_keep(&why);
    close_all(&o);
    rpi_error_put_back(&why);
    return status;
}

static rp_status info(void *s) {
    return show(s, show_info);
}

static rp_status documents(void *s) {
    return show(s, show_documents);
}

static int run_info(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_data_info, argc, argv, &s, &s.path, info);
}

static int run_decode(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_data_decode, argc, argv, &s, &s.path, documents);
}

const rpi_command rpi_command_data_info = {
    .name = "data info",
    .summary = "what a file of tokens holds",
    .words = "PATH [OPTIONS]",
    .about =
        "Tells the layout, the tokenizer, the vocabulary, the documents and tokens of a file "
        "of tokens, and how the first documents begin. PATH is what redpoll data tokenize "
        "--out "
        "was given, a nanoset, Megatron's NAME.bin with NAME.idx, or .bin files of llm.c, "
        "several by a pattern in quotes.",
    .examples =
        "  redpoll data info data/kjv\n"
        "  redpoll data info 'data/tinyshakespeare_*.bin' --tokenizer gpt2:models/gpt2\n",
    .options = info_options,
    .run = run_info,
};

const rpi_command rpi_command_data_decode = {
    .name = "data decode",
    .summary = "turn tokens on disk back into text",
    .words = "PATH [OPTIONS]",
    .about =
        "Prints documents of a file of tokens as text, special tokens included. PATH is as "
        "for redpoll data info.",
    .examples = "  redpoll data decode data/kjv\n"
                "  redpoll data decode data/kjv --from 1000 --first 3\n",
    .options = decode_options,
    .run = run_decode,
};
