/* Ranks and places of grids, their groups, and which layouts a model can have. */
#include "plan/grid.h"

#include "harness/check.h"

enum { MOST_RANKS = 16 };

static rpi_grid grid_of(int tensor, int context, int data, int stage) {
    return (rpi_grid){{tensor, context, data, stage}};
}

/* Every grid of up to MOST_RANKS ranks. */
static void each_grid(void (*look)(const rpi_grid *grid)) {
    for (int t = 1; t <= MOST_RANKS; t++)
        for (int c = 1; c * t <= MOST_RANKS; c++)
            for (int d = 1; d * c * t <= MOST_RANKS; d++)
                for (int p = 1; p * d * c * t <= MOST_RANKS; p++) {
                    rpi_grid grid = grid_of(t, c, d, p);
                    look(&grid);
                }
}

/* ---- places ---- */

/* rank = ((stage D + data) c + context) t + tensor */
static void look_at_places(const rpi_grid *grid) {
    const int *size = grid->size;
    for (int rank = 0; rank < rpi_grid_world(grid); rank++) {
        rpi_grid_place place = rpi_grid_place_of(grid, rank);
        const int *at = place.at;
        CHECK_EQ(((at[RPI_AXIS_STAGE] * size[RPI_AXIS_DATA] + at[RPI_AXIS_DATA]) *
                      size[RPI_AXIS_CONTEXT] +
                  at[RPI_AXIS_CONTEXT]) *
                         size[RPI_AXIS_TENSOR] +
                     at[RPI_AXIS_TENSOR],
                 rank);
        CHECK_EQ(rpi_grid_rank(grid, &place), rank);
        for (int a = 0; a < RPI_AXES; a++) CHECK(at[a] >= 0 && at[a] < size[a]);
    }
    CHECK_OK(rpi_grid_check(grid, rpi_grid_world(grid)));
}

static void ranks_are_places(void) {
    each_grid(look_at_places);
}

static void places_have_names(void) {
    char text[RPI_GRID_TEXT];
    rpi_grid grid = grid_of(2, 1, 2, 2);
    CHECK(strcmp(rpi_grid_text(&grid, 7, text), "rank 7, stage 1, tensor 1 of replica 1") == 0);
    grid = grid_of(1, 1, 8, 1);
    CHECK(strcmp(rpi_grid_text(&grid, 5, text), "rank 5 of replica 5") == 0);
    grid = grid_of(2, 2, 1, 1);
    CHECK(strcmp(rpi_grid_text(&grid, 1, text), "rank 1, tensor 1, context 0") == 0);
    for (int a = 0; a < RPI_AXES; a++) CHECK(rpi_grid_axis_name((rpi_grid_axis)a) != NULL);
    CHECK(rpi_grid_axis_name(RPI_AXES) == NULL);
}

/* ---- groups ---- */

/* Every rank is in one group, whose members differ from it along these axes alone. */
static void look_at_group(const rpi_grid *grid, unsigned axes) {
    int count = rpi_grid_group_count(grid, axes), size = rpi_grid_group_size(grid, axes);
    int seen[MOST_RANKS] = {0}, lowest = -1;
    CHECK_EQ(count * size, rpi_grid_world(grid));
    for (int g = 0; g < count; g++) {
        int first = rpi_grid_group_rank(grid, axes, g, 0), before = -1;
        CHECK(first > lowest); /* groups by their lowest ranks */
        lowest = first;
        for (int m = 0; m < size; m++) {
            int rank = rpi_grid_group_rank(grid, axes, g, m);
            rpi_grid_place a = rpi_grid_place_of(grid, first),
                           b = rpi_grid_place_of(grid, rank);
            CHECK(rank > before);
            before = rank;
            seen[rank]++;
            CHECK_EQ(rpi_grid_group_of(grid, axes, rank), g);
            CHECK_EQ(rpi_grid_member_of(grid, axes, rank), m);
            for (int axis = 0; axis < RPI_AXES; axis++)
                CHECK((axes & 1u << axis) || a.at[axis] == b.at[axis]);
        }
    }
    for (int rank = 0; rank < rpi_grid_world(grid); rank++) CHECK_EQ(seen[rank], 1);
}

static void look_at_groups(const rpi_grid *grid) {
    for (unsigned axes = 0; axes < 1u << RPI_AXES; axes++) look_at_group(grid, axes);
}

static void groups_hold_every_rank_once(void) {
    each_grid(look_at_groups);
}

/* The catalogue, in the order in which communicators are made. */
static void groups_are_those_of_a_training(void) {
    rpi_grid grid = grid_of(2, 1, 2, 2);
    static const struct {
        const char *name;
        int members[4]; /* of the group of rank 5; -1: no more */
    } wanted[] = {
        {"tensor", {4, 5, -1}}, {"context", {5, -1}},     {"data", {5, 7, -1}},
        {"stage", {1, 5, -1}},  {"replicas", {5, 7, -1}}, {"model", {0, 1, 4, 5}},
    };
    const rpi_grid_group *group;
    int count = 0;
    for (; (group = rpi_grid_group_at(count)) != NULL; count++) {
        REQUIRE(count < 6);
        CHECK(strcmp(group->name, wanted[count].name) == 0);
        int g = rpi_grid_group_of(&grid, group->axes, 5);
        int size = rpi_grid_group_size(&grid, group->axes);
        for (int m = 0; m < size; m++)
            CHECK_EQ(rpi_grid_group_rank(&grid, group->axes, g, m), wanted[count].members[m]);
        CHECK(size == 4 || wanted[count].members[size] == -1);
    }
    CHECK_EQ(count, 6);
}

static void ties_join_two_stages(void) {
    rpi_grid grid = grid_of(2, 1, 2, 4); /* 4 ranks a stage */
    int ranks[2];
    CHECK_EQ(rpi_grid_tied(&grid, 3, 0, 3, ranks), 2);
    CHECK(ranks[0] == 3 && ranks[1] == 15);
    CHECK_EQ(rpi_grid_tied(&grid, 15, 0, 3, ranks), 2);
    CHECK(ranks[0] == 3 && ranks[1] == 15);
    CHECK_EQ(rpi_grid_tied(&grid, 5, 0, 3, ranks), 0);
    CHECK_EQ(rpi_grid_tied(&grid, 1, 0, 0, ranks), 1);
    CHECK_EQ(ranks[0], 1);
}

/* ---- refusals ---- */

static void a_wrong_world_is_refused(void) {
    rpi_grid grid = grid_of(2, 1, 3, 2);
    CHECK_FAILS(rpi_grid_check(&grid, 8), INVALID,
                "tensor 2 x context 1 x data 3 x stage 2 is 12 ranks, and there are 8; data 2 "
                "would fit");
    CHECK_FAILS(rpi_grid_check(&grid, 10), INVALID, "12 ranks would, or another multiple of 4");
    CHECK_FAILS(rpi_grid_check(&grid, 2), INVALID, "another multiple of 4");
    grid = grid_of(0, 1, 1, 1);
    CHECK_FAILS(rpi_grid_check(&grid, 1), INVALID, "0 ranks along tensor");
    grid = grid_of(1 << 16, 1 << 16, 1, 1);
    CHECK_FAILS(rpi_grid_check(&grid, 1), INVALID, "more than 1048576 ranks");
    grid = grid_of(1 << 30, 1 << 30, 1 << 30, 1 << 30);
    CHECK_FAILS(rpi_grid_check(&grid, 1), INVALID, "more than 1048576 ranks");
}

/* ---- the table: add a row ---- */

static const rpi_grid_model gpt2 = {.heads = 12,
                                    .inner = 3072,
                                    .layers = 12,
                                    .vocabulary = 50304,
                                    .sequence = 1024,
                                    .causal = true};
static const rpi_grid_model llama = {.heads = 32,
                                     .key_heads = 8,
                                     .inner = 14336,
                                     .layers = 32,
                                     .vocabulary = 128256,
                                     .sequence = 8192,
                                     .causal = true};
static const rpi_grid_model raw = {.heads = 12, .vocabulary = 50257, .layers = 12};
static const rpi_grid_model odd = {.heads = 12, .key_heads = 3, .layers = 2};
static const rpi_grid_model narrow = {.heads = 8, .inner = 100};
static const rpi_grid_model uneven = {.heads = 8, .key_heads = 3};
static const rpi_grid_model shared = {
    .heads = 8, .sequence = 100, .causal = true, .sequence_parallel = true};

static const struct {
    const rpi_grid_model *model;
    rpi_grid grid;
    int chunks;
    const char *refusal; /* NULL: it fits */
} layouts[] = {
    {&gpt2, {{1, 1, 1, 1}}, 1, NULL},
    {&gpt2, {{4, 1, 2, 12}}, 1, NULL},
    {&gpt2, {{2, 1, 1, 6}}, 2, NULL},
    {&gpt2,
     {{5, 1, 1, 1}},
     1,
     "12 heads do not divide over 5 tensor ranks; tensor 1, 2, 3, 4, 6 or 12 would fit"},
    {&gpt2, {{8, 1, 1, 1}}, 1, "12 heads do not divide over 8"},
    {&gpt2, {{1, 1, 1, 13}}, 1, "12 layers are too few for 13 stages; 12 stages would fit"},
    {&gpt2,
     {{1, 1, 1, 7}},
     2,
     "12 layers are too few for 7 stages of 2 chunks; 6 stages would fit"},
    {&gpt2, {{1, 1, 1, 1}}, 13, "12 chunks on one stage would fit"},
    {&gpt2,
     {{1, 3, 1, 1}},
     1,
     "1024 tokens does not divide into 6 pieces (context 3, two each); 1026 tokens would"},
    {&gpt2, {{1, 4, 1, 1}}, 1, NULL},
    {&llama, {{16, 1, 1, 1}}, 1, NULL}, /* two ranks share a key head */
    {&llama, {{8, 2, 3, 4}}, 2, NULL},
    {&llama,
     {{3, 1, 1, 1}},
     1,
     "32 heads do not divide over 3 tensor ranks; tensor 1, 2, 4, 8, 16 or 32"},
    {&raw,
     {{2, 1, 1, 1}},
     1,
     "a vocabulary of 50257 does not divide over 2 tensor ranks; padded to 50258 it would, or "
     "tensor 1 would fit"},
    {&odd,
     {{2, 1, 1, 1}},
     1,
     "3 key heads divide over 2 tensor ranks neither way; tensor 1, 3, 6 or 12 would fit"},
    {&odd, {{6, 1, 1, 2}}, 1, NULL},
    {&narrow, {{4, 1, 1, 1}}, 1, NULL},
    {&narrow,
     {{8, 1, 1, 1}},
     1,
     "an inner width of 100 does not divide over 8 tensor ranks; tensor 1, 2 or 4 would fit"},
    {&uneven, {{1, 1, 1, 1}}, 1, "8 heads do not divide over 3 key heads"},
    {&gpt2, {{1, 1, 1, 0}}, 1, "0 ranks along stage"},
    {&gpt2, {{1, 1, 1, 1}}, 0, "0 chunks a stage"},
    {&shared,
     {{8, 1, 1, 1}},
     1,
     "100 tokens does not divide into 8 pieces (context 1, shared by tensor ranks); 104"},
    {&shared, {{4, 1, 1, 1}}, 1, NULL},
};

static void layouts_fit_or_say_what_would(void) {
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        rp_status status = rpi_grid_fits(&layouts[i].grid, layouts[i].chunks, layouts[i].model);
        const char *refusal = layouts[i].refusal;
        if (!refusal)
            CHECK_MSG(status == RP_OK, "row %zu: %s", i, rp_last_error()->message);
        else
            CHECK_MSG(status == RP_INVALID && strstr(rp_last_error()->message, refusal),
                      "row %zu: '%s', not '%s'", i, rp_last_error()->message, refusal);
    }
}

CASES({"ranks are places", ranks_are_places}, {"places have names", places_have_names},
      {"groups hold every rank once", groups_hold_every_rank_once},
      {"groups are those of a training", groups_are_those_of_a_training},
      {"ties join two stages", ties_join_two_stages},
      {"a wrong world is refused", a_wrong_world_is_refused},
      {"layouts fit or say what would", layouts_fit_or_say_what_would})
