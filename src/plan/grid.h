/* Which rank does what in three dimensions and one more: tensor x context x data x stage.
 *
 *   tensor    ranks that share each layer's tensors
 *   context   ranks that share each sequence
 *   data      ranks that have samples of their own
 *   stage     ranks that have layers of their own: a pipeline
 *
 * Ranks count the axes in this order, the first one fastest, so that ranks which talk most are
 * neighbours, and on one host. Everything is pure and alike on all ranks. */
#ifndef RPI_PLAN_GRID_H
#define RPI_PLAN_GRID_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum rpi_grid_axis {
    RPI_AXIS_TENSOR,
    RPI_AXIS_CONTEXT,
    RPI_AXIS_DATA,
    RPI_AXIS_STAGE,
    RPI_AXES
} rpi_grid_axis;

enum { RPI_GRID_RANKS = 1 << 20 }; /* at most */

typedef struct rpi_grid {
    int size[RPI_AXES]; /* each 1 or more */
} rpi_grid;

typedef struct rpi_grid_place {
    int at[RPI_AXES];
} rpi_grid_place;

const char *rpi_grid_axis_name(rpi_grid_axis axis); /* "tensor" ... */

/* RP_INVALID: a size below 1, or sizes whose product is not the world; what would fit. */
rp_status rpi_grid_check(const rpi_grid *grid, int64_t world);
int rpi_grid_world(const rpi_grid *grid);
rpi_grid_place rpi_grid_place_of(const rpi_grid *grid, int rank);
int rpi_grid_rank(const rpi_grid *grid, const rpi_grid_place *place);

/* "rank 5, stage 1, tensor 1 of replica 1": the axes that have more than one place. A replica
 * is the ranks that hold one model together: its number is that along data. Returns text. */
enum { RPI_GRID_TEXT = 128 };
const char *rpi_grid_text(const rpi_grid *grid, int rank, char text[RPI_GRID_TEXT]);

/* ---- groups: ranks that differ along some axes, and are at one place along the others ---- */

enum {
    RPI_AXES_TENSOR = 1 << RPI_AXIS_TENSOR,
    RPI_AXES_CONTEXT = 1 << RPI_AXIS_CONTEXT,
    RPI_AXES_DATA = 1 << RPI_AXIS_DATA,
    RPI_AXES_STAGE = 1 << RPI_AXIS_STAGE
};

/* The groups that a training has: the catalogue says in which order communicators are made. */
typedef struct rpi_grid_group {
    const char *name; /* "tensor", "context", "data", "stage", "replicas", "model" */
    unsigned axes;    /* along which its ranks differ */
    const char *summary;
} rpi_grid_group;
const rpi_grid_group *rpi_grid_group_at(int index); /* NULL past the end */

/* Groups are counted by their lowest ranks, and members of a group by theirs. */
int rpi_grid_group_size(const rpi_grid *grid, unsigned axes);
int rpi_grid_group_count(const rpi_grid *grid, unsigned axes);
int rpi_grid_group_of(const rpi_grid *grid, unsigned axes, int rank);
int rpi_grid_member_of(const rpi_grid *grid, unsigned axes, int rank);
int rpi_grid_group_rank(const rpi_grid *grid, unsigned axes, int group, int member);

/* The ranks that hold the same piece of a tensor that is on two stages, this one among them,
 * by stage; returns how many: 0 where this rank is on neither, 1 where they are one stage. */
int rpi_grid_tied(const rpi_grid *grid, int rank, int first_stage, int last_stage,
                  int out_ranks[2]);

/* ---- which layouts a model can have ---- */

/* 0: this model has no such thing. */
typedef struct rpi_grid_model {
    int64_t heads, key_heads; /* key_heads 0: as many as heads */
    int64_t inner;            /* width of the layers between, which tensor ranks share */
    int64_t layers;           /* that can be cut apart */
    int64_t vocabulary;       /* as padded */
    int64_t sequence;         /* tokens of a sample */
    bool sequence_parallel;   /* tensor ranks share tokens between their layers, too */
    bool causal;              /* context ranks take two pieces each, so that work is even */
} rpi_grid_model;

/* RP_INVALID: one line that says what does not divide, and what would fit. chunks: of a stage.
 */
rp_status rpi_grid_fits(const rpi_grid *grid, int chunks, const rpi_grid_model *model);

#endif
