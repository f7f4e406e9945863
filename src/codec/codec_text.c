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

/* The next kind from *index on, of all or of those that send each element; NULL: none. */
static const rpi_codec_kind *next_kind(bool dense, int *index) {
    const rpi_codec_kind *kind = rpi_codec_at(*index);
    while (kind && dense && kind->sparse) kind = rpi_codec_at(++*index);
    return kind;
}

/* Every such name there is, with its bits, to suggest from. */
typedef struct name_list {
    char names[NAMES_MAX][WORD_BYTES];
    int count;
} name_list;

static void list_names(bool dense, name_list *list) {
    list->count = 0;
    const rpi_codec_kind *kind;
    for (int i = 0; (kind = next_kind(dense, &i)) != NULL; i++)
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

/* "fp32, bf16, fp16, q1 to q8, topk, randk or sign" */
static const char *kinds_text(bool dense, char *text, size_t bytes) {
    const rpi_codec_kind *kind;
    size_t used = 0;
    int index = 0;
    text[0] = '\0';
    while ((kind = next_kind(dense, &index)) != NULL && used < bytes) {
        index++;
        const char *join = !used ? "" : next_kind(dense, &index) ? ", " : " or ";
        int more = kind->bits_max
                       ? snprintf(text + used, bytes - used, "%s%s%d to %s%d", join, kind->name,
                                  kind->bits_min, kind->name, kind->bits_max)
                       : snprintf(text + used, bytes - used, "%s%s", join, kind->name);
        used += (size_t)more;
    }
    return text;
}

static rp_status fail_unknown(const char *word, bool dense) {
    name_list list;
    char hint[96], kinds[160];
    list_names(dense, &list);
    return RP_FAIL(INVALID, "codec '%s' is unknown; use %s%s", word,
                   kinds_text(dense, kinds, sizeof kinds),
                   rpi_suggest_text(word, name_at, &list, hint, sizeof hint));
}

static int all_digits(const char *text) {
    for (; *text; text++)
        if (!isdigit((unsigned char)*text)) return 0;
    return 1;
}

/* "q4": the kind, its bits, and its other parameters as they are by default. */
static rp_status parse_name(const char *word, bool dense, rp_codec *codec) {
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
        *codec = rpi_codec_default(kind, (int)bits);
        return RP_OK;
    }
    if (!kind) return fail_unknown(word, dense);
    *codec = rpi_codec_default(kind, 0);
    return RP_OK;
}

/* A bucket's limit is that of a frame, where that is less than the option's own. */
static rp_status set_number(const rpi_codec_option *option, const char *value,
                            rp_codec *codec) {
    int64_t number;
    char bits[24] = "";
    RP_TRY(rpi_parse_count(value, &number));
    uint32_t most = rpi_codec_option_max(codec, option);
    if (codec->bits)
        snprintf(bits, sizeof bits, " with %d bit%s", codec->bits, codec->bits == 1 ? "" : "s");
    if (number < option->min || number > most)
        return RP_FAIL(INVALID, "%s is %s; %u to %u %sare allowed%s%s", option->name, value,
                       option->min, most, option->unit, bits,
                       most < option->max ? " (a bucket must fit one frame)" : "");
    rpi_codec_option_set(codec, option, (uint32_t)number);
    return RP_OK;
}

/* "a, b or c" */
static const char *list_text(rpi_name_at at, const void *context, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    const char *word;
    for (int i = 0; (word = at(context, i)) != NULL && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                 !i                   ? ""
                                 : at(context, i + 1) ? ", "
                                                      : " or ",
                                 word);
    return text;
}

static rp_status set_word(const rpi_codec_option *option, const char *value, rp_codec *codec) {
    for (uint32_t i = 0; option->words[i]; i++)
        if (strcmp(value, option->words[i]) == 0) {
            rpi_codec_option_set(codec, option, i);
            return RP_OK;
        }
    char hint[96], words[160];
    return RP_FAIL(INVALID, "%s '%s' is unknown; use %s%s", option->name, value,
                   list_text(word_at, option->words, words, sizeof words),
                   rpi_suggest_text(value, word_at, option->words, hint, sizeof hint));
}

static const char *option_name_at(const void *context, int index) {
    const rpi_codec_option *option = rpi_codec_option_at(context, index);
    return option ? option->name : NULL;
}

static rp_status set_option(const char *name, const char *value, rp_codec *codec) {
    const rpi_codec_kind *kind = codec->kind;
    const rpi_codec_option *option = rpi_codec_option_find(kind, name);
    if (option)
        return option->words ? set_word(option, value, codec)
                             : set_number(option, value, codec);
    if (!kind->options)
        return RP_FAIL(INVALID, "codec %s takes no options, so not '%s'", kind->name, name);
    char hint[96], names[96];
    return RP_FAIL(INVALID, "codec option '%s' is unknown; use %s%s", name,
                   list_text(option_name_at, kind, names, sizeof names),
                   rpi_suggest_text(name, option_name_at, kind, hint, sizeof hint));
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
        bool empty = rest[1] == '\0' || rest[1] == ',';
        rest = take_word(rest + 1, ",", value);
        if (!rest)
            return RP_FAIL(INVALID, "codec '%s': option %s %s", text, name,
                           empty ? "lacks a value" : "has too long a value");
        RP_TRY(set_option(name, value, codec));
        unsigned option =
            1u << (rpi_codec_option_find(codec->kind, name) - codec->kind->options);
        if (seen & option)
            return RP_FAIL(INVALID, "codec '%s': option %s comes twice", text, name);
        seen |= option;
    }
    char fault[RPI_CODEC_FAULT_BYTES];
    const char *why = rpi_codec_fault(codec, fault);
    return why ? RP_FAIL(INVALID, "codec '%s': %s", text, why) : RP_OK;
}

static rp_status parse(const char *text, bool dense, rp_codec *codec) {
    if (!text || !codec) return RP_FAIL(INVALID, "no codec text, or nowhere to put the codec");
    char word[WORD_BYTES];
    rp_codec parsed = {0};
    const char *rest = take_word(text, ":", word);
    if (!rest) return fail_unknown(text, dense);
    rp_status status = parse_name(word, dense, &parsed);
    if (!parsed.kind) return status;
    RP_TRY(parse_options(text, rest, &parsed));
    *codec = parsed;
    return RP_OK;
}

rp_status rp_codec_parse(const char *text, rp_codec *codec) {
    return parse(text, false, codec);
}

rp_status rpi_codec_parse_dense(const char *text, rp_codec *codec) {
    return parse(text, true, codec);
}

/* Numbers always, words where they are not the default. A frame's header does not carry them
 * all: what it lacks is below the least that is allowed. */
static bool is_written(const rp_codec *codec, const rpi_codec_option *option) {
    uint32_t value = rpi_codec_option_get(codec, option);
    if (!option->words) return value >= option->min;
    return value <= option->max && value != option->initial;
}

const char *rp_codec_text(const rp_codec *codec, char *text, size_t bytes) {
    if (!text) {
        (void)RP_FAIL(INVALID, "there is nowhere to put the text of a codec");
        return "";
    }
    const rpi_codec_kind *kind = rpi_codec_kind_of(codec);
    const rpi_codec_option *option;
    char bits[8] = "";
    if (kind->bits_max) snprintf(bits, sizeof bits, "%d", codec->bits);
    int length = snprintf(text, bytes, "%s%s", kind->name, bits);
    size_t used = (size_t)length;
    char join = ':';
    for (int i = 0; (option = rpi_codec_option_at(kind, i)) != NULL && used < bytes; i++) {
        if (!is_written(codec, option)) continue;
        uint32_t value = rpi_codec_option_get(codec, option);
        length = option->words ? snprintf(text + used, bytes - used, "%c%s=%s", join,
                                          option->name, option->words[value])
                               : snprintf(text + used, bytes - used, "%c%s=%u", join,
                                          option->name, value);
        used += (size_t)length;
        join = ',';
    }
    return text;
}
