#include "train/parallel/train_place.h"

#include "base/status.h"
#include "train/data/share.h"

#include <stdio.h>
#include <string.h>

static int ranks_of_replica(const rpi_grid *model) {
    rpi_grid one = *model;
    one.size[RPI_AXIS_DATA] = 1;
    return rpi_grid_world(&one);
}

enum { HOLDERS = RPI_AXES_DATA | RPI_AXES_CONTEXT };

/* Sets the place of `rank` of `world` in a grid that fits. */
static void stand(rpi_train_place *place, int rank, int world) {
    place->rank = rank;
    place->world = world;
    place->grid.size[RPI_AXIS_DATA] = world / ranks_of_replica(&place->grid);
    rpi_grid_place at = rpi_grid_place_of(&place->grid, rank);
    place->replica = at.at[RPI_AXIS_DATA];
    place->replicas = place->grid.size[RPI_AXIS_DATA];
    place->holder = rpi_grid_member_of(&place->grid, HOLDERS, rank);
    place->holders = rpi_grid_group_size(&place->grid, HOLDERS);
    place->counts = at.at[RPI_AXIS_TENSOR] == 0 &&
                    at.at[RPI_AXIS_STAGE] == place->grid.size[RPI_AXIS_STAGE] - 1;
}

static void take_role(rpi_train_place *place, int servers) {
    place->servers = servers;
    place->works = place->rank >= servers;
    place->workers = place->replicas - servers;
    place->worker = place->works ? place->replica - servers : 0;
}

rp_status rpi_train_place_open(const rpi_grid *model, int rank, int world, int servers,
                               rpi_train_place *out_place) {
    rpi_train_place place = {.grid = *model};
    for (int a = 0; a < RPI_AXES; a++)
        if (a != RPI_AXIS_DATA && model->size[a] < 1)
            return RP_FAIL(INVALID, "%d ranks along %s; 1 or more are allowed", model->size[a],
                           rpi_grid_axis_name(a));
    int each = ranks_of_replica(model);
    place.grid.size[RPI_AXIS_DATA] = world / each > 0 ? world / each : 1;
    RP_TRY(rpi_grid_check(&place.grid, world));
    if (servers && each > 1)
        return RP_FAIL(UNSUPPORTED,
                       "%d servers, and a model is held by %d ranks together: servers are for "
                       "ranks that hold a whole model each",
                       servers, each);
    stand(&place, rank, world);
    take_role(&place, servers);
    *out_place = place;
    return RP_OK;
}

rpi_train_place rpi_train_place_alone(int rank, int world, int servers) {
    rpi_train_place place = {.grid = {{1, 1, 1, 1}}};
    stand(&place, rank, world);
    take_role(&place, servers);
    return place;
}

bool rpi_train_place_is_alone(const rpi_train_place *place) {
    return ranks_of_replica(&place->grid) == 1;
}

const char *rpi_train_place_text(const rpi_train_place *place, int rank,
                                 char text[RPI_GRID_TEXT]) {
    if (!rpi_train_place_is_alone(place)) return rpi_grid_text(&place->grid, rank, text);
    snprintf(text, RPI_GRID_TEXT, "rank %d", rank);
    return text;
}

int rpi_train_place_twin(const rpi_train_place *place, int holder) {
    int group = rpi_grid_group_of(&place->grid, HOLDERS, place->rank);
    return rpi_grid_group_rank(&place->grid, HOLDERS, group, holder);
}

void rpi_train_place_move(rpi_train_place *place, int rank, int world) {
    stand(place, rank, world);
}

static void share(int64_t count, int at, int of, int64_t *out_first, int64_t *out_end) {
    *out_first = rpi_share_first(count, at, of);
    *out_end = rpi_share_first(count, at + 1, of);
}

void rpi_train_place_share(const rpi_train_place *place, int64_t count, int64_t *out_first,
                           int64_t *out_end) {
    share(count, place->replica, place->replicas, out_first, out_end);
}

void rpi_train_place_work(const rpi_train_place *place, int64_t count, int64_t *out_first,
                          int64_t *out_end) {
    share(count, place->worker, place->workers, out_first, out_end);
}

int64_t rpi_train_place_most(const rpi_train_place *place, bool learns, int64_t count) {
    int64_t most = 0, first, end;
    int ranks = learns ? place->workers : place->replicas;
    for (int at = 0; at < ranks; at++) {
        share(count, at, ranks, &first, &end);
        if (end - first > most) most = end - first;
    }
    return most;
}

/* The number that follows a word; -1: the word is not there, or no number follows. */
static int number_behind(const char *text, const char *word) {
    const char *at = strstr(text, word);
    int number = -1;
    return at && sscanf(at + strlen(word), "%d", &number) == 1 ? number : -1;
}

/* The number before a word, in brackets or not, if "rank " or "world " is before the number. */
static int number_before(const char *text, const char *word) {
    const char *at = strstr(text, word);
    if (at && at > text && at[-1] == ')') at--;
    while (at && at > text && at[-1] >= '0' && at[-1] <= '9') at--;
    if (!at || ((at - text < 5 || strncmp(at - 5, "rank ", 5) != 0) &&
                (at - text < 6 || strncmp(at - 6, "world ", 6) != 0)))
        return -1;
    int number = -1;
    return sscanf(at, "%d", &number) == 1 ? number : -1;
}

int rpi_train_place_lost(const rpi_train_place *place, const char *why) {
    int rank = number_behind(why, "closed by peer: rank ");
    if (rank < 0) rank = number_before(why, " is gone (");
    if (rank < 0) rank = number_before(why, " is stopped, or cut off from ");
    return rank < place->world ? rank : -1;
}
