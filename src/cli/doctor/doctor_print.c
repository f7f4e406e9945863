/* A report for people: hosts, two tables of pairs, findings, and a summary. */
#include "cli/doctor/doctor.h"

#include "base/wrap.h"
#include "cli/numbers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CELL = 8, NAME_MAX_COLUMNS = 16 };
#define GIGA 1e9
#define MBIT (1e6 / 8)

static int shown(const rpi_doctor_report *report) {
    return report->is_alone ? 1 : report->count;
}

static int name_width(const rpi_doctor_report *report) {
    size_t most = strlen("host");
    for (int i = 0; i < report->count; i++)
        if (strlen(report->hosts[i].name) > most) most = strlen(report->hosts[i].name);
    return most < NAME_MAX_COLUMNS ? (int)most : NAME_MAX_COLUMNS;
}

/* ---- hosts ---- */

/* The way by which most hosts reach a host: the first that does. NULL: none does. */
static const rpi_doctor_end *way_to(const rpi_doctor_report *report, int host) {
    for (int from = 0; from < report->count; from++) {
        const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, from, host);
        if (pair->is_reached) return &pair->to;
    }
    return NULL;
}

static void print_clock(const rpi_doctor_report *report, int host) {
    char cell[32] = "?";
    const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, 0, host);
    double offset_s = pair->result.offset_s;
    bool is_long = fabs(offset_s) >= 1;
    if (host == 0)
        snprintf(cell, sizeof cell, "0");
    else if (pair->is_reached)
        snprintf(cell, sizeof cell, "%+.1f %s", is_long ? offset_s : offset_s * 1000,
                 is_long ? "s" : "ms");
    printf("  %-9s", cell);
}

static void print_host(const rpi_doctor_report *report, int index, int width) {
    const rpi_doctor_host *host = &report->hosts[index];
    const rpi_doctor_end *way = way_to(report, index);
    printf("  %2d  %-*s", index, width, host->name);
    if (*host->failure) {
        printf("  cannot take part\n");
        return;
    }
    printf("  %5d  %5.1f  %5.1f of %-5.1f", host->cores, host->load,
           (double)host->free_bytes / GIGA, (double)host->memory_bytes / GIGA);
    print_clock(report, index);
    if (way && *way->address)
        printf("  %s, %s, MTU %d", way->address, way->interface, way->mtu);
    else
        printf("  nobody reaches it");
    if (host->ports) printf(", %d of %d ports", host->free_ports, host->ports);
    printf("\n");
}

static void print_hosts(const rpi_doctor_report *report) {
    int width = name_width(report);
    printf("      %-*s  cores   load  free of GB      clock      reached at\n", width, "host");
    for (int i = 0; i < shown(report); i++) print_host(report, i, width);
}

/* Pairs that use another way than the one in the table of hosts. */
static void print_other_ways(const rpi_doctor_report *report) {
    for (int to = 0; to < report->count; to++) {
        const rpi_doctor_end *usual = way_to(report, to);
        for (int from = 0; from < report->count; from++) {
            const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, from, to);
            if (!pair->is_reached || strcmp(pair->to.address, usual->address) == 0) continue;
            printf("  %s reaches %s at %s, %s, MTU %d\n", report->hosts[from].name,
                   report->hosts[to].name, pair->to.address, pair->to.interface, pair->to.mtu);
        }
    }
}

/* The interfaces and addresses that links of several connections use. */
static void print_ways(const rpi_doctor_report *report) {
    if (report->streams < 2) return;
    printf("\nOver %d connections each (REDPOLL_STREAMS), with these ends:\n", report->streams);
    for (int from = 0; from < report->count; from++)
        for (int to = 0; to < report->count; to++) {
            const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, from, to);
            if (pair->is_reached)
                printf("  %s to %s: %s\n", report->hosts[from].name, report->hosts[to].name,
                       pair->ways);
        }
}

/* ---- pairs ---- */

static void print_cell(const rpi_doctor_report *report, int from, int to, bool is_rate) {
    const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, from, to);
    double value = is_rate ? pair->result.rate / MBIT : pair->result.latency_s * 1e6;
    const char *word = NULL;
    if (!pair->is_tried)
        word = from == to ? "-" : "?";
    else if (!pair->is_reached)
        word = "none";
    else if (is_rate && pair->result.rate <= 0)
        word = "stalls";
    if (word)
        printf("%*s", CELL, word);
    else
        printf("%*.*f", CELL, value < 10 ? 2 : value < 100 ? 1 : 0, value);
}

static void print_table(const rpi_doctor_report *report, const char *title, bool is_rate) {
    int width = name_width(report);
    printf("\n%s\n  %*s", title, width + 4, "");
    for (int to = 0; to < report->count; to++) printf("%*d", CELL, to);
    printf("\n");
    for (int from = 0; from < report->count; from++) {
        printf("  %2d  %-*s", from, width, report->hosts[from].name);
        for (int to = 0; to < report->count; to++) print_cell(report, from, to, is_rate);
        printf("\n");
    }
}

static const rpi_doctor_pair *slowest(const rpi_doctor_report *report) {
    const rpi_doctor_pair *found = NULL;
    for (int i = 0; i < report->count * report->count; i++) {
        const rpi_doctor_pair *pair = &report->pairs[i];
        if (pair->result.rate > 0 && (!found || pair->result.rate < found->result.rate))
            found = pair;
    }
    return found;
}

/* ---- */

static void print_alone(const rpi_doctor_report *report) {
    const rpi_doctor_pair *pair = rpi_doctor_pair_at(report, 0, 1);
    char latency[RPI_TIME_BYTES], rate[RPI_RATE_BYTES];
    if (!pair->is_reached) return;
    printf("\nWith itself, over %s: %s/s, latency %s. Ranks of one host share\n"
           "memory, which is faster: `redpoll bench send-recv -n 2` measures it.\n",
           pair->to.interface, rpi_doctor_rate_text(pair->result.rate, " ", rate),
           rpi_time_text(pair->result.latency_s, latency));
}

static void print_findings(const rpi_doctor_report *report) {
    if (report->finding_count) printf("\n");
    for (int i = 0; i < report->finding_count; i++) {
        printf("%s", report->findings[i].is_failure ? "FAILED  " : "note    ");
        rpi_print_wrapped(stdout, report->findings[i].text, 8, 8);
    }
}

static void print_verdict(const rpi_doctor_report *report) {
    const rpi_doctor_pair *link = slowest(report);
    char rate[RPI_RATE_BYTES];
    if (!rpi_doctor_is_well(report)) {
        printf("\nNot ready for a job: see FAILED.\n");
        return;
    }
    if (report->is_alone || !link) return;
    int at = (int)(link - report->pairs);
    printf("\nAll %d hosts reach each other. The slowest link is %s to %s:\n"
           "    redpoll plan all-reduce --ranks %d --size 100MB --link %s,%.0fus\n",
           report->count, report->hosts[at / report->count].name,
           report->hosts[at % report->count].name, report->count,
           rpi_doctor_rate_text(link->result.rate, "", rate),
           fmax(1, link->result.latency_s * 1e6));
}

void rpi_doctor_print(const rpi_doctor_report *report) {
    print_hosts(report);
    if (report->is_alone) {
        print_alone(report);
    } else {
        print_other_ways(report);
        print_table(report, "Mbit/s from each host (lines) to each other one (columns)", true);
        print_table(report, "Latency, half of a round trip, us", false);
    }
    print_ways(report);
    if (report->tls) printf("\nMeasured over TLS, as a job with --tls talks.\n");
    print_findings(report);
    print_verdict(report);
}
