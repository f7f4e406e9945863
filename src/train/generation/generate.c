#include "train/generation/generate.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/data/data_tokenizer.h"
#include "train/generation/decoder.h"
#include "train/huggingface/hf_config.h"

#include <stdio.h>
#include <string.h>

typedef struct generator {
    const rpi_generate_options *o;
    rpi_generated *result;
    rpi_trained_model model;
    rpi_decoder_facts facts;
    rpi_tokenizer *tokenizer;
    rpi_encoder *encoder;
    rpi_hf_ends ends;
    rpi_ids prompt;
    rpi_decoder *decoder;
    bool *allowed; /* tokens that have a text, or end one */
    rpi_token_candidate *candidates;
    rpi_text_stream stream;
} generator;

/* ---- the tokenizer ---- */

static rp_status open_tokenizer(generator *g) {
    static const char advice[] = "; --tokenizer says which one it is";
    if (g->o->tokenizer) return rpi_tokenizer_open(g->o->tokenizer, &g->tokenizer);
    rp_status status = g->model.hf_folder
                           ? rpi_tokenizer_open(g->model.hf_folder, &g->tokenizer)
                       : g->model.data ? rpi_data_tokenizer_open(g->model.data, &g->tokenizer)
                                       : RP_FAIL(NOT_FOUND, "the run does not name its data");
    if (status == RP_OK) return RP_OK;
    char why[RPI_ERROR_BYTES];
    snprintf(why, sizeof why, "%s", rp_last_error()->message);
    return rpi_fail(status, __FILE__, __LINE__, "no tokenizer for %s: %.700s%s",
                    g->o->text ? g->o->text : g->o->model, why, g->o->text ? "" : advice);
}

/* Tables of tokens are often a little longer than what they are for. */
static rp_status check_tokenizer(generator *g) {
    int64_t has = rpi_tokenizer_size(g->tokenizer), wanted = g->facts.vocabulary;
    const char *name = rpi_tokenizer_name(g->tokenizer);
    if (has > wanted)
        return RP_FAIL(INVALID,
                       "the tokenizer %s has %lld tokens and the model %lld: it is not the "
                       "model's; --tokenizer says which one is",
                       name, (long long)has, (long long)wanted);
    if (has < wanted - wanted / 8)
        snprintf(g->result->note, sizeof g->result->note,
                 "the tokenizer %s has %lld tokens and the model %lld; is it the model's?",
                 name, (long long)has, (long long)wanted);
    return RP_OK;
}

/* What the folder says, or else the tokenizer. */
static rp_status find_ends(generator *g) {
    uint32_t end = 0;
    if (g->model.hf_folder) RP_TRY(rpi_hf_config_ends(g->model.hf_folder, &g->ends));
    if (g->ends.count == 0 && rpi_tokenizer_special(g->tokenizer, RPI_SPECIAL_END, &end))
        g->ends = (rpi_hf_ends){1, {end}};
    return RP_OK;
}

static bool is_end(const generator *g, int64_t token) {
    for (int i = 0; i < g->ends.count; i++)
        if (g->ends.at[i] == token) return true;
    return false;
}

static rp_status find_allowed(generator *g) {
    int64_t vocabulary = g->facts.vocabulary, known = rpi_tokenizer_size(g->tokenizer);
    RP_TRY(rpi_alloc_array((size_t)vocabulary, sizeof *g->allowed, "tokens", &g->allowed));
    RP_TRY(rpi_alloc_array((size_t)vocabulary, sizeof *g->candidates, "candidates",
                           &g->candidates));
    bool is_bytes = !rpi_tokenizer_json(g->tokenizer, &(size_t){0});
    for (int64_t i = 0; i < vocabulary; i++) {
        bool has_text =
            i < known && (is_bytes || rpi_tokenizer_token(g->tokenizer, (uint32_t)i));
        g->allowed[i] = is_end(g, i) ? !g->o->ignores_end : has_text;
    }
    return RP_OK;
}

/* ---- the prompt ---- */

static rp_status encode_prompt(generator *g) {
    RP_TRY(rpi_encoder_create(g->tokenizer, &g->encoder));
    RP_TRY(rpi_encode(g->encoder, g->o->prompt, g->o->prompt_bytes, RPI_ENCODE_ADD_SPECIAL,
                      &g->prompt, NULL));
    int64_t count = g->result->prompt_tokens = (int64_t)g->prompt.count;
    if (count == 0)
        return RP_FAIL(INVALID, "the prompt has no tokens: give the text that is to go on");
    if (count < g->facts.positions) return RP_OK;
    return RP_FAIL(INVALID,
                   "the prompt has %lld tokens and the model %lld positions: that leaves none "
                   "for what follows; shorten the prompt",
                   (long long)count, (long long)g->facts.positions);
}

static rp_status check_options(const rpi_generate_options *o) {
    if (!o->prompt || o->prompt_bytes == 0)
        return RP_FAIL(INVALID, "the prompt is empty: give the text that is to go on");
    if (!(o->choice.temperature >= 0))
        return RP_FAIL(INVALID, "temperature is %g; 0 (always the likeliest token) or more",
                       o->choice.temperature);
    if (!(o->choice.top_p > 0 && o->choice.top_p <= 1))
        return RP_FAIL(INVALID, "top-p is %g; above 0, and 1 (all tokens) at most",
                       o->choice.top_p);
    return RP_OK;
}

static rp_status open_model(generator *g) {
    const rpi_generate_options *o = g->o;
    if (o->text) {
        g->model = (rpi_trained_model){.data = o->data, .step = -1};
        snprintf(g->model.text, sizeof g->model.text, "%s", o->text);
    } else {
        RP_TRY(rpi_trained_model_open(o->model, &g->model));
    }
    return o->memory ? rpi_model_set_memory(g->model.text, o->memory) : RP_OK;
}

static rp_status prepare(generator *g) {
    RP_TRY(check_options(g->o));
    RP_TRY(open_model(g));
    snprintf(g->result->model, sizeof g->result->model, "%s", g->model.text);
    RP_TRY(rpi_decoder_examine(&g->model, &g->facts));
    g->result->positions = g->facts.positions;
    RP_TRY(open_tokenizer(g));
    RP_TRY(check_tokenizer(g));
    RP_TRY(find_ends(g));
    RP_TRY(find_allowed(g));
    return encode_prompt(g);
}

static rp_status open_decoder(generator *g) {
    char note[2048];
    int64_t memory = g->result->prompt_tokens + g->o->most;
    rpi_decoder_options options = {.memory = memory < g->facts.positions ? memory
                                                                         : g->facts.positions,
                                   .backend = g->o->backend,
                                   .threads = g->o->threads,
                                   .session = g->o->session};
    RP_TRY(rpi_decoder_open(&g->model, &options, &g->decoder, note, sizeof note));
    RP_TRY(rpi_decoder_prepare(g->decoder, g->result->prompt_tokens));
    RP_TRY(rpi_decoder_prepare(g->decoder, 1));
    size_t used = strlen(g->result->note);
    if (note[0])
        snprintf(g->result->note + used, sizeof g->result->note - used, "%s%s",
                 used ? "; " : "", note);
    return RP_OK;
}

/* ---- token by token ---- */

static rp_status choose(generator *g, const float *logits, uint32_t *out_token) {
    return rpi_token_choose(&g->o->choice, logits, g->facts.vocabulary, g->allowed,
                            g->result->tokens.count, g->candidates, out_token);
}

static rp_status go_on(generator *g, const float *logits) {
    rpi_generated *r = g->result;
    for (;;) {
        uint32_t token = 0;
        RP_TRY(choose(g, logits, &token));
        r->stop = RPI_STOP_END;
        if (is_end(g, token)) return RP_OK;
        RP_TRY(rpi_ids_add(&r->tokens, token));
        RP_TRY(rpi_text_stream_add(&g->stream, token));
        r->stop = RPI_STOP_MOST;
        if ((int64_t)r->tokens.count == g->o->most) return RP_OK;
        r->stop = RPI_STOP_POSITIONS;
        if (r->prompt_tokens + (int64_t)r->tokens.count == g->facts.positions) return RP_OK;
        int32_t next = (int32_t)token;
        RP_TRY(rpi_decoder_read(g->decoder, &next, 1, &logits));
    }
}

static rp_status generate(generator *g) {
    const float *logits = NULL;
    RP_TRY(prepare(g));
    RP_TRY(open_decoder(g));
    if (g->o->on_begin) RP_TRY(g->o->on_begin(g->o->context));
    g->stream.encoder = g->encoder;
    g->stream.take = g->o->on_text;
    g->stream.context = g->o->context;
    RP_TRY(rpi_text_stream_begin(&g->stream, g->prompt.at, g->prompt.count));
    int64_t start = rpi_now_ns();
    RP_TRY(rpi_decoder_read(g->decoder, (const int32_t *)g->prompt.at, (int64_t)g->prompt.count,
                            &logits));
    int64_t read = rpi_now_ns();
    RP_TRY(go_on(g, logits));
    g->result->prompt_s = (double)(read - start) * 1e-9;
    g->result->tokens_s = (double)(rpi_now_ns() - read) * 1e-9;
    return rpi_text_stream_end(&g->stream);
}

static void close_all(generator *g) {
    rpi_text_stream_free(&g->stream);
    rpi_decoder_close(g->decoder);
    rpi_free(g->allowed);
    rpi_free(g->candidates);
    rpi_ids_free(&g->prompt);
    rpi_encoder_destroy(g->encoder);
    rpi_tokenizer_close(g->tokenizer);
    rpi_trained_model_close(&g->model);
    rpi_free(g);
}

rp_status rpi_generate_check(const rpi_generate_options *options) {
    generator *g = NULL;
    rpi_generated none = {0};
    rpi_kept_error why;
    RP_TRY(rpi_alloc(sizeof *g, "a text", &g));
    g->o = options;
    g->result = &none;
    rp_status status = prepare(g);
    rpi_error_keep(&why);
    close_all(g);
    rpi_error_put_back(&why);
    return status;
}

rp_status rpi_generate(const rpi_generate_options *options, rpi_generated *out_generated) {
    generator *g = NULL;
    rpi_kept_error why;
    *out_generated = (rpi_generated){0};
    RP_TRY(rpi_alloc(sizeof *g, "a text", &g));
    g->o = options;
    g->result = out_generated;
    rp_status status = generate(g);
    if (status != RP_OK) rpi_ids_free(&out_generated->tokens);
    rpi_error_keep(&why);
    close_all(g);
    rpi_error_put_back(&why);
    return status;
}
