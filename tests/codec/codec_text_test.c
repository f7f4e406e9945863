#include "codec_cases.h"

static void texts_parse_to_what_they_say(void) {
    static const struct {
        const char *text, *canonical;
    } known[] = {
        {"fp32", "fp32"},
        {"bf16", "bf16"},
        {"fp16", "fp16"},
        {"q1", "q1:bucket=512"},
        {"q8", "q8:bucket=512"},
        {"q4:bucket=1024", "q4:bucket=1024"},
        {"q4:bucket=1", "q4:bucket=1"},
        {"q4:bucket=524272", "q4:bucket=524272"},
        {"q1:bucket=2097088", "q1:bucket=2097088"},
        {"q8:bucket=262136", "q8:bucket=262136"},
        {"q4:rounding=nearest", "q4:bucket=512"},
        {"q4:rounding=stochastic", "q4:bucket=512,rounding=stochastic"},
        {"q3:bucket=100,rounding=stochastic", "q3:bucket=100,rounding=stochastic"},
        {"topk", "topk:k=32,bucket=4096"},
        {"topk:bucket=64,k=7", "topk:k=7,bucket=64"},
        {"randk:values=bf16,k=1K", "randk:k=1024,bucket=4096"},
        {"randk:values=q4", "randk:k=32,bucket=4096,values=q4"},
        {"sign", "sign:bucket=512"},
        {"v4", "v4:bucket=16384"},
        {"v2:quarters=3,rounding=stochastic", "v2:bucket=16384,rounding=stochastic,quarters=3"},
        {"q3:rounding=stochastic,bucket=1K", "q3:bucket=1024,rounding=stochastic"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rp_codec codec;
        char text[64];
        REQUIRE_OK(rp_codec_parse(known[i].text, &codec));
        CHECK_MSG(strcmp(rp_codec_text(&codec, text, sizeof text), known[i].canonical) == 0,
                  "'%s' became '%s'", known[i].text, text);
    }
}

static void every_codec_reads_its_own_text_back(void) {
    rp_codec codecs[CODEC_CASES_MAX];
    int count = codec_cases(codecs, CODEC_CASES_MAX);
    for (int i = 0; i < count; i++) {
        char text[64];
        rp_codec back = {0};
        CHECK_OK(rp_codec_parse(rp_codec_text(&codecs[i], text, sizeof text), &back));
        CHECK_MSG(back.kind == codecs[i].kind && back.bits == codecs[i].bits &&
                      back.bucket == codecs[i].bucket && back.rounding == codecs[i].rounding,
                  "%s came back as another codec", text);
        CHECK_EQ(rpi_codec_by_wire_id(back.kind->wire_id) == back.kind, 1);
    }
    CHECK(rpi_codec_by_wire_id(0) == NULL);
    CHECK(rpi_codec_at(-1) == NULL);
}

static void wrong_texts_say_what_is_wrong(void) {
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"", "codec '' is unknown"},
        {"q4:bucket=", "option bucket lacks a value"},
        {"q4:bucket=,rounding=nearest", "option bucket lacks a value"},
        {"q4:bucket=0000000000000000000000000000000000000000000000000000000000000064",
         "option bucket has too long a value"},
        {"fp23", "did you mean 'fp32'?"},
        {"fp", "use fp32, bf16, fp16, q1 to q8, topk, randk, sign or v1 to v8"},
        {"bf61", "did you mean 'bf16'?"},
        {"fp61", "did you mean 'fp16'?"},
        {"Q4", "did you mean 'q4'?"},
        {"q", "is unknown"},
        {"q4x", "did you mean 'q4'?"},
        {"q04", "is unknown"},
        {"q-1", "is unknown"},
        {"zstd", "is unknown"},
        {"q0", "0 bits; 1 to 8 are allowed"},
        {"q9", "9 bits; 1 to 8 are allowed"},
        {"q99999999999999999999", "1 to 8 are allowed"},
        {"q4:", "write options as option=value"},
        {"q4:bucket", "write options as option=value"},
        {"q4:bucket=", "bucket lacks a value"},
        {"q4:bucket=512,", "write options as option=value"},
        {"q4:bucket=512:rounding=nearest", "not a whole number"},
        {"q4:bucket=512 ", "not a whole number"},
        {"q4:bucket=0", "bucket is 0; 1 to 524272 elements are allowed with 4 bits"},
        {"q4:bucket=-5", "bucket is -5; 1 to 524272"},
        {"q4:bucket=524273", "bucket is 524273; 1 to 524272"},
        {"q8:bucket=262137", "bucket is 262137; 1 to 262136"},
        {"q1:bucket=2097089",
         "bucket is 2097089; 1 to 2097088 elements are allowed with 1 bit ("},
        {"q4:bucket=1.5", "not a whole number"},
        {"q4:bucket=1,bucket=2", "option bucket comes twice"},
        {"q4:bucket=1,rounding=nearest,rounding=nearest", "option rounding comes twice"},
        {"q4:buckets=512", "did you mean 'bucket'?"},
        {"q4:rounding=stochastik", "did you mean 'stochastic'?"},
        {"q4:rounding=", "rounding lacks a value"},
        {"fp32:bucket=512", "takes no options"},
        {"bf16:", "write options as option=value"},
        {"topk:k=0", "k is 0; 1 to 1024 elements are allowed"},
        {"topk:k=33,bucket=32", "k is more than the bucket's elements"},
        {"randk:bucket=8193", "bucket is 8193; 1 to 8192 elements are allowed"},
        {"randk:values=q9", "values 'q9' is unknown; use bf16, fp16, fp32, q2, "},
        {"topk:rounding=nearest", "use k, bucket or values"},
        {"topk4", "is unknown"},
        {"v4:quarters=4", "use 0, 1, 2 or 3"},
        {"v1:rounding=stochastic", "v1 rounds to nearest alone"},
        {"q4:k=3", "codec option 'k' is unknown; use bucket or rounding"},
        {"q4:rounding=up", "rounding 'up' is unknown; use nearest or stochastic"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rp_codec codec = {.bits = 77};
        rp_status status = rp_codec_parse(wrong[i].text, &codec);
        CHECK_MSG(status == RP_INVALID, "'%s' gives %s", wrong[i].text, rp_status_name(status));
        CHECK_MSG(strstr(rp_last_error()->message, wrong[i].message) != NULL,
                  "'%s' gives the message '%s'", wrong[i].text, rp_last_error()->message);
        CHECK_EQ(codec.bits, 77);
    }
    rp_codec codec;
    CHECK_FAILS(rp_codec_parse(NULL, &codec), INVALID, "no codec text");
    CHECK_FAILS(rp_codec_parse("q4", NULL), INVALID, "nowhere");
}

static void a_small_buffer_gets_a_cut_text(void) {
    rp_codec codec;
    char text[6];
    REQUIRE_OK(rp_codec_parse("q4", &codec));
    CHECK(strcmp(rp_codec_text(&codec, text, sizeof text), "q4:bu") == 0);
    rp_codec zeros = {0};
    CHECK(strcmp(rp_codec_text(&zeros, text, sizeof text), "fp32") == 0);
}

/* What a kind says of its options is what parsing allows, and the default what it gives. */
static void options_are_what_they_say(void) {
    const rpi_codec_kind *kind;
    const rpi_codec_option *option;
    for (int k = 0; (kind = rpi_codec_at(k)) != NULL; k++)
        for (int i = 0; (option = rpi_codec_option_at(kind, i)) != NULL; i++) {
            rp_codec codec = rpi_codec_default(kind, kind->bits_min);
            char why[RPI_CODEC_FAULT_BYTES], text[512];
            CHECK(rpi_codec_fault(&codec, why) == NULL);
            CHECK_EQ(rpi_codec_option_get(&codec, option), option->initial);
            CHECK(rpi_codec_option_find(kind, option->name) == option);
            CHECK(strstr(rpi_codec_options_text(kind, text, sizeof text), option->name));
            CHECK(strstr(text, option->help));
            uint32_t most = rpi_codec_option_max(&codec, option);
            rpi_codec_option_set(&codec, option, most + 1);
            CHECK_MSG(rpi_codec_fault(&codec, why) && strstr(why, option->name), "%s: %s",
                      option->name, why);
            CHECK_EQ(rp_codec_encoded_bytes(&codec, RP_F32, 8), 0);
        }
    char text[512];
    rp_codec q4;
    REQUIRE_OK(rp_codec_parse("q4", &q4));
    CHECK(strcmp(rpi_codec_options_text(q4.kind, text, sizeof text),
                 "bucket=512 (1 to 2097088): elements that share a scale; rounding=nearest "
                 "(nearest, stochastic): of levels; stochastic is unbiased") == 0);
}

CASES({"texts_parse_to_what_they_say", texts_parse_to_what_they_say},
      {"every_codec_reads_its_own_text_back", every_codec_reads_its_own_text_back},
      {"wrong_texts_say_what_is_wrong", wrong_texts_say_what_is_wrong},
      {"options_are_what_they_say", options_are_what_they_say},
      {"a_small_buffer_gets_a_cut_text", a_small_buffer_gets_a_cut_text})
