/* What links cost: read, written, and the same on all ranks. */
#include "comm/world/link_costs.h"

#include "harness/check.h"
#include "plan/choose.h"

#include <string.h>

static void texts_are_read_and_written(void) {
    static const struct {
        const char *text, *canonical;
        double rate, latency_s, inside_rate, inside_latency_s;
    } known[] = {
        {"1Gbit,50us/5GB,2us", "1Gbit,50us/40Gbit,2us", 1.25e8, 50e-6, 5e9, 2e-6},
        {"117MB,31us/4.1GB,1800ns", "936Mbit,31us/32.8Gbit,1.8us", 1.17e8, 31e-6, 4.1e9,
         1.8e-6},
        {"10Gbit/20Gbit", "10Gbit/20Gbit", 1.25e9, 0, 2.5e9, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        rpi_cost_model model;
        char text[RPI_LINK_COSTS_TEXT];
        REQUIRE_OK(rpi_link_costs_parse(known[i].text, &model));
        CHECK_NEAR(model.bytes_per_s, known[i].rate, 1);
        CHECK_NEAR(model.latency_s, known[i].latency_s, 1e-12);
        CHECK_NEAR(model.inside_bytes_per_s, known[i].inside_rate, 1);
        CHECK_NEAR(model.inside_latency_s, known[i].inside_latency_s, 1e-12);
        CHECK(model.encode_bytes_s == rpi_nominal_links.encode_bytes_s);
        CHECK_MSG(strcmp(rpi_link_costs_text(&model, text), known[i].canonical) == 0,
                  "'%s' became '%s'", known[i].text, text);
        CHECK_OK(rpi_link_costs_parse(text, &model));
    }
}

static void check_same(const rpi_cost_model *a, const rpi_cost_model *b) {
    char texts[2][RPI_LINK_COSTS_TEXT];
    CHECK(strcmp(rpi_link_costs_text(a, texts[0]), rpi_link_costs_text(b, texts[1])) == 0);
    CHECK(a->bytes_per_s == b->bytes_per_s && a->latency_s == b->latency_s);
    CHECK(a->frame_s == b->frame_s && a->inside_frame_s == b->inside_frame_s);
}

static void nothing_said_is_nominal(void) {
    static const char *const texts[] = {NULL, ""};
    for (int i = 0; i < 2; i++) {
        rpi_cost_model model;
        REQUIRE_OK(rpi_link_costs_parse(texts[i], &model));
        check_same(&model, &rpi_nominal_links);
    }
}

static void wrong_texts_are_refused(void) {
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {"1Gbit,50us", "write BETWEEN/INSIDE as 'redpoll bench link' does"},
        {"1Gbit,50us/", "is not a link"},
        {"/1Gbit", "is not a link"},
        {"1Gbit,50us/5GB,2us/1GB", "2us/1GB"},
        {"1Gbit,0000000000000000000000000000000000050us/5GB,2us", "too long"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        rpi_cost_model model = {.frame_s = -7};
        CHECK_FAILS(rpi_link_costs_parse(wrong[i].text, &model), INVALID, wrong[i].words);
        CHECK(model.frame_s == -7); /* set on success only */
    }
}

static void rank_0_decides(void) {
    rp_store store;
    rpi_cost_model first, second;
    rp_memory memory = RP_MEMORY_HOST;
    REQUIRE_OK(rp_store_open_local(&store));
    CHECK_EQ(rpi_link_costs_agree(&store, "a", 1, 0.01, NULL, NULL, &memory, &second),
             RP_TIMEOUT);
    REQUIRE_OK(
        rpi_link_costs_agree(&store, "a", 0, 1, NULL, "1Gbit,50us/5GB,2us", &memory, &first));
    REQUIRE_OK(
        rpi_link_costs_agree(&store, "a", 1, 1, NULL, "9Gbit,1us/1GB,1us", &memory, &second));
    check_same(&first, &second);
    CHECK_EQ(second.cores, first.cores);
    CHECK(first.cores > 0);
    CHECK_NEAR(first.latency_s, 50e-6, 1e-12);
    REQUIRE_OK(rpi_link_costs_agree(&store, "b", 0, 1, NULL, NULL, &memory, &first));
    REQUIRE_OK(
        rpi_link_costs_agree(&store, "b", 1, 1, NULL, "9Gbit,1us/1GB,1us", &memory, &second));
    check_same(&second, &rpi_nominal_links);
    memory = RP_MEMORY_CUDA;
    REQUIRE_OK(rpi_link_costs_agree(&store, "m", 0, 1, NULL, NULL, &memory, &first));
    memory = RP_MEMORY_HOST;
    REQUIRE_OK(rpi_link_costs_agree(&store, "m", 1, 1, NULL, NULL, &memory, &second));
    CHECK_EQ(memory, RP_MEMORY_CUDA);
    char noise[200];
    memset(noise, 'x', sizeof noise);
    REQUIRE_OK(store.ops->set(store.context, "c", noise, sizeof noise));
    CHECK_FAILS(rpi_link_costs_agree(&store, "c", 1, 1, NULL, NULL, &memory, &second), CORRUPT,
                "200 bytes");
    static const char *const wrong[] = {
        "",      "1Gbit,50us/5GB,2us",  "-1 0 ", "x 0 ", "99999999 0 ", "2 ", "2 2 ",
        "2 -1 ", "2 1Gbit,50us/5GB,2us"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        REQUIRE_OK(store.ops->set(store.context, "d", wrong[i], strlen(wrong[i])));
        CHECK_FAILS(rpi_link_costs_agree(&store, "d", 1, 1, NULL, NULL, &memory, &second),
                    CORRUPT, "no cores, memory and links");
    }
    rp_store_close(&store);
}

CASES({"texts_are_read_and_written", texts_are_read_and_written},
      {"nothing_said_is_nominal", nothing_said_is_nominal},
      {"wrong_texts_are_refused", wrong_texts_are_refused}, {"rank_0_decides", rank_0_decides})
