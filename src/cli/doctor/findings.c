/* The meaning of a report, and what to do about it. Pure. */
#include "cli/doctor/doctor.h"

#include "base/memory.h"
#include "net/trust/secret.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS_WANTED = 4 }; /* of rank 0's host */
#define SLOW_SHARE    0.5  /* of what other links carry */
#define CLOCK_LIMIT_S 1.0
#define RESENT_LIMIT  0.02
#define RESENT_LEAST  20
#define MBIT          (1e6 / 8)

static rp_status add(rpi_doctor_report *report, bool is_failure, const char *format, ...)
    RP_PRINTF(3, 4);
static rp_status add(rpi_doctor_report *report, bool is_failure, const char *format, ...) {
    va_list arguments;
    size_t count = (size_t)report->finding_count;
    RP_TRY(rpi_grow_array(count, count + 1, sizeof *report->findings, "findings",
                          &report->findings));
    rpi_doctor_finding *next = &report->findings[report->finding_count++];
    next->is_failure = is_failure;
    va_start(arguments, format);
    vsnprintf(next->text, sizeof next->text, format, arguments);
    va_end(arguments);
    return RP_OK;
}

const char *rpi_doctor_rate_text(double rate, const char *gap, char text[RPI_RATE_BYTES]) {
    static const char *const units[] = {"kbit", "Mbit", "Gbit"};
    double value = rate / MBIT * 1000;
    int unit = 0;
    for (; unit < 2 && value >= 1000; unit++) value /= 1000;
    snprintf(text, RPI_RATE_BYTES, "%.*f%s%s",
             value < 10    ? 2
             : value < 100 ? 1
                           : 0,
             value, gap, units[unit]);
    return text;
}

/* ---- hosts ---- */

static rp_status find_in_host(rpi_doctor_report *report, int index) {
    const rpi_doctor_host *host = &report->hosts[index];
    if (*host->failure) return add(report, true, "%s: %s", host->name, host->failure);
    if (host->ports && host->free_ports < PORTS_WANTED)
        RP_TRY(add(report, host->free_ports == 0,
                   "%s: %d of the %d ports of REDPOLL_PORTS are free; a rank needs about two, "
                   "rank 0 four: give it more (--ports FIRST-LAST)",
                   host->name, host->free_ports, host->ports));
    return RP_OK;
}

static rp_status find_clock(rpi_doctor_report *report, int host) {
    const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, 0, host);
    if (host == 0 || report->is_alone || !pair->is_reached) return RP_OK;
    double offset_s = pair->result.offset_s;
    if (fabs(offset_s) < CLOCK_LIMIT_S) return RP_OK;
    return add(report, false,
               "%s: its clock is %.1f s %s that of %s, so that lines of their logs cannot be "
               "put in order; NTP (chrony, systemd-timesyncd) sets clocks",
               report->hosts[host].name, fabs(offset_s), offset_s > 0 ? "ahead of" : "behind",
               report->hosts[0].name);
}

/* ---- pairs that fail ---- */

static rp_status add_unreached(rpi_doctor_report *report, int a, int b, bool both) {
    return add(report, true,
               both ? "%s and %s do not reach each other: %s. Is there a firewall between "
                      "them (--ports FIRST-LAST names ports that it lets through), or is that "
                      "address of a network which only one of them is in "
                      "(REDPOLL_SOCKET_IFNAME=NAME takes another interface)?"
                    : "%s does not reach %s: %s. Is there a firewall for that direction "
                      "(--ports FIRST-LAST names ports that it lets through), or a way back "
                      "that is missing (`ip route get ADDRESS` shows the way)?",
               report->hosts[a].name, report->hosts[b].name,
               rpi_doctor_pair_at(report, a, b)->failure);
}

static rp_status add_stalled(rpi_doctor_report *report, int from, int to) {
    const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, from, to);
    return add(report, true,
               "%s reaches %s, but data does not come through: %s. A path that drops large "
               "packets does so: MTU is %d on %s of %s and %d on %s of %s; `ping -M do -s %d "
               "%s` shows whether such packets pass, `ip link set %s mtu 1400` makes them "
               "shorter",
               report->hosts[from].name, report->hosts[to].name, pair->failure, pair->from.mtu,
               pair->from.interface, report->hosts[from].name, pair->to.mtu, pair->to.interface,
               report->hosts[to].name, pair->from.mtu - 28, pair->to.address,
               pair->from.interface);
}

static bool is_unreached(const rpi_doctor_pair *pair) {
    return pair->is_tried && !pair->is_reached;
}

/* No other of the several tried hosts reaches it, and it reaches none of them. */
static bool is_cut_off(const rpi_doctor_report *report, int host) {
    int tried = 0;
    for (int i = 0; i < report->count; i++) {
        const rpi_doctor_pair *there = rpi_doctor_pair_at(report, i, host);
        const rpi_doctor_pair *back = rpi_doctor_pair_at(report, host, i);
        if (there->is_reached || back->is_reached) return false;
        tried += there->is_tried;
    }
    return tried > 1;
}

static rp_status find_cut_off(rpi_doctor_report *report, int host) {
    int from = 0;
    if (*report->hosts[host].failure || !is_cut_off(report, host)) return RP_OK;
    while (!is_unreached(rpi_doctor_pair_at(report, from, host))) from++;
    return add(report, true,
               "%s: no other host reaches it, nor does it reach any: %s. Is there a firewall "
               "(--ports FIRST-LAST names ports that it lets through), or is that address of a "
               "network which the others are not in (REDPOLL_SOCKET_IFNAME=NAME takes another "
               "interface)?",
               report->hosts[host].name, rpi_doctor_pair_at(report, from, host)->failure);
}

static rp_status find_failures(rpi_doctor_report *report, int a, int b) {
    const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, a, b);
    bool back = is_unreached(rpi_doctor_pair_at(report, b, a));
    if (*report->hosts[a].failure || *report->hosts[b].failure) return RP_OK;
    if (is_cut_off(report, a) || is_cut_off(report, b)) return RP_OK;
    if (is_unreached(pair)) return back && a > b ? RP_OK : add_unreached(report, a, b, back);
    if (*pair->failure) return add_stalled(report, a, b);
    return RP_OK;
}

/* ---- pairs that are odd ---- */

static int speed_of(const rpi_doctor_host *host, const rpi_doctor_end *end) {
    for (int i = 0; i < host->interface_count; i++)
        if (strcmp(host->interfaces[i].is.name, end->interface) == 0)
            return host->interfaces[i].speed_mbit;
    return 0;
}

/* The rate that both interfaces report; 0: unknown. */
static double promised(const rpi_doctor_report *report, int from, int to) {
    const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, from, to);
    int there = speed_of(&report->hosts[to], &pair->to);
    int here = speed_of(&report->hosts[from], &pair->from);
    if (here == 0 || there == 0) return 0;
    return (here < there ? here : there) * MBIT;
}

/* Links as a whole: reported once, for the pair with the highest nominal rate. */
static rp_status find_less_than_promised(rpi_doctor_report *report, double usual) {
    char carried[RPI_RATE_BYTES], wanted[RPI_RATE_BYTES];
    double most = 0;
    int from = 0, to = 0;
    for (int i = 0; i < report->count * report->count; i++) {
        double rate = promised(report, i / report->count, i % report->count);
        if (rate <= most) continue;
        most = rate;
        from = i / report->count;
        to = i % report->count;
    }
    if (usual >= SLOW_SHARE * most) return RP_OK;
    return add(report, false,
               "links carry %s/s here, where %s of %s and %s of %s can do %s/s: is something "
               "else on the network, or a cable or a switch's port slower?",
               rpi_doctor_rate_text(usual, " ", carried),
               rpi_doctor_pair_at(report, from, to)->from.interface, report->hosts[from].name,
               rpi_doctor_pair_at(report, from, to)->to.interface, report->hosts[to].name,
               rpi_doctor_rate_text(most, " ", wanted));
}

/* The fastest of a host's links, in both directions. */
static double best_rate(const rpi_doctor_report *report, int host) {
    double best = 0;
    for (int i = 0; i < report->count; i++) {
        double there = rpi_doctor_pair_at(report, i, host)->result.rate;
        double back = rpi_doctor_pair_at(report, host, i)->result.rate;
        best = fmax(best, fmax(there, back));
    }
    return best;
}

static rp_status find_slow_host(rpi_doctor_report *report, int host, double usual) {
    char carried[RPI_RATE_BYTES], wanted[RPI_RATE_BYTES];
    double best = best_rate(report, host);
    if (best <= 0 || best >= SLOW_SHARE * usual) return RP_OK;
    return add(report, false,
               "%s: its links carry %s/s at most, where others carry %s/s: collectives wait "
               "for their slowest link",
               report->hosts[host].name, rpi_doctor_rate_text(best, " ", carried),
               rpi_doctor_rate_text(usual, " ", wanted));
}

static rp_status find_slow(rpi_doctor_report *report, int from, int to, double usual) {
    char carried[RPI_RATE_BYTES], wanted[RPI_RATE_BYTES];
    double limit = SLOW_SHARE * usual, rate = rpi_doctor_pair_at(report, from, to)->result.rate;
    if (rate >= limit || best_rate(report, from) < limit || best_rate(report, to) < limit)
        return RP_OK;
    return add(report, false,
               "%s to %s carries %s/s, where others carry %s/s: collectives wait for their "
               "slowest link",
               report->hosts[from].name, report->hosts[to].name,
               rpi_doctor_rate_text(rate, " ", carried),
               rpi_doctor_rate_text(usual, " ", wanted));
}

static rp_status find_oddities(rpi_doctor_report *report, int from, int to, double usual) {
    const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, from, to);
    const rpi_probe_result *result = &pair->result;
    if (result->rate <= 0) return RP_OK;
    RP_TRY(find_slow(report, from, to, usual));
    if (result->resent > RESENT_LEAST &&
        (double)result->resent > RESENT_LIMIT * (double)result->packets)
        RP_TRY(add(report, false,
                   "%s to %s lost %.1f %% of its packets and sent them again: a full queue on "
                   "the way, or a bad cable",
                   report->hosts[from].name, report->hosts[to].name,
                   100.0 * (double)result->resent / (double)result->packets));
    if (*pair->missed)
        RP_TRY(add(
            report, false,
            "%s does not reach %s at %s, which a connection of each of their links should "
            "take: it takes another one's way. Of several interfaces each wants a network "
            "of its own that both hosts are in (REDPOLL_SOCKET_IFNAME says which are meant)",
            report->hosts[from].name, report->hosts[to].name, pair->missed));
    if (from < to && pair->from.mtu && pair->to.mtu && pair->from.mtu != pair->to.mtu)
        RP_TRY(
            add(report, false,
                "%s has MTU %d on %s, and %s %d on %s: the same on all of a network is safer",
                report->hosts[from].name, pair->from.mtu, pair->from.interface,
                report->hosts[to].name, pair->to.mtu, pair->to.interface));
    return RP_OK;
}

static int compare_rates(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

/* A quarter of all rates is higher: with one slow host of three, which has four of six links,
 * the slow rate is then not the usual one. 0: there are no rates. */
static rp_status usual_rate(const rpi_doctor_report *report, double *out_rate) {
    size_t pairs = (size_t)report->count * (size_t)report->count, count = 0;
    double *rates = NULL;
    RP_TRY(rpi_alloc_array(pairs, sizeof *rates, "rates", &rates));
    for (size_t i = 0; i < pairs; i++)
        if (report->pairs[i].result.rate > 0) rates[count++] = report->pairs[i].result.rate;
    qsort(rates, count, sizeof *rates, compare_rates);
    *out_rate = count ? rates[count * 3 / 4] : 0;
    rpi_free(rates);
    return RP_OK;
}

static rp_status find_all_oddities(rpi_doctor_report *report, double usual) {
    if (report->is_alone) return RP_OK;
    RP_TRY(find_less_than_promised(report, usual));
    for (int i = 0; i < report->count; i++) RP_TRY(find_slow_host(report, i, usual));
    for (int i = 0; i < report->count; i++)
        for (int j = 0; j < report->count; j++) RP_TRY(find_oddities(report, i, j, usual));
    return RP_OK;
}

rp_status rpi_doctor_find(rpi_doctor_report *report) {
    double usual = 0;
    RP_TRY(usual_rate(report, &usual));
    for (int i = 0; i < report->count && !(report->is_alone && i > 0); i++)
        RP_TRY(find_in_host(report, i));
    for (int i = 0; i < report->count; i++) RP_TRY(find_cut_off(report, i));
    for (int i = 0; i < report->count; i++)
        for (int j = 0; j < report->count; j++) RP_TRY(find_failures(report, i, j));
    for (int i = 0; i < report->count; i++) RP_TRY(find_clock(report, i));
    RP_TRY(find_all_oddities(report, usual));
    if (!rpi_secret_is_supported())
        RP_TRY(add(report, false,
                   "this build has no OpenSSL: nobody has proved to be the host that it was "
                   "taken for"));
    return RP_OK;
}

bool rpi_doctor_is_well(const rpi_doctor_report *report) {
    for (int i = 0; i < report->finding_count; i++)
        if (report->findings[i].is_failure) return false;
    return true;
}

void rpi_doctor_free(rpi_doctor_report *report) {
    rpi_free(report->hosts);
    rpi_free(report->pairs);
    rpi_free(report->findings);
    *report = (rpi_doctor_report){.count = 0};
}
