#include "train/returns.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"
#include "redpoll/version.h"
#include "train/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTEMPTS = 3 };
#define NAME "world with ranks that came back"

static int ranks_at_first(const rpi_trainer *t) {
    return t->place.servers + t->place.workers;
}

rp_status rpi_readmission_open(const rpi_trainer *t, rpi_readmission *g) {
    size_t world = (size_t)ranks_at_first(t);
    if (!t->options->returns || !t->strategy->grow || !t->losses.members) return RP_OK;
    g->requests.way = t->options->returns;
    RP_TRY(rpi_alloc_array(world, sizeof *g->first_ranks, "ranks", &g->first_ranks));
    RP_TRY(rpi_alloc_array(world, sizeof *g->back, "ranks", &g->back));
    return rpi_alloc_array(world, sizeof *g->request_numbers, "ranks", &g->request_numbers);
}

void rpi_readmission_close(rpi_readmission *g) {
    rp_comm_destroy(g->comm);
    rpi_free(g->first_ranks);
    rpi_free(g->back);
    rpi_free(g->request_numbers);
    *g = (rpi_readmission){0};
}

/* ---- what all do over the new communicator ---- */

/* Sends rank 0's values to a rank that comes back. */
static rp_status pass_values(rp_comm *comm, float *values, size_t count, int to) {
    if (!count) return RP_OK;
    return rp_comm_rank(comm) == 0 ? rp_send(comm, values, count, RP_F32, to, 0)
                                   : rp_recv(comm, values, count, RP_F32, 0, 0);
}

/* Sends parameters, running statistics and the optimizer's state. The other living ranks do not
 * take part: their own state stays, whatever the result of the attempt. */
static rp_status pass_state(const rpi_trainer *t, rp_comm *comm, int to) {
    size_t count = (size_t)rpi_weights_count(t->weights);
    size_t states = (size_t)rpi_weights_states_count(t->weights);
    RP_TRY(pass_values(comm, rpi_weights_values(t->weights), count, to));
    RP_TRY(pass_values(comm, rpi_weights_states(t->weights), states, to));
    for (int i = 0; i < t->optimizer.kind->slot_count; i++)
        RP_TRY(pass_values(comm, rpi_optimizer_state_slot(&t->optimizer, i, 0), count, to));
    return RP_OK;
}

static rp_status share(rpi_readmission *g, rpi_run_state *state) {
    RP_TRY(rp_broadcast(g->comm, state, RPI_RUN_STATE, RP_F64, NULL));
    return rp_broadcast(g->comm, g->first_ranks, (size_t)g->count, RP_I32, NULL);
}

static rp_status connect(rpi_readmission *g, int epoch, int rank) {
    const rpi_train_returns *way = g->requests.way;
    return way->connect(way->context, NAME, (uint32_t)epoch, rank, g->count,
                        RPI_RETURN_CONNECT_S, &g->comm);
}

/* Drops an attempt, the strategy's part by `close`. status: the reason, with this thread's last
 * error, which is kept: no rank waits for this one over the communicator. */
static void drop(rpi_trainer *t, rpi_readmission *g, rp_status status,
                 void (*close)(rpi_trainer *t)) {
    rpi_kept_error why;
    rpi_error_keep(&why);
    if (g->comm && status != RP_OK) rp_comm_abort(g->comm, status, why.message);
    close(t);
    rp_comm_destroy(g->comm);
    g->comm = NULL;
    rpi_error_put_back(&why);
}

/* From here on the new communicator is the world. */
static void take_over(rpi_trainer *t, rpi_readmission *g) {
    rpi_losses *losses = &t->losses;
    rp_comm *before = losses->grown;
    losses->grown = t->comm = g->comm;
    g->comm = NULL;
    g->is_ready = false;
    rpi_trainer_count_from_here(t);
    rpi_train_place_move(&t->place, rp_comm_rank(t->comm), rp_comm_world(t->comm));
    for (int i = 0; i < t->place.world; i++)
        losses->members[i] = losses->first_ranks[i] = g->first_ranks[i];
    losses->count = losses->first_count = t->place.world;
    rp_comm_destroy(before);
}

/* ---- ranks that live ---- */

static bool is_in(const int *ranks, int count, int rank) {
    for (int i = 0; i < count; i++)
        if (ranks[i] == rank) return true;
    return false;
}

static int by_number(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

static void list_ranks(const rpi_trainer *t, rpi_readmission *g) {
    g->count = 0;
    for (int i = 0; i < t->place.world; i++) g->first_ranks[g->count++] = t->losses.members[i];
    for (int i = 0; i < g->back_count; i++) g->first_ranks[g->count++] = g->back[i];
    qsort(g->first_ranks, (size_t)g->count, sizeof *g->first_ranks, by_number);
}

static int place_of(const rpi_readmission *g, int rank) {
    int place = 0;
    while (place < g->count && g->first_ranks[place] != rank) place++;
    return place;
}

/* Why this rank cannot be taken back; NULL: it can. */
static const char *refusal(const rpi_trainer *t, const rpi_return_request *request, char *text,
                           size_t bytes) {
    int world = ranks_at_first(t);
    if (request->rank < t->place.servers || request->rank >= world)
        snprintf(text, bytes, "no worker of this run: workers are ranks %d to %d",
                 t->place.servers, world - 1);
    else if (strcmp(request->version, rp_version()) != 0)
        snprintf(text, bytes, "of redpoll %s, and the run is of %s; start it by the same one",
                 request->version, rp_version());
    else
        return NULL;
    return text;
}

/* A later request of the same rank comes from a process that has replaced the former one. */
static void note(rpi_readmission *g, const rpi_return_request *request) {
    int at = 0;
    while (at < g->back_count && g->back[at] != request->rank) at++;
    if (at == g->back_count) g->back[g->back_count++] = request->rank;
    g->request_numbers[at] = request->number;
}

/* On rank 0. */
static void take_request(const rpi_trainer *t, rpi_readmission *g,
                         const rpi_return_request *request) {
    char why[160], text[RPI_RETURN_TEXT];
    if (refusal(t, request, why, sizeof why)) {
        snprintf(text, sizeof text, "refused %s", why);
        snprintf(g->why, sizeof g->why, "rank %d is %s", request->rank, why);
        (void)rpi_return_say(&g->requests, request->number, "invite", text);
        /* its death is not known yet */
    } else if (is_in(t->losses.members, t->place.world, request->rank)) {
        (void)rpi_return_say(&g->requests, request->number, "invite", "again");
    } else {
        note(g, request);
    }
}

/* On rank 0: removes ranks that have died since they asked. */
static void call_all(rpi_readmission *g) {
    int count = g->back_count;
    g->back_count = 0;
    for (int i = 0; i < count; i++) {
        if (!rpi_return_call(&g->requests, g->request_numbers[i])) { /* it may only be slow */
            (void)rpi_return_say(&g->requests, g->request_numbers[i], "place", "again");
            snprintf(g->why, sizeof g->why, "rank %d, which asked, does not answer any more",
                     g->back[i]);
            continue;
        }
        g->back[g->back_count] = g->back[i];
        g->request_numbers[g->back_count++] = g->request_numbers[i];
    }
}

/* A rank that cannot be told notices at its deadline. */
static void invite(rpi_readmission *g, int epoch) {
    char text[RPI_RETURN_TEXT];
    for (int i = 0; i < g->back_count; i++) {
        snprintf(text, sizeof text, "come %d %d %d", epoch, place_of(g, g->back[i]), g->count);
        (void)rpi_return_say(&g->requests, g->request_numbers[i], "place", text);
    }
}

static void tell_all(rpi_readmission *g, const char *what, const char *text) {
    for (int i = 0; i < g->back_count; i++)
        (void)rpi_return_say(&g->requests, g->request_numbers[i], what, text);
}

static void stay(rpi_trainer *t) {
    t->strategy->settle(t->strategy_self, false);
}

/* Gives up the attempt before, if there was one: ranks that come back ask again, whether they
 * were told their places or not. */
static void give_up(rpi_trainer *t, rpi_readmission *g) {
    drop(t, g, RP_OK, stay);
    if (t->place.rank == 0) {
        tell_all(g, "place", "again");
        tell_all(g, "verdict", "again");
    }
    g->back_count = 0;
    g->is_ready = false;
}

/* From rank 0 to all: the attempt's number, and the ranks that come back. */
static rp_status plan(const rpi_trainer *t, rpi_readmission *g, int *out_epoch) {
    int head[2] = {0};
    if (t->place.rank == 0) {
        rpi_return_request request;
        while (rpi_return_take(&g->requests, &request)) take_request(t, g, &request);
        call_all(g);
        head[0] = ++g->epoch;
        head[1] = g->back_count;
    }
    RP_TRY(rp_broadcast(t->comm, head, 2, RP_I32, NULL));
    *out_epoch = head[0];
    g->back_count = head[1];
    if (!g->back_count) return RP_OK;
    return rp_broadcast(t->comm, g->back, (size_t)g->back_count, RP_I32, NULL);
}

static rp_status give_state(const rpi_trainer *t, const rpi_readmission *g) {
    if (t->place.rank > 0) return RP_OK;
    for (int i = 0; i < g->back_count; i++)
        RP_TRY(pass_state(t, g->comm, place_of(g, g->back[i])));
    return RP_OK;
}

static rp_status build(rpi_trainer *t, const rpi_run_state *state, rpi_readmission *g,
                       int epoch) {
    rpi_run_state told = *state;
    RP_TRY(connect(g, epoch, place_of(g, t->losses.members[t->place.rank])));
    RP_TRY(share(g, &told));
    RP_TRY(rpi_train_agree(t, g->comm));
    RP_TRY(give_state(t, g));
    RP_TRY(t->strategy->grow(t->strategy_self, g->comm));
    return rp_barrier(g->comm);
}

/* Over the present communicator: has everything succeeded on all ranks? */
static rp_status vote(const rpi_trainer *t, rp_status status, bool *out_well) {
    float ill = status != RP_OK;
    rp_segment segment = {.data = &ill, .count = 1, .dtype = RP_F32};
    RP_TRY(rp_all_reduce(t->comm, &segment, 1, NULL));
    *out_well = ill == 0;
    return RP_OK;
}

rp_status rpi_readmission_try(rpi_trainer *t, const rpi_run_state *state, rpi_readmission *g) {
    int epoch = 0;
    bool is_well = false;
    give_up(t, g);
    g->why[0] = '\0';
    RP_TRY(plan(t, g, &epoch));
    if (!g->back_count) return RP_OK;
    list_ranks(t, g);
    if (t->place.rank == 0) invite(g, epoch);
    rp_status status = build(t, state, g, epoch);
    if (status != RP_OK) {
        snprintf(g->why, sizeof g->why, "%.280s", rp_last_error()->message);
        drop(t, g, status, stay);
    }
    RP_TRY(vote(t, status, &is_well));
    if (!is_well && !g->why[0]) snprintf(g->why, sizeof g->why, "another rank has failed");
    if (is_well)
        g->is_ready = true;
    else
        give_up(t, g);
    return RP_OK;
}

void rpi_readmission_take(rpi_trainer *t, rpi_readmission *g, rpi_back *out_back) {
    t->strategy->settle(t->strategy_self, true);
    take_over(t, g);
    if (t->place.rank == 0) tell_all(g, "verdict", "go");
    char *line = g->line;
    line[0] = '\0';
    rpi_append_ranks(line, sizeof g->line, g->back, g->back_count);
    rpi_append(line, sizeof g->line, " %s back behind step %lld; ",
               g->back_count == 1 ? "is" : "are", (long long)t->step);
    rpi_append_ranks(line, sizeof g->line, t->losses.members, t->place.world);
    rpi_append(line, sizeof g->line, " go on");
    *out_back =
        (rpi_back){.step = t->step, .ranks = g->back, .count = g->back_count, .line = g->line};
    g->back_count = 0; /* no rank waits for an answer any more */
}

/* ---- a rank that comes back ---- */

static rp_status open_over(rpi_trainer *t, rpi_readmission *g) {
    t->comm = g->comm;
    rpi_train_place_move(&t->place, rp_comm_rank(t->comm), rp_comm_world(t->comm));
    RP_TRY(rpi_trainer_open_strategy(t));
    return rp_barrier(t->comm);
}

static rp_status join(rpi_trainer *t, rpi_readmission *g, int epoch, int rank,
                      rpi_run_state *out_state) {
    RP_TRY(connect(g, epoch, rank));
    RP_TRY(share(g, out_state));
    t->step = (int64_t)out_state->standing.step;
    RP_TRY(rpi_train_agree(t, g->comm));
    RP_TRY(pass_state(t, g->comm, rank));
    rpi_weights_changed(t->weights, 0, rpi_weights_count(t->weights));
    return open_over(t, g);
}

static void leave(rpi_trainer *t, rpi_readmission *g, rp_status status) {
    drop(t, g, status, rpi_trainer_close_strategy);
    t->comm = NULL;
    rpi_train_place_move(&t->place, g->requests.way->rank, g->requests.way->world);
}

/* May the failure be one of the returning ranks, so that another attempt may succeed? */
static bool is_theirs(rp_status status) {
    return status == RP_OK || status == RP_PEER || status == RP_TIMEOUT;
}

/* One request. *out_again: it has failed, and another one may succeed. */
static rp_status attempt(rpi_trainer *t, const rpi_train_hooks *hooks, rpi_readmission *g,
                         rpi_run_state *out_state, bool *out_over, bool *out_again) {
    char text[RPI_RETURN_TEXT];
    int epoch = 0, rank = 0;
    int64_t number = 0;
    RP_TRY(rpi_return_ask(&g->requests, &number));
    RP_TRY(rpi_return_hear(&g->requests, number, "invite", hooks, text, out_over));
    if (strncmp(text, "refused ", 8) == 0)
        return RP_FAIL(INVALID, "rank %d cannot come back: it is %.200s", g->requests.way->rank,
                       text + 8);
    *out_again = strcmp(text, "called") != 0;
    if (*out_again) return RP_OK;
    RP_TRY(rpi_return_answer(&g->requests, number));
    RP_TRY(rpi_return_hear(&g->requests, number, "place", hooks, text, out_over));
    *out_again = strcmp(text, "again") == 0;
    if (*out_again) return RP_OK;
    int read = sscanf(text, "come %d %d %d", &epoch, &rank, &g->count);
    if (read != 3 || rank < 0 || rank >= g->count || g->count > g->requests.way->world)
        return RP_FAIL(CORRUPT, "an invitation that cannot be: '%.100s'", text);
    rp_status status = join(t, g, epoch, rank, out_state);
    if (status != RP_OK) leave(t, g, status);
    if (!is_theirs(status)) return status;
    RP_TRY(rpi_return_hear(&g->requests, number, "verdict", hooks, text, out_over));
    *out_again = strcmp(text, "go") != 0;
    if (*out_again) leave(t, g, RP_OK);
    return *out_again || status == RP_OK
               ? RP_OK
               : RP_FAIL(PEER,
                         "connection closed by peer: rank %d came back and was lost on the way",
                         t->place.rank);
}

rp_status rpi_return(rpi_trainer *t, const rpi_train_hooks *hooks, rpi_readmission *g,
                     rpi_run_state *out_state, bool *out_over) {
    bool again = true;
    for (int i = 0; i < ATTEMPTS && again; i++) {
        if (i) rpi_return_pause(&g->requests, hooks);
        rp_status status = attempt(t, hooks, g, out_state, out_over, &again);
        if (status != RP_OK) {
            leave(t, g, status);
            return status;
        }
    }
    if (again)
        return RP_FAIL(PEER,
                       "rank %d was to come back, and %d attempts to meet the others have "
                       "failed: they say why",
                       t->place.rank, ATTEMPTS);
    take_over(t, g);
    return RP_OK;
}
