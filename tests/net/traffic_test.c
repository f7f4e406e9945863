/* What is urgent passes what has not left, on a link so slow that it is certain what has. */
#include "link_pair.h"

#include "base/clock.h"
#include "harness/check.h"
#include "net/bytes/frame.h"
#include "net/link/transport_kinds.h"
#include "net/shaped/arrivals.h"

#include <string.h>

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

/* ---- what has come, of a transport that hands out what the test has written ---- */

enum { WRAP = RPI_FRAME_HEADER_BYTES, FRAMES = 12, ROOM = WRAP + RPI_ARRIVALS_SHORT_BYTES + 1 };

typedef struct script {
    rpi_link link;
    rpi_endpoint endpoint;
    int given, released;
    rp_status end; /* behind the last one */
    size_t bytes[FRAMES];
    unsigned char frames[FRAMES][ROOM];
} script;

static rp_status script_peek(rpi_link *link, const void **out_frame, size_t *out_bytes) {
    script *s = (script *)link;
    if (s->released == s->given && s->end == RP_PENDING) return RP_PENDING;
    if (s->released == s->given) return RP_FAIL(PEER, "the end of what was written");
    *out_frame = s->frames[s->released];
    *out_bytes = s->bytes[s->released];
    return RP_OK;
}

static void script_release(rpi_link *link) {
    ((script *)link)->released++;
}

static const rpi_transport scripted = {.peek = script_peek, .release = script_release};

static void begin_script(script *s, rpi_arrivals *arrivals) {
    s->given = s->released = 0;
    s->end = RP_PENDING;
    s->endpoint = (rpi_endpoint){.transport = &scripted};
    s->link = (rpi_link){.endpoint = &s->endpoint};
    *arrivals = (rpi_arrivals){.peer = 5, .frame_bytes = RPI_ARRIVALS_SHORT_BYTES + 1};
}

/* A frame of `bytes`, each its number. */
static void write_frame(script *s, int32_t traffic, size_t bytes, uint64_t start_ns,
                        uint64_t behind) {
    rpi_frame_header wrap = {
        .kind = RPI_FRAME_TIMED, .sequence = start_ns, .part = traffic, .count = behind};
    memset(s->frames[s->given] + WRAP, s->given, bytes);
    rpi_frame_seal(s->frames[s->given], &wrap, bytes, false);
    s->bytes[s->given++] = WRAP + bytes;
}

/* Each has its place on the way in as soon as it is known, and comes `later_ns` after it left.
 */
static void place_all(rpi_arrivals *arrivals, int64_t later_ns) {
    for (int order = 0; order < RPI_ARRIVALS_ORDERS; order++)
        for (rpi_arrival *one; (one = rpi_arrivals_unplaced(arrivals, order)) != NULL;) {
            one->placed = true;
            one->visible_ns = one->start_ns + later_ns;
        }
}

/* The number of the frame that is to be seen then; -1: none is. */
static int seen_at(rpi_arrivals *arrivals, int64_t now_ns) {
    const rpi_arrival *one = rpi_arrivals_look(arrivals, now_ns);
    return one ? one->frame[0] : -1;
}

static void what_is_in_the_way_is_copied(void) {
    static script s;
    rpi_arrivals arrivals;
    begin_script(&s, &arrivals);
    CHECK(rpi_arrivals_are_none(&arrivals));
    for (int i = 0; i < FRAMES; i++) write_frame(&s, RPI_TRAFFIC_BULK, 100, 1000, 0);
    rpi_arrivals_learn(&arrivals, &s.link, 0);
    CHECK_EQ(s.released, RPI_ARRIVALS - 1); /* the last one for which there is room stays */
    CHECK(!rpi_arrivals_are_none(&arrivals));
    place_all(&arrivals, 10);
    CHECK_EQ(seen_at(&arrivals, 1009), -1);
    CHECK_EQ(rpi_arrivals_release(&arrivals, &s.link), 0); /* nobody looks at any */
    for (int i = 0; i < FRAMES; i++) {
        CHECK_EQ(seen_at(&arrivals, 1010), i);
        CHECK_EQ(seen_at(&arrivals, 1010), i); /* until it is released */
        CHECK_EQ(rpi_arrivals_release(&arrivals, &s.link), 100);
        CHECK_EQ(seen_at(&arrivals, 1009), -1);
        rpi_arrivals_learn(&arrivals, &s.link, 0);
        place_all(&arrivals, 10);
    }
    CHECK_EQ(s.released, FRAMES);
    CHECK(rpi_arrivals_are_none(&arrivals));
    CHECK(arrivals.spares > 0 && arrivals.released == FRAMES);
    rpi_arrivals_free(&arrivals);
}

/* Add a row: does the next one come to be known while this one is not to be seen yet? */
static const struct {
    int32_t traffic;
    size_t bytes;
    bool is_passed;
} first_ones[] = {
    {RPI_TRAFFIC_PLAIN, RPI_ARRIVALS_SHORT_BYTES, true},
    {RPI_TRAFFIC_PLAIN, RPI_ARRIVALS_SHORT_BYTES + 1, false},
    {RPI_TRAFFIC_BULK, RPI_ARRIVALS_SHORT_BYTES + 1, true},
    {RPI_TRAFFIC_URGENT, RPI_ARRIVALS_SHORT_BYTES + 1, true},
};

static void long_plain_frames_stay_where_they_lie(void) {
    static script s;
    for (size_t i = 0; i < sizeof first_ones / sizeof first_ones[0]; i++) {
        rpi_arrivals arrivals;
        int copied = first_ones[i].is_passed;
        begin_script(&s, &arrivals);
        write_frame(&s, first_ones[i].traffic, first_ones[i].bytes, 1000, 0);
        rpi_arrivals_learn(&arrivals, &s.link, 0);
        CHECK_MSG(s.released == copied, "row %zu", i);
        place_all(&arrivals, 10);
        write_frame(&s, RPI_TRAFFIC_PLAIN, RPI_ARRIVALS_SHORT_BYTES + 1, 1000, 0);
        rpi_arrivals_learn(&arrivals, &s.link, 0);
        CHECK_EQ(s.released, copied);
        CHECK_EQ(seen_at(&arrivals, 1010), 0);
        CHECK_EQ(rpi_arrivals_release(&arrivals, &s.link), first_ones[i].bytes);
        CHECK_EQ(s.released, 1); /* now, or when it was copied */
        rpi_arrivals_learn(&arrivals, &s.link, 0);
        place_all(&arrivals, 10);
        CHECK_EQ(seen_at(&arrivals, 1010), 1);
        rpi_arrivals_release(&arrivals, &s.link);
        CHECK(s.released == 2 && rpi_arrivals_are_none(&arrivals));
        rpi_arrivals_free(&arrivals);
    }
}

/* An urgent one is seen behind as many others as it says, and before all the rest. */
static void urgent_frames_are_seen_behind_what_had_left(void) {
    static script s;
    rpi_arrivals arrivals;
    rpi_nic nic;
    rpi_nic_init(&nic, &(rpi_link_shape){1e9, 50e-9}, 1000);
    begin_script(&s, &arrivals);
    CHECK_EQ(rpi_arrivals_next_ns(&arrivals, &nic), RPI_NEVER_NS);
    for (int i = 0; i < 3; i++) write_frame(&s, RPI_TRAFFIC_BULK, 100, 1000, 0);
    write_frame(&s, RPI_TRAFFIC_URGENT, 100, 400, 1);
    rpi_arrivals_learn(&arrivals, &s.link, 0);
    CHECK_EQ(rpi_arrivals_next_ns(&arrivals, &nic), 1050); /* not before it may be seen */
    place_all(&arrivals, 100);
    CHECK_EQ(rpi_arrivals_next_ns(&arrivals, &nic), 1100);
    CHECK_EQ(seen_at(&arrivals, 600), -1); /* it is here, but it is behind the first one */
    CHECK_EQ(seen_at(&arrivals, 1100), 0);
    CHECK_EQ(rpi_arrivals_next_ns(&arrivals, &nic), RPI_NEVER_NS); /* behind what is seen */
    rpi_arrivals_release(&arrivals, &s.link);
    CHECK_EQ(rpi_arrivals_next_ns(&arrivals, &nic), 500);
    CHECK_EQ(seen_at(&arrivals, 1100), 3);
    CHECK_EQ(rpi_arrivals_next_ns(&arrivals, &nic), 1100);
    rpi_arrivals_release(&arrivals, &s.link);
    CHECK_EQ(seen_at(&arrivals, 1100), 1);
    rpi_arrivals_free(&arrivals);
}

/* Add a row: what is no frame of a shaped link. */
static const struct {
    int32_t traffic;
    uint64_t start_ns;
    rpi_frame_kind kind;
} strange[] = {
    {RPI_TRAFFIC_PLAIN - 1, 0, RPI_FRAME_TIMED},
    {RPI_TRAFFIC_URGENT + 1, 0, RPI_FRAME_TIMED},
    {RPI_TRAFFIC_PLAIN, (uint64_t)INT64_MAX / 2 + 1, RPI_FRAME_TIMED},
    {RPI_TRAFFIC_PLAIN, 0, RPI_FRAME_DATA},
};

static void what_has_no_time_is_corrupt(void) {
    static script s;
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        rpi_arrivals arrivals;
        rpi_frame_header wrap = {.kind = (uint8_t)strange[i].kind,
                                 .sequence = strange[i].start_ns,
                                 .part = strange[i].traffic};
        begin_script(&s, &arrivals);
        write_frame(&s, RPI_TRAFFIC_BULK, 1, INT64_MAX / 2, 0); /* just allowed */
        write_frame(&s, RPI_TRAFFIC_PLAIN, 1, 0, 0);
        rpi_frame_seal(s.frames[1], &wrap, 1, false);
        rpi_arrivals_learn(&arrivals, &s.link, 0);
        CHECK_EQ(s.released, 1);
        CHECK_FAILS(rpi_sticky_error_raise(&arrivals.sticky), CORRUPT,
                    "a frame from rank 5 without the time it was sent");
        rpi_arrivals_learn(&arrivals, &s.link, 0); /* nothing more comes of it */
        CHECK_EQ(arrivals.queues[RPI_ARRIVALS_OTHERS].count, 1);
        rpi_arrivals_free(&arrivals);
    }
}

CASES({"urgent frames pass bulk", urgent_frames_pass_bulk},
      {"the order of one sender stays", the_order_of_one_sender_stays},
      {"all is seen before the end", all_is_seen_before_the_end},
      {"copies are freed", copies_are_freed},
      {"what is in the way is copied", what_is_in_the_way_is_copied},
      {"long plain frames stay where they lie", long_plain_frames_stay_where_they_lie},
      {"urgent frames are seen behind what had left",
       urgent_frames_are_seen_behind_what_had_left},
      {"what has no time is corrupt", what_has_no_time_is_corrupt})
