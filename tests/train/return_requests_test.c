/* Requests, answers and the end, over a store as the launcher's. */
#include "train/return_requests.h"

#include "harness/check.h"
#include "redpoll/version.h"
#include "train/returns.h"

#include <string.h>

typedef struct place {
    rp_store_server *server;
    rp_store stores[2]; /* of rank 0, and of rank 3, which comes back */
    rpi_train_returns ways[2];
    rpi_return_requests first, late;
} place;

static rp_status give_store(void *context, const rp_store **out_store) {
    *out_store = context;
    return RP_OK;
}

static bool has_no_store;

static rp_status store_at_times(void *context, const rp_store **out_store) {
    if (has_no_store) return RP_FAIL(IO, "there is no store");
    return give_store(context, out_store);
}

static void open_place(place *p) {
    int port = 0;
    *p = (place){0};
    CHECK_OK(rp_store_serve(NULL, 0, &p->server, &port));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rp_store_connect("127.0.0.1", port, 5, &p->stores[i]));
        p->ways[i] = (rpi_train_returns){.context = &p->stores[i],
                                         .rank = i ? 3 : 0,
                                         .world = 4,
                                         .timeout_s = i ? .3 : 5,
                                         .store = give_store};
    }
    p->first.way = &p->ways[0];
    p->late.way = &p->ways[1];
}

static void close_place(place *p) {
    for (int i = 0; i < 2; i++) rp_store_close(&p->stores[i]);
    rp_store_server_stop(p->server);
}

/* As if time had passed. */
static bool look(rpi_return_requests *requests) {
    requests->looked_ns = 0;
    return rpi_return_look(requests);
}

static void a_request_is_seen_once_and_answered(void) {
    static const rpi_train_hooks none;
    place p;
    rpi_return_request request = {0};
    char text[RPI_RETURN_TEXT];
    int64_t number = 0;
    bool over = true;
    open_place(&p);
    CHECK(!look(&p.first));
    CHECK(!rpi_return_take(&p.first, &request));
    CHECK_OK(rpi_return_ask(&p.late, &number));
    CHECK(look(&p.first));
    CHECK(rpi_return_take(&p.first, &request));
    CHECK(request.number == number && request.rank == 3);
    CHECK(strcmp(request.version, rp_version()) == 0);
    CHECK(!rpi_return_take(&p.first, &request) && !look(&p.first));
    CHECK_OK(rpi_return_say(&p.first, number, "invite", "come 1 3 4"));
    CHECK_OK(rpi_return_hear(&p.late, number, "invite", &none, text, &over));
    CHECK(strcmp(text, "come 1 3 4") == 0 && !over);
    close_place(&p);
}

/* The launcher's last word counts; where the store does not answer any more nobody comes. */
static void what_becomes_of_a_rank_is_said_by_the_launcher(void) {
    place p;
    open_place(&p);
    CHECK(rpi_return_fate_of(&p.first, 3) == RPI_FATE_UNKNOWN);
    CHECK_OK(rpi_return_note_fate(&p.stores[1], 3, true));
    CHECK(rpi_return_fate_of(&p.first, 3) == RPI_FATE_AGAIN);
    CHECK(rpi_return_fate_of(&p.first, 2) == RPI_FATE_UNKNOWN);
    CHECK_OK(rpi_return_note_fate(&p.stores[1], 3, false));
    CHECK(rpi_return_fate_of(&p.first, 3) == RPI_FATE_AWAY);
    p.first.is_off = true;
    CHECK(rpi_return_fate_of(&p.first, 2) == RPI_FATE_AWAY);
    close_place(&p);
}

/* One that dies between its number and its text is passed over. */
static void a_request_that_was_not_filled_in_is_passed_over(void) {
    place p;
    rpi_return_request request = {0};
    int64_t number = 0;
    open_place(&p);
    CHECK_OK(p.stores[1].ops->add(p.stores[1].context, "redpoll/returns/requests", 1, &number));
    CHECK_OK(rpi_return_ask(&p.late, &number));
    CHECK(look(&p.first));
    CHECK(rpi_return_take(&p.first, &request));
    CHECK(request.number == 2);
    close_place(&p);
}

static int stops(void *context) {
    (void)context;
    return RPI_ASKED_STOP;
}

static void waits_end(void) {
    static const rpi_train_hooks none, stop = {.asked = stops};
    place p;
    char text[RPI_RETURN_TEXT];
    int64_t number = 0;
    bool over = true;
    open_place(&p);
    CHECK_OK(rpi_return_ask(&p.late, &number));
    CHECK_FAILS(rpi_return_hear(&p.late, number, "invite", &stop, text, &over), CANCELLED,
                "told to end");
    CHECK(!over);
    CHECK_FAILS(rpi_return_hear(&p.late, number, "invite", &none, text, &over), TIMEOUT,
                "rank 3 was started again, and rank 0 has not taken it back");
    rpi_return_close(&p.first);
    CHECK_FAILS(rpi_return_hear(&p.late, number, "invite", &none, text, &over), CANCELLED,
                "the run is over");
    CHECK(over);
    close_place(&p);
}

/* Behind "called", too, where rank 0 has not seen the answer in time: it asks anew at once. */
static void who_gets_no_place_asks_anew(void) {
    static const rpi_train_hooks none;
    place p;
    rpi_trainer trainer = {.place.rank = 3};
    rpi_readmission readmission = {0};
    rpi_run_state state;
    int64_t number = 0;
    bool over = true;
    open_place(&p);
    CHECK(!look(&p.first)); /* which opens it */
    for (int64_t request = 1; request <= 3; request++) {
        CHECK_OK(rpi_return_say(&p.first, request, "invite", "called"));
        CHECK_OK(rpi_return_say(&p.first, request, "place", "again"));
    }
    readmission.requests.way = &p.ways[1];
    CHECK_FAILS(rpi_return(&trainer, &none, &readmission, &state, &over), PEER,
                "3 attempts to meet the others have failed");
    CHECK(!over);
    CHECK_OK(rpi_return_ask(&p.late, &number));
    CHECK_EQ(number, 4);
    close_place(&p);
}

/* The run goes on, and nobody comes back; whoever waits is told that it is over all the same.
 */
static void a_store_that_fails_ends_it(void) {
    static const rpi_train_hooks none_asked;
    place p;
    rpi_return_requests none = {0};
    rpi_return_request request;
    char text[RPI_RETURN_TEXT];
    int64_t number = 0;
    bool over = false;
    open_place(&p);
    p.ways[0].store = store_at_times;
    CHECK_OK(rpi_return_ask(&p.late, &number));
    has_no_store = true;
    CHECK(!look(&p.first));
    has_no_store = false;
    p.first.given = 1;
    CHECK(!look(&p.first) && !rpi_return_take(&p.first, &request));
    rpi_return_close(&p.first);
    CHECK_FAILS(rpi_return_hear(&p.late, number, "invite", &none_asked, text, &over), CANCELLED,
                "the run is over");
    CHECK(over);
    CHECK(!look(&none));
    rpi_return_close(&none);
    close_place(&p);
}

CASES({"what_becomes_of_a_rank_is_said_by_the_launcher",
       what_becomes_of_a_rank_is_said_by_the_launcher},
      {"a_request_is_seen_once_and_answered", a_request_is_seen_once_and_answered},
      {"a_request_that_was_not_filled_in_is_passed_over",
       a_request_that_was_not_filled_in_is_passed_over},
      {"who_gets_no_place_asks_anew", who_gets_no_place_asks_anew}, {"waits_end", waits_end},
      {"a_store_that_fails_ends_it", a_store_that_fails_ends_it})
