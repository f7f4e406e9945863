/* Many communicators made from another at once: their numbers come from one exchange among the
 * parent's ranks. A second exchange, which is their barrier, shows whether all have opened
 * them. */
#include "comm/core/progress_owner.h"
#include "comm/protocol/numbering.h"
#include "comm/run/progress_loop.h"
#include "comm/world/create.h"
#include "comm/world/groups.h"

#include "base/fpenv.h"
#include "base/memory.h"
#include "base/status.h"
#include "net/store/bootstrap.h"

#include <stdio.h>
#include <string.h>

enum { GROUPS_MAX = 1 << 20, TEXT_BYTES = 200 };

/* The record of each rank about its call. */
typedef struct record {
    int32_t status;
    uint32_t first;  /* of rank 0: the number of the list's first communicator */
    uint64_t digest; /* of the list: it must be the same on all ranks */
    char text[TEXT_BYTES];
} record;

typedef struct call {
    rp_comm *parent;
    const rp_group *groups;
    size_t count;
    rp_comm **comms; /* [count] */
    record *records; /* [parent's world] */
} call;

static rp_status read_options(const call *c, size_t i, char name[RPI_BOOTSTRAP_NAME_MAX],
                              rp_comm_options *out_own) {
    RP_TRY(rpi_comm_options_read(c->groups[i].options, out_own));
    rpi_group_default_name(c->parent, "listed group", i, name, RPI_BOOTSTRAP_NAME_MAX);
    if (!out_own->name) out_own->name = name;
    return RP_OK;
}

static rp_status check_group(const call *c, size_t i) {
    char name[RPI_BOOTSTRAP_NAME_MAX];
    rp_comm_options own;
    int place = -1;
    RP_TRY(read_options(c, i, name, &own));
    RP_TRY(rpi_group_check_options(&own));
    return rpi_group_check_ranks(c->parent, c->groups[i].ranks, c->groups[i].count, &place);
}

static rp_status check_list(const call *c) {
    if (!c->groups && c->count) return RP_FAIL(INVALID, "there is no list of groups");
    if (c->count > GROUPS_MAX)
        return RP_FAIL(INVALID, "a list of %zu groups is too long: %d are allowed", c->count,
                       GROUPS_MAX);
    for (size_t i = 0; i < c->count; i++) {
        rp_status status = check_group(c, i);
        if (status != RP_OK) return rpi_fail_context(status, "group %zu of the list: ", i);
    }
    return RP_OK;
}

/* FNV-1a: it distinguishes lists, and is not part of a communicator's identity. */
static uint64_t add_bytes(uint64_t digest, const void *data, size_t bytes) {
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) digest = (digest ^ byte[i]) * UINT64_C(0x100000001b3);
    return digest;
}

static uint64_t digest_of(const call *c) {
    uint64_t digest = add_bytes(UINT64_C(0xcbf29ce484222325), &c->count, sizeof c->count);
    for (size_t i = 0; i < c->count; i++) {
        char name[RPI_BOOTSTRAP_NAME_MAX];
        const rp_group *group = &c->groups[i];
        rp_comm_options own;
        if (read_options(c, i, name, &own) != RP_OK) return 0; /* was read before */
        digest = add_bytes(digest, &group->count, sizeof group->count);
        digest = add_bytes(digest, group->ranks, (size_t)group->count * sizeof *group->ranks);
        digest = add_bytes(digest, own.name, strlen(own.name) + 1);
    }
    return digest;
}

static void put_status(record *mine, rp_status status) {
    mine->status = status;
    if (status != RP_OK) snprintf(mine->text, TEXT_BYTES, "%s", rp_last_error()->message);
}

static void take_numbers(const call *c, record *mine) {
    rpi_context *context = c->parent->context;
    if (c->parent->rank || !c->count || mine->status != RP_OK) return;
    rpi_progress_acquire(context);
    rp_status status = rpi_context_number_list(context, c->count, &mine->first);
    rpi_progress_release(context);
    put_status(mine, status);
}

/* All ranks have the same records, and so come to the same result. */
static rp_status exchange(call *c, const record *mine) {
    RP_TRY(rp_all_gather(c->parent, mine, c->records, sizeof *mine, RP_U8, NULL, NULL));
    for (int rank = 0; rank < c->parent->world; rank++) {
        record *said = &c->records[rank];
        said->text[TEXT_BYTES - 1] = '\0';
        if (said->status >= 0) continue;
        if (rank == c->parent->rank)
            return rpi_fail(said->status, __FILE__, __LINE__, "%s", said->text);
        return rpi_fail(said->status, __FILE__, __LINE__, "rank %d: %s", rank, said->text);
    }
    return RP_OK;
}

static rp_status compare(const call *c) {
    for (int rank = 1; rank < c->parent->world; rank++)
        if (c->records[rank].digest != c->records[0].digest)
            return RP_FAIL(MISMATCH,
                           "rank %d has another list of groups than rank 0: names, ranks and "
                           "their order must be the same on all ranks",
                           rank);
    return RP_OK;
}

static rp_status open_one(call *c, size_t i, uint32_t number) {
    rpi_context *context = c->parent->context;
    char name[RPI_BOOTSTRAP_NAME_MAX];
    rp_comm_options own;
    RP_TRY(read_options(c, i, name, &own));
    const rp_group *group = &c->groups[i];
    rp_comm *comm = NULL;
    int place = -1;
    RP_TRY(rpi_group_check_ranks(c->parent, group->ranks, group->count, &place));
    if (place < 0) return RP_OK;
    RP_TRY(rpi_group_new(c->parent, group->ranks, group->count, place, &own, &comm));
    c->comms[i] = comm;
    comm->id = rpi_list_numberer(context, c->parent->members[0]);
    comm->epoch = number;
    rpi_comm_go_to(comm, RPI_COMM_NUMBERED);
    rpi_comm_go_to(comm, RPI_COMM_MET);
    uint64_t scope = ((uint64_t)number + 1) << 32 | comm->id;
    if (context->control)
        RP_TRY(rpi_control_group_open(context->control, scope, comm->members, comm->world,
                                      &comm->group));
    RP_TRY(rpi_comm_begin(comm));
    return own.progress_thread ? rpi_progress_thread_start(context) : RP_OK;
}

static rp_status open_all(call *c) {
    rpi_context *context = c->parent->context;
    uint32_t first = c->records[0].first;
    rpi_progress_acquire(context);
    rpi_context_receive_list(context, c->parent->members[0], first, c->count);
    rpi_progress_release(context);
    for (size_t i = 0; i < c->count; i++) RP_TRY(open_one(c, i, first + (uint32_t)i));
    return RP_OK;
}

static void undo_all(call *c) {
    for (size_t i = 0; i < c->count; i++) {
        if (c->comms[i]) rpi_group_undo(c->comms[i]);
        c->comms[i] = NULL;
    }
}

static rp_status make_all(call *c) {
    record mine = {0};
    put_status(&mine, check_list(c));
    if (mine.status == RP_OK) mine.digest = digest_of(c);
    take_numbers(c, &mine);
    RP_TRY(exchange(c, &mine));
    RP_TRY(compare(c));
    put_status(&mine, open_all(c));
    rp_status status = exchange(c, &mine);
    if (status != RP_OK) undo_all(c);
    return status;
}

rp_status rp_comm_groups(rp_comm *parent, const rp_group *groups, size_t count,
                         rp_comm **out_comms) {
    RPI_FPENV_SCOPE;
    call c = {.parent = parent, .groups = groups, .count = count};
    if (!parent) return RP_FAIL(INVALID, "parent is NULL");
    if (!out_comms) return RP_FAIL(INVALID, "there is nowhere to put the communicators");
    size_t room = count > GROUPS_MAX || !groups ? 1 : count + 1;
    rp_status status = rpi_alloc_array(room, sizeof *c.comms, "a list of groups", &c.comms);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)parent->world, sizeof *c.records, "a list of groups",
                                 &c.records);
    if (status == RP_OK) {
        status = make_all(&c);
        if (status != RP_OK) status = rpi_fail_context(status, "making a list of groups: ");
    }
    for (size_t i = 0; status == RP_OK && i < count; i++) out_comms[i] = c.comms[i];
    rpi_free(c.comms);
    rpi_free(c.records);
    return status;
}
