#include "cli/world.h"

#include "base/memory.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/cores.h"
#include "cli/run.h"
#include "net/link/transport.h"
#include "net/trust/tls.h"
#include "net/world/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

rp_status rpi_world_check_transport(const char *text) {
    const rpi_transport *transport;
    return strcmp(text, "auto") == 0 ? RP_OK : rpi_transport_find(text, &transport);
}

rp_status rpi_world_check(const rpi_world_settings *settings) {
    if (settings->tls) RP_TRY(rpi_tls_check());
    if (settings->ranks && settings->hosts > settings->ranks)
        return RP_FAIL(INVALID, "--hosts %lld is more than the %lld ranks; say -n, too",
                       (long long)settings->hosts, (long long)settings->ranks);
    return settings->ranks ? rpi_launch_check_ranks(settings->ranks) : RP_OK;
}

bool rpi_world_must_launch(const rpi_world_settings *settings) {
    return settings->ranks > 0 && !rpi_launched();
}

/* host: room for its text. */
static rp_comm_options options_of(const rpi_world *world, char host[32]) {
    const rpi_world_settings *settings = world->settings;
    snprintf(host, 32, "host %lld", (long long)(world->rank * settings->hosts / world->ranks));
    return (rp_comm_options)RP_COMM_OPTIONS(.host = settings->hosts ? host : NULL,
                                            .transport = settings->transport,
                                            .link = settings->link,
                                            .bind_host = settings->bind_host,
                                            .connect_timeout_s = settings->connect_timeout_s,
                                            .timeout_s = settings->timeout_s,
                                            .warn_after_s = settings->warn_after_s,
                                            .chunk_bytes = (uint32_t)settings->chunk_bytes,
                                            .progress_thread = settings->progress_thread,
                                            .tls = settings->tls, .memory = settings->memory);
}

static rp_status connect_ranks(rpi_world *world) {
    char host[32];
    rp_comm_options options = options_of(world, host);
    return rp_comm_join(&options, &world->comm);
}

/* This very program with the words it was started with: ranks find their place in the
 * environment, and -n then only has to agree with it. */
int rpi_world_launch(const rpi_world_settings *settings, const char *command, int argc,
                     char **argv) {
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return rpi_command_failed(
            RP_FAIL_ERRNO(IO, "cannot find this program's own file (is /proc mounted?)"));
    self[length] = '\0';
    char **words = NULL;
    int words_of_command = strchr(command, ' ') ? 2 : 1;
    rp_status status = rpi_alloc_array((size_t)(argc + words_of_command + 1), sizeof *words,
                                       "a command line", &words);
    if (status != RP_OK) return rpi_command_failed(status);
    char first[32];
    int first_length = (int)strcspn(command, " ");
    snprintf(first, sizeof first, "%.*s", first_length, command);
    words[0] = "redpoll";
    words[1] = first;
    /* argv[0] is the last word of the command. */
    for (int i = 0; i < argc; i++) words[words_of_command + i] = argv[i];
    char name[64];
    snprintf(name, sizeof name, "redpoll %s", command);
    rpi_launch_options options = {.name = name,
                                  .ranks = settings->ranks,
                                  .path = self,
                                  .argv = words,
                                  .output = RPI_LAUNCH_PREFIX_OTHERS,
                                  .stop_grace_s = settings->stop_grace_s,
                                  .survives_deaths = settings->survives_deaths,
                                  .vital_ranks = settings->vital_ranks,
                                  .restarts = settings->restarts};
    int code = rpi_launch(&options);
    rpi_free(words);
    return code;
}

/* Before the others are waited for. Ranks of our own launcher leave it to rank 0, and one alone
 * has found nothing. */
static void greet(const rpi_world_settings *settings, const rpi_world_info *info) {
    if (info->alone) return;
    if (!settings->greeting || (info->rank > 0 && rpi_launched())) return;
    fprintf(settings->greeting, "rank %d of %d, found by %s\n", info->rank, info->world,
            info->found_by);
    fflush(settings->greeting);
}

static rp_status find(const rpi_world_settings *settings, rpi_world_info *info,
                      rpi_world *out_world) {
    RP_TRY(rpi_world_info_find_own(info));
    *out_world = (rpi_world){.rank = info->rank,
                             .ranks = info->world,
                             .local_rank = info->local_rank,
                             .local_ranks = info->local_world,
                             .cores = rpi_own_share_of_cores(info->local_world),
                             .settings = settings};
    if (settings->ranks > 0 && settings->ranks != info->world)
        return RP_FAIL(INVALID, "-n %lld, but %s started a world of %d; leave -n out there",
                       (long long)settings->ranks, info->found_by, info->world);
    if (settings->hosts > info->world)
        return RP_FAIL(INVALID, "--hosts %lld is more than the %d ranks",
                       (long long)settings->hosts, info->world);
    return RP_OK;
}

rp_status rpi_world_join(const rpi_world_settings *settings, rpi_world *out_world) {
    rpi_world_info info;
    rpi_world world;
    RP_TRY(find(settings, &info, &world));
    greet(settings, &info);
    RP_TRY(connect_ranks(&world));
    *out_world = world;
    return RP_OK;
}

/* ---- ranks that come back ---- */

static rp_status find_place(const rpi_world_settings *settings, rpi_world *out_world) {
    rpi_world_info info;
    rpi_world world;
    RP_TRY(find(settings, &info, &world));
    if (info.store != RPI_STORE_CLIENT)
        return RP_FAIL(
            STATE,
            "rank %d was started again, and its launcher (%s) keeps no store through "
            "which it could come back",
            info.rank, info.found_by);
    *out_world = world;
    return RP_OK;
}

rp_status rpi_world_take_place(const rpi_world_settings *settings, rpi_world *out_world) {
    rpi_world world;
    const rp_store *store = NULL;
    int has_met = 0;
    RP_TRY(find_place(settings, &world));
    rp_status status = rpi_world_store(&world, &store);
    if (status == RP_OK)
        status = rp_comm_replace(store, world.rank, world.ranks, NULL, &has_met);
    if (status == RP_OK && !has_met) status = connect_ranks(&world);
    if (status != RP_OK) {
        rpi_world_leave(&world);
        return status;
    }
    *out_world = world;
    return RP_OK;
}

rp_status rpi_world_store(rpi_world *world, const rp_store **out_store) {
    rpi_world_info info;
    if (!world->again) {
        RP_TRY(rpi_world_info_find_own(&info));
        info.tls = world->settings->tls;
        RP_TRY(rpi_join_open(&info, world->settings->connect_timeout_s, &world->again));
    }
    *out_store = &world->again->store;
    return RP_OK;
}

rp_status rpi_world_connect(rpi_world *world, const rp_comm_options *options, int rank,
                            int ranks, rp_comm **out_comm) {
    const rp_store *store = NULL;
    char host[32];
    RP_TRY(rpi_world_store(world, &store));
    rp_comm_options own = options_of(world, host);
    own.name = options->name;
    own.epoch = options->epoch;
    own.connect_timeout_s = options->connect_timeout_s;
    if (!own.bind_host) own.bind_host = world->again->bind_host;
    return rp_comm_create(store, rank, ranks, &own, out_comm);
}

void rpi_world_leave(rpi_world *world) {
    rp_comm_destroy(world->comm);
    rpi_join_close(world->again);
    *world = (rpi_world){0};
}
