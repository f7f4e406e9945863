/* Runs of every kind of tensor over every grid of up to 16 ranks: together they cover each
 * element once, times its holders. */
#include "plan/shard.h"

#include "harness/check.h"

#include <stdlib.h>

enum { MOST_RANKS = 16, MOST_ELEMENTS = 4096 };

/* ---- the table: add a row ---- */

/* Each is tried over every grid whose tensor ranks can share it. Stages: the first ones of a
 * grid, -1 the last. */
static rpi_shard_record records[] = {
    {.name = "norm", .dims = 1, .shape = {16}},
    {.name = "row bias", .dims = 1, .shape = {16}, .shard = {.kind = RPI_SHARD_FIRST}},
    {.name = "column", .dims = 2, .shape = {16, 6}},
    {.name = "row", .dims = 2, .shape = {6, 16}},
    {.name = "uneven column", .dims = 2, .shape = {17, 3}},
    {.name = "middle", .dims = 3, .shape = {3, 16, 2}},
    {.name = "table", .dims = 2, .shape = {19, 4}, .last_stage = -1, .tie = "table"},
    {.name = "heads", .dims = 2, .shape = {16 * 3, 2}},
    {.name = "q k v", .dims = 2, .shape = {3 * 16 * 2, 3}},
    {.name = "q k v, grouped queries", .dims = 2, .shape = {(16 + 4 + 4) * 2, 3}},
    {.name = "q k v, one key head", .dims = 2, .shape = {(16 + 1 + 1) * 2, 3}},
    {.name = "q k v by key head", .dims = 2, .shape = {(16 + 4 + 4) * 2, 3}},
    {.name = "q k v of a row", .dims = 2, .shape = {3, (16 + 4 + 4) * 2}},
    {.name = "gate and up", .dims = 2, .shape = {2 * 16, 3}},
    {.name = "three parts", .dims = 1, .shape = {2 * 16 + 16 * 3 + 20}},
};
enum { RECORDS = sizeof records / sizeof records[0] };

static void make_records(void) {
    records[2].shard = rpi_shard_cut(0, 16);
    records[3].shard = rpi_shard_cut(1, 16);
    records[4].shard = rpi_shard_cut(0, 17);
    records[5].shard = rpi_shard_cut(1, 16);
    records[6].shard = rpi_shard_cut(0, 19);
    records[7].shard = rpi_shard_heads(0, 16, 3);
    records[8].shard = rpi_shard_qkv(0, 16, 16, 2, false);
    records[9].shard = rpi_shard_qkv(0, 16, 4, 2, false);
    records[10].shard = rpi_shard_qkv(0, 16, 1, 2, false);
    records[11].shard = rpi_shard_qkv(0, 16, 4, 2, true);
    records[12].shard = rpi_shard_qkv(1, 16, 4, 2, false);
    records[13].shard = rpi_shard_pair(0, 16);
    records[14].shard = rpi_shard_pair(0, 16);
    records[14].shard.sections = 3;
    records[14].shard.section[0].each = 2;
    records[14].shard.section[1].each = 3;
    records[14].shard.section[2] = (rpi_shard_section){20, 1};
}

/* ---- the check ---- */

typedef struct cover {
    int times[MOST_ELEMENTS];     /* held */
    int holders[MOST_ELEMENTS];   /* as runs say */
    int counted[MOST_ELEMENTS];   /* by holder 0 */
    uint64_t seen[MOST_ELEMENTS]; /* holders, by number */
} cover;

static int64_t elements_of(const rpi_shard_record *r) {
    int64_t count = 1;
    for (int d = 0; d < r->dims; d++) count *= r->shape[d];
    return count;
}

static void cover_run(cover *c, const rpi_shard_run *run, int64_t count) {
    CHECK(run->count > 0 && run->whole >= 0 && run->whole + run->count <= count);
    CHECK(run->holder >= 0 && run->holder < run->holders && run->holders <= 64);
    for (int64_t i = run->whole; i < run->whole + run->count && i < MOST_ELEMENTS; i++) {
        CHECK(c->times[i] == 0 || c->holders[i] == run->holders);
        c->times[i]++;
        c->holders[i] = run->holders;
        c->counted[i] += run->holder == 0;
        c->seen[i] |= (uint64_t)1 << run->holder;
    }
}

/* Runs lie one behind the other in a rank's memory, from `first` on; returns where they end. */
static int64_t cover_rank(cover *c, const rpi_shard_record *record, const rpi_grid *grid,
                          int rank, rpi_shard_replicas replicas) {
    rpi_shard_cursor cursor;
    rpi_shard_run run;
    CHECK_OK(rpi_shard_begin(record, grid, rank, replicas, &cursor));
    int64_t next = -1, held = 0, end = 0;
    while (rpi_shard_next(&cursor, &run)) {
        CHECK(next < 0 || run.local == next);
        if (next < 0 && replicas == RPI_REPLICAS_COPY) CHECK_EQ(run.local, 0);
        next = run.local + run.count;
        held += run.count;
        if (next > end) end = next;
        cover_run(c, &run, elements_of(record));
    }
    int tensor = grid->size[RPI_AXIS_TENSOR];
    int64_t all = rpi_shard_count(record, tensor, rank % tensor);
    CHECK(end <= all);
    if (replicas == RPI_REPLICAS_COPY) CHECK(held == 0 || held == all);
    return held;
}

static void prove(const rpi_shard_record *record, const rpi_grid *grid,
                  rpi_shard_replicas replicas) {
    static cover c;
    memset(&c, 0, sizeof c);
    int64_t count = elements_of(record), held = 0, times = 0;
    REQUIRE(count <= MOST_ELEMENTS);
    for (int rank = 0; rank < rpi_grid_world(grid); rank++)
        held += cover_rank(&c, record, grid, rank, replicas);
    for (int64_t i = 0; i < count; i++) {
        bool whole = c.times[i] > 0 && c.times[i] == c.holders[i] && c.counted[i] == 1 &&
                     c.seen[i] == (c.holders[i] == 64 ? ~(uint64_t)0
                                                      : ((uint64_t)1 << c.holders[i]) - 1);
        CHECK_MSG(whole, "%s over %d x %d x %d x %d: element %lld is held %d times by %d",
                  record->name, grid->size[0], grid->size[1], grid->size[2], grid->size[3],
                  (long long)i, c.times[i], c.holders[i]);
        times += c.times[i];
        if (!whole) return;
    }
    CHECK_EQ(times, held);
}

static int proved;

static void prove_grid(const rpi_grid *grid) {
    for (int r = 0; r < RECORDS; r++) {
        rpi_shard_record record = records[r];
        if (record.last_stage < 0) record.last_stage = grid->size[RPI_AXIS_STAGE] - 1;
        if (rpi_shard_check(&record, grid->size[RPI_AXIS_TENSOR]) != RP_OK) continue;
        for (int stage = 0; stage < grid->size[RPI_AXIS_STAGE]; stage++) {
            if (!record.tie) record.first_stage = record.last_stage = stage;
            prove(&record, grid, RPI_REPLICAS_COPY);
            prove(&record, grid, RPI_REPLICAS_SLICE);
            proved++;
        }
    }
}

static void every_element_is_covered_once_times_its_holders(void) {
    make_records();
    for (int t = 1; t <= MOST_RANKS; t++)
        for (int c = 1; c * t <= MOST_RANKS; c++)
            for (int d = 1; d * c * t <= MOST_RANKS; d++)
                for (int p = 1; p * d * c * t <= MOST_RANKS; p++) {
                    rpi_grid grid = {{t, c, d, p}};
                    prove_grid(&grid);
                }
    CHECK(proved > 5000);
}

/* ---- answers that are known ---- */

/* The rows that a tensor rank has, as text: "0 1 4 6". */
static const char *rows_of(const rpi_shard_record *record, int ranks, int rank) {
    static char text[256];
    rpi_grid grid = {{ranks, 1, 1, 1}};
    rpi_shard_cursor cursor;
    rpi_shard_run run;
    text[0] = '\0';
    CHECK_OK(rpi_shard_begin(record, &grid, rank, RPI_REPLICAS_COPY, &cursor));
    while (rpi_shard_next(&cursor, &run))
        for (int64_t i = 0; i < run.count; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld",
                     text[0] ? " " : "", (long long)(run.whole + i));
    return text;
}

static rpi_shard_record line(int64_t length, rpi_shard shard) {
    return (rpi_shard_record){.name = "line", .dims = 1, .shape = {length}, .shard = shard};
}

static void expect_rows(const rpi_shard_record *record, int ranks, const char *const wanted[]) {
    for (int rank = 0; rank < ranks; rank++) {
        const char *rows = rows_of(record, ranks, rank);
        CHECK_MSG(strcmp(rows, wanted[rank]) == 0, "rank %d has %s, not %s", rank, rows,
                  wanted[rank]);
    }
}

static void fused_tensors_are_cut_section_by_section(void) {
    /* q0 q1 q2 q3 k0 k1 v0 v1 */
    rpi_shard_record fused = line(8, rpi_shard_qkv(0, 4, 2, 1, false));
    expect_rows(&fused, 2, (const char *const[]){"0 1 4 6", "2 3 5 7"});
    /* q0 q1 k0 v0 q2 q3 k1 v1: a range of it is right */
    rpi_shard_record grouped = line(8, rpi_shard_qkv(0, 4, 2, 1, true));
    expect_rows(&grouped, 2, (const char *const[]){"0 1 2 3", "4 5 6 7"});
    expect_rows(&grouped, 4, (const char *const[]){"0 2 3", "1 2 3", "4 6 7", "5 6 7"});
    rpi_shard_record pair = line(8, rpi_shard_pair(0, 4));
    expect_rows(&pair, 2, (const char *const[]){"0 1 4 5", "2 3 6 7"});
}

/* 8 heads, 2 key heads, 4 ranks: ranks 0 and 1 hold key head 0, 2 and 3 the other; queries 2 r
 * and 2 r + 1. */
static void ranks_share_key_heads(void) {
    rpi_shard_record fused = line(12, rpi_shard_qkv(0, 8, 2, 1, false));
    expect_rows(&fused, 4,
                (const char *const[]){"0 1 8 10", "2 3 8 10", "4 5 9 11", "6 7 9 11"});
    rpi_grid grid = {{4, 1, 1, 1}};
    rpi_shard_cursor cursor;
    rpi_shard_run run;
    CHECK_OK(rpi_shard_begin(&fused, &grid, 3, RPI_REPLICAS_COPY, &cursor));
    CHECK(rpi_shard_next(&cursor, &run) && run.whole == 6 && run.count == 2 &&
          run.holders == 1);
    CHECK(rpi_shard_next(&cursor, &run) && run.whole == 9 && run.holders == 2 &&
          run.holder == 1);
}

/* Rank r has rows r V / t up to (r + 1) V / t. */
static void vocabularies_need_not_divide(void) {
    rpi_shard_record table = line(10, rpi_shard_cut(0, 10));
    expect_rows(&table, 4, (const char *const[]){"0 1", "2 3 4", "5 6", "7 8 9"});
    int64_t shape[RPI_SHARD_DIMS];
    rpi_shard_shape(&table, 4, 1, shape);
    CHECK_EQ(shape[0], 3);
    rpi_shard_record first = line(4, (rpi_shard){.kind = RPI_SHARD_FIRST});
    expect_rows(&first, 2, (const char *const[]){"0 1 2 3", ""});
}

/* What is whole is one run, however it is cut. */
static void alone_a_rank_has_one_run(void) {
    make_records();
    rpi_grid grid = {{1, 1, 1, 1}};
    for (int r = 0; r < RECORDS; r++) {
        rpi_shard_record record = records[r];
        record.last_stage = 0;
        rpi_shard_cursor cursor;
        rpi_shard_run run;
        CHECK_OK(rpi_shard_begin(&record, &grid, 0, RPI_REPLICAS_COPY, &cursor));
        CHECK(rpi_shard_next(&cursor, &run) && run.count == elements_of(&record));
        CHECK(!rpi_shard_next(&cursor, &run));
    }
}

/* Slices of a column's rows, over two replicas: local elements count on. */
static void slices_are_of_what_a_rank_has(void) {
    rpi_shard_record column = {
        .name = "column", .dims = 2, .shape = {4, 3}, .shard = rpi_shard_cut(0, 4)};
    rpi_grid grid = {{2, 1, 2, 1}};
    rpi_shard_cursor cursor;
    rpi_shard_run run;
    CHECK_OK(
        rpi_shard_begin(&column, &grid, 3, RPI_REPLICAS_SLICE, &cursor)); /* tensor 1, data 1 */
    CHECK(rpi_shard_next(&cursor, &run));
    CHECK(run.local == 3 && run.whole == 9 && run.count == 3 && run.holders == 1);
    CHECK(!rpi_shard_next(&cursor, &run));
    int64_t first, end;
    rpi_shard_slice(10, 4, 3, &first, &end);
    CHECK(first == 7 && end == 10);
}

static void what_cannot_be_is_refused(void) {
    rpi_shard_record r = line(8, rpi_shard_cut(0, 9));
    CHECK_FAILS(rpi_shard_check(&r, 2), INVALID,
                "sections are 9 long along axis 0, and that is 8");
    r = line(8, rpi_shard_cut(1, 8));
    CHECK_FAILS(rpi_shard_check(&r, 2), INVALID, "no cut along axis 1");
    r = line(0, rpi_shard_cut(0, 8));
    CHECK_FAILS(rpi_shard_check(&r, 2), INVALID, "a dimension of 0");
    r = line(10, rpi_shard_qkv(0, 6, 2, 1, false));
    CHECK_FAILS(rpi_shard_check(&r, 3), INVALID,
                "2 units of section 1 are too few for 3 ranks");
    r = line(18, rpi_shard_qkv(0, 12, 3, 1, true));
    CHECK_FAILS(rpi_shard_check(&r, 2), INVALID,
                "3 groups divide over 2 tensor ranks neither way");
    CHECK_OK(rpi_shard_check(&r, 6));
    CHECK_FAILS(rpi_shard_check(&r, 0), INVALID, "0 tensor ranks");
    r.dims = 9;
    CHECK_FAILS(rpi_shard_check(&r, 1), INVALID, "9 dimensions");
}

CASES({"every element is covered once times its holders",
       every_element_is_covered_once_times_its_holders},
      {"fused tensors are cut section by section", fused_tensors_are_cut_section_by_section},
      {"ranks share key heads", ranks_share_key_heads},
      {"vocabularies need not divide", vocabularies_need_not_divide},
      {"alone a rank has one run", alone_a_rank_has_one_run},
      {"slices are of what a rank has", slices_are_of_what_a_rank_has},
      {"what cannot be is refused", what_cannot_be_is_refused})
