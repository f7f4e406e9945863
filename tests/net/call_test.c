/* How long each stage of a call may last, as told by the call itself: nobody waits here. */
#include "net/link/call.h"

#include "base/clock.h"
#include "harness/check.h"

static int ways; /* of the address that is dialled */

static rp_status dial(const char *address, unsigned attempt, int *out_fd, int *out_ways) {
    (void)address, (void)attempt, (void)out_fd;
    *out_ways = ways;
    return RP_PENDING;
}

static const rpi_call_kind kind = {.dial = dial};
static const rpi_hello self = {.rank = 1, .world = 2};
static const rpi_call_maker maker = {&self, &kind, NULL};

/* Milliseconds that an attempt has which follows so many. */
static int64_t share_ms(unsigned attempts) {
    rpi_call *call = NULL;
    CHECK_OK(rpi_call_new(0, 0, "anywhere", &call));
    if (!call) return -1;
    CHECK(rpi_call_due_ns(call) <= rpi_now_ns()); /* it may begin */
    call->attempts = attempts;
    CHECK_EQ(rpi_call_go_on(&maker, call), RP_PENDING);
    CHECK_EQ(rpi_call_poll(call).events, POLLOUT);
    int64_t share_ns = rpi_call_due_ns(call) - call->since_ns;
    rpi_call_free(call);
    return share_ns / (RPI_SECOND_NS / 1000);
}

static void an_attempt_ends_sooner_where_there_are_others(void) {
    ways = 1;
    CHECK_EQ(share_ms(0), 30000);
    CHECK_EQ(share_ms(9), 30000);
    ways = 2;
    CHECK_EQ(share_ms(0), 250);
    CHECK_EQ(share_ms(1), 250);
    CHECK_EQ(share_ms(2), 500);
    CHECK_EQ(share_ms(8), 4000);
    CHECK_EQ(share_ms(100), 4000);
}

/* As if the attempt had begun long ago. */
static void who_does_not_answer_is_called_again(void) {
    rpi_call *call = NULL;
    ways = 1;
    REQUIRE_OK(rpi_call_new(0, 0, "anywhere", &call));
    CHECK_EQ(rpi_call_go_on(&maker, call), RP_PENDING);
    call->refusals = 1;
    CHECK_EQ(rpi_call_keep_time(&maker, call), RP_PENDING);
    CHECK_EQ(call->attempts, 0);
    call->since_ns -= 60 * RPI_SECOND_NS;
    CHECK_EQ(rpi_call_keep_time(&maker, call), RP_PENDING);
    CHECK_EQ(call->attempts, 1);
    CHECK_EQ(call->refusals, 0);
    CHECK_EQ(rpi_call_due_ns(call), call->since_ns); /* it rests until then */
    call->since_ns -= 60 * RPI_SECOND_NS;
    CHECK_EQ(rpi_call_keep_time(&maker, call), RP_PENDING);
    CHECK_EQ(rpi_call_poll(call).events, POLLOUT); /* and dials once more */
    rpi_call_free(call);
}

/* What is passed behind the hellos may be long in coming: only its death ends that. */
static void who_is_answered_has_all_the_time(void) {
    rpi_call *call = NULL;
    CHECK_OK(rpi_call_answer(&maker, 0, 0, (rpi_channel){.fd = -1}, NULL, &call));
    REQUIRE(call);
    CHECK(rpi_call_due_ns(call) == RPI_NEVER_NS);
    CHECK(rpi_call_has_greeted(call));
    rpi_call_free(call);
}

CASES({"an attempt ends sooner where there are others",
       an_attempt_ends_sooner_where_there_are_others},
      {"who does not answer is called again", who_does_not_answer_is_called_again},
      {"who is answered has all the time", who_is_answered_has_all_the_time})
