#include "redpoll/adaptive.h"

#include "base/status.h"
#include "base/units.h"

#include <stdio.h>
#include <string.h>

enum { EVERY = 100, EVERY_MOST = 1000000 };
#define LIKE "q4" /* of auto alone */

static rp_status set_every(const char *value, int64_t *out_every) {
    RP_TRY(rpi_parse_count(value, out_every));
    if (*out_every >= 1 && *out_every <= EVERY_MOST) return RP_OK;
    return RP_FAIL(INVALID, "every is %s; 1 to %d steps are allowed", value, EVERY_MOST);
}

/* One word between commas: every's and like's own, all others are options of like's codec. */
static rp_status take_option(char *word, char like[RP_ADAPTIVE_TEXT], int64_t *every) {
    if (strncmp(word, "every=", 6) == 0) return set_every(word + 6, every);
    size_t used = strlen(like), left = RP_ADAPTIVE_TEXT - used;
    int length;
    if (strcmp(word, "like=") == 0)
        return RP_FAIL(INVALID,
                       "codec 'auto': whose error may it have? Write auto:like=q4 (q1 to q8)");
    if (strncmp(word, "like=", 5) == 0)
        length = snprintf(like, RP_ADAPTIVE_TEXT, "%s", word + 5);
    else if (!used)
        return RP_FAIL(INVALID,
                       "codec 'auto': '%s' comes before like=; write auto:like=q4,every=100",
                       word);
    else
        length = snprintf(like + used, left, "%c%s", strchr(like, ':') ? ',' : ':', word);
    if (length >= 0 && (size_t)length < left) return RP_OK;
    return RP_FAIL(INVALID, "codec 'auto': '%s' is too long", word);
}

static rp_status parse_auto(const char *options, rp_adaptive_codec *out) {
    char words[2 * RP_ADAPTIVE_TEXT], like[RP_ADAPTIVE_TEXT] = "", *rest = NULL;
    rp_adaptive_codec parsed = {.every = EVERY};
    if (strlen(options) >= sizeof words)
        return RP_FAIL(INVALID, "codec 'auto': '%s' is too long", options);
    snprintf(words, sizeof words, "%s", options);
    for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        RP_TRY(take_option(word, like, &parsed.every));
    parsed.fastest = !like[0];
    RP_TRY(rp_codec_parse(like[0] ? like : LIKE, &parsed.codec));
    rp_codec lowest;
    RP_TRY(rp_level_codec(&parsed.codec, 0, &lowest)); /* are there bits to choose? */
    *out = parsed;
    return RP_OK;
}

rp_status rp_adaptive_codec_parse(const char *text, rp_adaptive_codec *out_codec) {
    if (text && out_codec && strncmp(text, "auto", 4) == 0 && (!text[4] || text[4] == ':'))
        return parse_auto(text[4] ? text + 5 : "", out_codec);
    rp_adaptive_codec parsed = {0};
    if (!out_codec) return RP_FAIL(INVALID, "there is nowhere to put the codec");
    RP_TRY(rp_codec_parse(text, &parsed.codec));
    *out_codec = parsed;
    return RP_OK;
}

const char *rp_adaptive_codec_text(const rp_adaptive_codec *codec,
                                   char text[RP_ADAPTIVE_TEXT]) {
    char like[64];
    if (!text) {
        (void)RP_FAIL(INVALID, "there is nowhere to put the text");
        return "";
    }
    rp_codec_text(codec ? &codec->codec : NULL, like, sizeof like);
    if (codec && codec->fastest)
        snprintf(text, RP_ADAPTIVE_TEXT, "auto:every=%lld", (long long)codec->every);
    else if (codec && codec->every)
        snprintf(text, RP_ADAPTIVE_TEXT, "auto:like=%s,every=%lld", like,
                 (long long)codec->every);
    else
        snprintf(text, RP_ADAPTIVE_TEXT, "%s", like);
    return text;
}
