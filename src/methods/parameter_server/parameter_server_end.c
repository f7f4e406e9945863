/* What ranks do together behind a span of steps, and without those that die meanwhile.
 *
 * A death fails an operation of all on some ranks, while others have done their part of it and
 * know of nothing. So all ask the first server, without which no run goes on:
 *
 *     rank                          first server
 *     REPORT  was all well?  ---->  of each that lives; who cannot tell is lost
 *            <----  VERDICT         who was lost, and was all well on all?
 *
 * Not well: they make a communicator without the lost, report how that went, and do again what
 * has failed. Who dies behind its report is found missing by whatever comes next. */
#include "methods/parameter_server/parameter_server_object.h"

#include "base/fpenv.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

static bool is_lost(const rp_parameter_server *s, int rank) {
    return s->verdict[rank] != 0;
}

static int count_lost(const rp_parameter_server *s) {
    int count = 0;
    for (int rank = 0; rank < s->world; rank++) count += is_lost(s, rank);
    return count;
}

/* Did a death end an operation of all ranks, in a run that goes on without the dead? */
static bool is_outlived(const rp_parameter_server *s, rp_status status) {
    return s->options.goes_on && (status == RP_PEER || status == RP_TIMEOUT);
}

/* ---- the verdict ---- */

/* Who dies after its report is named in the next verdict. */
static rp_status tell_workers(rp_parameter_server *s) {
    for (int w = 0; w < s->workers; w++) {
        if (s->at.ledger.workers[w].is_lost) continue;
        rp_status status = rp_send(s->at.links[w].comm, s->verdict, (size_t)s->world + 1,
                                   RP_F64, 1, RPI_PUSH_VERDICT);
        if (status != RP_OK) RP_TRY(rpi_push_lose(s, w, status));
    }
    return RP_OK;
}

static rp_status hear_workers(rp_parameter_server *s, double *in_out_unwell) {
    for (int w = 0; w < s->workers; w++) {
        double unwell = 0;
        if (s->at.ledger.workers[w].is_lost) continue;
        rp_status status = rp_recv(s->at.links[w].comm, &unwell, 1, RP_F64, 1, RPI_PUSH_REPORT);
        if (status != RP_OK) RP_TRY(rpi_push_lose(s, w, status));
        *in_out_unwell += status != RP_OK || unwell != 0;
    }
    return RP_OK;
}

/* Only the first server's word counts for who is lost: others add zeros. */
static rp_status judge(rp_parameter_server *s, double unwell) {
    size_t count = (size_t)s->world + 1;
    memset(s->verdict, 0, count * sizeof *s->verdict);
    if (s->server == 0) RP_TRY(hear_workers(s, &unwell));
    for (int w = 0; w < s->workers && s->server == 0; w++)
        s->verdict[rpi_push_worker_rank(s, w)] = s->at.ledger.workers[w].is_lost;
    s->verdict[s->world] = unwell;
    rp_segment segment = {.data = s->verdict, .count = count, .dtype = RP_F64};
    if (s->servers_comm) RP_TRY(rp_all_reduce(s->servers_comm, &segment, 1, NULL));
    for (int w = 0; w < s->workers; w++)
        if (is_lost(s, rpi_push_worker_rank(s, w))) rpi_ledger_lose(&s->at.ledger, w);
    return s->server == 0 ? tell_workers(s) : RP_OK;
}

static rp_status ask(rp_parameter_server *s, double unwell) {
    rp_comm *first = s->uplinks[0].comm;
    rp_status status = rp_send(first, &unwell, 1, RP_F64, 0, RPI_PUSH_REPORT);
    rpi_push_await(s, 0);
    if (status == RP_OK)
        status = rp_recv(first, s->verdict, (size_t)s->world + 1, RP_F64, 0, RPI_PUSH_VERDICT);
    rpi_push_await(s, -1);
    return status == RP_OK ? RP_OK : rpi_push_explain(s, status, 0);
}

/* status: how this rank has fared; RP_OK, or of a death. */
static rp_status meet(rp_parameter_server *s, rp_status status, bool *out_well) {
    rpi_kept_error why;
    rpi_error_keep(&why);
    double unwell = status != RP_OK;
    rpi_push_idle(s, true); /* the first server waits for all ranks, and they wait for it */
    rp_status met = s->server >= 0 ? judge(s, unwell) : ask(s, unwell);
    rpi_push_idle(s, false);
    RP_TRY(met);
    *out_well = s->verdict[s->world] == 0 && count_lost(s) == s->known_lost;
    bool is_fruitless = !*out_well && count_lost(s) == s->known_lost;
    s->fruitless = is_fruitless ? s->fruitless + 1 : *out_well ? s->fruitless : 0;
    if (s->fruitless <= RPI_PUSH_FRUITLESS) return RP_OK;
    if (status == RP_OK)
        return RP_FAIL(PEER, "ranks fail each other again and again, and none has died");
    rpi_error_put_back(&why);
    return status;
}

/* ---- who is left ---- */

static rp_status join_rest(rp_parameter_server *s, int *ranks) {
    int count = 0;
    char name[64];
    for (int rank = 0; rank < s->world; rank++)
        if (!is_lost(s, rank)) ranks[count++] = rank;
    snprintf(name, sizeof name, "parameters without %d", s->known_lost);
    rp_comm_options options = RP_COMM_OPTIONS(.name = name, .progress_thread = 1);
    return rp_comm_group(s->comm, ranks, count, &options, &s->alive);
}

/* Its links may still be needed. */
static rp_status keep_earlier(rp_parameter_server *s) {
    size_t count = (size_t)s->earlier_count;
    RP_TRY(rpi_grow_array(count, count + 1, sizeof *s->earlier, "communicators", &s->earlier));
    s->earlier[s->earlier_count++] = s->alive;
    s->alive = NULL;
    return RP_OK;
}

/* anew: a new communicator even where nobody was lost since the last one. */
static rp_status leave_behind(rp_parameter_server *s, bool anew) {
    int *ranks = NULL, lost = count_lost(s);
    if (!anew && lost == s->known_lost) return RP_OK;
    s->known_lost = lost;
    if (s->alive) RP_TRY(keep_earlier(s));
    RP_TRY(rpi_alloc_array((size_t)s->world, sizeof *ranks, "ranks", &ranks));
    rp_status status = join_rest(s, ranks);
    rpi_free(ranks);
    return status;
}

static rp_status confirm(rp_parameter_server *s, rp_status status, bool *out_again) {
    bool well = false;
    *out_again = false;
    for (;;) {
        RP_TRY(meet(s, status, &well));
        if (well) break;
        *out_again = true;
        status = leave_behind(s, true);
        if (status != RP_OK && !is_outlived(s, status)) return status;
    }
    if (!*out_again) s->fruitless = 0;
    return RP_OK;
}

rp_status rp_parameter_server_confirm(rp_parameter_server *s, rp_status status, int *again) {
    RPI_FPENV_SCOPE;
    bool repeats = false;
    if (!s) return RP_FAIL(INVALID, "server is NULL");
    if (!again) return RP_FAIL(INVALID, "parameter server: nowhere to say whether to repeat");
    if (s->has_begun) return RP_FAIL(STATE, "parameter server: steps are under way");
    *again = 0;
    if (status != RP_OK && !is_outlived(s, status)) return rpi_push_fail(s, status);
    if (!s->options.goes_on) return RP_OK;
    status = confirm(s, status, &repeats);
    if (status != RP_OK) return rpi_push_fail(s, status);
    *again = repeats;
    return RP_OK;
}

/* ---- the end ---- */

static rp_status gather(rp_parameter_server *s, float *vector) {
    rp_comm *comm = rp_parameter_server_comm(s);
    for (int server = 0; server < s->server_count && rp_comm_world(comm) > 1; server++)
        RP_TRY(rp_broadcast(comm, vector + s->shards[server].first, s->shards[server].count,
                            RP_F32,
                            &(rp_collective_options)RP_COLLECTIVE_OPTIONS(.root = server)));
    return RP_OK;
}

/* status: of making the communicator for it. */
static rp_status share_values(rp_parameter_server *s, rp_status status) {
    bool again = true;
    while (again) {
        if (status == RP_OK) status = gather(s, s->values);
        if (!s->options.goes_on || (status != RP_OK && !is_outlived(s, status))) return status;
        RP_TRY(confirm(s, status, &again));
        status = RP_OK;
    }
    return RP_OK;
}

static rp_status end(rp_parameter_server *s) {
    rp_status status = RP_OK;
    bool well = true;
    RP_TRY(s->worker >= 0 ? rpi_push_end_work(s) : rpi_push_serve(s));
    if (s->options.servers) {
        RP_TRY(meet(s, RP_OK, &well)); /* who has not ended by now is lost */
        status = leave_behind(s, false);
    }
    if (s->server >= 0 && s->shards[s->server].count)
        memcpy(s->values + s->shards[s->server].first, s->at.values,
               s->shards[s->server].count * sizeof(float));
    return share_values(s, status);
}

rp_status rp_parameter_server_end(rp_parameter_server *s) {
    RPI_FPENV_SCOPE;
    if (!s) return RP_FAIL(INVALID, "server is NULL");
    if (!s->has_begun) return RP_FAIL(STATE, "parameter server: no steps have begun");
    rp_status status = end(s);
    if (status != RP_OK) return rpi_push_fail(s, status);
    s->has_begun = false;
    s->values = NULL;
    return RP_OK;
}

rp_status rp_parameter_server_gather(rp_parameter_server *s, float *vector) {
    RPI_FPENV_SCOPE;
    if (!s) return RP_FAIL(INVALID, "server is NULL");
    if (!vector) return RP_FAIL(INVALID, "parameter server: the vector is NULL");
    if (s->has_begun) return RP_FAIL(STATE, "parameter server: steps are under way");
    return gather(s, vector);
}
