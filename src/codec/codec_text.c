/* Codecs as users write them: NAME[BITS][:option=value[,option=value]...] */
#include "codec/codec.h"

#include "base/status.h"
#include "base/suggest.h"
#include "base/units.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 64, WORD_BYTES = 48 };

static const char *const option_names[] = {"bucket", "rounding", NULL};
static const char *const rounding_names[] = {"nearest", "stochastic", NULL};

/* Every name there is, with its bits, to suggest from. */
typedef struct name_list {
    char names[NAMES_MAX][WORD_BYTES];
    int count;
} name_list;

static void list_names(name_list *list) {
    list->count = 0;
    const rpi_codec_kind *kind;
    for (int i = 0; (kind = rpi_codec_at(i)) != NULL; i++)
        for (int bits = kind->bits_min; bits <= kind->bits_max && list->count < NAMES_MAX;
             bits++) {
            char *name = list->names[list->count++];
            if (kind->bits_max)
                snprintf(name, WORD_BYTES, "%s%d", kind->name, bits);
            else
                snprintf(name, WORD_BYTES, "%s", kind->name);
        }
}

static const char *name_at(const void *context, int index) {
    const name_list *list = context;
    return index < list->count ? list->names[index] : NULL;
}

static const char *word_at(const void *context, int index) {
    return ((const char *const *)context)[index];
}

static rp_status fail_unknown(const char *word) {
    name_list list;
    char hint[96];
    list_names(&list);
    return RP_FAIL(INVALID, "codec '%s' is unknown; use fp32, bf16, fp16 or q1 to q8%s", word,
                   rpi_suggest_text(word, name_at, &list, hint, sizeof hint));
}

static int all_digits(const char *text) {
    for (; *text; text++)
        if (!isdigit((unsigned char)*text)) return 0;
    return 1;
}

/* "q4": the kind, its bits, and its other parameters as they are by default. */
static rp_status parse_name(const char *word, rp_codec *codec) {
    const rpi_codec_kind *kind;
    for (int i = 0; (kind = rpi_codec_at(i)) != NULL; i++) {
        size_t length = strlen(kind->name);
        const char *digits = word + length;
        if (strncmp(word, kind->name, length) != 0) continue;
        if (!kind->bits_max && *digits == '\0') break;
        if (!kind->bits_max || !*digits || !all_digits(digits)) continue;
        long bits = strlen(digits) < 4 ? strtol(digits, NULL, 10) : 9999;
        if (bits < kind->bits_min || bits > kind->bits_max)
            return RP_FAIL(INVALID, "codec '%s': %s bits; %d to %d are allowed", word, digits,
                           kind->bits_min, kind->bits_max);
        if (*digits == '0') continue; /* one spelling a codec: q04 is none */
        *codec = (rp_codec){kind, kind->default_bucket, (uint8_t)bits, RP_NEAREST};
        return RP_OK;
    }
    if (!kind) return fail_unknown(word);
    *codec = (rp_codec){kind, kind->default_bucket, 0, RP_NEAREST};
    return RP_OK;
}

static rp_status set_bucket(const char *value, rp_codec *codec) {
    int64_t count;
    RP_TRY(rpi_parse_count(value, &count));
    if (count < 1 || count > rpi_codec_bucket_max(codec))
        return RP_FAIL(
            INVALID,
            "bucket is %s; 1 to %u elements are allowed with %d bit%s (a bucket must "
            "fit one frame)",
            value, rpi_codec_bucket_max(codec), codec->bits, codec->bits == 1 ? "" : "s");
    codec->bucket = (uint32_t)count;
    return RP_OK;
}

static rp_status set_rounding(const char *value, rp_codec *codec) {
    for (int i = 0; rounding_names[i]; i++)
        if (strcmp(value, rounding_names[i]) == 0) {
            codec->rounding = (uint8_t)i;
            return RP_OK;
        }
    char hint[96];
    return RP_FAIL(INVALID, "rounding '%s' is unknown; use nearest or stochastic%s", value,
                   rpi_suggest_text(value, word_at, rounding_names, hint, sizeof hint));
}

static rp_status set_option(const char *name, const char *value, rp_codec *codec) {
    if (codec->kind->default_bucket && strcmp(name, "bucket") == 0)
        return set_bucket(value, codec);
    if (codec->kind->takes_rounding && strcmp(name, "rounding") == 0)
        return set_rounding(value, codec);
    if (!codec->kind->default_bucket && !codec->kind->takes_rounding)
        return RP_FAIL(INVALID, "codec %s takes no options, so not '%s'", codec->kind->name,
                       name);
    char hint[96];
    return RP_FAIL(INVALID, "codec option '%s' is unknown; use bucket or rounding%s", name,
                   rpi_suggest_text(name, word_at, option_names, hint, sizeof hint));
}

/* Copy the word up to one of `stops`; NULL when it is empty or does not fit. */
static const char *take_word(const char *text, const char *stops, char word[WORD_BYTES]) {
    size_t length = strcspn(text, stops);
    if (length == 0 || length >= WORD_BYTES) return NULL;
    memcpy(word, text, length);
    word[length] = '\0';
    return text + length;
}

/* Behind the name: ":option=value,option=value". Every option at most once. */
static rp_status parse_options(const char *text, const char *rest, rp_codec *codec) {
    char name[WORD_BYTES], value[WORD_BYTES];
    unsigned seen = 0;
    while (*rest) {
        rest = take_word(rest + 1, "=,:", name);
        if (!rest || *rest != '=')
            return RP_FAIL(INVALID, "codec '%s': write options as option=value", text);
        rest = take_word(rest + 1, ",", value);
        if (!rest) return RP_FAIL(INVALID, "codec '%s': option %s lacks a value", text, name);
        RP_TRY(set_option(name, value, codec));
        unsigned option = strcmp(name, option_names[0]) == 0 ? 1 : 2;
        if (seen & option)
            return RP_FAIL(INVALID, "codec '%s': option %s comes twice", text, name);
        seen |= option;
    }
    return RP_OK;
}

rp_status rp_codec_parse(const char *text, rp_codec *codec) {
    if (!text || !codec) return RP_FAIL(INVALID, "no codec text, or nowhere to put the codec");
    char word[WORD_BYTES];
    rp_codec parsed = {0};
    const char *rest = take_word(text, ":", word);
    if (!rest) return fail_unknown(text);
    rp_status status = parse_name(word, &parsed);
    if (!parsed.kind) return status;
    RP_TRY(parse_options(text, rest, &parsed));
    *codec = parsed;
    return RP_OK;
}

const char *rp_codec_text(const rp_codec *codec, char *text, size_t bytes) {
    if (!text) {
        (void)RP_FAIL(INVALID, "there is nowhere to put the text of a codec");
        return "";
    }
    const rpi_codec_kind *kind = rpi_codec_kind_of(codec);
    char bits[8] = "", bucket[24] = "";
    if (kind->bits_max) snprintf(bits, sizeof bits, "%d", codec->bits);
    if (kind->default_bucket) snprintf(bucket, sizeof bucket, ":bucket=%u", codec->bucket);
    int stochastic = kind->takes_rounding && codec->rounding == RP_STOCHASTIC;
    snprintf(text, bytes, "%s%s%s%s", kind->name, bits, bucket,
             stochastic ? ",rounding=stochastic" : "");
    return text;
}
