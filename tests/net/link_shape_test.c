/* The model of a network interface, in virtual time: no clock is asked. */
#include "net/shaped/link_shape.h"

#include "base/rng.h"
#include "harness/check.h"

static void reads_what_users_write(void) {
    static const struct {
        const char *text;
        double bytes_per_s, latency_s;
        const char *written; /* NULL: the same */
    } links[] = {
        {"1Gbit,50us", 125e6, 50e-6, NULL},
        {"200Mbit,1ms", 25e6, 1e-3, NULL},
        {"10kbit", 1250, 0, NULL},
        {"25MB,0s", 25e6, 0, "200Mbit"},
        {"1Gbit,0", 125e6, 0, "1Gbit"},
        {"0.1TB", 1e11, 0, "800Gbit"},
        {"1Tbit,1us", 125e9, 1e-6, NULL},
        {"2.5GB", 2.5e9, 0, "20Gbit"},
        {"2.5Gbit/s", 312.5e6, 0, "2.5Gbit"},
        {"25MB/s,1us", 25e6, 1e-6, "200Mbit,1us"},
        {"3kB,2s", 3000, 2, "24kbit,2s"},
        {"100B", 100, 0, "800bit"},
        {"0.5Gbit,20ns", 62.5e6, 20e-9, "500Mbit,20ns"},
        {"1e3Mbit,1500us", 125e6, 1.5e-3, "1Gbit,1.5ms"},
    };
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        rpi_link_shape shape = {0};
        char text[64];
        CHECK_OK(rpi_link_shape_parse(links[i].text, &shape));
        CHECK_NEAR(shape.bytes_per_s, links[i].bytes_per_s, 1e-6 * links[i].bytes_per_s);
        CHECK_NEAR(shape.latency_s, links[i].latency_s, 1e-15);
        const char *wanted = links[i].written ? links[i].written : links[i].text;
        rpi_link_shape_text(&shape, text, sizeof text);
        CHECK_MSG(strcmp(text, wanted) == 0, "%s is written %s", links[i].text, text);
    }
    char text[64];
    rpi_link_shape latency_only = {0, 1e-3};
    CHECK(strcmp(rpi_link_shape_text(&latency_only, text, sizeof text), "unlimited,1ms") == 0);
}

static void refuses_what_is_no_link(void) {
    static const struct {
        const char *text, *part;
    } mistakes[] = {
        {"", "RATE,LATENCY"},
        {",50us", "RATE,LATENCY"},
        {"fast", "1Gbit"},
        {"1Gbps", "did you mean '1Gbit'"},
        {"1gbit", "did you mean '1Gbit'"},
        {"1G", "did you mean '1Gbit'"},
        {"100mbps", "did you mean '100Mbit'"},
        {"25MB/h", "did you mean '25MB'"},
        {"1", "did you mean '1Gbit'"},
        {"100,50us", "did you mean '100Mbit'"},
        {"125000000", "did you mean '125000000bit'"},
        {"1Gbit,50", "'50' has no unit; did you mean '50us' or '50ms'"},
        {"1Gbit,0.5", "did you mean '0.5us' or '0.5ms'"},
        {"1Gbit,50US", "did you mean '50us'"},
        {"0Gbit", "carries nothing"},
        {"0", "carries nothing"},
        {"0,0", "carries nothing"},
        {"-1Gbit", "carries nothing"},
        {"nanGbit", "not the rate"},
        {"1Gbit,", "duration"},
        {"1Gbit,5us,3", "duration"},
        {"1Gbit,2h", "an hour"},
        {"infGbit", "not the rate"},
        {"1e99Gbit", "carries nothing"},
    };
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        rpi_link_shape shape = {7, 7};
        CHECK_FAILS(rpi_link_shape_parse(mistakes[i].text, &shape), INVALID, mistakes[i].part);
        CHECK(shape.bytes_per_s == 7 && shape.latency_s == 7);
    }
}

static rpi_nic nic_of(double bytes_per_s, double latency_s) {
    rpi_nic nic;
    rpi_link_shape shape = {bytes_per_s, latency_s};
    rpi_nic_init(&nic, &shape, 1000);
    return nic;
}

/* Cut-through: the rate is paid once, the latency once. */
static void a_lone_frame_takes_latency_and_its_length(void) {
    rpi_nic_queue queue = {0};
    rpi_nic sender = nic_of(1e9, 50e-6), receiver = sender;
    int64_t start_ns = rpi_nic_send(&sender, &queue, 1000, 4000);
    CHECK_EQ(start_ns, 1000);
    CHECK_EQ(rpi_nic_arrival(&receiver, start_ns), 51000);
    CHECK_EQ(rpi_nic_receive(&receiver, start_ns, 4000), 1000 + 50000 + 4000);
}

static void the_way_out_is_shared_by_all_that_is_sent(void) {
    rpi_nic_queue queue = {0};
    rpi_nic sender = nic_of(1e9, 0);
    CHECK_EQ(rpi_nic_send(&sender, &queue, 0, 1000), 0);
    CHECK_EQ(rpi_nic_send(&sender, &queue, 10, 500), 1000);
    CHECK_EQ(rpi_nic_send(&sender, &queue, 20, 500), 1500);
    CHECK_EQ(rpi_nic_send(&sender, &queue, 5000, 500), 5000); /* idle time is not saved up */
}

/* Three senders into one NIC: it takes three times as long as each of them. */
static void the_way_in_is_shared_by_all_that_come(void) {
    rpi_nic_queue queues[3] = {0};
    rpi_nic senders[3], receiver = nic_of(1e9, 1e-6);
    int64_t last_ns = 0;
    for (int i = 0; i < 3; i++) senders[i] = nic_of(1e9, 1e-6);
    for (int frame = 0; frame < 100; frame++)
        for (int i = 0; i < 3; i++) {
            int64_t start_ns = rpi_nic_send(&senders[i], &queues[i], 0, 1000);
            last_ns = rpi_nic_receive(&receiver, start_ns, 1000);
        }
    CHECK_EQ(last_ns, 1000 + 3 * 100 * 1000);
}

/* Both directions run at once, and a ring of ranks is as fast as one pair. */
static void ways_do_not_hinder_each_other(void) {
    rpi_nic_queue queues[4] = {0};
    rpi_nic nics[4];
    int64_t last_ns = 0;
    for (int i = 0; i < 4; i++) nics[i] = nic_of(1e9, 0);
    for (int frame = 0; frame < 10; frame++)
        for (int i = 0; i < 4; i++) {
            int64_t start_ns = rpi_nic_send(&nics[i], &queues[i], 0, 1000);
            last_ns = rpi_nic_receive(&nics[(i + 1) % 4], start_ns, 1000);
        }
    CHECK_EQ(last_ns, 10 * 1000);
}

/* Frames of a few bytes on a fast NIC last less than a nanosecond each. */
static void rounding_does_not_add_up(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    rpi_nic_queue queue = {0};
    rpi_nic sender = nic_of(12.5e9 * 1.37, 0), receiver = sender;
    uint64_t bytes = 0;
    int64_t last_ns = 0;
    for (int i = 0; i < 100000; i++) {
        size_t length = 64 + rpi_rng_below(&rng, 100);
        bytes += length;
        last_ns = rpi_nic_receive(&receiver, rpi_nic_send(&sender, &queue, 0, length), length);
    }
    double exact_ns = (double)bytes / (12.5e9 * 1.37) * 1e9;
    CHECK_NEAR((double)last_ns, exact_ns, 1e-3 * exact_ns);
}

/* A sender that fills its backlog whenever it may keeps the way out busy without a gap. */
static void the_backlog_is_bounded_and_keeps_the_rate(void) {
    rpi_nic_queue queue = {0};
    rpi_nic sender = nic_of(1e8, 0);
    int64_t now_ns = 0, most_ns = 0;
    uint64_t bytes = 0;
    while (now_ns < 1000 * 1000 * 1000) {
        while (rpi_nic_takes_at(&sender, &queue) <= now_ns) {
            rpi_nic_send(&sender, &queue, now_ns, 1000);
            bytes += 1000;
        }
        int64_t waiting_ns = sender.out.free_ns - now_ns;
        if (waiting_ns > most_ns) most_ns = waiting_ns;
        now_ns = rpi_nic_takes_at(&sender, &queue) + 300 * 1000; /* wakes up late */
    }
    CHECK_NEAR((double)bytes / 1e8, (double)now_ns / 1e9, 0.01);
    CHECK((double)most_ns <= (double)(sender.backlog_bytes + 1000) / 1e8 * 1e9 + 1);
    CHECK(most_ns > 0);
}

/* Two links of one nic, of which one asks first every time: both get half of the rate. */
static void a_greedy_link_leaves_the_others_their_share(void) {
    rpi_nic sender = nic_of(1e8, 0);
    rpi_nic_queue queues[2] = {0};
    uint64_t bytes[2] = {0};
    for (int64_t now_ns = 0; now_ns < 1000 * 1000 * 1000; now_ns += 100 * 1000)
        for (int i = 0; i < 2; i++)
            while (rpi_nic_takes_at(&sender, &queues[i]) <= now_ns) {
                rpi_nic_send(&sender, &queues[i], now_ns, 50000);
                bytes[i] += 50000;
            }
    CHECK_NEAR((double)bytes[0] / (double)bytes[1], 1, 0.05);
    CHECK_NEAR((double)(bytes[0] + bytes[1]) / 1e8, 1, 0.01);
}

/* Many small frames: their number is bounded as well. */
static void small_frames_wait_for_the_oldest_to_leave(void) {
    rpi_nic sender = nic_of(1e9, 0);
    rpi_nic_queue queue = {0};
    for (int i = 0; i < RPI_NIC_QUEUE; i++) {
        CHECK(rpi_nic_takes_at(&sender, &queue) <= 0);
        rpi_nic_send(&sender, &queue, 0, 100);
    }
    CHECK_EQ(rpi_nic_takes_at(&sender, &queue), 100);
}

static void no_rate_means_no_limit(void) {
    rpi_nic_queue queue = {0};
    rpi_nic sender = nic_of(0, 1e-3), receiver = sender;
    for (int i = 0; i < 10; i++) CHECK_EQ(rpi_nic_send(&sender, &queue, 5, 1 << 20), 5);
    CHECK_EQ(rpi_nic_receive(&receiver, 5, 1 << 20), 5 + 1000000);
    CHECK(rpi_nic_takes_at(&sender, &queue) <= 5);
}

/* What is urgent waits for the piece that is on its way, for no queue; what comes behind the
 * queue is as much later. */
static void what_is_urgent_passes_the_queue(void) {
    enum { PIECE = RPI_NIC_PIECE_BYTES };
    rpi_nic sender = nic_of(1e9, 50e-6), receiver = sender;
    rpi_nic_queue queue = {0};
    for (int i = 0; i < 3; i++) rpi_nic_send(&sender, &queue, 0, 2 * PIECE);
    CHECK_EQ(rpi_nic_waiting(&queue, 0), 3);
    CHECK_EQ(rpi_nic_waiting(&queue, 2 * PIECE), 2);
    CHECK_EQ(rpi_nic_waiting(&queue, 6 * PIECE), 0);
    CHECK_EQ(rpi_nic_send_urgent(&sender, 100, 4000), PIECE);
    CHECK_EQ(rpi_nic_send_urgent(&sender, 200, 4000), PIECE + 4000);
    CHECK_EQ(rpi_nic_send(&sender, &queue, 300, 1000), 6 * PIECE + 8000);
    CHECK_EQ(rpi_nic_receive(&receiver, 0, 2 * PIECE), 50000 + 2 * PIECE);
    CHECK_EQ(rpi_nic_receive_urgent(&receiver, PIECE, 4000), 50000 + PIECE + 4000);
    CHECK_EQ(rpi_nic_receive(&receiver, 2 * PIECE, PIECE), 50000 + 3 * PIECE + 4000);
}

/* Where nothing waits, what is urgent is a frame like any other. */
static void what_is_urgent_alone_is_a_frame_like_any_other(void) {
    rpi_nic nics[2] = {nic_of(1e9, 50e-6), nic_of(1e9, 50e-6)};
    rpi_nic_queue queue = {0};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 1);
    for (int64_t now_ns = 0, i = 0; i < 1000; i++) {
        size_t bytes = 1 + rpi_rng_below(&rng, 10000);
        int64_t start_ns = rpi_nic_send(&nics[0], &queue, now_ns, bytes);
        CHECK_EQ(rpi_nic_send_urgent(&nics[1], now_ns, bytes), start_ns);
        now_ns = nics[0].out.free_ns + (int64_t)rpi_rng_below(&rng, 5000);
        CHECK_EQ(rpi_nic_receive_urgent(&nics[1], start_ns, bytes),
                 rpi_nic_receive(&nics[0], start_ns, bytes));
    }
}

/* In the long run the way carries what its rate is, whatever of it is urgent. */
static void the_rate_is_shared_by_what_is_urgent(void) {
    rpi_nic sender = nic_of(1e8, 0);
    rpi_nic_queue queue = {0};
    uint64_t bytes = 0;
    for (int64_t now_ns = 0; now_ns < 1000 * 1000 * 1000; now_ns += 50 * 1000) {
        while (rpi_nic_takes_at(&sender, &queue) <= now_ns) {
            rpi_nic_send(&sender, &queue, now_ns, 50000);
            bytes += 50000;
        }
        rpi_nic_send_urgent(&sender, now_ns, 1000);
        bytes += 1000;
        CHECK(sender.out.urgent_ns <= sender.out.free_ns);
    }
    CHECK_NEAR((double)bytes / 1e8, 1, 0.02);
}

CASES({"reads_what_users_write", reads_what_users_write},
      {"refuses_what_is_no_link", refuses_what_is_no_link},
      {"a_lone_frame_takes_latency_and_its_length", a_lone_frame_takes_latency_and_its_length},
      {"the_way_out_is_shared_by_all_that_is_sent", the_way_out_is_shared_by_all_that_is_sent},
      {"the_way_in_is_shared_by_all_that_come", the_way_in_is_shared_by_all_that_come},
      {"ways_do_not_hinder_each_other", ways_do_not_hinder_each_other},
      {"rounding_does_not_add_up", rounding_does_not_add_up},
      {"the_backlog_is_bounded_and_keeps_the_rate", the_backlog_is_bounded_and_keeps_the_rate},
      {"a_greedy_link_leaves_the_others_their_share",
       a_greedy_link_leaves_the_others_their_share},
      {"small_frames_wait_for_the_oldest_to_leave", small_frames_wait_for_the_oldest_to_leave},
      {"no_rate_means_no_limit", no_rate_means_no_limit},
      {"what_is_urgent_passes_the_queue", what_is_urgent_passes_the_queue},
      {"what_is_urgent_alone_is_a_frame_like_any_other",
       what_is_urgent_alone_is_a_frame_like_any_other},
      {"the_rate_is_shared_by_what_is_urgent", the_rate_is_shared_by_what_is_urgent})
