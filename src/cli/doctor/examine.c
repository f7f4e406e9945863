/* The launcher's side: an agent on each host reports its facts; then hosts call each other in
 * rounds, as teams of a tournament play, so that none measures with two at a time. In a round
 * each pair is called in one direction and then in the other. */
#include "cli/doctor/host_facts.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cli/hosts/host_launch.h"
#include "cli/launch_signals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beyond the time of a measurement: so that buffers can empty and stalled data differ from slow
 * data; then for the agents' reports. */
#define STALL_S   4.0
#define SLACK_S   8.0
#define LISTEN_S  10.0
#define DISMISS_S 5.0
#define LEAVE_S   2.0 /* for remote shells to end after their agents */

typedef struct examination {
    const rpi_doctor_options *options;
    rpi_host_launch launch;
    rpi_hosts_options hosts;
    rpi_host_list list;
    rpi_doctor_report report;
} examination;

static bool is_fit(const examination *e, int host) {
    return e->launch.remotes[host].state == RPI_HOST_ANSWERED;
}

static rp_status wait_for(examination *e, rpi_agent_word word, double limit_s) {
    e->launch.expected = word;
    RP_TRY(rpi_hosts_wait(&e->launch, limit_s));
    return e->launch.stop_signal ? RP_FAIL(PEER, "told to end") : RP_OK;
}

/* ---- hosts ---- */

static void send_examine(examination *e, int host) {
    rpi_agent_words words = {0};
    rpi_remote *remote = &e->launch.remotes[host];
    if (*e->launch.secret) rpi_agent_add(&words, "secret", e->launch.secret);
    if (e->options->tls) rpi_agent_add(&words, "tls", "on");
    rpi_agent_add_number(&words, "self", host);
    rpi_agent_add_number(&words, "hosts", e->report.count);
    for (int i = 0; e->options->passed[i]; i++)
        rpi_agent_add(&words, "variable", e->options->passed[i]);
    rpi_hosts_ask(remote, rpi_agent_send_words(&remote->link, RPI_AGENT_EXAMINE, &words));
}

static rp_status ask_facts(examination *e) {
    for (int i = 0; i < e->report.count; i++) {
        RP_TRY(rpi_hosts_start(&e->launch, &e->launch.remotes[i]));
        send_examine(e, i);
    }
    RP_TRY(wait_for(e, RPI_AGENT_FACTS, e->options->answer_s));
    for (int i = 0; i < e->report.count; i++)
        if (is_fit(e, i))
            rpi_host_facts_read(e->launch.remotes[i].answer, e->launch.remotes[i].answer_bytes,
                                &e->report.hosts[i]);
    return RP_OK;
}

static bool are_one_machine(const examination *e, int a, int b) {
    return strcmp(e->report.hosts[a].machine, e->report.hosts[b].machine) == 0;
}

/* As ranks would: the loopback if no other host is there, all interfaces if there are several.
 */
static const char *listening_address(const rpi_doctor_host *host) {
    bool has_v6 = false;
    if (host->is_local || host->interface_count == 0) return "127.0.0.1";
    if (host->interface_count == 1) return host->interfaces[0].is.address;
    for (int i = 0; i < host->interface_count; i++)
        has_v6 = has_v6 || strchr(host->interfaces[i].is.address, ':');
    return has_v6 ? "::" : "0.0.0.0";
}

static rp_status ask_ports(examination *e) {
    for (int i = 0; i < e->report.count; i++) {
        e->report.hosts[i].is_local = true;
        for (int j = 0; j < e->report.count; j++)
            if (is_fit(e, j) && !are_one_machine(e, i, j)) e->report.hosts[i].is_local = false;
    }
    for (int i = 0; i < e->report.count; i++) {
        rpi_remote *remote = &e->launch.remotes[i];
        const char *address = listening_address(&e->report.hosts[i]);
        if (is_fit(e, i))
            rpi_hosts_ask(remote, rpi_agent_send(&remote->link, RPI_AGENT_SERVE, 0, address,
                                                 strlen(address)));
    }
    RP_TRY(wait_for(e, RPI_AGENT_SERVED, LISTEN_S));
    for (int i = 0; i < e->report.count; i++) {
        const rpi_remote *remote = &e->launch.remotes[i];
        rpi_agent_frame served = {.text = remote->answer, .bytes = remote->answer_bytes};
        if (is_fit(e, i))
            e->report.hosts[i].port = (int)strtol(rpi_agent_value(&served, "port"), NULL, 10);
    }
    return RP_OK;
}

/* ---- pairs ---- */

static double measuring_s(const examination *e) {
    return e->options->connect_s + e->options->time_s + STALL_S;
}

static bool has_address(const rpi_doctor_host *host, const char *address) {
    for (int i = 0; i < host->interface_count; i++)
        if (strcmp(host->interfaces[i].is.address, address) == 0) return true;
    return false;
}

/* The addresses at which a caller may reach another host, without those that the caller has
 * itself: bridges of containers have the same address on every host. */
static int add_addresses(const examination *e, int from, int to, rpi_agent_words *words) {
    const rpi_doctor_host *caller = &e->report.hosts[from], *callee = &e->report.hosts[to];
    bool is_same = are_one_machine(e, from, to);
    int count = 0;
    if (is_same && (callee->is_local || callee->interface_count == 0)) {
        rpi_agent_add(words, "address", "127.0.0.1");
        return 1;
    }
    for (int i = 0; i < callee->interface_count; i++) {
        const char *address = callee->interfaces[i].is.address;
        if (!is_same && has_address(caller, address)) continue;
        rpi_agent_add(words, "address", address);
        count++;
    }
    return count;
}

static void send_expect(examination *e, int from, int to) {
    rpi_remote *remote = &e->launch.remotes[to];
    rpi_agent_words words = {0};
    rpi_agent_add_number(&words, "caller", from);
    rpi_agent_add_number(&words, "streams", e->options->streams);
    rpi_agent_add_number(&words, "limit-ms", (int64_t)(measuring_s(e) * 1000));
    remote->may_be_late = true;
    rpi_hosts_ask(remote, rpi_agent_send_words(&remote->link, RPI_AGENT_EXPECT, &words));
}

static void ask_pair(examination *e, int from, int to) {
    rpi_remote *remote = &e->launch.remotes[from];
    rpi_doctor_pair *pair = rpi_doctor_pair_at(&e->report, from, to);
    rpi_agent_words words = {0};
    if (!is_fit(e, from) || !is_fit(e, to)) return;
    if (add_addresses(e, from, to, &words) == 0) {
        snprintf(pair->failure, sizeof pair->failure,
                 "%s has no address but its loopback's, or only such as %s has itself",
                 e->report.hosts[to].name, e->report.hosts[from].name);
        pair->is_tried = true;
        rpi_free(words.text);
        return;
    }
    send_expect(e, from, to);
    rpi_agent_add_number(&words, "callee", to);
    rpi_agent_add_number(&words, "streams", e->options->streams);
    rpi_agent_add_number(&words, "port", e->report.hosts[to].port);
    rpi_agent_add_number(&words, "connect-ms", (int64_t)(e->options->connect_s * 1000));
    rpi_agent_add_number(&words, "bytes", e->options->bytes);
    rpi_agent_add_number(&words, "time-ms", (int64_t)(e->options->time_s * 1000));
    rpi_agent_add_number(&words, "limit-ms", (int64_t)(measuring_s(e) * 1000));
    pair->is_tried = true;
    rpi_hosts_ask(remote, rpi_agent_send_words(&remote->link, RPI_AGENT_PROBE, &words));
}

static void read_end(const rpi_agent_frame *frame, rpi_doctor_end *end) {
    snprintf(end->address, sizeof end->address, "%s", rpi_agent_value(frame, "address"));
    snprintf(end->interface, sizeof end->interface, "%s", rpi_agent_value(frame, "interface"));
    end->mtu = (int)strtol(rpi_agent_value(frame, "mtu"), NULL, 10);
}

static void read_result(const rpi_agent_frame *frame, rpi_probe_result *result) {
#define NUMBER(name) strtoll(rpi_agent_value(frame, name), NULL, 10)
    result->latency_s = rpi_seconds(NUMBER("latency-ns"));
    result->offset_s = rpi_seconds(NUMBER("offset-ns"));
    result->bytes = NUMBER("bytes");
    result->rate = (double)NUMBER("rate");
    result->packets = NUMBER("packets");
    result->resent = NUMBER("resent");
#undef NUMBER
}

static void read_pair(examination *e, int from, int to) {
    const rpi_remote *caller = &e->launch.remotes[from], *callee = &e->launch.remotes[to];
    rpi_doctor_pair *pair = rpi_doctor_pair_at(&e->report, from, to);
    rpi_agent_frame frame = {.text = caller->answer, .bytes = caller->answer_bytes};
    if (!pair->is_tried || *pair->failure) return;
    if (!is_fit(e, from)) {
        snprintf(pair->failure, sizeof pair->failure, "%.500s", caller->failure);
        return;
    }
    read_end(&frame, &pair->from);
    read_result(&frame, &pair->result);
    snprintf(pair->ways, sizeof pair->ways, "%s", rpi_agent_value(&frame, "ways"));
    snprintf(pair->missed, sizeof pair->missed, "%s", rpi_agent_value(&frame, "missed"));
    snprintf(pair->failure, sizeof pair->failure, "%s", rpi_agent_value(&frame, "error"));
    pair->is_reached = pair->result.latency_s > 0;
    frame = (rpi_agent_frame){.text = callee->answer, .bytes = callee->answer_bytes};
    if (is_fit(e, to) && pair->is_reached) read_end(&frame, &pair->to);
}

/* ---- rounds ---- */

/* The circle method: one host stays in its place (none if their number is odd), and the others
 * move round it. */
int rpi_doctor_partner(int host, int round, int count) {
    if (count < 2) return host;
    int turns = count % 2 ? count : count - 1;
    if (count % 2 == 0 && host == count - 1) return round * (turns + 1) / 2 % turns;
    int other = (round - host + turns) % turns;
    return other == host && count % 2 == 0 ? count - 1 : other;
}

/* Callees whose callers have answered, perhaps by giving up, need not wait any more. */
static rp_status dismiss(examination *e) {
    for (int i = 0; i < e->report.count; i++) {
        rpi_remote *remote = &e->launch.remotes[i];
        if (remote->may_be_late && rpi_hosts_is_waited_for(remote))
            RP_TRY(rpi_agent_send(&remote->link, RPI_AGENT_DISMISS, 0, NULL, 0));
        remote->may_be_late = false;
    }
    return wait_for(e, RPI_AGENT_MEASURED, DISMISS_S);
}

/* The pairs of a round, called by the host with the lower number, or by the other. */
static rp_status measure_round(examination *e, int round, bool upward) {
    int count = e->report.count;
    for (int from = 0; from < count; from++) {
        int to = rpi_doctor_partner(from, round, count);
        if (to != from && (from < to) == upward) ask_pair(e, from, to);
    }
    RP_TRY(wait_for(e, RPI_AGENT_MEASURED, measuring_s(e) + SLACK_S));
    RP_TRY(dismiss(e));
    for (int from = 0; from < count; from++) {
        int to = rpi_doctor_partner(from, round, count);
        if (to != from && (from < to) == upward) read_pair(e, from, to);
    }
    return RP_OK;
}

static rp_status measure_pairs(examination *e) {
    int count = e->report.count, rounds = count % 2 ? count : count - 1;
    for (int round = 0; round < rounds; round++)
        for (int upward = 1; upward >= 0; upward--) RP_TRY(measure_round(e, round, upward));
    return RP_OK;
}

/* ---- before and after ---- */

/* One host alone is listed twice, and calls itself. */
static rp_status list_hosts(examination *e) {
    const rpi_host_list *list = e->options->hosts;
    int count = list->count == 1 ? 2 : list->count;
    if (count > RPI_DOCTOR_HOSTS_MAX)
        return RP_FAIL(INVALID, "%d hosts; %d are allowed, look at the others apart", count,
                       RPI_DOCTOR_HOSTS_MAX);
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *e->list.hosts, "hosts", &e->list.hosts));
    for (int i = 0; i < count; i++) e->list.hosts[i] = list->hosts[i < list->count ? i : 0];
    e->list.count = count;
    e->report.is_alone = list->count == 1;
    e->report.tls = e->options->tls;
    e->report.streams = e->options->streams;
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *e->report.hosts, "hosts", &e->report.hosts));
    RP_TRY(rpi_alloc_array((size_t)count * (size_t)count, sizeof *e->report.pairs, "pairs",
                           &e->report.pairs));
    e->report.count = count;
    for (int i = 0; i < count; i++)
        e->report.hosts[i].name = list->hosts[i < list->count ? i : 0].name;
    e->hosts = (rpi_hosts_options){
        .name = "redpoll doctor", .hosts = &e->list, .shell = e->options->shell};
    e->launch.options = &e->hosts;
    return rpi_hosts_open(&e->launch, 0);
}

static rp_status ask_all(examination *e) {
    RP_TRY(list_hosts(e));
    if (rpi_secret_is_supported()) RP_TRY(rpi_secret_draw(e->launch.secret));
    RP_TRY(ask_facts(e));
    RP_TRY(ask_ports(e));
    return measure_pairs(e);
}

static bool has_shells(const rpi_host_launch *launch) {
    for (int i = 0; i < launch->hosts; i++)
        if (launch->remotes[i].pid) return true;
    return false;
}

static void leave(examination *e) {
    rpi_host_launch *launch = &e->launch;
    int64_t leave_ns = rpi_deadline_ns(LEAVE_S);
    for (int i = 0; i < launch->hosts; i++) {
        snprintf(e->report.hosts[i].failure, sizeof e->report.hosts[i].failure, "%s",
                 launch->remotes[i].failure);
        rpi_agent_link_close(&launch->remotes[i].link);
    }
    while (has_shells(launch) && rpi_now_ns() < leave_ns &&
           rpi_hosts_pump(launch, leave_ns) == RP_OK) {
    }
    for (int i = 0; i < launch->hosts; i++)
        if (launch->remotes[i].pid) kill(-launch->remotes[i].pid, SIGKILL);
    rpi_hosts_close(launch);
    rpi_free(e->list.hosts);
}

rp_status rpi_doctor_examine(const rpi_doctor_options *options, rpi_doctor_report *out_report,
                             int *out_signal) {
    examination e = {.options = options,
                     .launch = {.first = {.rank = -1}, .kill_ns = RPI_NEVER_NS}};
    rp_status status = rpi_launch_signals_take(&e.launch.mask_before, &e.launch.signals);
    if (status != RP_OK) return status;
    status = ask_all(&e);
    leave(&e);
    close(e.launch.signals);
    sigprocmask(SIG_SETMASK, &e.launch.mask_before, NULL);
    *out_signal = e.launch.stop_signal;
    if (status == RP_OK)
        *out_report = e.report;
    else
        rpi_doctor_free(&e.report);
    return status;
}
