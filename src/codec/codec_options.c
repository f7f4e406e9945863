/* Options of codecs: rows of their kinds' tables, read and written where the rows say. */
#include "codec/codec.h"

#include <stdio.h>
#include <string.h>

const rpi_codec_option *rpi_codec_option_at(const rpi_codec_kind *kind, int index) {
    if (!kind->options) return NULL;
    for (int i = 0; kind->options[i].name; i++)
        if (i == index) return &kind->options[i];
    return NULL;
}

const rpi_codec_option *rpi_codec_option_find(const rpi_codec_kind *kind, const char *name) {
    const rpi_codec_option *option;
    for (int i = 0; (option = rpi_codec_option_at(kind, i)) != NULL; i++)
        if (strcmp(option->name, name) == 0) return option;
    return NULL;
}

uint32_t rpi_codec_option_get(const rp_codec *codec, const rpi_codec_option *option) {
    uint32_t value = 0; /* little-endian: a shorter field is its low bytes */
    memcpy(&value, (const char *)codec + option->offset, option->bytes);
    return value;
}

void rpi_codec_option_set(rp_codec *codec, const rpi_codec_option *option, uint32_t value) {
    memcpy((char *)codec + option->offset, &value, option->bytes);
}

/* ---- what is allowed ---- */

static bool is_bucket(const rpi_codec_option *option) {
    return option->offset == offsetof(rp_codec, bucket);
}

static bool bucket_fits(const rp_codec *codec, uint32_t bucket) {
    rp_codec tried = *codec;
    tried.bucket = bucket;
    return codec->kind->encoded_bytes(&tried, RP_F32, bucket) <= RPI_BUCKET_BYTES_MAX;
}

static uint32_t largest_bucket(const rp_codec *codec, uint32_t most) {
    if (bucket_fits(codec, most)) return most;
    uint32_t fits = 1, too_many = most;
    while (too_many - fits > 1) {
        uint32_t tried = fits + (too_many - fits) / 2;
        if (bucket_fits(codec, tried))
            fits = tried;
        else
            too_many = tried;
    }
    return fits;
}

uint32_t rpi_codec_option_max(const rp_codec *codec, const rpi_codec_option *option) {
    return is_bucket(option) ? largest_bucket(codec, option->max) : option->max;
}

static bool is_in_range(const rp_codec *codec, const rpi_codec_option *option) {
    uint32_t value = rpi_codec_option_get(codec, option);
    if (value < option->min || value > option->max) return false;
    return !is_bucket(option) || bucket_fits(codec, value);
}

const char *rpi_codec_fault(const rp_codec *codec, char text[RPI_CODEC_FAULT_BYTES]) {
    if (!codec || !codec->kind) return NULL;
    const rpi_codec_kind *kind = codec->kind;
    if (kind->bits_max && (codec->bits < kind->bits_min || codec->bits > kind->bits_max)) {
        snprintf(text, RPI_CODEC_FAULT_BYTES, "%d bits; %d to %d are allowed", codec->bits,
                 kind->bits_min, kind->bits_max);
        return text;
    }
    const rpi_codec_option *option;
    for (int i = 0; (option = rpi_codec_option_at(kind, i)) != NULL; i++) {
        if (is_in_range(codec, option)) continue;
        snprintf(text, RPI_CODEC_FAULT_BYTES, "%s is %u; %u to %u are allowed", option->name,
                 rpi_codec_option_get(codec, option), option->min,
                 rpi_codec_option_max(codec, option));
        return text;
    }
    return kind->conflict ? kind->conflict(codec) : NULL;
}

rp_codec rpi_codec_default(const rpi_codec_kind *kind, int bits) {
    rp_codec codec = {.kind = kind, .bits = (uint8_t)bits};
    const rpi_codec_option *option;
    for (int i = 0; (option = rpi_codec_option_at(kind, i)) != NULL; i++)
        rpi_codec_option_set(&codec, option, option->initial);
    return codec;
}

/* ---- in words ---- */

static void append(char *text, size_t bytes, const char *more) {
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s", more);
}

static void append_range(const rpi_codec_kind *kind, const rpi_codec_option *option, char *text,
                         size_t bytes) {
    char range[48];
    rp_codec codec = rpi_codec_default(kind, kind->bits_min);
    if (!option->words) {
        snprintf(range, sizeof range, "=%u (%u to %u)", option->initial, option->min,
                 rpi_codec_option_max(&codec, option));
        append(text, bytes, range);
        return;
    }
    append(text, bytes, "=");
    append(text, bytes, option->words[option->initial]);
    for (int i = 0; option->words[i]; i++) {
        append(text, bytes, i ? ", " : " (");
        append(text, bytes, option->words[i]);
    }
    append(text, bytes, ")");
}

const char *rpi_codec_options_text(const rpi_codec_kind *kind, char *text, size_t bytes) {
    const rpi_codec_option *option;
    text[0] = '\0';
    for (int i = 0; (option = rpi_codec_option_at(kind, i)) != NULL; i++) {
        if (i) append(text, bytes, "; ");
        append(text, bytes, option->name);
        append_range(kind, option, text, bytes);
        append(text, bytes, ": ");
        append(text, bytes, option->help);
    }
    return text;
}
