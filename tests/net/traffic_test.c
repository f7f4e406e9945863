/* What is urgent passes what has not left, on a link so slow that it is certain what has. */
#include "link_pair.h"

#include "base/clock.h"
#include "harness/check.h"
#include "net/link/transport_kinds.h"

enum { LONG = 128 * 1024, SHORT = 100, TRIES = 20 };

/* A long frame takes 131 ms, the piece that an urgent one waits for half of that. */
static void open_slow(link_pair *pair, const char *inner) {
    const rpi_transport *kind = NULL;
    rp_status status_of[2];
    CHECK_OK(rpi_transport_find(inner, &kind));
    link_pair_options(pair, &rpi_transport_shaped, LONG);
    for (int rank = 0; rank < 2; rank++) {
        pair->options[rank].inner = kind;
        pair->options[rank].shape = (rpi_link_shape){1e6, 1e-3};
    }
    CHECK_OK(link_pair_open_with(pair, status_of));
}

static uint64_t send_bulk(rpi_link *link) {
    uint64_t posted = 0;
    link->traffic = RPI_TRAFFIC_BULK;
    while (link_send(link, posted, LONG) == RP_OK) posted++;
    return posted;
}

static void send_urgent(rpi_link *link, uint64_t number, uint64_t behind) {
    link->traffic = RPI_TRAFFIC_URGENT;
    link->behind = behind;
    CHECK_OK(link_send(link, number, SHORT));
}

/* Bytes of the next frame that is to be seen. */
static size_t await_frame(link_pair *pair) {
    const void *frame = NULL;
    size_t bytes = 0;
    int64_t deadline_ns = rpi_deadline_ns(60);
    while (pair->transport->peek(pair->links[1], &frame, &bytes) == RP_PENDING &&
           rpi_now_ns() < deadline_ns)
        (void)link_wait(pair->endpoints[1]);
    return bytes;
}

/* Of `bulk` long ones, in order, how many come before the short one; all are checked. */
static uint64_t receive_all(link_pair *pair, uint64_t bulk) {
    uint64_t next = 0, before = bulk;
    while (next < bulk || before == bulk) {
        size_t bytes = await_frame(pair);
        if (bytes == LONG && next < bulk) {
            CHECK_OK(link_receive(pair->links[1], next++, LONG));
        } else {
            CHECK_EQ(bytes, SHORT);
            CHECK_OK(link_receive(pair->links[1], 1000, SHORT));
            if (next == bulk) return bulk;
            before = next;
        }
    }
    return before;
}

/* At most the one that is on its way goes before it, of those that had not left. False: this
 * process had no processor meanwhile, and all had. */
static bool passes_once(const char *inner) {
    link_pair pair;
    open_slow(&pair, inner);
    uint64_t bulk = send_bulk(pair.links[0]);
    CHECK(bulk >= 3);
    CHECK_EQ(pair.links[0]->passable, bulk);
    send_urgent(pair.links[0], 1000, 0);
    CHECK_EQ(pair.links[0]->passable, bulk);
    CHECK_OK(pair.transport->progress(pair.endpoints[0]));
    uint64_t left = pair.links[0]->settled;
    bool shows = left + 1 < bulk;
    uint64_t before = receive_all(&pair, bulk);
    CHECK_MSG(before <= left + 1,
              "over %s: %llu of %llu bulk frames went before it, %llu had left", inner,
              (unsigned long long)before, (unsigned long long)bulk, (unsigned long long)left);
    link_pair_close(&pair);
    return shows;
}

static void urgent_frames_pass_bulk(void) {
    static const char *const kinds[] = {"inproc", "shm", "tcp"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int tries = 0;
        while (tries < TRIES && !passes_once(kinds[i])) tries++;
        CHECK(tries < TRIES);
    }
}

/* However early it leaves. */
static void the_order_of_one_sender_stays(void) {
    link_pair pair;
    open_slow(&pair, "inproc");
    uint64_t bulk = send_bulk(pair.links[0]);
    send_urgent(pair.links[0], 1000, 2);
    CHECK(receive_all(&pair, bulk) >= 2);
    link_pair_close(&pair);
}

/* What has been copied out of the wrapped link is seen before its end. */
static void all_is_seen_before_the_end(void) {
    link_pair pair;
    const void *frame = NULL;
    size_t bytes = 0;
    open_slow(&pair, "inproc");
    uint64_t bulk = send_bulk(pair.links[0]);
    send_urgent(pair.links[0], 1000, 0);
    pair.transport->close(pair.endpoints[0]);
    pair.endpoints[0] = NULL;
    (void)receive_all(&pair, bulk);
    rp_status status = RP_PENDING;
    for (int i = 0; i < 1000 && status == RP_PENDING; i++) {
        status = pair.transport->peek(pair.links[1], &frame, &bytes);
        if (status == RP_PENDING) (void)link_wait(pair.endpoints[1]);
    }
    CHECK_EQ(status, RP_PEER);
    link_pair_close(&pair);
}

/* Who closes with copies that nobody has seen frees them (AddressSanitizer looks). */
static void copies_are_freed(void) {
    link_pair pair;
    open_slow(&pair, "inproc");
    (void)send_bulk(pair.links[0]);
    CHECK_OK(pair.transport->progress(pair.endpoints[1]));
    link_pair_close(&pair);
}

CASES({"urgent frames pass bulk", urgent_frames_pass_bulk},
      {"the order of one sender stays", the_order_of_one_sender_stays},
      {"all is seen before the end", all_is_seen_before_the_end},
      {"copies are freed", copies_are_freed})
