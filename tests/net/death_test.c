/* Processes that are killed in mid-stream: their peers learn it at once, nothing stays behind.
 */
#include "harness/ranks.h"

#include "link_pair.h"

#include "base/clock.h"
#include "harness/check.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { FRAME_BYTES = 65536, SENT = 5 };

static rp_status exchange_addresses(rpi_endpoint *endpoint, char address[256]) {
    rp_store store = {0};
    char key[16], mine[256] = "";
    size_t bytes = 0;
    RP_TRY(endpoint->transport->address(endpoint, mine, sizeof mine));
    RP_TRY(ranks_store(&store));
    snprintf(key, sizeof key, "rank%d", endpoint->rank);
    rp_status status = store.ops->set(store.context, key, mine, sizeof mine);
    snprintf(key, sizeof key, "rank%d", !endpoint->rank);
    if (status == RP_OK) status = store.ops->get(store.context, key, 20, address, 256, &bytes);
    rp_store_close(&store);
    return status;
}

/* In a rank's process: the only link of a world of two. */
static rp_status connect_pair(link_pair *pair) {
    const rpi_transport *transport = NULL;
    char address[256];
    int rank = ranks_rank();
    RP_TRY(rpi_transport_find(ranks_argument(), &transport));
    link_pair_options(pair, transport, FRAME_BYTES);
    if (strcmp(transport->name, "shaped") == 0)
        RP_TRY(rpi_transport_find("shm", &pair->options[rank].inner));
    RP_TRY(transport->open(&pair->options[rank], &pair->endpoints[rank]));
    RP_TRY(exchange_addresses(pair->endpoints[rank], address));
    return transport->connect(pair->endpoints[rank], !rank, address, rpi_deadline_ns(20),
                              &pair->links[rank]);
}

/* Rank 1 sends a little and is killed; rank 0 gets all of it, then the news. */
static void be_killed(void) {
    link_pair pair;
    int rank = ranks_rank(), before = check_descriptors();
    REQUIRE_OK(connect_pair(&pair));
    if (rank == 1) {
        for (uint64_t i = 0; i < SENT; i++) REQUIRE_OK(link_send_wait(pair.links[1], i, 30000));
        while (pair.transport->flushed(pair.endpoints[1]) == RP_PENDING)
            link_wait(pair.endpoints[1]);
        ranks_mark("sent");
        for (;;) pause();
    }
    for (uint64_t i = 0; i < SENT; i++) CHECK_OK(link_receive_wait(pair.links[0], i, 30000));
    CHECK_FAILS(link_receive_wait(pair.links[0], SENT, 64), PEER, "rank 1");
    CHECK_FAILS(link_send_wait(pair.links[0], 0, 64), PEER, "rank 1");
    link_pair_close(&pair);
    CHECK_EQ(check_descriptors(), before);
}

/* The survivor was sending, with full buffers. */
static void be_killed_while_sent_to(void) {
    link_pair pair;
    REQUIRE_OK(connect_pair(&pair));
    if (ranks_rank() == 1) {
        REQUIRE_OK(link_receive_wait(pair.links[1], 0, FRAME_BYTES));
        ranks_mark("sent");
        for (;;) pause();
    }
    rp_status status = RP_OK;
    for (uint64_t i = 0; status == RP_OK; i++)
        status = link_send_wait(pair.links[0], i, FRAME_BYTES);
    CHECK_EQ(status, RP_PEER);
    CHECK(strstr(rp_last_error()->message, "rank 1"));
    link_pair_close(&pair);
}

static void each_process_transport(const char *function) {
    const rpi_transport *transport;
    for (int i = 0; (transport = rpi_transport_at(i)) != NULL; i++) {
        if (strcmp(transport->name, "inproc") == 0) continue;
        ranks *world = ranks_start(function, 2, &(ranks_options){.argument = transport->name});
        CHECK(ranks_wait_for(world, 1, "sent", 20));
        ranks_signal(world, 1, SIGKILL);
        CHECK(ranks_finish(world, 30));
        ranks_check_exit(world, 0, 0, NULL);
        ranks_check_exit(world, 1, 128 + SIGKILL, NULL);
        ranks_free(world);
    }
}

static void a_killed_sender_is_drained_then_named(void) {
    each_process_transport("be_killed");
}

static void a_killed_receiver_is_named(void) {
    each_process_transport("be_killed_while_sent_to");
}

static const ranks_function functions[] = {
    {"be_killed", be_killed}, {"be_killed_while_sent_to", be_killed_while_sent_to}};
static const check_case cases[] = {
    {"a_killed_sender_is_drained_then_named", a_killed_sender_is_drained_then_named},
    {"a_killed_receiver_is_named", a_killed_receiver_is_named}};
RANKS_MAIN(functions, cases)
