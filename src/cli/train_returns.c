/* Where results go, and how a rank that was started again finds that and the others. */
#include "base/status.h"
#include "cli/run.h"
#include "cli/train_settings.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FOLDER_KEY "redpoll/returns/folder"
enum { MOST_OF_A_SECOND = 1000 };

static rp_status open_store(void *context, const rp_store **out_store) {
    return rpi_world_store(context, out_store);
}

static rp_status connect_again(void *context, const char *name, uint32_t epoch, int rank,
                               int ranks, double connect_timeout_s, rp_comm **out_comm) {
    rp_comm_options asked =
        RP_COMM_OPTIONS(.name = name, .epoch = epoch, .connect_timeout_s = connect_timeout_s);
    return rpi_world_connect(context, &asked, rank, ranks, out_comm);
}

/* What this process was started for in the launcher's own store. */
void rpi_train_prepare_returns(rpi_train_settings *s, rpi_world *world) {
    if (!s->restarts || !rpi_launched()) return;
    s->returns = (rpi_train_returns){.context = world,
                                     .generation = rpi_launch_generation(),
                                     .rank = world->rank,
                                     .world = world->ranks,
                                     .timeout_s = s->world.timeout_s,
                                     .store = open_store,
                                     .connect = connect_again};
    s->train.returns = &s->returns;
}

/* "runs/resnet18-fashion-mnist-20260102-030405", chosen by rank 0 for all. */
static rp_status choose_folder(rpi_train_settings *s, const rpi_world *world) {
    if (s->train.out) return RP_OK;
    char when[32];
    time_t now = time(NULL);
    struct tm parts;
    strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime_r(&now, &parts));
    const char *slash = strrchr(s->train.data, '/'); /* tokens:FOLDER/NAME */
    snprintf(s->folder, sizeof s->folder, "runs/%.100s-%.100s-%s", s->train.model,
             slash ? slash + 1 : s->train.data, when);
    for (char *c = s->folder + 5; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '.') *c = '-';
    size_t bytes = strlen(s->folder); /* of another run of this second there is one already */
    for (int i = 2; i < MOST_OF_A_SECOND && access(s->folder, F_OK) == 0; i++)
        snprintf(s->folder + bytes, sizeof s->folder - bytes, "-%d", i);
    RP_TRY(rp_broadcast(world->comm, s->folder, sizeof s->folder, RP_U8, NULL));
    s->train.out = s->folder;
    return RP_OK;
}

/* The folder that rank 0 has chosen is there for who comes back, too. */
static rp_status tell_folder(const rpi_train_settings *s, rpi_world *world) {
    const rp_store *store = NULL;
    if (!s->train.returns || world->rank > 0) return RP_OK;
    RP_TRY(rpi_world_store(world, &store));
    return store->ops->set(store->context, FOLDER_KEY, s->train.out, strlen(s->train.out));
}

static rp_status hear_folder(rpi_train_settings *s, rpi_world *world) {
    const rp_store *store = NULL;
    size_t bytes = 0;
    RP_TRY(rpi_world_store(world, &store));
    RP_TRY(store->ops->get(store->context, FOLDER_KEY, s->world.connect_timeout_s, s->folder,
                           sizeof s->folder - 1, &bytes));
    s->train.out = s->folder;
    return RP_OK;
}

rp_status rpi_train_find_folder(rpi_train_settings *s, rpi_world *world) {
    if (s->train.out) return RP_OK;
    if (!world->comm) return hear_folder(s, world);
    RP_TRY(choose_folder(s, world));
    return tell_folder(s, world);
}
