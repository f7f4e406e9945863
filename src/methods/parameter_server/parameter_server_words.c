/* What a server of parameters and its workers say when one of them fails, and to whom; and
 * which ranks they are. The files above use it. */
#include "methods/parameter_server/parameter_server_object.h"

#include "base/fpenv.h"

#include <stdio.h>
#include <string.h>

bool rpi_push_follows(const rp_parameter_server *s) {
    return s->first_merges && s->server > 0;
}

rp_comm *rpi_push_order_link(const rp_parameter_server *s, int i) {
    return s->at.orders.comms ? s->at.orders.comms[i] : NULL;
}

/* The reason, without the words that rp_comm_abort() puts before it; NULL: these are not
 * there. */
static const char *reason_of(const char *message) {
    static const char words[] = " gave up: ";
    const char *at = strstr(message, words);
    return at ? at + sizeof words - 1 : NULL;
}

int rpi_push_name(const rp_parameter_server *s, int rank) {
    return s->names ? s->names[rank] : rank;
}

bool rpi_push_gave_up(void) {
    return reason_of(rp_last_error()->message) != NULL;
}

rp_status rpi_push_explain(const rp_parameter_server *s, rp_status status, int rank) {
    rpi_kept_error why;
    const char *role = rank < s->options.servers ? "which serves parameters" : "a worker";
    rpi_error_keep(&why);
    if (!s->options.servers) role = "which serves parameters and works";
    const char *reason = reason_of(why.message);
    if (reason) return rpi_fail(status, __FILE__, __LINE__, "%s", reason);
    rank = rpi_push_name(s, rank);
    if (status == RP_PEER)
        return RP_FAIL(PEER, "rank %d, %s, is gone (connection closed by peer)", rank, role);
    if (status == RP_TIMEOUT)
        return RP_FAIL(TIMEOUT, "rank %d, %s, was silent for too long (timed out)", rank, role);
    return rpi_fail(status, __FILE__, __LINE__, "%s", why.message);
}

void rp_parameter_server_abort(rp_parameter_server *s, rp_status status, const char *message) {
    RPI_FPENV_SCOPE;
    char text[RPI_ERROR_BYTES];
    if (!s) {
        (void)RP_FAIL(INVALID, "server is NULL");
        return;
    }
    bool is_named = message && strncmp(message, "rank ", 5) == 0;
    if (is_named)
        snprintf(text, sizeof text, "%s", message);
    else
        snprintf(text, sizeof text, "rank %d: %s", rpi_push_name(s, s->rank),
                 message ? message : rp_status_text(status));
    for (int i = 0; i < s->server_count && s->uplinks; i++)
        if (s->uplinks[i].comm) rp_comm_abort(s->uplinks[i].comm, status, text);
    for (int w = 0; w < s->workers && s->at.links; w++)
        if (s->at.links[w].comm) rp_comm_abort(s->at.links[w].comm, status, text);
    for (int i = 0; i < s->server_count; i++)
        if (rpi_push_order_link(s, i)) rp_comm_abort(rpi_push_order_link(s, i), status, text);
    pthread_mutex_lock(&s->handover.lock);
    s->handover.failed = true;
    pthread_cond_broadcast(&s->handover.changed);
    pthread_mutex_unlock(&s->handover.lock);
    if (s->at.queue) rp_completions_wake(s->at.queue);
}
