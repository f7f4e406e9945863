/* Who may say what on the control connection, and that nothing comes of the rest. */
#include "bare_coordinator.h"

#include "harness/check.h"

#include <unistd.h>

enum { WORLD = 4, SCOPE = 7, CALLER = 1, TALKER = 2, SELF = 3 };

/* What a line leads to. */
enum { STRANGER = 1, RANK = 2, COORDINATOR = 4 };

typedef struct saying {
    rpi_control_record record;
    unsigned heard_from;
    bool (*is_heard)(const rpi_control *control, const rpi_control_connection *connection);
} saying;

static bool is_let_in(const rpi_control *control, const rpi_control_connection *connection) {
    return connection->rank == CALLER && control->connection_of[CALLER] >= 0;
}

static bool is_open(const rpi_control *control, const rpi_control_connection *connection) {
    (void)connection;
    return control->phase == RPI_CONTROL_OPEN;
}

static bool has_beat(const rpi_control *control, const rpi_control_connection *connection) {
    (void)connection;
    return control->everybody.beats[TALKER].sequence == 5;
}

static bool has_failed(const rpi_control *control, const rpi_control_connection *connection) {
    (void)connection;
    return control->everybody.failed;
}

static bool is_parting(const rpi_control *control, const rpi_control_connection *connection) {
    (void)control;
    return connection->goodbye;
}

static bool has_address(const rpi_control *control, const rpi_control_connection *connection) {
    (void)connection;
    return !strcmp(control->addresses[TALKER], "80 here");
}

static bool has_group(const rpi_control *control, const rpi_control_connection *connection) {
    (void)connection;
    return control->scopes && control->scopes->scope == SCOPE;
}

static bool has_no_group(const rpi_control *control, const rpi_control_connection *connection) {
    return !has_group(control, connection);
}

/* A kind that is new has its row here. */
static const saying sayings[] = {
    {{.kind = RPI_CONTROL_HELLO, .rank = CALLER, .number = WORLD}, STRANGER, is_let_in},
    {{.kind = RPI_CONTROL_WELCOME}, COORDINATOR, is_open},
    {{.kind = RPI_CONTROL_BEAT, .rank = TALKER, .a = 5}, RANK | COORDINATOR, has_beat},
    {{.kind = RPI_CONTROL_FAILURE, .rank = 1, .number = TALKER, .a = 3},
     COORDINATOR,
     has_failed},
    {{.kind = RPI_CONTROL_GOODBYE}, RANK | COORDINATOR, is_parting},
    {{.kind = RPI_CONTROL_BEATS, .rank = TALKER, .a = 5, .text = "1", .text_bytes = 1},
     COORDINATOR,
     has_beat},
    {{.kind = RPI_CONTROL_ADDRESS, .rank = TALKER, .text = "80 here", .text_bytes = 7},
     COORDINATOR,
     has_address},
    {{.kind = RPI_CONTROL_JOIN, .number = 2, .b = SCOPE, .text = "g", .text_bytes = 1},
     RANK,
     has_group},
    {{.kind = RPI_CONTROL_LEAVE, .b = SCOPE}, RANK, has_no_group},
};
enum { SAYINGS = sizeof sayings / sizeof sayings[0] };

/* The line that says it, by what it leads to. */
static rpi_control_connection *connection_of(bare_coordinator *coordinator, unsigned from) {
    rpi_control *control = &coordinator->control;
    rpi_control_connection *connection =
        &coordinator->connections[from == COORDINATOR ? 0 : TALKER];
    connection->rank = from == STRANGER ? -1 : from == COORDINATOR ? 0 : TALKER;
    control->connection_of[CALLER] = -1;
    control->connection_of[TALKER] = from == RANK ? TALKER : -1;
    if (from == COORDINATOR) connection->fd = dup(coordinator->connections[TALKER].fd);
    return connection;
}

/* A follower of rank 0, to which it has come, and which has not welcomed it. */
static bare_coordinator *make_follower(void) {
    bare_coordinator *coordinator = bare_coordinator_make(WORLD);
    coordinator->control.rank = SELF;
    coordinator->control.role = RPI_CONTROL_FOLLOWS;
    coordinator->control.phase = RPI_CONTROL_OPENING;
    rpi_scope_join(&coordinator->control, 1, SELF, 2, "other");
    return coordinator;
}

static void say(const saying *s, unsigned from) {
    bare_coordinator *coordinator = make_follower();
    rpi_control *control = &coordinator->control;
    rpi_control_record record = s->record;
    rpi_control_connection *connection = connection_of(coordinator, from);
    bool may = s->heard_from & from;
    if (record.kind == RPI_CONTROL_LEAVE) rpi_scope_join(control, SCOPE, TALKER, 2, "g");
    rpi_control_take_record(control, connection, &record);
    CHECK_MSG(s->is_heard(control, connection) == may, "kind %d by way %u", record.kind, from);
    /* Who has not said who it is may say nothing else. */
    CHECK_EQ(connection->fd < 0 && !connection->goodbye, from == STRANGER && !may);
    rpi_control_connection_close(&coordinator->connections[0]);
    bare_coordinator_free(coordinator);
}

static void kinds_are_heard_from_whom_they_may_come(void) {
    static const unsigned ways[] = {STRANGER, RANK, COORDINATOR};
    bool seen[RPI_CONTROL_KINDS_END] = {false};
    for (int i = 0; i < SAYINGS; i++) {
        seen[sayings[i].record.kind] = true;
        for (int way = 0; way < 3; way++) say(&sayings[i], ways[way]);
    }
    for (int kind = 1; kind < RPI_CONTROL_KINDS_END; kind++)
        CHECK_MSG(seen[kind], "kind %d has no row in `sayings`", kind);
}

/* A rank's report of a failure is the coordinator's to judge, and nobody else's. */
static void failures_are_judged_by_the_coordinator(void) {
    for (int leads = 0; leads < 2; leads++) {
        bare_coordinator *coordinator = make_follower();
        rpi_control_record record = {
            .kind = RPI_CONTROL_FAILURE, .rank = 1, .number = 9, .a = 3};
        rpi_control *control = &coordinator->control;
        if (leads) control->role = RPI_CONTROL_LEADS;
        rpi_control_take_record(control, connection_of(coordinator, RANK), &record);
        CHECK_EQ(control->everybody.failed, leads);
        if (leads) CHECK_EQ(control->everybody.failure.finder, TALKER); /* as the line says */
        bare_coordinator_free(coordinator);
    }
}

/* A hello of another world, of a rank that there is not, of oneself, or once more. */
static void hellos_that_do_not_fit_are_hung_up_on(void) {
    static const rpi_control_record hellos[] = {
        {.kind = RPI_CONTROL_HELLO, .rank = CALLER, .number = WORLD + 1},
        {.kind = RPI_CONTROL_HELLO, .rank = CALLER, .number = WORLD, .a = 1},
        {.kind = RPI_CONTROL_HELLO, .rank = -1, .number = WORLD},
        {.kind = RPI_CONTROL_HELLO, .rank = WORLD, .number = WORLD},
        {.kind = RPI_CONTROL_HELLO, .rank = SELF, .number = WORLD},
        {.kind = RPI_CONTROL_HELLO, .rank = 0, .number = WORLD},
    };
    for (size_t i = 0; i < sizeof hellos / sizeof hellos[0]; i++) {
        bare_coordinator *coordinator = make_follower();
        rpi_control_connection *connection = connection_of(coordinator, STRANGER);
        rpi_control_record record = hellos[i];
        coordinator->control.connection_of[0] = 1; /* it has come */
        rpi_control_take_record(&coordinator->control, connection, &record);
        CHECK_MSG(connection->fd < 0 && connection->rank < 0, "hello %zu", i);
        bare_coordinator_free(coordinator);
    }
}

/* What a peer says of a failure is bounded: a status that there is, a rank of the world. */
typedef struct told {
    uint64_t code;
    int rank;
    rp_status status; /* as it is understood */
    int of_rank;
    bool ends_groups;
} told;

static void failures_are_what_they_can_be(void) {
    static const uint64_t most = (uint64_t)(-(int64_t)RP_INTERNAL);
    const told rows[] = {
        {1, 1, (rp_status)-1, 1, false},
        {3, 2, (rp_status)-3, 2, false},
        {most, WORLD - 1, RP_INTERNAL, WORLD - 1, false},
        {most + 1, 0, RP_INTERNAL, 0, false},
        {0, -1, RP_INTERNAL, -1, false},
        {UINT32_MAX, -2, RP_INTERNAL, -1, false},
        {3, WORLD, (rp_status)-3, -1, false},
        {3 | RPI_FAILURE_ENDS_GROUPS, 1, (rp_status)-3, 1, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bare_coordinator *coordinator = make_follower();
        rpi_control_record record = {.kind = RPI_CONTROL_FAILURE,
                                     .rank = rows[i].rank,
                                     .number = TALKER,
                                     .a = rows[i].code,
                                     .text = "why"};
        rpi_control_take_record(&coordinator->control, connection_of(coordinator, COORDINATOR),
                                &record);
        const rpi_failure *failure = &coordinator->control.everybody.failure;
        CHECK_MSG(failure->status == rows[i].status && failure->rank == rows[i].of_rank,
                  "row %zu: %d of rank %d", i, failure->status, failure->rank);
        CHECK_EQ(failure->ends_groups, rows[i].ends_groups);
        CHECK_EQ(failure->finder, TALKER);
        CHECK(!strcmp(failure->text, "why"));
        rpi_control_connection_close(&coordinator->connections[0]);
        bare_coordinator_free(coordinator);
    }
}

static void groups_have_a_scope_and_members_of_the_world(void) {
    static const struct {
        int members;
        uint64_t scope;
        bool is_group;
    } rows[] = {{0, SCOPE, false},         {1, SCOPE, true},   {WORLD, SCOPE, true},
                {WORLD + 1, SCOPE, false}, {-1, SCOPE, false}, {2, 0, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bare_coordinator *coordinator = bare_coordinator_make(WORLD);
        rpi_control_record record = {
            .kind = RPI_CONTROL_JOIN, .number = rows[i].members, .b = rows[i].scope};
        rpi_control_take_record(&coordinator->control, connection_of(coordinator, RANK),
                                &record);
        CHECK_MSG((coordinator->control.scopes != NULL) == rows[i].is_group, "row %zu", i);
        bare_coordinator_free(coordinator);
    }
}

/* Where the job has a secret the hello says what was proved, or it is no hello. */
static void a_hello_is_as_it_was_proved(void) {
    for (int wrong = 0; wrong <= 4; wrong++) {
        bare_coordinator *coordinator = make_follower();
        rpi_control_connection *connection = connection_of(coordinator, STRANGER);
        rpi_control_record hello = {
            .kind = RPI_CONTROL_HELLO, .rank = CALLER, .number = WORLD, .a = 11};
        coordinator->control.session = 11;
        coordinator->control.secret.is_set = true;
        connection->proof.claim = (rpi_proof_terms){.caller = CALLER + (wrong == 1),
                                                    .callee = SELF + (wrong == 2),
                                                    .session = 11 + (wrong == 3),
                                                    .world = WORLD + (wrong == 4)};
        rpi_control_take_record(&coordinator->control, connection, &hello);
        CHECK_MSG((connection->rank == CALLER) == !wrong, "wrong %d", wrong);
        CHECK_EQ(connection->fd >= 0, !wrong);
        bare_coordinator_free(coordinator);
    }
}

/* The last letter's place is that of the NUL. */
static void a_text_is_shorter_than_its_place(void) {
    for (int letters = RPI_CONTROL_TEXT_BYTES - 1; letters <= RPI_CONTROL_TEXT_BYTES;
         letters++) {
        bare_coordinator *coordinator = bare_coordinator_make(WORLD);
        rpi_control_record record = {.kind = RPI_CONTROL_FAILURE,
                                     .text_bytes = (uint16_t)letters};
        rpi_control_record heard = {.kind = 0};
        memset(record.text, 'x', sizeof record.text);
        CHECK_OK(rpi_control_connection_send(&coordinator->far[TALKER], &record));
        rp_status status =
            rpi_control_connection_receive(&coordinator->connections[TALKER], &heard);
        CHECK_EQ(status, letters < RPI_CONTROL_TEXT_BYTES ? RP_OK : RP_CORRUPT);
        if (status == RP_OK) CHECK_EQ(strlen(heard.text), (size_t)letters);
        bare_coordinator_free(coordinator);
    }
}

CASES({"kinds_are_heard_from_whom_they_may_come", kinds_are_heard_from_whom_they_may_come},
      {"failures_are_judged_by_the_coordinator", failures_are_judged_by_the_coordinator},
      {"hellos_that_do_not_fit_are_hung_up_on", hellos_that_do_not_fit_are_hung_up_on},
      {"failures_are_what_they_can_be", failures_are_what_they_can_be},
      {"groups_have_a_scope_and_members_of_the_world",
       groups_have_a_scope_and_members_of_the_world},
      {"a_hello_is_as_it_was_proved", a_hello_is_as_it_was_proved},
      {"a_text_is_shorter_than_its_place", a_text_is_shorter_than_its_place})
