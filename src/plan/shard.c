#include "plan/shard.h"

#include "base/status.h"

/* ---- records ---- */

rpi_shard rpi_shard_heads(int axis, int64_t heads, int64_t each) {
    return (rpi_shard){.kind = RPI_SHARD_CUT,
                       .axis = axis,
                       .repeats = 1,
                       .sections = 1,
                       .section = {{heads, each}}};
}

rpi_shard rpi_shard_cut(int axis, int64_t length) {
    return rpi_shard_heads(axis, length, 1);
}

rpi_shard rpi_shard_pair(int axis, int64_t length) {
    rpi_shard shard = rpi_shard_heads(axis, length, 1);
    shard.sections = 2;
    shard.section[1] = shard.section[0];
    return shard;
}

rpi_shard rpi_shard_qkv(int axis, int64_t heads, int64_t key_heads, int64_t each,
                        bool grouped) {
    int64_t repeats = grouped ? key_heads : 1;
    rpi_shard shard = rpi_shard_heads(axis, heads / repeats, each);
    shard.repeats = repeats;
    shard.sections = 3;
    shard.section[1] = shard.section[2] = (rpi_shard_section){key_heads / repeats, each};
    return shard;
}

/* ---- the arithmetic of a cut ---- */

static int64_t length_of(const rpi_shard *s) {
    int64_t length = 0;
    for (int i = 0; i < s->sections; i++) length += s->section[i].units * s->section[i].each;
    return length;
}

static int64_t floor_share(int64_t units, int64_t at, int64_t ranks) {
    return units / ranks * at + units % ranks * at / ranks;
}

/* Ranks that share one repeat: all but where there are fewer repeats than ranks. */
static int64_t sharers_of(const rpi_shard *s, int ranks) {
    return s->repeats >= ranks ? 1 : ranks / s->repeats;
}

typedef struct span {
    int64_t first, end;
} span;

static span repeats_of(const rpi_shard *s, int ranks, int rank) {
    if (s->repeats < ranks) {
        int64_t repeat = rank / sharers_of(s, ranks);
        return (span){repeat, repeat + 1};
    }
    return (span){floor_share(s->repeats, rank, ranks),
                  floor_share(s->repeats, rank + 1, ranks)};
}

static span units_of(const rpi_shard_section *section, int64_t sharers, int64_t sharer) {
    if (section->units < sharers) {
        int64_t unit = sharer / (sharers / section->units);
        return (span){unit, unit + 1};
    }
    return (span){floor_share(section->units, sharer, sharers),
                  floor_share(section->units, sharer + 1, sharers)};
}

/* Along the axis. */
static int64_t local_length(const rpi_shard *s, int ranks, int rank) {
    span repeats = repeats_of(s, ranks, rank);
    int64_t sharers = sharers_of(s, ranks), length = 0;
    for (int i = 0; i < s->sections; i++) {
        span units = units_of(&s->section[i], sharers, rank % sharers);
        length += (units.end - units.first) * s->section[i].each;
    }
    return length * (repeats.end - repeats.first);
}

static int64_t elements_of(const int64_t *shape, int from, int to) {
    int64_t count = 1;
    for (int d = from; d < to; d++) count *= shape[d];
    return count;
}

/* ---- checks ---- */

static rp_status check_shape(const rpi_shard_record *r) {
    if (r->dims < 1 || r->dims > RPI_SHARD_DIMS)
        return RP_FAIL(INVALID, "%s has %d dimensions; 1 to %d are allowed", r->name, r->dims,
                       RPI_SHARD_DIMS);
    int64_t count = 1;
    for (int d = 0; d < r->dims; d++)
        if (r->shape[d] < 1 || __builtin_mul_overflow(count, r->shape[d], &count))
            return RP_FAIL(INVALID, "%s: a dimension of %lld elements", r->name,
                           (long long)r->shape[d]);
    return RP_OK;
}

static rp_status check_sections(const rpi_shard_record *r) {
    const rpi_shard *s = &r->shard;
    if (s->axis < 0 || s->axis >= r->dims || s->sections < 1 ||
        s->sections > RPI_SHARD_SECTIONS || s->repeats < 1)
        return RP_FAIL(INVALID, "%s: no cut along axis %d in %d sections", r->name, s->axis,
                       s->sections);
    for (int i = 0; i < s->sections; i++)
        if (s->section[i].units < 1 || s->section[i].each < 1)
            return RP_FAIL(INVALID, "%s: section %d is empty", r->name, i);
    if (length_of(s) * s->repeats != r->shape[s->axis])
        return RP_FAIL(INVALID, "%s: sections are %lld long along axis %d, and that is %lld",
                       r->name, (long long)(length_of(s) * s->repeats), s->axis,
                       (long long)r->shape[s->axis]);
    return RP_OK;
}

static rp_status check_ranks(const rpi_shard_record *r, int ranks) {
    const rpi_shard *s = &r->shard;
    if (s->repeats > 1 && s->repeats % ranks && ranks % s->repeats)
        return RP_FAIL(INVALID, "%s: %lld groups divide over %d tensor ranks neither way",
                       r->name, (long long)s->repeats, ranks);
    int64_t sharers = sharers_of(s, ranks);
    for (int i = 0; i < s->sections; i++)
        if (s->section[i].units < sharers && sharers % s->section[i].units)
            return RP_FAIL(INVALID,
                           "%s: %lld units of section %d are too few for %lld ranks, and do "
                           "not divide them",
                           r->name, (long long)s->section[i].units, i, (long long)sharers);
    return RP_OK;
}

rp_status rpi_shard_check(const rpi_shard_record *r, int ranks) {
    if (ranks < 1) return RP_FAIL(INVALID, "%d tensor ranks; 1 or more are allowed", ranks);
    RP_TRY(check_shape(r));
    if (r->shard.kind != RPI_SHARD_CUT) return RP_OK;
    RP_TRY(check_sections(r));
    return check_ranks(r, ranks);
}

/* ---- what a rank has ---- */

void rpi_shard_shape(const rpi_shard_record *r, int ranks, int rank,
                     int64_t out_shape[RPI_SHARD_DIMS]) {
    for (int d = 0; d < r->dims; d++) out_shape[d] = r->shape[d];
    if (r->shard.kind == RPI_SHARD_FIRST && rank > 0) out_shape[0] = 0;
    if (r->shard.kind == RPI_SHARD_CUT)
        out_shape[r->shard.axis] = local_length(&r->shard, ranks, rank);
}

int64_t rpi_shard_count(const rpi_shard_record *r, int ranks, int rank) {
    int64_t shape[RPI_SHARD_DIMS];
    rpi_shard_shape(r, ranks, rank, shape);
    return elements_of(shape, 0, r->dims);
}

void rpi_shard_slice(int64_t count, int replicas, int at, int64_t *out_first,
                     int64_t *out_end) {
    *out_first = floor_share(count, at, replicas);
    *out_end = floor_share(count, at + 1, replicas);
}

/* ---- runs ---- */

/* A whole tensor, or all of one on the first rank, is one section that nobody shares. */
static rpi_shard_section section_at(const rpi_shard_cursor *c, int section) {
    const rpi_shard_record *r = c->record;
    if (r->shard.kind == RPI_SHARD_CUT) return r->shard.section[section];
    return (rpi_shard_section){1, r->shape[0]};
}

static void begin_cut(rpi_shard_cursor *c) {
    const rpi_shard *s = &c->record->shard;
    span repeats = {0, 1};
    c->sharers = 1;
    if (s->kind == RPI_SHARD_CUT) {
        repeats = repeats_of(s, c->ranks, c->rank);
        c->sharers = (int)sharers_of(s, c->ranks);
    }
    c->sharer = c->rank % c->sharers;
    c->first_repeat = c->repeat = repeats.first;
    c->last_repeat = repeats.end;
}

static void begin_copies(rpi_shard_cursor *c, const rpi_grid *grid, int rank,
                         rpi_shard_replicas replicas) {
    unsigned axes = RPI_AXES_CONTEXT | RPI_AXES_DATA;
    int size = rpi_grid_group_size(grid, axes), at = rpi_grid_member_of(grid, axes, rank);
    int stage = rpi_grid_place_of(grid, rank).at[RPI_AXIS_STAGE];
    bool tied = c->record->first_stage != c->record->last_stage;
    c->copies = tied ? 2 : 1;
    c->copy = tied && stage == c->record->last_stage;
    c->first = 0;
    c->end = rpi_shard_count(c->record, c->ranks, c->rank);
    if (stage != c->record->first_stage && stage != c->record->last_stage) c->end = 0;
    if (replicas == RPI_REPLICAS_SLICE)
        rpi_shard_slice(c->end, size, at, &c->first, &c->end);
    else
        c->copies *= size, c->copy = c->copy * size + at;
    if (c->record->shard.kind == RPI_SHARD_WHOLE)
        c->copies *= c->ranks, c->copy = c->copy * c->ranks + c->rank;
}

rp_status rpi_shard_begin(const rpi_shard_record *record, const rpi_grid *grid, int rank,
                          rpi_shard_replicas replicas, rpi_shard_cursor *out) {
    rpi_shard_cursor c = {.record = record, .ranks = grid->size[RPI_AXIS_TENSOR]};
    RP_TRY(rpi_shard_check(record, c.ranks));
    c.rank = rpi_grid_place_of(grid, rank).at[RPI_AXIS_TENSOR];
    begin_cut(&c);
    begin_copies(&c, grid, rank, replicas);
    *out = c;
    return RP_OK;
}

static int axis_of(const rpi_shard_cursor *c) {
    return c->record->shard.kind == RPI_SHARD_CUT ? c->record->shard.axis : 0;
}

static int sections_of(const rpi_shard_cursor *c) {
    return c->record->shard.kind == RPI_SHARD_CUT ? c->record->shard.sections : 1;
}

/* The elements of one section of one repeat, where the cursor is. */
static rpi_shard_run run_here(const rpi_shard_cursor *c) {
    const int64_t *shape = c->record->shape;
    int axis = axis_of(c);
    int64_t inner = elements_of(shape, axis + 1, c->record->dims), at = 0, all = 0;
    for (int i = 0; i < sections_of(c); i++) {
        rpi_shard_section section = section_at(c, i);
        if (i < c->section) at += section.units * section.each;
        all += section.units * section.each;
    }
    rpi_shard_section section = section_at(c, c->section);
    span units = units_of(&section, c->sharers, c->sharer);
    int held_by = section.units < c->sharers ? (int)(c->sharers / section.units) : 1;
    at += c->repeat * all + units.first * section.each;
    return (rpi_shard_run){.local = c->local,
                           .whole = (c->outer * shape[axis] + at) * inner,
                           .count = (units.end - units.first) * section.each * inner,
                           .holders = held_by * c->copies,
                           .holder = c->copy * held_by + c->sharer % held_by};
}

static void step(rpi_shard_cursor *c, int64_t count) {
    c->local += count;
    if (++c->section < sections_of(c)) return;
    c->section = 0;
    if (++c->repeat < c->last_repeat) return;
    c->repeat = c->first_repeat;
    c->outer++;
}

/* Only what lies in the range of local elements. */
static void clip(const rpi_shard_cursor *c, rpi_shard_run *run) {
    int64_t before = c->first - run->local;
    if (before > 0) {
        if (before > run->count) before = run->count;
        run->local += before;
        run->whole += before;
        run->count -= before;
    }
    if (run->local + run->count > c->end) run->count = c->end - run->local;
}

/* Sections that follow each other in the whole as they do here are one run. */
bool rpi_shard_next(rpi_shard_cursor *c, rpi_shard_run *out) {
    rpi_shard_run all = {0};
    while (c->local < c->end) {
        rpi_shard_run run = run_here(c);
        int64_t count = run.count;
        clip(c, &run);
        bool joins = all.whole + all.count == run.whole && all.holders == run.holders &&
                     all.holder == run.holder;
        if (run.count > 0 && all.count > 0 && !joins) break;
        if (run.count > 0 && all.count == 0)
            all = run;
        else if (run.count > 0)
            all.count += run.count;
        step(c, count);
    }
    *out = all;
    return all.count > 0;
}
