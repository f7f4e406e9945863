#include "plan/algorithms.h"

#include "base/suggest.h"

#include <string.h>

static const rpi_algorithm *const catalogue[] = {
    &rpi_algorithm_sra,
    &rpi_algorithm_ring,
    &rpi_algorithm_two_level,
    &rpi_algorithm_halving,
    &rpi_algorithm_doubling,
    &rpi_algorithm_oneshot,
    &rpi_algorithm_star,
    &rpi_algorithm_direct_scatter,
    &rpi_algorithm_ring_scatter,
    &rpi_algorithm_two_level_scatter,
    &rpi_algorithm_direct_gather,
    &rpi_algorithm_ring_gather,
    &rpi_algorithm_two_level_gather,
    &rpi_algorithm_tree_broadcast,
    &rpi_algorithm_scatter_broadcast,
    &rpi_algorithm_two_level_broadcast,
    &rpi_algorithm_dissemination,
    &rpi_algorithm_star_barrier,
    &rpi_algorithm_rendezvous,
    &rpi_algorithm_direct_reduce,
    &rpi_algorithm_scatter_reduce,
    &rpi_algorithm_tree_reduce,
    &rpi_algorithm_root_gather,
    &rpi_algorithm_root_scatter,
    &rpi_algorithm_pairwise,
};

const rpi_algorithm *rpi_algorithm_at(int index) {
    int count = (int)(sizeof catalogue / sizeof catalogue[0]);
    return index >= 0 && index < count ? catalogue[index] : NULL;
}

/* The index-th algorithm of one collective; the context is the collective. */
static const char *name_at(const void *context, int index) {
    const rpi_collective *collective = context;
    for (int i = 0; rpi_algorithm_at(i); i++)
        if (catalogue[i]->collective == *collective && index-- == 0) return catalogue[i]->name;
    return NULL;
}

static void list_names(rpi_collective collective, char *text, size_t bytes) {
    const char *name;
    text[0] = '\0';
    for (int i = 0; (name = name_at(&collective, i)) != NULL; i++) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", name);
    }
}

rp_status rpi_algorithm_find(rpi_collective collective, const char *name,
                             const rpi_algorithm **out_algorithm) {
    for (int i = 0; rpi_algorithm_at(i); i++) {
        if (catalogue[i]->collective != collective || strcmp(catalogue[i]->name, name) != 0)
            continue;
        *out_algorithm = catalogue[i];
        return RP_OK;
    }
    char names[256], nearest[128];
    list_names(collective, names, sizeof names);
    rpi_suggest_text(name, name_at, &collective, nearest, sizeof nearest);
    return RP_FAIL(NOT_FOUND, "no %s algorithm '%s' (there is: %s)%s",
                   rpi_collective_name(collective), name, names, nearest);
}
