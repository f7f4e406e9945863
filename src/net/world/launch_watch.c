#include "net/world/launch_watch.h"

#include "net/store/store_tcp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENDED     "redpoll/launch/ended"
#define ENDS      "redpoll/launch/ends" /* the number before: the first report is kept */
#define CONNECT_S 1.0

enum { TEXT_BYTES = 160 };

rp_status rpi_launch_note_end(const rp_store *store, int rank, const char *how) {
    char text[TEXT_BYTES];
    int64_t ends = 0;
    RP_TRY(store->ops->add(store->context, ENDS, 1, &ends));
    if (ends > 1) return RP_OK;
    snprintf(text, sizeof text, "%d %s", rank, how);
    return store->ops->set(store->context, ENDED, text, strlen(text));
}

void rpi_launch_watch_open(int rank, int world, const rp_store *launchers, bool tls,
                           rpi_launch_watch *out_watch) {
    rpi_launch_watch watch = {.launchers = launchers};
    const char *store = getenv("REDPOLL_STORE");
    /* torchrun within a rank starts other ranks than those whose store this is. */
    bool is_launched = store && *store && !getenv("TORCHELASTIC_RUN_ID");
    if (world > 1 && is_launched && rpi_world_info_find_own(&watch.info) == RP_OK)
        watch.is_on = watch.info.store == RPI_STORE_CLIENT && watch.info.rank == rank &&
                      watch.info.world == world;
    watch.info.tls = tls;
    *out_watch = watch;
}

static rp_status find_store(rpi_launch_watch *watch, const rp_store **out_store) {
    const rpi_world_info *info = &watch->info;
    rpi_secret secret;
    *out_store = watch->launchers ? watch->launchers : &watch->own;
    if ((*out_store)->ops) return RP_OK;
    RP_TRY(rpi_secret_find_own(&secret));
    if (info->tls) RP_TRY(rpi_secret_ask_for_tls(&secret));
    return rpi_store_connect(info->host, info->port, CONNECT_S, &secret, &watch->own);
}

static rp_status read_end(rpi_launch_watch *watch, char text[TEXT_BYTES]) {
    const rp_store *store = NULL;
    size_t bytes = 0;
    RP_TRY(find_store(watch, &store));
    RP_TRY(store->ops->get(store->context, ENDED, 0, text, TEXT_BYTES - 1, &bytes));
    text[bytes < TEXT_BYTES ? bytes : TEXT_BYTES - 1] = '\0';
    return RP_OK;
}

rp_status rpi_launch_watch_look(rpi_launch_watch *watch) {
    char text[TEXT_BYTES], *how = NULL;
    if (!watch->is_on) return RP_OK;
    rp_status status = read_end(watch, text);
    watch->is_on = status == RP_OK || status == RP_TIMEOUT;
    if (status != RP_OK) return RP_OK;
    long rank = strtol(text, &how, 10);
    if (*how != ' ' || rank < 0 || rank >= watch->info.world) return RP_OK;
    return RP_FAIL(PEER,
                   "rank %ld%s, and the ranks cannot connect without it (connection closed by "
                   "peer)",
                   rank, how);
}

void rpi_launch_watch_close(rpi_launch_watch *watch) {
    rp_store_close(&watch->own);
    watch->is_on = false;
}
