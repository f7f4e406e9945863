/* The server: a loop over what comes from workers. */
#include "methods/parameter_server/parameter_server_object.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/log.h"
#include "base/memory.h"
#include "methods/vector_memory.h"
#include "net/bytes/signal_masked_thread.h"

#include <stdio.h>
#include <string.h>

/* Completed requests are told by tokens. */
enum { TOKEN_HEADER, TOKEN_PAYLOAD, TOKENS };

static const rpi_push_shard *own_shard(const rp_parameter_server *s) {
    return &s->shards[s->server];
}

static bool is_local(const rp_parameter_server *s, int worker) {
    return worker == s->worker;
}

static bool is_synchronous(const rp_parameter_server *s) {
    return s->options.staleness == 0;
}

/* ---- opening ---- */

static rp_status open_links(rp_parameter_server *s) {
    rpi_push_server *at = &s->at;
    size_t workers = (size_t)s->workers, count = own_shard(s)->count;
    bool decides = !s->first_decides || s->server == 0;
    int64_t staleness = decides ? s->options.staleness : RP_ANY_STALENESS;
    RP_TRY(rpi_ledger_open(s->workers, staleness, s->options.quorum, &at->ledger));
    RP_TRY(rpi_push_orders_open(s));
    RP_TRY(rpi_alloc_array(workers, sizeof *at->links, "workers", &at->links));
    RP_TRY(rpi_alloc_array(workers, sizeof *at->copies, "workers", &at->copies));
    RP_TRY(rpi_alloc_array(workers, sizeof *at->members, "workers", &at->members));
    RP_TRY(rpi_alloc_array(workers, sizeof *at->pushes, "workers", &at->pushes));
    RP_TRY(rpi_alloc_array(count, sizeof *at->values, "a shard of parameters", &at->values));
    RP_TRY(rpi_alloc_array(count, sizeof *at->sum, "a shard's gradient", &at->sum));
    for (int w = 0; w < s->workers; w++)
        RP_TRY(rpi_alloc(own_shard(s)->payload_bytes, "a push", &at->links[w].payload));
    return rp_completions_create(&at->queue);
}

rp_status rpi_push_server_open(rp_parameter_server *s) {
    return s->server < 0 ? RP_OK : open_links(s);
}

static void free_requests(rpi_push_downlink *link) {
    rp_request **all[] = {&link->header_in, &link->payload_in, &link->answer_out,
                          &link->values_out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (*all[i]) (void)rp_request_wait(all[i]);
    if (link->copy) link->copy->users--;
    link->copy = NULL;
    link->has_header = link->has_payload = link->may_push = false;
}

/* Communicators are gone: what was in flight is over. */
void rpi_push_server_close(rp_parameter_server *s) {
    rpi_push_server *at = &s->at;
    for (int w = 0; w < s->workers && at->links; w++) rpi_free(at->links[w].payload);
    for (int w = 0; w < s->workers && at->copies; w++) rpi_vector_free(at->copies[w].data);
    rpi_ledger_close(&at->ledger);
    rpi_push_orders_close(s);
    rpi_free(at->links);
    rpi_free(at->copies);
    rpi_free(at->members);
    rpi_free(at->pushes);
    rpi_free(at->values);
    rpi_free(at->sum);
    if (at->queue) rp_completions_destroy(at->queue);
}

/* ---- receiving ---- */

static uint64_t token_of(int worker, int what) {
    return (uint64_t)worker * TOKENS + (uint64_t)what;
}

/* The token of the first server's orders: the one after those of all workers. */
static uint64_t order_token(const rp_parameter_server *s) {
    return token_of(s->workers, 0);
}

static rp_status expect_header(rp_parameter_server *s, int worker) {
    rpi_push_downlink *link = &s->at.links[worker];
    if (is_local(s, worker)) return RP_OK;
    RP_TRY(rp_recv_start(link->comm, &link->header, RPI_MESSAGE_DOUBLES, RP_F64, 1,
                         RPI_PUSH_HEADER, &link->header_in));
    return rp_request_notify(link->header_in, s->at.queue, token_of(worker, TOKEN_HEADER));
}

static rp_status expect_payload(rp_parameter_server *s, int worker) {
    rpi_push_downlink *link = &s->at.links[worker];
    link->may_push = true;
    if (is_local(s, worker)) return RP_OK;
    RP_TRY(rp_recv_start(link->comm, link->payload, own_shard(s)->payload_bytes, RP_U8, 1,
                         RPI_PUSH_PAYLOAD, &link->payload_in));
    return rp_request_notify(link->payload_in, s->at.queue, token_of(worker, TOKEN_PAYLOAD));
}

rp_status rpi_push_server_begin(rp_parameter_server *s, uint64_t first_step, uint64_t steps) {
    rpi_push_server *at = &s->at;
    const rpi_push_shard *shard = own_shard(s);
    if (shard->count)
        memcpy(at->values, s->values + shard->first, shard->count * sizeof(float));
    for (int w = 0; w < s->workers; w++) at->copies[w].version = UINT64_MAX;
    rpi_ledger_restart(&at->ledger);
    if (at->ledger.version == 0)
        at->ledger.version = is_synchronous(s) ? first_step : first_step * (uint64_t)s->shares;
    at->first_version = at->ledger.version;
    at->first_step = first_step;
    at->steps = steps;
    at->pushed = at->dealt = 0;
    at->grace_ns = 0;
    at->orders.has_order = at->orders.is_over = false;
    atomic_store(&at->stops, false);
    for (int w = 0; w < s->workers; w++) at->links[w].has_ended = false;
    return RP_OK;
}

/* ---- losing a worker ---- */

static bool may_lose(const rp_parameter_server *s, rp_status status) {
    return s->options.goes_on && (status == RP_PEER || status == RP_TIMEOUT);
}

rp_status rpi_push_lose(rp_parameter_server *s, int worker, rp_status status) {
    rpi_push_server *at = &s->at;
    int rank = rpi_push_worker_rank(s, worker);
    if (at->ledger.workers[worker].is_lost) return RP_OK;
    bool gave_up = rpi_push_gave_up();
    status = rpi_push_explain(s, status, rank);
    if (gave_up || !may_lose(s, status)) return status;
    snprintf(s->reasons[rank], sizeof s->reasons[rank], "%.190s", rp_last_error()->message);
    if (at->ledger.workers[worker].state == RPI_WORKER_COMPUTING && at->dealt) at->dealt--;
    rpi_ledger_lose(&at->ledger, worker);
    free_requests(&at->links[worker]);
    int left = s->workers - rpi_ledger_lost(&at->ledger);
    if (left && s->server == 0)
        rpi_log(RP_LOG_WARNING, "%s; %d worker%s on", s->reasons[rank], left,
                left == 1 ? " goes" : "s go");
    if (left || s->options.goes_on > 1) return RP_OK;
    return RP_FAIL(PEER, "no worker is left: %s", s->reasons[rank]);
}

/* ---- answers ---- */

/* Is the next step beyond those of the span? Only the first server asks. */
static bool is_last(const rp_parameter_server *s) {
    const rpi_push_server *at = &s->at;
    bool stops = atomic_load(&at->stops);
    uint64_t workers = (uint64_t)s->shares, steps = at->steps;
    if (is_synchronous(s)) return stops || at->ledger.version - at->first_version >= steps;
    if (stops && (at->dealt + workers - 1) / workers < steps)
        steps = (at->dealt + workers - 1) / workers;
    return at->dealt >= steps * workers;
}

/* A copy of the parameters as they are now, for workers to whom they are sent. */
static rp_status copy_values(rp_parameter_server *s, rpi_push_copy **out_copy) {
    rpi_push_server *at = &s->at;
    rpi_push_copy *unused = NULL;
    size_t count = own_shard(s)->count;
    for (int i = 0; i < s->workers; i++) {
        rpi_push_copy *copy = &at->copies[i];
        if (copy->data && copy->version == at->ledger.version) {
            *out_copy = copy;
            return RP_OK;
        }
        if (!copy->users && (!unused || copy->data)) unused = copy;
    }
    if (!unused) return RP_FAIL(INTERNAL, "parameter server: all copies travel");
    if (!unused->data)
        RP_TRY(rpi_vector_alloc(s->comm, count * sizeof(float), "parameters on their way",
                                &unused->data));
    if (count) memcpy(unused->data, at->values, count * sizeof(float));
    unused->version = at->ledger.version;
    *out_copy = unused;
    return RP_OK;
}

static rp_status answer_remote(rp_parameter_server *s, int worker) {
    rpi_push_downlink *link = &s->at.links[worker];
    RP_TRY(rp_send_start(link->comm, &link->answer, RPI_MESSAGE_DOUBLES, RP_F64, 1,
                         RPI_PUSH_ANSWER, &link->answer_out));
    if ((int)link->answer.kind == RPI_MESSAGE_MERGED) return RP_OK;
    RP_TRY(copy_values(s, &link->copy));
    link->copy->users++;
    return rp_send_start(link->comm, link->copy->data, own_shard(s)->count, RP_F32, 1,
                         RPI_PUSH_VALUES, &link->values_out);
}

static void answer_here(rp_parameter_server *s, int worker) {
    const rpi_push_shard *shard = own_shard(s);
    pthread_mutex_lock(&s->handover.lock);
    s->uplinks[s->server].answer = s->at.links[worker].answer;
    if (shard->count && (int)s->at.links[worker].answer.kind != RPI_MESSAGE_MERGED)
        memcpy(s->values + shard->first, s->at.values, shard->count * sizeof(float));
    s->handover.is_answered = true;
    pthread_cond_broadcast(&s->handover.changed);
    pthread_mutex_unlock(&s->handover.lock);
}

static rp_status answer_as(rp_parameter_server *s, int worker, int kind) {
    rpi_push_downlink *link = &s->at.links[worker];
    const rpi_ledger_worker *one = &s->at.ledger.workers[worker];
    link->answer = (rpi_push_message){.kind = kind,
                                      .number = (double)one->received,
                                      .staleness = (double)one->staleness,
                                      .updates = (double)one->updates,
                                      .version = (double)s->at.ledger.version};
    link->news_ns = rpi_now_ns();
    if (kind == RPI_MESSAGE_GO_ON) RP_TRY(expect_payload(s, worker));
    if (!is_local(s, worker)) return answer_remote(s, worker);
    answer_here(s, worker);
    return RP_OK;
}

/* Answers a worker that may go on. */
static rp_status answer(rp_parameter_server *s, int worker) {
    int kind = s->server == 0 && is_last(s) ? RPI_MESSAGE_END : RPI_MESSAGE_GO_ON;
    if (kind == RPI_MESSAGE_END) rpi_ledger_end(&s->at.ledger, worker);
    if (kind == RPI_MESSAGE_GO_ON) s->at.dealt++;
    rp_status status = answer_as(s, worker, kind);
    return status == RP_OK ? RP_OK : rpi_push_lose(s, worker, status);
}

/* ---- merges ---- */

static uint64_t step_now(const rp_parameter_server *s, uint64_t version) {
    const rpi_push_server *at = &s->at;
    if (is_synchronous(s)) return at->first_step + (version - at->first_version);
    return at->first_step + at->pushed / (uint64_t)s->shares;
}

static void describe(rp_parameter_server *s, int worker, rp_parameter_push *push) {
    const rpi_ledger_worker *one = &s->at.ledger.workers[worker];
    const rpi_push_message *header = &s->at.links[worker].header;
    *push = (rp_parameter_push){.worker = worker,
                                .number = one->merged,
                                .weight = header->weight,
                                .staleness = one->staleness,
                                .updates = one->updates,
                                .notes = header->notes};
}

static rp_status add_up(rp_parameter_server *s, int count, double *out_weight) {
    rpi_push_server *at = &s->at;
    *out_weight = 0;
    for (int i = 0; i < count; i++) {
        int worker = at->members[i];
        describe(s, worker, &at->pushes[i]);
        *out_weight += at->pushes[i].weight;
        RP_TRY(rpi_push_decode(s, worker, at->pushes[i].number, at->links[worker].payload,
                               i == 0, at->sum));
    }
    return RP_OK;
}

/* Workers whose pushes were merged here fetch parameters when the first server tells them
 * to. */
static rp_status say_merged(rp_parameter_server *s, int count) {
    for (int i = 0; i < count; i++) {
        int worker = s->at.members[i];
        rpi_ledger_worker *one = &s->at.ledger.workers[worker];
        if (one->state != RPI_WORKER_WAITING) continue;
        one->state = RPI_WORKER_EXPECTED;
        rp_status status = answer_as(s, worker, RPI_MESSAGE_MERGED);
        if (status != RP_OK) RP_TRY(rpi_push_lose(s, worker, status));
    }
    return RP_OK;
}

/* version: merges before this one. */
static rp_status merge(rp_parameter_server *s, int count, uint64_t version) {
    rpi_push_server *at = &s->at;
    rp_parameter_merge merge = {.first = own_shard(s)->first,
                                .count = own_shard(s)->count,
                                .values = at->values,
                                .gradient = at->sum,
                                .pushes = at->pushes,
                                .push_count = count,
                                .is_complete = count == s->shares,
                                .version = version,
                                .step = step_now(s, version)};
    RP_TRY(add_up(s, count, &merge.weight));
    at->pushed += (uint64_t)count;
    at->grace_ns = 0;
    RP_TRY(s->options.merge(s->options.context, &merge));
    return s->first_decides && s->server > 0 ? say_merged(s, count) : RP_OK;
}

static bool grace_is_over(rp_parameter_server *s) {
    rpi_push_server *at = &s->at;
    if (!rpi_ledger_has_quorum(&at->ledger)) return false;
    if (!at->grace_ns) at->grace_ns = rpi_deadline_ns(s->options.grace_s);
    return rpi_now_ns() >= at->grace_ns;
}

/* Merges by this server's own ledger, and tells the servers that follow it. */
static rp_status merge_own(rp_parameter_server *s, bool *out_any) {
    rpi_push_server *at = &s->at;
    int count = rpi_ledger_merge(&at->ledger, grace_is_over(s), at->members);
    *out_any = count > 0;
    if (!count) return RP_OK;
    RP_TRY(rpi_push_order(s, count));
    return merge(s, count, at->ledger.version - 1);
}

static rp_status merge_as_told(rp_parameter_server *s, bool *out_any) {
    rpi_push_server *at = &s->at;
    uint64_t version = at->ledger.version;
    bool heeded = false;
    int count = rpi_push_follow(s, at->members, &heeded);
    *out_any = count > 0 || heeded;
    if (heeded) RP_TRY(rpi_push_expect_order(s, order_token(s)));
    return count ? merge(s, count, version) : RP_OK;
}

/* Everything that may be done now. */
static rp_status advance(rp_parameter_server *s) {
    for (;;) {
        bool any = false;
        RP_TRY(rpi_push_follows(s) ? merge_as_told(s, &any) : merge_own(s, &any));
        int worker = rpi_ledger_admit(&s->at.ledger);
        if (worker >= 0) RP_TRY(answer(s, worker));
        if (!any && worker < 0) return RP_OK;
    }
}

/* ---- what comes ---- */

static rp_status hear_push(rp_parameter_server *s, int worker) {
    rpi_push_downlink *link = &s->at.links[worker];
    bool again = false;
    link->may_push = false;
    RP_TRY(rpi_ledger_push(&s->at.ledger, worker, (uint64_t)link->header.number, &again));
    bool waits = s->at.ledger.workers[worker].state == RPI_WORKER_COMPUTING;
    return again && waits ? answer_as(s, worker, RPI_MESSAGE_GO_ON) : RP_OK;
}

static void hear_end(rp_parameter_server *s, int worker) {
    rpi_push_server *at = &s->at;
    rpi_push_downlink *link = &at->links[worker];
    bool computes = at->ledger.workers[worker].state == RPI_WORKER_COMPUTING;
    if (computes && at->dealt) at->dealt--; /* that step is left for another worker */
    link->has_ended = true;
    link->may_push = false;
    rpi_ledger_end(&at->ledger, worker);
}

/* A whole message is here. */
static rp_status hear(rp_parameter_server *s, int worker) {
    rpi_push_downlink *link = &s->at.links[worker];
    int kind = (int)link->header.kind;
    link->has_header = link->has_payload = false;
    link->news_ns = rpi_now_ns();
    /* The worker has the answer before, or it would not have sent this. */
    if (link->answer_out) RP_TRY(rp_request_wait(&link->answer_out));
    if (link->values_out) RP_TRY(rp_request_wait(&link->values_out));
    if (link->copy) link->copy->users--;
    link->copy = NULL;
    if (kind == RPI_MESSAGE_END) {
        hear_end(s, worker);
        return RP_OK;
    }
    s->at.ledger.workers[worker].wanted = (uint64_t)link->header.version;
    RP_TRY(kind == RPI_MESSAGE_GREET ? rpi_ledger_greet(&s->at.ledger, worker)
                                     : hear_push(s, worker));
    return expect_header(s, worker);
}

static rp_status hear_if_whole(rp_parameter_server *s, int worker) {
    const rpi_push_downlink *link = &s->at.links[worker];
    if (!link->has_header || (link->may_push && !link->has_payload)) return RP_OK;
    return hear(s, worker);
}

static rp_status take_token(rp_parameter_server *s, uint64_t token) {
    int worker = (int)(token / TOKENS);
    if (token == order_token(s)) return rpi_push_receive_order(s);
    rpi_push_downlink *link = &s->at.links[worker];
    bool is_header = token % TOKENS == TOKEN_HEADER;
    rp_request **request = is_header ? &link->header_in : &link->payload_in;
    if (!*request) return RP_OK; /* of a worker that was lost meanwhile */
    rp_status status = rp_request_wait(request);
    if (status == RP_OK) {
        *(is_header ? &link->has_header : &link->has_payload) = true;
        status = hear_if_whole(s, worker);
    }
    return status == RP_OK ? RP_OK : rpi_push_lose(s, worker, status);
}

static rp_status take_own(rp_parameter_server *s, bool *in_out_news) {
    if (s->worker < 0) return RP_OK;
    pthread_mutex_lock(&s->handover.lock);
    bool has_come = s->handover.has_come, failed = s->handover.failed;
    *in_out_news |= has_come;
    s->handover.has_come = false;
    if (has_come) s->at.links[s->worker].header = s->uplinks[s->server].header;
    pthread_mutex_unlock(&s->handover.lock);
    if (failed) return RP_FAIL(CANCELLED, "parameter server: this rank's worker has failed");
    return has_come ? hear(s, s->worker) : RP_OK;
}

/* How long to sleep at most. */
static double patience(const rp_parameter_server *s) {
    const rpi_push_server *at = &s->at;
    double most = rpi_push_look_s(s);
    if (!at->grace_ns) return most;
    double left = rpi_seconds(at->grace_ns - rpi_now_ns());
    return left < 0 ? 0 : left < most ? left : most;
}

static bool is_over(const rp_parameter_server *s) {
    const rpi_push_server *at = &s->at;
    for (int w = 0; w < s->workers; w++)
        if (!at->links[w].has_ended && !at->ledger.workers[w].is_lost) return false;
    if (rpi_push_follows(s) && !at->orders.is_over) return false;
    return rpi_ledger_is_over(&at->ledger);
}

static rp_status serve(rp_parameter_server *s) {
    enum { AT_ONCE = 16 };
    rpi_push_server *at = &s->at;
    at->news_ns = at->looked_ns = rpi_now_ns();
    for (int w = 0; w < s->workers; w++) {
        at->links[w].news_ns = at->news_ns;
        if (at->ledger.workers[w].is_lost) continue;
        rp_status status = expect_header(s, w);
        if (status != RP_OK) RP_TRY(rpi_push_lose(s, w, status));
    }
    RP_TRY(rpi_push_expect_order(s, order_token(s)));
    while (!is_over(s)) {
        uint64_t tokens[AT_ONCE];
        size_t count = 0;
        RP_TRY(rp_completions_wait(at->queue, patience(s), tokens, AT_ONCE, &count));
        uint64_t pushed = at->pushed;
        bool news = count > 0;
        if (news) rpi_push_idle(s, false);
        for (size_t i = 0; i < count; i++) RP_TRY(take_token(s, tokens[i]));
        RP_TRY(take_own(s, &news));
        RP_TRY(advance(s));
        if (news || at->pushed != pushed) at->news_ns = rpi_now_ns();
        RP_TRY(rpi_push_watch(s));
    }
    rpi_push_idle(s, false);
    return rpi_push_order_end(s);
}

rp_status rpi_push_serve(rp_parameter_server *s) {
    rp_status status = serve(s);
    if (status == RP_OK) return RP_OK;
    rpi_kept_error why;
    rpi_error_keep(&why);
    rpi_push_idle(s, false);
    rp_parameter_server_abort(s, status, why.message);
    rpi_error_put_back(&why);
    return status;
}

static void *serve_on_thread(void *context) {
    RPI_FPENV_SCOPE;
    rp_parameter_server *s = context;
    s->at.status = rpi_push_serve(s);
    if (s->at.status != RP_OK) rpi_error_keep(&s->at.error);
    return NULL;
}

rp_status rpi_push_serve_aside(rp_parameter_server *s) {
    s->at.status = RP_OK;
    RP_TRY(rpi_signal_masked_thread("a thread that serves parameters", serve_on_thread, s,
                                    &s->at.thread));
    s->at.has_thread = true;
    return RP_OK;
}

rp_status rpi_push_serve_join(rp_parameter_server *s) {
    if (!s->at.has_thread) return RP_OK;
    pthread_join(s->at.thread, NULL);
    s->at.has_thread = false;
    if (s->at.status != RP_OK) rpi_error_put_back(&s->at.error);
    return s->at.status;
}
