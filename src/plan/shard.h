/* Which elements of a tensor a rank has. A tensor's shape is always the whole's; what a rank
 * holds are runs of it, one behind the other in its own memory. Whoever initialises, loads,
 * saves, compares or counts walks runs and knows nothing else.
 *
 * A cut runs along one axis. Along it lie sections, each cut by itself and made of units that
 * stay whole:
 *     columns of a weight    one section, a unit each output
 *     q | k | v, fused       three sections, a unit each head; gate | up: two
 *     grouped by key head    as above for one group of heads, repeated
 * A section of u units is cut over t ranks as evenly as can be: rank r has units r u / t up to
 * (r + 1) u / t, rounded down. Where there are fewer units than ranks, t / u ranks hold each.
 */
#ifndef RPI_PLAN_SHARD_H
#define RPI_PLAN_SHARD_H

#include "plan/grid.h"

enum { RPI_SHARD_SECTIONS = 4, RPI_SHARD_DIMS = 8 };

typedef enum rpi_shard_kind {
    RPI_SHARD_WHOLE, /* all tensor ranks hold all of it */
    RPI_SHARD_FIRST, /* the first one does: what is added once to a sum of all, as a bias */
    RPI_SHARD_CUT
} rpi_shard_kind;

typedef struct rpi_shard_section {
    int64_t units;
    int64_t each; /* length of a unit along the axis */
} rpi_shard_section;

typedef struct rpi_shard {
    int kind; /* an rpi_shard_kind; what follows is of RPI_SHARD_CUT */
    int axis;
    int64_t repeats; /* of the sections; 1 where they are not grouped */
    int sections;
    rpi_shard_section section[RPI_SHARD_SECTIONS];
} rpi_shard;

/* A tensor of a model, and where it is. */
typedef struct rpi_shard_record {
    const char *name;
    int dims;
    int64_t shape[RPI_SHARD_DIMS]; /* of the whole; row-major */
    rpi_shard shard;
    /* The stages that hold it: one, or the two that share it, which `tie` names. */
    int first_stage, last_stage;
    const char *tie; /* NULL: none */
} rpi_shard_record;

rpi_shard rpi_shard_cut(int axis, int64_t length);
rpi_shard rpi_shard_heads(int axis, int64_t heads, int64_t each); /* whole heads */
/* q | k | v along an axis, key_heads of k and v; grouped: q q k v for each key head. */
rpi_shard rpi_shard_qkv(int axis, int64_t heads, int64_t key_heads, int64_t each, bool grouped);
rpi_shard rpi_shard_pair(int axis, int64_t length); /* gate | up: two sections of a length */

/* RP_INVALID: a record that makes no sense, or that so many tensor ranks cannot share. */
rp_status rpi_shard_check(const rpi_shard_record *record, int tensor_ranks);

/* What a tensor rank holds: its shape and elements. The record has been checked for so many. */
void rpi_shard_shape(const rpi_shard_record *record, int tensor_ranks, int tensor_rank,
                     int64_t out_shape[RPI_SHARD_DIMS]);
int64_t rpi_shard_count(const rpi_shard_record *record, int tensor_ranks, int tensor_rank);

/* Elements that lie together both in a rank's memory and in the whole tensor. Of the `holders`
 * that have the same ones this is number `holder`; where something counts once, number 0 does.
 */
typedef struct rpi_shard_run {
    int64_t local, whole, count;
    int holders, holder;
} rpi_shard_run;

typedef enum rpi_shard_replicas {
    RPI_REPLICAS_COPY, /* replicas (data x context) hold all that their tensor rank has */
    RPI_REPLICAS_SLICE /* each a slice of it: elements n j / replicas up to n (j + 1) / replicas
                        */
} rpi_shard_replicas;

/* The runs of a rank of a grid, in the order of its memory; `local` counts from the beginning
 * of what its tensor rank has, of a slice, too. */
typedef struct rpi_shard_cursor {
    const rpi_shard_record *record;
    int ranks, rank;       /* tensor */
    int64_t first, end;    /* of local elements */
    int64_t outer, repeat; /* where it is */
    int section;
    int64_t local;
    int64_t last_repeat, first_repeat;
    int sharers, sharer; /* of one repeat */
    int copies, copy;    /* by replicas and ties */
} rpi_shard_cursor;

/* RP_INVALID as rpi_shard_check. A rank that holds nothing has no runs. */
rp_status rpi_shard_begin(const rpi_shard_record *record, const rpi_grid *grid, int rank,
                          rpi_shard_replicas replicas, rpi_shard_cursor *out_cursor);
bool rpi_shard_next(rpi_shard_cursor *cursor, rpi_shard_run *out_run);

/* The local elements that replica `at` of so many owns, of `count`. */
void rpi_shard_slice(int64_t count, int replicas, int at, int64_t *out_first, int64_t *out_end);

#endif
