/* What is written behind --codec where bits may be chosen for each tensor. */
#include "redpoll/adaptive.h"

#include "harness/check.h"

#include <stdio.h>
#include <string.h>

static void texts_are_read_and_written(void) {
    static const struct {
        const char *text, *canonical;
        int64_t every;
    } known[] = {
        {"q4", "q4:bucket=512", 0},
        {"auto", "auto:every=100", 100},
        {"auto:", "auto:every=100", 100},
        {"auto:every=5", "auto:every=5", 5},
        {"auto:like=q4", "auto:like=q4:bucket=512,every=100", 100},
        {"auto:like=q3,every=7", "auto:like=q3:bucket=512,every=7", 7},
        {"auto:every=1,like=q8", "auto:like=q8:bucket=512,every=1", 1},
        {"auto:like=q4,every=1000000", "auto:like=q4:bucket=512,every=1000000", 1000000},
        {"auto:like=q4:bucket=64,every=50", "auto:like=q4:bucket=64,every=50", 50},
        {"auto:like=q4,bucket=64,rounding=stochastic",
         "auto:like=q4:bucket=64,rounding=stochastic,every=100", 100},
        {"auto:like=q5,rounding=stochastic,every=2,bucket=8",
         "auto:like=q5:bucket=8,rounding=stochastic,every=2", 2},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rp_adaptive_codec codec, back;
        char text[RP_ADAPTIVE_TEXT];
        REQUIRE_OK(rp_adaptive_codec_parse(known[i].text, &codec));
        CHECK_EQ(codec.every, known[i].every);
        CHECK_EQ(codec.fastest, strncmp(known[i].canonical, "auto:every=", 11) == 0);
        CHECK_MSG(strcmp(rp_adaptive_codec_text(&codec, text), known[i].canonical) == 0,
                  "'%s' became '%s'", known[i].text, text);
        CHECK_OK(rp_adaptive_codec_parse(text, &back));
        CHECK(back.every == codec.every && back.codec.bits == codec.codec.bits &&
              back.codec.bucket == codec.codec.bucket &&
              back.codec.rounding == codec.codec.rounding);
    }
}

static void wrong_texts_say_what_is_wrong(void) {
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {"auto:like=", "Write auto:like=q4"},
        {"auto:every=", "whole number"},
        {"auto:every=5,bucket=64", "comes before like="},
        {"auto:like=q9", "1 to 8 are allowed"},
        {"auto:like=bf16", "no bits to choose"},
        {"auto:like=topk", "no bits to choose"},
        {"auto:like=v4", "no bits to choose"},
        {"auto:like=q4,every=0", "1 to 1000000 steps"},
        {"auto:like=q4,every=1000001", "1 to 1000000 steps"},
        {"auto:like=q4,every=often", "whole number"},
        {"auto:like=q4,buckets=5", "did you mean 'bucket'?"},
        {"auto:bucket=5,like=q4", "comes before like="},
        {"automatic", "unknown"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rp_adaptive_codec codec = {.every = -7};
        CHECK_FAILS(rp_adaptive_codec_parse(wrong[i].text, &codec), INVALID, wrong[i].words);
        CHECK_EQ(codec.every, -7); /* set on success only */
    }
}

/* Zeros before a number make a text as long as is wanted. */
static rp_status parse_with_zeros(const char *before, int zeros, const char *behind,
                                  rp_adaptive_codec *codec) {
    char text[400];
    snprintf(text, sizeof text, "%s%0*d%s", before, zeros, 0, behind);
    return rp_adaptive_codec_parse(text, codec);
}

/* What fits into the room that a text has is read, one byte more is refused. */
static void long_texts_fit_or_are_refused(void) {
    rp_adaptive_codec codec;
    int like = RP_ADAPTIVE_TEXT - 1 - (int)strlen("q4:bucket=64");
    int all = 2 * RP_ADAPTIVE_TEXT - 1 - (int)strlen("like=q4,every=9");
    static const char *const ways[] = {"auto:like=q4:bucket=", "auto:like=q4,bucket="};
    for (int way = 0; way < 2; way++) { /* which the codec finds too long */
        CHECK_FAILS(parse_with_zeros(ways[way], like, "64", &codec), INVALID,
                    "option bucket has too long a value");
        CHECK_FAILS(parse_with_zeros(ways[way], like + 1, "64", &codec), INVALID,
                    "codec 'auto': ");
    }
    CHECK_OK(parse_with_zeros("auto:like=q4,every=", all, "9", &codec));
    CHECK_EQ(codec.every, 9);
    CHECK_FAILS(parse_with_zeros("auto:like=q4,every=", all + 1, "9", &codec), INVALID,
                "is too long");
}

CASES({"texts_are_read_and_written", texts_are_read_and_written},
      {"wrong_texts_say_what_is_wrong", wrong_texts_say_what_is_wrong},
      {"long_texts_fit_or_are_refused", long_texts_fit_or_are_refused})
