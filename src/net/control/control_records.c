/* Records of the control connection: which kinds there are, from whom each may come, and what
 * it does. A new kind is a name in control_connection.h, a row in the table below and a word in
 * docs/wire.md.
 *
 *     a line   STRANGER -- HELLO that fits --> RANK -- GOODBYE --> its end is no death
 *                 '------- anything else ----> closed
 *
 * The one line that leads to the coordinator begins as COORDINATOR. What comes from where it
 * may not is passed over: it is said by who has not noticed yet that the coordinator is
 * another. */
#include "net/control/control_state.h"

#include <stdio.h>

/* The rank that a caller named in its proof must be that of its first record. */
static bool is_as_proved(const rpi_control *control, const rpi_control_connection *connection,
                         const rpi_control_record *record) {
    const rpi_proof_terms *claim = &connection->proof.claim;
    return !control->secret.is_set ||
           (claim->caller == record->rank && claim->callee == control->rank &&
            claim->session == record->a && claim->world == record->number);
}

static void welcome(rpi_control *control, rpi_control_connection *connection) {
    (void)rpi_control_connection_send(connection,
                                      &(rpi_control_record){.kind = RPI_CONTROL_WELCOME});
    rpi_control_send_decisions(control, connection);
}

static void take_hello(rpi_control *control, rpi_control_connection *connection,
                       rpi_control_record *record) {
    bool known = record->a == control->session && record->number == control->world &&
                 record->rank >= 0 && record->rank < control->world &&
                 record->rank != control->rank && control->connection_of[record->rank] < 0 &&
                 is_as_proved(control, connection, record);
    if (!known) { /* a stranger, or a second process with this rank */
        rpi_control_drop_connection(control, connection);
        return;
    }
    connection->rank = record->rank;
    control->connection_of[record->rank] = (int)(connection - control->connections);
    if (control->rank != RPI_CONTROL_COORDINATOR) { /* the first coordinator has gone, as this
                                                       one knows or will */
        if (rpi_control_is_coordinator(control)) welcome(control, connection);
        return;
    }
    if (record->text_bytes) rpi_control_note_address(control, record->rank, record->text);
    pthread_mutex_lock(&control->lock);
    control->present[record->rank] = true;
    control->arrived++;
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

static void take_failure(rpi_control *control, rpi_control_connection *connection,
                         rpi_control_record *record) {
    uint64_t code = record->a & ~RPI_FAILURE_ENDS_GROUPS;
    bool is_status = code >= 1 && code <= (uint64_t) - (int64_t)RP_INTERNAL;
    rpi_failure failure = {
        .status = is_status ? (rp_status) - (int64_t)code : RP_INTERNAL,
        .rank = record->rank >= -1 && record->rank < control->world ? record->rank : -1,
        .finder = rpi_control_is_coordinator(control) ? connection->rank : record->number,
        .scope = record->b,
        .ends_groups = record->a & RPI_FAILURE_ENDS_GROUPS};
    snprintf(failure.text, sizeof failure.text, "%s", record->text);
    if (rpi_control_is_coordinator(control))
        rpi_control_arbitrate(control, &failure);
    else if (rpi_control_is_up(control, connection))
        rpi_control_decide(control, &failure);
}

static void take_welcome(rpi_control *control, rpi_control_connection *connection,
                         rpi_control_record *record) {
    (void)connection, (void)record;
    rpi_control_receive_coordinator(control, true);
    pthread_mutex_lock(&control->lock);
    if (control->phase == RPI_CONTROL_OPENING)
        rpi_control_enter_phase(control, RPI_CONTROL_OPEN);
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

/* A leaf that says goodbye closes its connection itself; if the coordinator says goodbye, the
 * leaf closes it. */
static void take_goodbye(rpi_control *control, rpi_control_connection *connection,
                         rpi_control_record *record) {
    connection->goodbye = true;
    if (!rpi_control_is_up(control, connection)) {
        if (record->number == 1) rpi_control_resign(control);
        return;
    }
    rpi_control_lose_coordinator(control);
    rpi_control_drop_connection(control, connection);
    rpi_control_arbitrate_overdue(control);
    if (!rpi_control_is_welcome(control))
        rpi_control_decide_unwelcome(control, "rank 0 gave up before all control connections "
                                              "were open");
}

static void take_join(rpi_control *control, rpi_control_connection *connection,
                      rpi_control_record *record) {
    if (record->number < 1 || record->number > control->world || !record->b) return;
    rpi_scope_join(control, record->b, connection->rank, record->number, record->text);
}

static void take_leave(rpi_control *control, rpi_control_connection *connection,
                       rpi_control_record *record) {
    rpi_scope_leave(control, record->b, connection->rank);
}

/* A leaf may report only its own state, the coordinator that of all ranks. */
static void take_beat(rpi_control *control, rpi_control_connection *connection,
                      rpi_control_record *record) {
    if (!rpi_control_is_up(control, connection)) record->rank = connection->rank;
    rpi_control_take_beat(control, record);
}

static void take_beats(rpi_control *control, rpi_control_connection *connection,
                       rpi_control_record *record) {
    (void)connection;
    rpi_control_take_beats(control, record);
}

static void take_address(rpi_control *control, rpi_control_connection *connection,
                         rpi_control_record *record) {
    (void)connection;
    rpi_control_note_address(control, record->rank, record->text);
}

/* ---- the table ---- */

enum { STRANGER = 1, RANK = 2, COORDINATOR = 4 }; /* what a line leads to */

typedef struct record_rule {
    unsigned from; /* lines on which it may come */
    void (*take)(rpi_control *control, rpi_control_connection *connection,
                 rpi_control_record *record);
} record_rule;

static const record_rule rules[RPI_CONTROL_KINDS_END] = {
    [RPI_CONTROL_HELLO] = {STRANGER, take_hello},
    [RPI_CONTROL_WELCOME] = {COORDINATOR, take_welcome},
    [RPI_CONTROL_BEAT] = {RANK | COORDINATOR, take_beat},
    [RPI_CONTROL_FAILURE] = {RANK | COORDINATOR, take_failure},
    [RPI_CONTROL_GOODBYE] = {RANK | COORDINATOR, take_goodbye},
    [RPI_CONTROL_BEATS] = {COORDINATOR, take_beats},
    [RPI_CONTROL_ADDRESS] = {COORDINATOR, take_address},
    [RPI_CONTROL_JOIN] = {RANK, take_join},
    [RPI_CONTROL_LEAVE] = {RANK, take_leave},
};

static unsigned what_it_leads_to(const rpi_control *control,
                                 const rpi_control_connection *connection) {
    if (connection->rank < 0) return STRANGER;
    return rpi_control_is_up(control, connection) ? COORDINATOR : RANK;
}

void rpi_control_take_record(rpi_control *control, rpi_control_connection *connection,
                             rpi_control_record *record) {
    unsigned from = what_it_leads_to(control, connection);
    const record_rule *rule = &rules[record->kind];
    if (rule->from & from)
        rule->take(control, connection, record);
    else if (from == STRANGER)
        rpi_control_drop_connection(control, connection);
}
