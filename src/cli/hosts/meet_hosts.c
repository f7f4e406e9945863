/* Before the first rank: the questions to all hosts. All that cannot take part are named. */
#include "cli/hosts/host_launch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "cli/visible_text.h"

#include <stdio.h>
#include <string.h>

/* For agents to serve and reach the store: FIRST_DIAL_S and DIAL_S of agent.c for each of
 * several addresses. */
#define STORE_S 120.0

/* RP_PEER, after naming all that cannot take part. */
static rp_status check_answers(rpi_host_launch *launch, bool *out_said) {
    int failed = 0;
    *out_said = true;
    if (launch->stop_signal) return RP_FAIL(PEER, "told to end");
    for (int i = 0; i < launch->hosts; i++)
        failed += launch->remotes[i].state == RPI_HOST_FAILED;
    *out_said = failed > 0;
    if (failed == 0) return RP_OK;
    rpi_hosts_say(launch, "nothing was started, for %d of %d host%s cannot take part:", failed,
                  launch->hosts, launch->hosts == 1 ? "" : "s");
    for (int i = 0; i < launch->hosts; i++) {
        const rpi_remote *remote = &launch->remotes[i];
        if (remote->state != RPI_HOST_FAILED) continue;
        fprintf(stderr, "    %s: ", remote->host->name);
        rpi_visible_put(remote->failure, strlen(remote->failure), stderr);
        fputc('\n', stderr);
    }
    return RP_FAIL(PEER, "hosts cannot take part");
}

static void send_job(rpi_host_launch *launch, rpi_remote *remote) {
    const rpi_hosts_options *options = launch->options;
    rpi_agent_words words = {0};
    rpi_agent_add(&words, "folder", options->folder);
    if (*launch->secret) rpi_agent_add(&words, "secret", launch->secret);
    rpi_agent_add_number(&words, "ranks", remote->host->slots);
    rpi_agent_add_number(&words, "first", remote->first_rank);
    rpi_agent_add_number(&words, "world", launch->ranks);
    rpi_agent_add(&words, "bind-to", options->bind_to);
    if (options->reports_bindings) rpi_agent_add(&words, "report-bindings", "on");
    rpi_agent_add_number(&words, "grace-ms", (int64_t)(options->grace_s * 1000));
    if (options->survives_deaths) rpi_agent_add(&words, "on-loss", "continue");
    if (options->restarts) rpi_agent_add_number(&words, "restart", options->restarts);
    for (int i = 0; options->argv[i]; i++) rpi_agent_add(&words, "argument", options->argv[i]);
    for (int i = 0; options->passed[i]; i++)
        rpi_agent_add(&words, "variable", options->passed[i]);
    /* The agent reads it after it has begun; output before its greeting is its own. */
    rpi_hosts_ask(remote, rpi_agent_send_words(&remote->link, RPI_AGENT_JOB, &words));
}

/* ---- where the store is ---- */

static rpi_agent_frame answer_of(const rpi_remote *remote) {
    return (rpi_agent_frame){.text = remote->answer, .bytes = remote->answer_bytes};
}

static bool is_one_machine(const rpi_host_launch *launch) {
    rpi_agent_frame first = answer_of(&launch->remotes[0]);
    for (int i = 1; i < launch->hosts; i++) {
        rpi_agent_frame other = answer_of(&launch->remotes[i]);
        if (strcmp(rpi_agent_value(&first, "host"), rpi_agent_value(&other, "host")) != 0)
            return false;
    }
    return true;
}

/* The first host's addresses, as words; and the one at which it listens for all of them. */
static int list_addresses(const rpi_remote *first, rpi_agent_words *words,
                          char listen[RPI_HOST_BYTES]) {
    const char *name = NULL, *value = NULL;
    bool has_v6 = false;
    int count = 0;
    for (size_t at = 0;
         rpi_agent_next_pair(first->answer, first->answer_bytes, &at, &name, &value);) {
        if (strcmp(name, "address") != 0) continue;
        rpi_agent_add(words, name, value);
        has_v6 = has_v6 || strchr(value, ':');
        if (count++ == 0) snprintf(listen, RPI_HOST_BYTES, "%s", value);
    }
    if (count > 1) snprintf(listen, RPI_HOST_BYTES, "%s", has_v6 ? "::" : "0.0.0.0");
    return count;
}

static rp_status serve_store(rpi_host_launch *launch, const char *listen, bool *out_said) {
    rpi_remote *first = &launch->remotes[0];
    launch->expected = RPI_AGENT_SERVED;
    rpi_hosts_ask(first,
                  rpi_agent_send(&first->link, RPI_AGENT_SERVE, 0, listen, strlen(listen)));
    RP_TRY(rpi_hosts_wait(launch, STORE_S));
    return check_answers(launch, out_said);
}

static rp_status reach_store(rpi_host_launch *launch, const rpi_agent_words *addresses,
                             bool *out_said) {
    launch->expected = RPI_AGENT_REACHED;
    for (int i = 1; i < launch->hosts; i++)
        rpi_hosts_ask(&launch->remotes[i],
                      rpi_agent_send(&launch->remotes[i].link, RPI_AGENT_DIAL, 0,
                                     addresses->text, addresses->bytes));
    RP_TRY(rpi_hosts_wait(launch, STORE_S));
    return check_answers(launch, out_said);
}

/* The last messages before ranks start. */
static rp_status go(rpi_host_launch *launch, const char *store, const char *master,
                    bool one_machine) {
    for (int i = 0; i < launch->hosts; i++) {
        rpi_remote *remote = &launch->remotes[i];
        /* The first host reaches itself as the second one does. */
        rpi_agent_frame reached =
            answer_of(&launch->remotes[i == 0 && launch->hosts > 1 ? 1 : i]);
        const char *host = one_machine ? "127.0.0.1" : rpi_agent_value(&reached, "address");
        rpi_agent_words words = {0};
        rpi_agent_add(&words, "host", host);
        rpi_agent_add(&words, "store", store);
        rpi_agent_add(&words, "master", master);
        if (i > 0)
            rpi_log(RP_LOG_INFO, "%s reaches %s at %s", remote->host->name,
                    launch->remotes[0].host->name, host);
        remote->alive = remote->host->slots;
        remote->state = RPI_HOST_RUNNING;
        remote->heard_ns = rpi_now_ns();
        RP_TRY(rpi_agent_send_words(&remote->link, RPI_AGENT_GO, &words));
    }
    return RP_OK;
}

static rp_status find_store(rpi_host_launch *launch, rpi_agent_words *addresses, char *store,
                            char *master, size_t bytes, bool *out_said) {
    rpi_remote *first = &launch->remotes[0];
    char listen[RPI_HOST_BYTES] = "127.0.0.1";
    bool one_machine = is_one_machine(launch);
    if (!one_machine && list_addresses(first, addresses, listen) == 0)
        return RP_FAIL(UNSUPPORTED,
                       "%s has no address but its loopback's, so other hosts cannot reach it",
                       first->host->name);
    RP_TRY(serve_store(launch, listen, out_said));
    rpi_agent_frame served = answer_of(first);
    snprintf(store, bytes, "%s", rpi_agent_value(&served, "store"));
    snprintf(master, bytes, "%s", rpi_agent_value(&served, "master"));
    rpi_agent_add(addresses, "port", store);
    RP_TRY(addresses->status);
    if (!one_machine) RP_TRY(reach_store(launch, addresses, out_said));
    return go(launch, store, master, one_machine);
}

rp_status rpi_hosts_meet(rpi_host_launch *launch, bool *out_said) {
    rpi_agent_words addresses = {0};
    char store[16], master[16];
    if (rpi_secret_is_supported()) RP_TRY(rpi_secret_draw(launch->secret));
    launch->expected = RPI_AGENT_READY;
    for (int i = 0; i < launch->hosts; i++) {
        RP_TRY(rpi_hosts_start(launch, &launch->remotes[i]));
        send_job(launch, &launch->remotes[i]);
    }
    RP_TRY(rpi_hosts_wait(launch, launch->options->answer_s));
    RP_TRY(check_answers(launch, out_said));
    rp_status status = find_store(launch, &addresses, store, master, sizeof store, out_said);
    rpi_free(addresses.text);
    return status;
}
