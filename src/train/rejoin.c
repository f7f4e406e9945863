#include "train/rejoin.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum { STANDING = sizeof(rpi_standing) / sizeof(double) };

/* ---- who is left ---- */

void rpi_append_ranks(char *text, size_t bytes, const int *ranks, int count) {
    rpi_append(text, bytes, count == 1 ? "rank" : "ranks");
    for (int i = 0; i < count; i++)
        rpi_append(text, bytes, "%s %d", i == 0 ? "" : i == count - 1 ? " and" : ",", ranks[i]);
}

static bool is_in(const int *ranks, int count, int rank) {
    for (int i = 0; i < count; i++)
        if (ranks[i] == rank) return true;
    return false;
}

/* Makes the communicator of the ranks that are left, and finds their former numbers. */
static rp_status meet(rpi_trainer *t, int *places) {
    rpi_losses *losses = &t->losses;
    rp_comm *left = NULL;
    RP_TRY(rp_comm_survivors(t->comm, NULL, places, &left));
    losses->made[losses->made_count++] = left;
    t->comm = left;
    rpi_trainer_count_from_here(t);
    rpi_train_place_move(&t->place, rp_comm_rank(left), rp_comm_world(left));
    for (int i = 0; i < t->place.world; i++) losses->members[i] = losses->members[places[i]];
    return RP_OK;
}

/* ---- where they stand ---- */

static void combine(const rpi_standing *all, int count, rpi_standing *out) {
    *out = all[0];
    for (int i = 1; i < count; i++) {
        const rpi_standing *one = &all[i];
        if (one->step > out->step) out->step = one->step;
        if (one->evaluated < out->evaluated) out->evaluated = one->evaluated;
        if (one->saved < out->saved) out->saved = one->saved;
        if (one->good > out->good) out->good = one->good;
        out->asked = (int)out->asked | (int)one->asked;
    }
}

rp_status rpi_trainer_compare(const rpi_trainer *t, rpi_standing *in_out_standing) {
    rpi_standing *all = NULL;
    RP_TRY(rpi_alloc_array((size_t)t->place.world, sizeof *all, "ranks", &all));
    rp_status status =
        rp_all_gather(t->comm, in_out_standing, all, STANDING, RP_F64, NULL, NULL);
    if (status == RP_OK) combine(all, t->place.world, in_out_standing);
    rpi_free(all);
    return status;
}

/* A rank that is behind makes the missing steps by itself, so that all have made equally many.
 */
static rp_status catch_up(rpi_trainer *t, int64_t step) {
    rpi_step_metrics metrics;
    while (t->step < step) RP_TRY(rpi_trainer_step(t, &metrics));
    return RP_OK;
}

static rp_status try_rejoin(rpi_trainer *t, int *places, rpi_standing *in_out_standing) {
    rpi_standing standing = *in_out_standing;
    standing.step = (double)t->step;
    RP_TRY(meet(t, places));
    RP_TRY(rpi_trainer_compare(t, &standing));
    RP_TRY(catch_up(t, (int64_t)standing.step));
    RP_TRY(t->strategy->rejoin(t->strategy_self, t->comm, t->step));
    *in_out_standing = standing;
    return RP_OK;
}

/* ---- what is said ---- */

/* why NULL: the reason is not told. */
static void tell(const rpi_trainer *t, const rpi_loss *loss, const char *why, char *line,
                 size_t bytes) {
    const rpi_losses *losses = &t->losses;
    line[0] = '\0';
    rpi_append_ranks(line, bytes, loss->ranks, loss->count);
    rpi_append(line, bytes, " %s lost after step %lld", loss->count == 1 ? "is" : "are",
               (long long)loss->step);
    if (why) rpi_append(line, bytes, " (%.300s)", why);
    rpi_append(line, bytes, "; ");
    rpi_append_ranks(line, bytes, losses->members, t->place.world);
    rpi_append(line, bytes, t->place.world == 1 ? " goes on" : " go on");
}

/* in_out_ranks: the members before. Keeps those of them that are gone. */
static void find_lost(const rpi_trainer *t, int before_count, int *in_out_ranks,
                      rpi_loss *out_loss) {
    int count = 0;
    for (int i = 0; i < before_count; i++)
        if (!is_in(t->losses.members, t->place.world, in_out_ranks[i]))
            in_out_ranks[count++] = in_out_ranks[i];
    *out_loss = (rpi_loss){.step = t->step, .ranks = in_out_ranks, .count = count};
}

/* A rank that the others have not met, or not in time, cannot go on. */
static rp_status rejoin(rpi_trainer *t, int *places, rpi_standing *in_out_standing) {
    rpi_losses *losses = &t->losses;
    for (;;) {
        int made = losses->made_count;
        rp_status status = try_rejoin(t, places, in_out_standing);
        if (status != RP_PEER) return status;
        losses->goes_on = losses->made_count > made;
        if (!losses->goes_on) return status;
    }
}

rp_status rpi_trainer_rejoin(rpi_trainer *t, rpi_standing *in_out_standing,
                             rpi_loss *out_loss) {
    rpi_losses *losses = &t->losses;
    int before_count = t->place.world, *places = NULL;
    size_t world = (size_t)t->place.world;
    memcpy(losses->lost, losses->members, world * sizeof *losses->lost);
    RP_TRY(rpi_alloc_array(world, sizeof *places, "ranks", &places));
    rp_status status = rejoin(t, places, in_out_standing);
    rpi_free(places);
    RP_TRY(status);
    losses->is_pending = false;
    losses->count = t->place.world;
    find_lost(t, before_count, losses->lost, out_loss);
    /* The reason has the communicator's numbers, which are those of the start until the first
     * death only. */
    const char *why = losses->made_count == 1 ? losses->why : NULL;
    tell(t, out_loss, why, losses->line, sizeof losses->line);
    out_loss->line = losses->line;
    return RP_OK;
}

/* ---- ranks with roles ---- */

/* The rank's number in the strategy's communicator. */
static int place_of(const rpi_losses *losses, int rank) {
    int place = 0;
    while (place < losses->first_count && losses->first_ranks[place] != rank) place++;
    return place;
}

bool rpi_trainer_find_lost(rpi_trainer *t, rpi_loss *out_loss) {
    rpi_losses *losses = &t->losses;
    const char *first = NULL;
    int lost = 0, left = 0;
    for (int i = 0; t->strategy->lost && i < losses->count; i++) {
        int rank = losses->members[i];
        const char *why = t->strategy->lost(t->strategy_self, place_of(losses, rank));
        if (why && !first) first = why;
        if (why)
            losses->lost[lost++] = rank;
        else
            losses->members[left++] = rank;
    }
    if (!lost) return false;
    losses->count = left;
    *out_loss =
        (rpi_loss){.step = t->step, .ranks = losses->lost, .count = lost, .line = losses->line};
    tell(t, out_loss, first, losses->line, sizeof losses->line);
    return true;
}
