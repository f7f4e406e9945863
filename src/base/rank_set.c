#include "base/rank_set.h"

#include "base/memory.h"

rp_status rpi_rank_set_make(int world, rpi_rank_set *out_set) {
    *out_set = (rpi_rank_set){0};
    int words = rpi_rank_set_words(world);
    RP_TRY(rpi_alloc_array((size_t)words, sizeof *out_set->bits, "a set of ranks",
                           &out_set->bits));
    out_set->words = words;
    return RP_OK;
}

void rpi_rank_set_free(rpi_rank_set *set) {
    rpi_free(set->bits);
    *set = (rpi_rank_set){0};
}
