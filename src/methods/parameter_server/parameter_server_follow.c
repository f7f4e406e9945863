/* Several servers and a quorum: the first one decides which pushes are merged together, and the
 * others merge the same, in its order.
 *
 *     first server                 another
 *     ORDER  merge these  ---->    it does when they have come, or their workers are away
 *     ORDER  over         ---->    no more orders; what is left of workers that died is merged
 *
 * Servers that each counted for themselves would merge the same pushes with others, with other
 * weights, and could wait for each other's workers. */
#include "methods/parameter_server/parameter_server_object.h"

#include "base/memory.h"

/* An order is doubles: its kind, the version that it leads to, a push of each worker or 0. */
enum { ORDER_MERGE = 1, ORDER_OVER, ORDER_KIND = 0, ORDER_VERSION, ORDER_NUMBERS };

static size_t order_words(const rp_parameter_server *s) {
    return ORDER_NUMBERS + (size_t)s->workers;
}

static bool leads(const rp_parameter_server *s) {
    return s->first_merges && s->server == 0;
}

/* ---- opening ---- */

rp_status rpi_push_orders_open(rp_parameter_server *s) {
    rpi_push_orders *o = &s->at.orders;
    size_t servers = (size_t)s->server_count;
    if (!s->first_merges || s->server < 0) return RP_OK;
    /* No worker pushes again before all servers have merged its push. */
    o->slots = leads(s) ? s->workers + 2 : 1;
    size_t slots = (size_t)o->slots;
    RP_TRY(rpi_alloc_array(servers, sizeof(rp_comm *), "servers", &o->comms));
    RP_TRY(rpi_alloc_array(slots * servers, sizeof(rp_request *), "orders", &o->requests));
    RP_TRY(rpi_alloc_array((size_t)s->workers, sizeof *o->numbers, "workers", &o->numbers));
    return rpi_alloc_array(slots * order_words(s), sizeof *o->words, "orders", &o->words);
}

/* Requests went with their communicators. */
void rpi_push_orders_close(rp_parameter_server *s) {
    rpi_push_orders *o = &s->at.orders;
    rpi_free(o->comms);
    rpi_free(o->requests);
    rpi_free(o->numbers);
    rpi_free(o->words);
}

/* ---- the first server ---- */

static rp_status wait_for_slot(rp_parameter_server *s, int slot) {
    rp_request **sent = s->at.orders.requests + (size_t)slot * (size_t)s->server_count;
    rp_status status = RP_OK;
    for (int server = 1; server < s->server_count && status == RP_OK; server++) {
        if (!sent[server]) continue;
        rpi_push_idle(s, true);
        status = rp_request_wait(&sent[server]);
        if (status != RP_OK) status = rpi_push_explain(s, status, server);
    }
    rpi_push_idle(s, false);
    return status;
}

static rp_status tell(rp_parameter_server *s, int kind, int count) {
    rpi_push_orders *o = &s->at.orders;
    size_t words = order_words(s);
    int slot = o->next;
    RP_TRY(wait_for_slot(s, slot));
    o->next = (slot + 1) % o->slots;
    double *order = o->words + (size_t)slot * words;
    for (size_t i = 0; i < words; i++) order[i] = 0;
    order[ORDER_KIND] = kind;
    order[ORDER_VERSION] = (double)s->at.ledger.version;
    for (int i = 0; i < count; i++) {
        int worker = s->at.members[i];
        order[ORDER_NUMBERS + worker] = (double)s->at.ledger.workers[worker].merged;
    }
    rp_request **sent = o->requests + (size_t)slot * (size_t)s->server_count;
    for (int server = 1; server < s->server_count; server++) {
        rp_status status = rp_send_start(o->comms[server], order, words, RP_F64, 1,
                                         RPI_PUSH_ORDER, &sent[server]);
        if (status != RP_OK) return rpi_push_explain(s, status, server);
    }
    return RP_OK;
}

rp_status rpi_push_order(rp_parameter_server *s, int count) {
    return leads(s) ? tell(s, ORDER_MERGE, count) : RP_OK;
}

rp_status rpi_push_order_end(rp_parameter_server *s) {
    if (!leads(s)) return RP_OK;
    RP_TRY(tell(s, ORDER_OVER, 0));
    for (int slot = 0; slot < s->at.orders.slots; slot++) RP_TRY(wait_for_slot(s, slot));
    return RP_OK;
}

/* ---- another server ---- */

rp_status rpi_push_expect_order(rp_parameter_server *s, uint64_t token) {
    rpi_push_orders *o = &s->at.orders;
    if (!rpi_push_follows(s)) return RP_OK;
    rp_status status = rp_recv_start(o->comms[0], o->words, order_words(s), RP_F64, 0,
                                     RPI_PUSH_ORDER, &o->requests[0]);
    if (status == RP_OK) status = rp_request_notify(o->requests[0], s->at.queue, token);
    return status == RP_OK ? RP_OK : rpi_push_explain(s, status, 0);
}

rp_status rpi_push_receive_order(rp_parameter_server *s) {
    rpi_push_orders *o = &s->at.orders;
    rp_status status = rp_request_wait(&o->requests[0]);
    if (status != RP_OK) return rpi_push_explain(s, status, 0);
    o->has_order = true;
    for (int w = 0; w < s->workers; w++) o->numbers[w] = (uint64_t)o->words[ORDER_NUMBERS + w];
    return RP_OK;
}

int rpi_push_follow(rp_parameter_server *s, int *out_members, bool *out_heeded) {
    rpi_push_orders *o = &s->at.orders;
    rpi_push_ledger *ledger = &s->at.ledger;
    *out_heeded = false;
    if (o->has_order && (int)o->words[ORDER_KIND] == ORDER_OVER) {
        o->is_over = true;
        o->has_order = false;
    }
    if (o->is_over) return rpi_ledger_merge_rest(ledger, out_members);
    if (!o->has_order || !rpi_ledger_can_follow(ledger, o->numbers)) return 0;
    o->has_order = false;
    *out_heeded = true;
    return rpi_ledger_follow(ledger, o->numbers, (uint64_t)o->words[ORDER_VERSION],
                             out_members);
}
