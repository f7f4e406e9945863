/* Orders beside such as are known, and what is refused. */
#include "plan/pipelines/pipeline_orders.h"

#include "base/append.h"
#include "base/memory.h"
#include "harness/check.h"

#include <ctype.h>

/* ---- the table: add a row ---- */

/* Four stages and eight micro-batches, two chunks where there are several. F: forward, D: a
 * whole backward pass, B and W: its halves, of a micro-batch; a and b are chunks, or capital
 * letters the first one and small ones the second. */
static const struct {
    const char *kind;
    int stage;
    const char *order;
} known[] = {
    {"1f1b", 0, "F0 F1 F2 F3 D0 F4 D1 F5 D2 F6 D3 F7 D4 D5 D6 D7"},
    {"1f1b", 1, "F0 F1 F2 D0 F3 D1 F4 D2 F5 D3 F6 D4 F7 D5 D6 D7"},
    {"1f1b", 2, "F0 F1 D0 F2 D1 F3 D2 F4 D3 F5 D4 F6 D5 F7 D6 D7"},
    {"1f1b", 3, "F0 D0 F1 D1 F2 D2 F3 D3 F4 D4 F5 D5 F6 D6 F7 D7"},
    {"interleaved", 0,
     "F0a F1a F2a F3a F0b F1b F2b F3b F4a F5a F6a D0b F7a D1b F4b D2b F5b D3b F6b "
     "D0a F7b D1a D2a D3a D4b D5b D6b D7b D4a D5a D6a D7a"},
    {"interleaved", 1,
     "F0a F1a F2a F3a F0b F1b F2b F3b F4a D0b F5a D1b F6a D2b F7a D3b F4b D0a F5b "
     "D1a F6b D2a F7b D3a D4b D5b D6b D7b D4a D5a D6a D7a"},
    {"interleaved", 2,
     "F0a F1a F2a F3a F0b F1b F2b D0b F3b D1b F4a D2b F5a D3b F6a D0a F7a D1a F4b "
     "D2a F5b D3a F6b D4b F7b D5b D6b D7b D4a D5a D6a D7a"},
    {"interleaved", 3,
     "F0a F1a F2a F3a F0b D0b F1b D1b F2b D2b F3b D3b F4a D0a F5a D1a F6a D2a F7a "
     "D3a F4b D4b F5b D5b F6b D6b F7b D7b D4a D5a D6a D7a"},
    {"zb-h1", 0, "F0 F1 F2 F3 B0 W0 F4 B1 W1 F5 B2 W2 F6 B3 W3 F7 B4 W4 B5 W5 B6 W6 B7 W7"},
    {"zb-h1", 1, "F0 F1 F2 B0 F3 B1 W0 F4 B2 W1 F5 B3 W2 F6 B4 W3 F7 B5 W4 B6 W5 B7 W6 W7"},
    {"zb-h1", 2, "F0 F1 B0 F2 B1 F3 B2 W0 F4 B3 W1 F5 B4 W2 F6 B5 W3 F7 B6 W4 B7 W5 W6 W7"},
    {"zb-h1", 3, "F0 B0 F1 B1 F2 B2 F3 B3 W0 F4 B4 W1 F5 B5 W2 F6 B6 W3 F7 B7 W4 W5 W6 W7"},
    {"zb-h2", 0, "F0 F1 F2 F3 F4 F5 F6 B0 W0 F7 B1 W1 B2 W2 B3 W3 B4 W4 B5 W5 B6 W6 B7 W7"},
    {"zb-h2", 1, "F0 F1 F2 F3 F4 B0 F5 B1 F6 B2 W0 F7 B3 W1 B4 W2 B5 W3 B6 W4 B7 W5 W6 W7"},
    {"zb-h2", 2, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 W0 F7 B5 W1 B6 W2 B7 W3 W4 W5 W6 W7"},
    {"zb-h2", 3, "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 W0 F7 B7 W1 W2 W3 W4 W5 W6 W7"},
    {"zb-v", 0,
     "F0 F1 F2 F3 F4 F5 F6 f0 b0 w0 f1 b1 w1 f2 b2 w2 f3 b3 w3 F7 B0 W0 f4 b4 w4 B1 "
     "W1 f5 b5 w5 B2 W2 f6 b6 w6 B3 W3 f7 b7 w7 B4 W4 B5 W5 B6 W6 B7 W7"},
    {"zb-v", 1,
     "F0 F1 F2 F3 F4 f0 F5 f1 b0 w0 f2 b1 w1 f3 b2 w2 F6 B0 W0 f4 b3 w3 F7 B1 W1 f5 "
     "b4 w4 B2 W2 f6 b5 w5 B3 W3 f7 b6 w6 B4 b7 B5 W4 B6 W5 B7 W6 w7 W7"},
    {"zb-v", 2,
     "F0 F1 F2 f0 F3 f1 F4 f2 b0 w0 f3 b1 w1 F5 B0 W0 f4 b2 w2 F6 B1 W1 f5 b3 w3 F7 "
     "B2 W2 f6 b4 w4 B3 W3 f7 b5 w5 B4 b6 B5 b7 B6 W4 B7 W5 w6 w7 W6 W7"},
    {"zb-v", 3,
     "F0 f0 F1 f1 F2 f2 F3 f3 b0 w0 F4 B0 W0 f4 b1 w1 F5 B1 W1 f5 b2 w2 F6 B2 W2 f6 "
     "b3 w3 F7 B3 W3 f7 b4 w4 B4 b5 B5 b6 B6 b7 B7 W4 w5 w6 w7 W5 W6 W7"},
};
enum { KNOWN = sizeof known / sizeof known[0] };

static void build(const char *name, int stages, int micro_batches, int chunks,
                  rpi_pipeline_orders *out) {
    const rpi_pipeline_kind *kind;
    rpi_pipeline_shape shape;
    memset(out, 0, sizeof *out);
    REQUIRE_OK(rpi_pipeline_kind_find(name, &kind));
    REQUIRE_OK(rpi_pipeline_shape_make(kind, stages, micro_batches, chunks, &shape));
    REQUIRE_OK(rpi_pipeline_orders_build(kind, &shape, out));
}

static void append_pass(const rpi_pipeline_orders *o, int pass, char *text, size_t bytes) {
    char name[RPI_PASS_TEXT];
    rpi_pass_text(&o->passes[pass], o->shape.chunks, name);
    if (o->kind->turns) {
        if (o->passes[pass].chunk) name[0] = (char)tolower(name[0]);
        name[strlen(name) - 1] = '\0'; /* the letter of the chunk */
    }
    rpi_append(text, bytes, "%s%s", text[0] ? " " : "", name);
}

static void orders_are_those_that_are_known(void) {
    for (int i = 0; i < KNOWN; i++) {
        rpi_pipeline_orders o;
        char text[1024] = "";
        build(known[i].kind, 4, 8, 0, &o);
        REQUIRE(o.each > 0);
        for (int k = 0; k < o.each; k++)
            append_pass(&o, known[i].stage * o.each + k, text, sizeof text);
        CHECK_MSG(strcmp(text, known[i].order) == 0, "%s, stage %d:\n%s\nnot\n%s",
                  known[i].kind, known[i].stage, text, known[i].order);
        rpi_pipeline_orders_destroy(&o);
    }
}

/* Groups of 3 micro-batches and 2 stages leave 2 of 5: enough for the stages. */
static void groups_are_as_wide_as_they_have_to_be(void) {
    static const struct {
        int stages, micro_batches;
        const char *first; /* forward passes of the last stage, in order */
    } rows[] = {
        {3, 5, "F0a F1a F2a F3a F4a F0b F1b F2b F3b F4b"}, /* 3 would leave 2, and 4 one */
        {2, 5, "F0a F1a F2a F0b F1b F2b F3a F4a F3b F4b"}, /* 2 would leave one */
        {2, 4, "F0a F1a F0b F1b F2a F3a F2b F3b"},
        {4, 2, "F0a F1a F0b F1b"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_pipeline_orders o;
        char text[256] = "";
        build("interleaved", rows[i].stages, rows[i].micro_batches, 2, &o);
        for (int k = 0; k < o.each; k++) {
            int pass = (rows[i].stages - 1) * o.each + k;
            if (o.passes[pass].kind == RPI_PASS_FORWARD)
                append_pass(&o, pass, text, sizeof text);
        }
        CHECK_MSG(strcmp(text, rows[i].first) == 0, "%s, not %s", text, rows[i].first);
        rpi_pipeline_orders_destroy(&o);
    }
}

/* ---- who waits for whom ---- */

static int find(const rpi_pipeline_orders *o, int stage, const char *wanted) {
    char text[RPI_PASS_TEXT];
    for (int k = 0; k < o->each; k++)
        if (strcmp(rpi_pass_text(&o->passes[stage * o->each + k], o->shape.chunks, text),
                   wanted) == 0)
            return stage * o->each + k;
    return -2;
}

static void passes_wait_for_their_neighbours(void) {
    rpi_pipeline_orders o;
    build("1f1b", 4, 8, 0, &o);
    CHECK_EQ(rpi_pipeline_input(&o, find(&o, 0, "F3")), -1);
    CHECK_EQ(rpi_pipeline_input(&o, find(&o, 2, "F3")), find(&o, 1, "F3"));
    CHECK_EQ(rpi_pipeline_input(&o, find(&o, 2, "D3")), find(&o, 3, "D3"));
    CHECK_EQ(rpi_pipeline_input(&o, find(&o, 3, "D3")), find(&o, 3, "F3"));
    CHECK_EQ(rpi_pipeline_receiver(&o, find(&o, 3, "F3")), -1);
    CHECK_EQ(rpi_pipeline_receiver(&o, find(&o, 0, "D3")), -1);
    CHECK_EQ(rpi_pipeline_receiver(&o, find(&o, 1, "D3")), find(&o, 0, "D3"));
    rpi_pipeline_orders_destroy(&o);

    build("interleaved", 4, 8, 2, &o); /* from the last stage to the first one again */
    CHECK_EQ(rpi_pipeline_input(&o, find(&o, 0, "F3b")), find(&o, 3, "F3a"));
    CHECK_EQ(rpi_pipeline_receiver(&o, find(&o, 0, "D3b")), find(&o, 3, "D3a"));
    rpi_pipeline_orders_destroy(&o);

    build("zb-v", 4, 8, 0, &o); /* where the V turns, nothing is sent */
    CHECK_EQ(rpi_pipeline_input(&o, find(&o, 3, "F3b")), find(&o, 3, "F3a"));
    CHECK_EQ(rpi_pipeline_receiver(&o, find(&o, 3, "F3a")), -1);
    CHECK_EQ(rpi_pipeline_receiver(&o, find(&o, 3, "F3b")), find(&o, 2, "F3b"));
    CHECK_EQ(rpi_pipeline_input(&o, find(&o, 0, "B3b")), find(&o, 0, "F3b"));
    CHECK_EQ(rpi_pipeline_input(&o, find(&o, 1, "B3b")), find(&o, 0, "B3b"));
    CHECK_EQ(rpi_pipeline_input(&o, find(&o, 1, "W3b")), find(&o, 1, "B3b"));
    CHECK_EQ(rpi_pipeline_receiver(&o, find(&o, 1, "W3b")), -1);
    rpi_pipeline_orders_destroy(&o);
}

/* ---- what cannot be ---- */

static rp_status shape_of(const char *name, int64_t stages, int64_t micro_batches,
                          int64_t chunks) {
    const rpi_pipeline_kind *kind;
    rpi_pipeline_shape shape;
    RP_TRY(rpi_pipeline_kind_find(name, &kind));
    return rpi_pipeline_shape_make(kind, stages, micro_batches, chunks, &shape);
}

static void refusals_say_what_can_be(void) {
    CHECK_FAILS(shape_of("gpipe", 4, 8, 0), INVALID, "there are afab, 1f1b");
    CHECK_FAILS(shape_of("zb-h", 4, 8, 0), INVALID, "did you mean 'zb-h");
    CHECK_FAILS(shape_of("1f1b", 0, 8, 0), INVALID, "0 stages in a pipeline; 1 to 1024");
    CHECK_FAILS(shape_of("1f1b", 1025, 8, 0), INVALID, "1 to 1024");
    CHECK_FAILS(shape_of("1f1b", 4, 0, 0), INVALID, "0 micro-batches");
    CHECK_FAILS(shape_of("1f1b", 4, 8, 2), INVALID, "1f1b has 1 chunk a stage, not 2");
    CHECK_FAILS(shape_of("zb-v", 4, 8, 3), INVALID, "zb-v has 2 chunks a stage, not 3");
    CHECK_FAILS(shape_of("interleaved", 4, 8, 1), INVALID, "1 chunk a stage in interleaved");
    CHECK_FAILS(shape_of("interleaved", 4, 8, 65), INVALID, "2 to 64");
    CHECK_FAILS(shape_of("zb-h1", 1024, 65536, 0), INVALID, "at most 1365 micro-batches");
    CHECK_OK(shape_of("zb-h1", 1024, 1365, 0));
    CHECK_OK(shape_of("interleaved", 1, 1, 64));
}

static void names_of_passes_fit(void) {
    char text[RPI_PASS_TEXT];
    rpi_pipeline_pass pass = {RPI_PASS_INPUTS, 63, RPI_PIPELINE_MICRO_BATCHES - 1};
    CHECK(strcmp(rpi_pass_text(&pass, 64, text), "B65535/63") == 0);
    pass.chunk = 25;
    CHECK(strcmp(rpi_pass_text(&pass, 64, text), "B65535z") == 0);
    CHECK(strcmp(rpi_pass_text(&pass, 1, text), "B65535") == 0);
}

/* Lack of memory leaves nothing behind. */
static void memory_may_be_short(void) {
    rpi_pipeline_shape shape = {4, 8, 1};
    for (long n = 1;; n++) {
        rpi_pipeline_orders o;
        rpi_memory_fail_after(n);
        rp_status status = rpi_pipeline_orders_build(rpi_pipeline_kind_at(0), &shape, &o);
        rpi_memory_fail_after(0);
        rpi_pipeline_orders_destroy(&o);
        if (status == RP_OK) break;
        CHECK_EQ(status, RP_NOMEM);
        REQUIRE(n < 10);
    }
}

CASES({"orders are those that are known", orders_are_those_that_are_known},
      {"groups are as wide as they have to be", groups_are_as_wide_as_they_have_to_be},
      {"passes wait for their neighbours", passes_wait_for_their_neighbours},
      {"refusals say what can be", refusals_say_what_can_be},
      {"names of passes fit", names_of_passes_fit},
      {"memory may be short", memory_may_be_short})
