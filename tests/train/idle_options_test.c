/* Options that change nothing among the ranks that there are are noted, each once, and those
 * that do, or say what happens anyway, are not. */
#include "harness/check.h"
#include "train/idle_options.h"

#include <stdio.h>
#include <string.h>

/* Add a row: options, the ranks, and the lines that are noted. */
typedef struct idle_test_row {
    rpi_train_options options;
    rpi_idle_layout layout;
    const char *lines;
} idle_test_row;

#define ONE                                                                                    \
    { 1, 1, 1, 1, false, true }
#define REPLICAS                                                                               \
    { 1, 1, 1, 2, false, true }
#define TENSOR                                                                                 \
    { 1, 2, 2, 1, false, true }
#define STAGED                                                                                 \
    { 2, 1, 2, 1, false, true }
#define CONTEXT                                                                                \
    { 1, 1, 2, 2, false, true }
#define GRID                                                                                   \
    { 2, 2, 4, 2, false, true }
#define TWO_HOSTS                                                                              \
    { 1, 1, 1, 4, true, true }
#define NEIGHBOURS                                                                             \
    { 1, 1, 1, 2, false, false }

static const idle_test_row tests[] = {
    {{0}, ONE, ""},
    /* What happens anyway. */
    {{.codec = "fp32", .schedule = "1f1b", .weights_codec = "fp32", .stage_cut = ""}, ONE, ""},
    /* What there is nobody to share or sum with, */
    {{.zero = 1},
     ONE,
     "--zero 1 changes nothing: no other rank holds the same parameters (-n 2)\n"},
    {{.zero = 2},
     TENSOR,
     "--zero 2 changes nothing: no other rank holds the same parameters (-n 4)\n"},
    {{.zero = 3, .host_shards = true},
     ONE,
     "--zero 3 and --host-shards change nothing: no other rank holds the same parameters (-n "
     "2)\n"},
    {{.codec = "q4"},
     ONE,
     "--codec q4 changes nothing: no other rank holds the same parameters (-n 2)\n"},
    {{.codec = "auto"},
     STAGED,
     "--codec auto changes nothing: no other rank holds the same parameters (-n 4)\n"},
    {{.zero = 1,
      .codec = "q4:bucket=1024",
      .weights_codec = "q8",
      .algorithm = "ring",
      .warmup_exact = 5},
     ONE,
     "--zero 1, --codec q4:bucket=1024, --weights-codec q8, --algorithm ring and "
     "--warmup-exact 5 change nothing: "
     "no other rank holds the same parameters (-n 2)\n"},
    /* and where there is. */
    {{.zero = 1, .codec = "q4", .weights_codec = "q8", .algorithm = "ring", .warmup_exact = 5},
     REPLICAS,
     ""},
    {{.zero = 3, .codec = "q4"}, CONTEXT, ""},
    {{.zero = 3, .codec = "q4"}, GRID, ""},
    {{.zero = 3, .host_shards = true}, TWO_HOSTS, ""},
    {{.zero = 3, .host_shards = true},
     REPLICAS,
     "--host-shards changes nothing: it takes several hosts with several ranks of one layout "
     "each\n"},
    {{.codec = "fp32", .warmup_exact = 5},
     REPLICAS,
     "--warmup-exact 5 changes nothing: gradients travel exact (--codec q4)\n"},
    {{.algorithm = "ring"},
     NEIGHBOURS,
     "--algorithm ring changes nothing: the strategy makes no all-reduce (--strategy "
     "all-reduce)\n"},
    {{.codec = "q4"}, NEIGHBOURS, ""},
    {{.algorithm = "ring"},
     {1, 1, 1, 1, false, false},
     "--algorithm ring changes nothing: no other rank holds the same parameters (-n 2)\n"},
    /* What is of axes. */
    {{.schedule = "zb-h1"},
     REPLICAS,
     "--schedule zb-h1 changes nothing: the model is one stage (--pp 2)\n"},
    {{.schedule = "auto", .stage_cut = "h.1"},
     TENSOR,
     "--schedule auto and --stage-cut h.1 change nothing: the model is one stage (--pp 2)\n"},
    {{.schedule = "zb-h1", .stage_cut = "h.1"}, STAGED, ""},
    {{.sequence_parallel = true},
     STAGED,
     "--sequence-parallel changes nothing: no ranks share a layer (--tp 2)\n"},
    {{.sequence_parallel = true}, GRID, ""},
    {{.zero = 1, .schedule = "afab", .sequence_parallel = true},
     ONE,
     "--zero 1 changes nothing: no other rank holds the same parameters (-n 2)\n"
     "--schedule afab changes nothing: the model is one stage (--pp 2)\n"
     "--sequence-parallel changes nothing: no ranks share a layer (--tp 2)\n"},
};

static void add(void *context, const char *line) {
    char *lines = context;
    size_t used = strlen(lines);
    snprintf(lines + used, 2048 - used, "%s\n", line);
}

static void what_changes_nothing_is_noted(void) {
    for (int i = 0; i < (int)(sizeof tests / sizeof tests[0]); i++) {
        char lines[2048] = "";
        rpi_idle_options_tell(&tests[i].options, &tests[i].layout, add, lines);
        CHECK_MSG(strcmp(lines, tests[i].lines) == 0, "row %d: '%s', not '%s'", i, lines,
                  tests[i].lines);
    }
}

CASES({"what changes nothing is noted", what_changes_nothing_is_noted})
