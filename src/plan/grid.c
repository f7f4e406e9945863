#include "plan/grid.h"

#include "base/append.h"
#include "base/status.h"

#include <stdio.h>

/* ---- ranks and places ---- */

static const char *const names[] = {"tensor", "context", "data", "stage"};

const char *rpi_grid_axis_name(rpi_grid_axis axis) {
    return axis < RPI_AXES ? names[axis] : NULL;
}

static int64_t product_of(const rpi_grid *grid, unsigned axes) {
    int64_t product = 1;
    for (int a = 0; a < RPI_AXES; a++)
        if (axes & 1u << a) product *= grid->size[a];
    return product;
}

enum { ALL_AXES = (1 << RPI_AXES) - 1 };

int rpi_grid_world(const rpi_grid *grid) {
    return (int)product_of(grid, ALL_AXES);
}

static rp_status check_sizes(const rpi_grid *grid) {
    int64_t ranks = 1;
    for (int a = 0; a < RPI_AXES; a++) {
        if (grid->size[a] < 1)
            return RP_FAIL(INVALID, "%d ranks along %s; 1 or more are allowed", grid->size[a],
                           names[a]);
        ranks *= grid->size[a];
        if (ranks > RPI_GRID_RANKS)
            return RP_FAIL(INVALID, "a grid of more than %d ranks", RPI_GRID_RANKS);
    }
    return RP_OK;
}

rp_status rpi_grid_check(const rpi_grid *grid, int64_t world) {
    RP_TRY(check_sizes(grid));
    const int *size = grid->size;
    int64_t ranks = rpi_grid_world(grid), others = product_of(grid, ALL_AXES & ~RPI_AXES_DATA);
    if (ranks == world) return RP_OK;
    char would[96];
    if (world >= others && world % others == 0)
        snprintf(would, sizeof would, "data %lld would fit", (long long)(world / others));
    else
        snprintf(would, sizeof would, "%lld ranks would, or another multiple of %lld",
                 (long long)ranks, (long long)others);
    return RP_FAIL(INVALID,
                   "tensor %d x context %d x data %d x stage %d is %lld ranks, and there are "
                   "%lld; %s",
                   size[0], size[1], size[2], size[3], (long long)ranks, (long long)world,
                   would);
}

rpi_grid_place rpi_grid_place_of(const rpi_grid *grid, int rank) {
    rpi_grid_place place;
    for (int a = 0; a < RPI_AXES; a++) {
        place.at[a] = rank % grid->size[a];
        rank /= grid->size[a];
    }
    return place;
}

int rpi_grid_rank(const rpi_grid *grid, const rpi_grid_place *place) {
    int rank = 0;
    for (int a = RPI_AXES - 1; a >= 0; a--) rank = rank * grid->size[a] + place->at[a];
    return rank;
}

const char *rpi_grid_text(const rpi_grid *grid, int rank, char text[RPI_GRID_TEXT]) {
    static const int order[] = {RPI_AXIS_STAGE, RPI_AXIS_TENSOR, RPI_AXIS_CONTEXT};
    rpi_grid_place place = rpi_grid_place_of(grid, rank);
    snprintf(text, RPI_GRID_TEXT, "rank %d", rank);
    for (int i = 0; i < RPI_AXES - 1; i++)
        if (grid->size[order[i]] > 1)
            rpi_append(text, RPI_GRID_TEXT, ", %s %d", names[order[i]], place.at[order[i]]);
    if (grid->size[RPI_AXIS_DATA] > 1)
        rpi_append(text, RPI_GRID_TEXT, " of replica %d", place.at[RPI_AXIS_DATA]);
    return text;
}

/* ---- groups ---- */

static const rpi_grid_group groups[] = {
    {"tensor", RPI_AXES_TENSOR, "share each layer's tensors"},
    {"context", RPI_AXES_CONTEXT, "share each sequence"},
    {"data", RPI_AXES_DATA, "hold the same tensors, and have other samples"},
    {"stage", RPI_AXES_STAGE, "one pipeline, by stage"},
    {"replicas", RPI_AXES_CONTEXT | RPI_AXES_DATA,
     "hold the same tensors: gradients are summed over them"},
    {"model", RPI_AXES_TENSOR | RPI_AXES_STAGE,
     "hold one model together: norms are summed over them"},
};

const rpi_grid_group *rpi_grid_group_at(int index) {
    int count = (int)(sizeof groups / sizeof groups[0]);
    return index >= 0 && index < count ? &groups[index] : NULL;
}

/* A place along some axes alone, counted as ranks are. */
static int number_along(const rpi_grid *grid, unsigned axes, const rpi_grid_place *place) {
    int number = 0;
    for (int a = RPI_AXES - 1; a >= 0; a--)
        if (axes & 1u << a) number = number * grid->size[a] + place->at[a];
    return number;
}

static void place_along(const rpi_grid *grid, unsigned axes, int number,
                        rpi_grid_place *place) {
    for (int a = 0; a < RPI_AXES; a++) {
        if (!(axes & 1u << a)) continue;
        place->at[a] = number % grid->size[a];
        number /= grid->size[a];
    }
}

int rpi_grid_group_size(const rpi_grid *grid, unsigned axes) {
    return (int)product_of(grid, axes);
}

int rpi_grid_group_count(const rpi_grid *grid, unsigned axes) {
    return (int)product_of(grid, ALL_AXES & ~axes);
}

int rpi_grid_group_of(const rpi_grid *grid, unsigned axes, int rank) {
    rpi_grid_place place = rpi_grid_place_of(grid, rank);
    return number_along(grid, ALL_AXES & ~axes, &place);
}

int rpi_grid_member_of(const rpi_grid *grid, unsigned axes, int rank) {
    rpi_grid_place place = rpi_grid_place_of(grid, rank);
    return number_along(grid, axes, &place);
}

int rpi_grid_group_rank(const rpi_grid *grid, unsigned axes, int group, int member) {
    rpi_grid_place place = {{0}};
    place_along(grid, axes, member, &place);
    place_along(grid, ALL_AXES & ~axes, group, &place);
    return rpi_grid_rank(grid, &place);
}

int rpi_grid_tied(const rpi_grid *grid, int rank, int first_stage, int last_stage,
                  int out_ranks[2]) {
    rpi_grid_place place = rpi_grid_place_of(grid, rank);
    int stage = place.at[RPI_AXIS_STAGE];
    if (stage != first_stage && stage != last_stage) return 0;
    place.at[RPI_AXIS_STAGE] = first_stage;
    out_ranks[0] = rpi_grid_rank(grid, &place);
    if (first_stage == last_stage) return 1;
    place.at[RPI_AXIS_STAGE] = last_stage;
    out_ranks[1] = rpi_grid_rank(grid, &place);
    return 2;
}

/* ---- which layouts a model can have ---- */

static bool divides(int64_t count, int64_t ranks) {
    return count == 0 || count % ranks == 0;
}

/* Several ranks may share one key head, where there are fewer of these. */
static bool key_heads_fit(const rpi_grid_model *m, int64_t ranks) {
    int64_t keys = m->key_heads;
    return keys == 0 || keys % ranks == 0 || ranks % keys == 0;
}

static bool tensor_fits(const rpi_grid_model *m, int64_t ranks) {
    return divides(m->heads, ranks) && key_heads_fit(m, ranks) && divides(m->inner, ranks) &&
           divides(m->vocabulary, ranks) &&
           (!m->sequence_parallel || divides(m->sequence, ranks));
}

/* "tensor 1, 2, 4 or 8 would fit" */
enum { WOULD_BYTES = 160 };
static const char *tensor_would(const rpi_grid_model *m, char text[WOULD_BYTES]) {
    int64_t most = m->heads ? m->heads : m->inner ? m->inner : m->vocabulary;
    int64_t fitting[12];
    int count = 0;
    for (int64_t t = 1; t <= most && t <= RPI_GRID_RANKS && count < 12; t++)
        if (tensor_fits(m, t)) fitting[count++] = t;
    snprintf(text, WOULD_BYTES, "tensor ");
    for (int i = 0; i < count; i++)
        rpi_append(text, WOULD_BYTES, "%s%lld",
                   i == 0           ? ""
                   : i == count - 1 ? " or "
                                    : ", ",
                   (long long)fitting[i]);
    rpi_append(text, WOULD_BYTES, " would fit");
    return text;
}

static int64_t multiple_above(int64_t count, int64_t of) {
    return (count + of - 1) / of * of;
}

static rp_status check_tensor(const rpi_grid *grid, const rpi_grid_model *m) {
    int t = grid->size[RPI_AXIS_TENSOR];
    char would[WOULD_BYTES];
    if (!divides(m->heads, t))
        return RP_FAIL(INVALID, "%lld heads do not divide over %d tensor ranks; %s",
                       (long long)m->heads, t, tensor_would(m, would));
    if (!key_heads_fit(m, t))
        return RP_FAIL(INVALID, "%lld key heads divide over %d tensor ranks neither way; %s",
                       (long long)m->key_heads, t, tensor_would(m, would));
    if (!divides(m->inner, t))
        return RP_FAIL(INVALID,
                       "an inner width of %lld does not divide over %d tensor ranks; %s",
                       (long long)m->inner, t, tensor_would(m, would));
    if (!divides(m->vocabulary, t))
        return RP_FAIL(INVALID,
                       "a vocabulary of %lld does not divide over %d tensor ranks; padded to "
                       "%lld it would, or %s",
                       (long long)m->vocabulary, t, (long long)multiple_above(m->vocabulary, t),
                       tensor_would(m, would));
    return RP_OK;
}

static rp_status check_sequence(const rpi_grid *grid, const rpi_grid_model *m) {
    int64_t c = grid->size[RPI_AXIS_CONTEXT], t = grid->size[RPI_AXIS_TENSOR];
    int64_t pieces = c > 1 && m->causal ? 2 * c : c;
    if (m->sequence_parallel) pieces *= t;
    if (divides(m->sequence, pieces)) return RP_OK;
    return RP_FAIL(
        INVALID,
        "a sequence of %lld tokens does not divide into %lld pieces (context %lld%s%s)"
        "; %lld tokens would",
        (long long)m->sequence, (long long)pieces, (long long)c,
        c > 1 && m->causal ? ", two each" : "",
        m->sequence_parallel ? ", shared by tensor ranks" : "",
        (long long)multiple_above(m->sequence, pieces));
}

static rp_status check_stages(const rpi_grid *grid, int chunks, const rpi_grid_model *m) {
    int64_t stages = grid->size[RPI_AXIS_STAGE], parts = stages * chunks;
    char would[96];
    if (m->layers == 0 || parts <= m->layers) return RP_OK;
    if (m->layers >= chunks)
        snprintf(would, sizeof would, "%lld stages would fit", (long long)(m->layers / chunks));
    else
        snprintf(would, sizeof would, "%lld chunks on one stage would fit",
                 (long long)m->layers);
    if (chunks == 1)
        return RP_FAIL(INVALID, "%lld layers are too few for %lld stages; %s",
                       (long long)m->layers, (long long)stages, would);
    return RP_FAIL(INVALID, "%lld layers are too few for %lld stages of %d chunks; %s",
                   (long long)m->layers, (long long)stages, chunks, would);
}

rp_status rpi_grid_fits(const rpi_grid *grid, int chunks, const rpi_grid_model *m) {
    RP_TRY(check_sizes(grid));
    if (chunks < 1) return RP_FAIL(INVALID, "%d chunks a stage; 1 or more are allowed", chunks);
    if (m->heads && m->key_heads && m->heads % m->key_heads)
        return RP_FAIL(INVALID, "%lld heads do not divide over %lld key heads",
                       (long long)m->heads, (long long)m->key_heads);
    RP_TRY(check_tensor(grid, m));
    RP_TRY(check_sequence(grid, m));
    return check_stages(grid, chunks, m);
}
