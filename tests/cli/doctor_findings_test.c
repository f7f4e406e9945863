/* What a report of hosts and pairs means: each thing that is wrong is named once, with the
 * hosts it is of; what is only odd fails nothing. And probes: what is measured over a
 * connection. */
#include "cli/doctor/doctor.h"

#include "base/clock.h"
#include "base/memory.h"
#include "harness/check.h"
#include "net/socket/stream.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HOSTS = 3 };
static const char *const names[HOSTS] = {"big", "small", "tiny"};

/* Three hosts of 1 Gbit/s, all fine. */
static void make(rpi_doctor_report *report) {
    *report = (rpi_doctor_report){.count = HOSTS};
    CHECK_EQ(rpi_alloc_array(HOSTS, sizeof *report->hosts, "hosts", &report->hosts), RP_OK);
    CHECK_EQ(rpi_alloc_array(HOSTS * HOSTS, sizeof *report->pairs, "pairs", &report->pairs),
             RP_OK);
    for (int i = 0; i < HOSTS; i++) {
        report->hosts[i] = (rpi_doctor_host){.name = names[i], .interface_count = 1};
        rpi_doctor_interface *interface = &report->hosts[i].interfaces[0];
        *interface = (rpi_doctor_interface){.mtu = 1500, .speed_mbit = 1000};
        snprintf(interface->is.name, sizeof interface->is.name, "eth0");
        for (int j = 0; j < HOSTS; j++) {
            if (i == j) continue;
            rpi_doctor_end end = {.interface = "eth0", .mtu = 1500};
            *rpi_doctor_pair_at(report, i, j) = (rpi_doctor_pair){.is_tried = true,
                                                                  .is_reached = true,
                                                                  .from = end,
                                                                  .to = end,
                                                                  .result = {.latency_s = 5e-5,
                                                                             .bytes = 100000000,
                                                                             .rate = 941e6 / 8,
                                                                             .packets = 70000,
                                                                             .resent = 10}};
        }
    }
}

/* So many findings, the first of which says all `words` (up to NULL). */
static void check_findings(rpi_doctor_report *report, int count, bool is_well,
                           const char *const *words) {
    CHECK_EQ(rpi_doctor_find(report), RP_OK);
    CHECK_MSG(report->finding_count == count, "%d findings, not %d; the first: %s",
              report->finding_count, count,
              report->finding_count ? report->findings[0].text : "");
    CHECK_EQ(rpi_doctor_is_well(report), is_well);
    for (; report->finding_count && *words; words++)
        CHECK_MSG(strstr(report->findings[0].text, *words), "'%s' is not in: %s", *words,
                  report->findings[0].text);
    rpi_doctor_free(report);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void cut(rpi_doctor_report *report, int from, int to) {
    rpi_doctor_pair *pair = rpi_doctor_pair_at(report, from, to);
    *pair = (rpi_doctor_pair){.is_tried = true, .failure = "nobody answered at 10.0.0.9:2000"};
}

static void hosts_that_are_fine(void) {
    rpi_doctor_report report;
    make(&report);
    check_findings(&report, 0, true, WORDS(NULL));
}

static void pairs_that_fail(void) {
    rpi_doctor_report report;
    make(&report);
    cut(&report, 1, 2);
    cut(&report, 2, 1);
    check_findings(&report, 1, false,
                   WORDS("small and tiny do not reach each other: nobody answered",
                         "REDPOLL_SOCKET_IFNAME"));
    make(&report);
    cut(&report, 2, 0);
    check_findings(&report, 1, false, WORDS("tiny does not reach big: nobody", "firewall"));
    make(&report);
    rpi_doctor_pair *pair = rpi_doctor_pair_at(&report, 0, 1);
    pair->result = (rpi_probe_result){.latency_s = 1e-4};
    snprintf(pair->failure, sizeof pair->failure, "no answer before the deadline");
    check_findings(&report, 1, false,
                   WORDS("big reaches small, but data does not come through", "-s 1472",
                         "ip link set eth0 mtu 1400"));
}

static void a_host_that_is_cut_off(void) {
    rpi_doctor_report report;
    make(&report);
    for (int i = 0; i < 2; i++) {
        cut(&report, i, 2);
        cut(&report, 2, i);
    }
    check_findings(&report, 1, false,
                   WORDS("tiny: no other host reaches it", "nobody answered"));
}

/* Of what was not tried for it nothing is said. */
static void a_host_that_fails(void) {
    rpi_doctor_report report;
    make(&report);
    snprintf(report.hosts[1].failure, sizeof report.hosts[1].failure, "no way there");
    for (int i = 0; i < HOSTS; i++) {
        *rpi_doctor_pair_at(&report, i, 1) = (rpi_doctor_pair){.is_tried = false};
        *rpi_doctor_pair_at(&report, 1, i) = (rpi_doctor_pair){.is_tried = i == 2};
    }
    check_findings(&report, 1, false, WORDS("small: no way there"));
}

static void oddities(void) {
    rpi_doctor_report report;
    make(&report);
    rpi_doctor_pair_at(&report, 2, 1)->result.rate = 94e6 / 8;
    check_findings(&report, 1, true,
                   WORDS("tiny to small carries 94.0 Mbit/s, where others carry 941 Mbit/s"));
    make(&report); /* all are as slow as each other, and slower than they should be */
    for (int i = 0; i < HOSTS * HOSTS; i++)
        if (report.pairs[i].result.rate > 0) report.pairs[i].result.rate = 94e6 / 8;
    check_findings(&report, 1, true,
                   WORDS("links carry 94.0 Mbit/s here", "eth0 of small can do 1.00 Gbit/s"));
    make(&report);
    for (int i = 0; i < 2; i++) {
        rpi_doctor_pair_at(&report, i, 2)->result.rate = 94e6 / 8;
        rpi_doctor_pair_at(&report, 2, i)->result.rate = 94e6 / 8;
    }
    check_findings(&report, 1, true, WORDS("tiny: its links carry 94.0 Mbit/s at most, where"));
    make(&report);
    rpi_doctor_pair_at(&report, 0, 1)->result.resent = 7000;
    check_findings(&report, 1, true, WORDS("big to small lost 10.0 % of its packets"));
    make(&report);
    rpi_doctor_pair_at(&report, 1, 2)->to.mtu = 9000;
    check_findings(&report, 1, true, WORDS("small has MTU 1500 on eth0, and tiny 9000"));
    make(&report);
    rpi_doctor_pair_at(&report, 0, 2)->result.offset_s = -3.25;
    check_findings(&report, 1, true,
                   WORDS("tiny: its clock is 3.2 s behind that of big", "NTP"));
    make(&report);
    report.hosts[1].ports = 100;
    report.hosts[1].free_ports = 3;
    check_findings(&report, 1, true, WORDS("small: 3 of the 100 ports"));
    make(&report);
    report.hosts[1].ports = 100;
    check_findings(&report, 1, false, WORDS("small: 0 of the 100 ports"));
}

static void check_rate(double rate, const char *gap, const char *wanted) {
    char text[RPI_RATE_BYTES];
    rpi_doctor_rate_text(rate, gap, text);
    CHECK_MSG(strcmp(text, wanted) == 0, "%s, not %s", text, wanted);
}

/* In a round a host meets one other, who meets it; in all of them each meets each. */
static void rounds(void) {
    for (int count = 2; count <= 33; count++) {
        int met = 0, odd = count % 2;
        for (int round = 0; round < count - 1 + odd; round++)
            for (int host = 0; host < count; host++) {
                int other = rpi_doctor_partner(host, round, count);
                CHECK_EQ(rpi_doctor_partner(other, round, count), host);
                CHECK(odd || other != host);
                for (int before = 0; before < round && other != host; before++)
                    CHECK(rpi_doctor_partner(host, before, count) != other);
                met += other != host;
            }
        CHECK_EQ(met, count * (count - 1));
    }
}

static void rates_as_text(void) {
    check_rate(941e6 / 8, " ", "941 Mbit");
    check_rate(33.32e9 / 8, "", "33.3Gbit");
    check_rate(250e9 / 8, " ", "250 Gbit");
    check_rate(2500 / 8.0, " ", "2.50 kbit");
}

/* ---- probes ---- */

enum { STREAMS_MOST = 4 };

typedef struct answerer {
    int listener, streams;
    bool is_deaf; /* to all but the first pings */
    rp_status status;
} answerer;

static void *answer(void *context) {
    answerer *own = context;
    int64_t deadline_ns = rpi_deadline_ns(20);
    struct timespec moment = {.tv_nsec = 1000000};
    rpi_channel channels[STREAMS_MOST];
    for (int i = 0; i < own->streams; i++)
        while ((channels[i] = (rpi_channel){.fd = rpi_stream_accept(own->listener)}).fd < 0 &&
               rpi_now_ns() < deadline_ns)
            nanosleep(&moment, NULL);
    own->status = rpi_probe_answer(channels, own->streams,
                                   own->is_deaf ? rpi_deadline_ns(0.2) : deadline_ns);
    if (own->is_deaf) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    for (int i = 0; i < own->streams; i++) close(channels[i].fd);
    return NULL;
}

static rp_status probe_over(int streams, bool is_deaf, const rpi_probe_limits *limits,
                            rpi_probe_result *result) {
    answerer other = {.is_deaf = is_deaf, .streams = streams};
    pthread_t thread;
    rpi_channel channels[STREAMS_MOST];
    int port = 0;
    CHECK_EQ(rpi_stream_listen(NULL, 0, &other.listener, &port), RP_OK);
    CHECK_EQ(pthread_create(&thread, NULL, answer, &other), 0);
    for (int i = 0; i < streams; i++) {
        channels[i] = (rpi_channel){.fd = -1};
        CHECK_EQ(rpi_stream_dial(NULL, port, rpi_deadline_ns(10), &channels[i].fd), RP_OK);
    }
    rp_status status = rpi_probe_call(channels, streams, limits, result);
    for (int i = 0; i < streams; i++) close(channels[i].fd);
    pthread_join(thread, NULL);
    close(other.listener);
    if (!is_deaf) CHECK_EQ(other.status, RP_OK);
    return status;
}

static rp_status probe(bool is_deaf, const rpi_probe_limits *limits, rpi_probe_result *result) {
    return probe_over(1, is_deaf, limits, result);
}

/* What all of them carry is added up. */
static void probes_over_several(void) {
    rpi_probe_result result;
    rpi_probe_limits limits = {
        .bytes = 4 * 655360, .time_s = 5, .deadline_ns = rpi_deadline_ns(20)};
    CHECK_EQ(probe_over(4, false, &limits, &result), RP_OK);
    CHECK_EQ(result.bytes, 4 * 655360);
    CHECK(result.rate > 0 && result.latency_s > 0);
    limits.bytes = 1;
    CHECK_EQ(probe_over(3, false, &limits, &result), RP_OK);
    CHECK_EQ(result.bytes, 3 * 65536);
    CHECK_EQ(probe_over(2, true,
                        &(rpi_probe_limits){
                            .bytes = 1 << 30, .time_s = 5, .deadline_ns = rpi_deadline_ns(0.5)},
                        &result),
             RP_TIMEOUT);
}

static void probes(void) {
    rpi_probe_result result;
    rpi_probe_limits limits = {
        .bytes = 1000000, .time_s = 5, .deadline_ns = rpi_deadline_ns(20)};
    CHECK_EQ(probe(false, &limits, &result), RP_OK);
    CHECK_EQ(result.bytes, 1000000 / 65536 * 65536);
    CHECK(result.rate > 0 && result.latency_s > 0);
    CHECK(result.offset_s > -1 && result.offset_s < 1); /* the same clock */
    limits.bytes = 1;
    CHECK_EQ(probe(false, &limits, &result), RP_OK);
    CHECK_EQ(result.bytes, 65536);
    CHECK(result.rate > 0);
}

/* Pings are answered and then nothing: that is not the same as not being reached. */
static void data_that_stalls(void) {
    rpi_probe_result result;
    rpi_probe_limits limits = {
        .bytes = INT64_C(1) << 40, .time_s = 1.2, .deadline_ns = rpi_deadline_ns(0.9)};
    rp_status status = probe(true, &limits, &result);
    CHECK_MSG(status == RP_TIMEOUT || status == RP_PEER, "%s", rp_status_text(status));
    CHECK(result.latency_s > 0);
    CHECK(result.rate == 0);
}

CASES({"hosts_that_are_fine", hosts_that_are_fine}, {"pairs_that_fail", pairs_that_fail},
      {"a_host_that_fails", a_host_that_fails}, {"oddities", oddities},
      {"a_host_that_is_cut_off", a_host_that_is_cut_off}, {"rounds", rounds},
      {"rates_as_text", rates_as_text}, {"probes_over_several", probes_over_several},
      {"probes", probes}, {"data_that_stalls", data_that_stalls})
