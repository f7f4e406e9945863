#include "train/parallel/grid_comms.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/world/comm_stats.h"

/* The groups, in the order in which they are made. */
typedef struct group_row {
    unsigned axes;
    const char *name;
    rp_priority priority;
    bool of_one; /* made even where each rank is alone in its group */
} group_row;

static const group_row rows[] = {
    {RPI_AXES_DATA | RPI_AXES_CONTEXT, "replicas", RP_PRIORITY_BULK, true},
    {RPI_AXES_STAGE, "stages", RP_PRIORITY_URGENT, false},
    {RPI_AXES_TENSOR, "tensor", RP_PRIORITY_URGENT, false},
    {RPI_AXES_CONTEXT, "context", RP_PRIORITY_URGENT, false},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static bool is_made(const rpi_grid *grid, int row) {
    return rows[row].of_one || rpi_grid_group_size(grid, rows[row].axes) > 1;
}

typedef struct group_list {
    rp_group *groups;
    rp_comm **comms;
    int *ranks;
    rp_comm_options options[ROWS];
    int count;
} group_list;

static int count_groups(const rpi_grid *grid) {
    int count = 0;
    for (int i = 0; i < ROWS; i++)
        if (is_made(grid, i)) count += rpi_grid_group_count(grid, rows[i].axes);
    return count;
}

/* Adds all groups of one kind; each rank is in exactly one of them. */
static void add_groups(const rpi_grid *grid, int row, int *ranks, group_list *list) {
    int size = rpi_grid_group_size(grid, rows[row].axes);
    int count = rpi_grid_group_count(grid, rows[row].axes);
    list->options[row] = (rp_comm_options)RP_COMM_OPTIONS(.name = rows[row].name,
                                                          .priority = rows[row].priority);
    for (int g = 0; g < count; g++, ranks += size) {
        for (int m = 0; m < size; m++)
            ranks[m] = rpi_grid_group_rank(grid, rows[row].axes, g, m);
        list->groups[list->count++] =
            (rp_group){.ranks = ranks, .count = size, .options = &list->options[row]};
    }
}

static void close_list(group_list *list) {
    rpi_free(list->groups);
    rpi_free(list->comms);
    rpi_free(list->ranks);
}

static rp_status fill_list(const rpi_grid *grid, group_list *list) {
    size_t world = (size_t)rpi_grid_world(grid), count = (size_t)count_groups(grid);
    RP_TRY(rpi_alloc_array(count, sizeof *list->groups, "groups", &list->groups));
    RP_TRY(rpi_alloc_array(count, sizeof *list->comms, "groups", &list->comms));
    RP_TRY(rpi_alloc_array(world * ROWS, sizeof *list->ranks, "groups", &list->ranks));
    for (int i = 0; i < ROWS; i++)
        if (is_made(grid, i)) add_groups(grid, i, list->ranks + (size_t)i * world, list);
    return RP_OK;
}

static void take(const rpi_grid *grid, int rank, const group_list *list,
                 rpi_grid_comms *out_comms) {
    rp_comm **kinds[ROWS] = {&out_comms->replicas, &out_comms->stages, &out_comms->tensor,
                             &out_comms->context};
    int first = 0;
    for (int i = 0; i < ROWS; i++) {
        if (!is_made(grid, i)) continue;
        *kinds[i] = list->comms[first + rpi_grid_group_of(grid, rows[i].axes, rank)];
        first += rpi_grid_group_count(grid, rows[i].axes);
    }
}

rp_status rpi_grid_comms_open(rp_comm *world, const rpi_train_place *place,
                              rpi_grid_comms *out_comms) {
    group_list list = {0};
    *out_comms = (rpi_grid_comms){0};
    if (rpi_train_place_is_alone(place)) return RP_OK;
    rp_status status = fill_list(&place->grid, &list);
    if (status == RP_OK)
        status = rp_comm_groups(world, list.groups, (size_t)list.count, list.comms);
    if (status == RP_OK) take(&place->grid, place->rank, &list, out_comms);
    close_list(&list);
    return status;
}

void rpi_grid_comms_close(rpi_grid_comms *comms) {
    rp_comm_destroy(comms->context);
    rp_comm_destroy(comms->hosts);
    rp_comm_destroy(comms->tensor);
    rp_comm_destroy(comms->stages);
    rp_comm_destroy(comms->replicas);
    *comms = (rpi_grid_comms){0};
}

void rpi_grid_comms_abort(const rpi_grid_comms *comms, rp_status status, const char *message) {
    if (comms->layers) rp_comm_abort(comms->layers, status, message);
    if (comms->keys) rp_comm_abort(comms->keys, status, message);
    if (comms->tensor) rp_comm_abort(comms->tensor, status, message);
    if (comms->context) rp_comm_abort(comms->context, status, message);
    if (comms->stages) rp_comm_abort(comms->stages, status, message);
    if (comms->hosts) rp_comm_abort(comms->hosts, status, message);
    if (comms->replicas) rp_comm_abort(comms->replicas, status, message);
}

void rpi_grid_comms_stats(const rpi_grid_comms *comms, const rp_comm *world,
                          rp_comm_stats *out_stats) {
    *out_stats = (rp_comm_stats){0};
    rpi_add_comm_stats(world, out_stats);
    rpi_add_comm_stats(comms->replicas, out_stats);
    rpi_add_comm_stats(comms->stages, out_stats);
    rpi_add_comm_stats(comms->tensor, out_stats);
    rpi_add_comm_stats(comms->layers, out_stats);
    rpi_add_comm_stats(comms->context, out_stats);
    rpi_add_comm_stats(comms->keys, out_stats);
    rpi_add_comm_stats(comms->hosts, out_stats);
}
