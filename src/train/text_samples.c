#include "train/text_samples.h"

#include "base/status.h"
#include "train/generation/generate.h"

#include <string.h>

/* The default of redpoll generate. */
#define TEMPERATURE 0.8

static rp_status put(void *context, const char *text, size_t bytes) {
    return rpi_text_append(context, text, bytes);
}

static rpi_generate_options options_of(const rpi_trainer *t, rpi_text *text) {
    const rpi_train_options *o = t->options;
    return (rpi_generate_options){
        .text = t->network.text,
        .data = o->data,
        .session = t->programs.session,
        .prompt = o->prompt,
        .prompt_bytes = strlen(o->prompt),
        .most = o->sample_tokens ? o->sample_tokens : RPI_SAMPLE_TOKENS,
        .choice = {.temperature = TEMPERATURE, .top_p = 1, .seed = (uint64_t)o->seed},
        .on_text = put,
        .context = text};
}

rp_status rpi_text_sample_check(const rpi_trainer *t) {
    if (!t->options->sample_every || t->place.rank != 0) return RP_OK;
    rpi_generate_options options = options_of(t, NULL);
    rp_status status = rpi_generate_check(&options);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "--sample-every: ");
}

rp_status rpi_text_sample_write(const rpi_trainer *t, rpi_text *out_text) {
    rpi_text text = {0};
    rpi_generated done;
    rpi_generate_options options = options_of(t, &text);
    rp_status status = rpi_text_append(&text, options.prompt, options.prompt_bytes);
    if (status == RP_OK) {
        status = rpi_generate(&options, &done);
        rpi_ids_free(&done.tokens);
    }
    if (status == RP_OK) status = rpi_text_append(&text, "", 1);
    if (status == RP_OK)
        *out_text = text;
    else
        rpi_text_free(&text);
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "--sample-every: ");
}
