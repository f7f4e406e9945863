/* The keys of a world of views; docs/wire.md has them. */
#include "net/store/dictionary.h"
#include "net/store/store_page.h"
#include "net/world/view_world.h"

#include "base/append.h"
#include "base/clock.h"
#include "base/memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { PAGE_MOST = 512 }; /* statements that one page is asked for */

const char *rpi_world_key(const rp_world *world, const char *subject, uint32_t number,
                          uint32_t id, char key[RPI_WORLD_KEY_BYTES]) {
    snprintf(key, RPI_WORLD_KEY_BYTES, "%s/views/%s", world->name, subject);
    if (number) rpi_append(key, RPI_WORLD_KEY_BYTES, "/%" PRIu32, number);
    if (id) rpi_append(key, RPI_WORLD_KEY_BYTES, "/%" PRIu32, id);
    return key;
}

rp_status rpi_world_mark(rp_world *world, const char *subject, uint32_t number, uint32_t id) {
    char key[RPI_WORLD_KEY_BYTES];
    return world->store.ops->set(world->store.context,
                                 rpi_world_key(world, subject, number, id, key), "1", 1);
}

void rpi_world_unmark(rp_world *world, const char *subject, uint32_t number, uint32_t id) {
    char key[RPI_WORLD_KEY_BYTES];
    (void)world->store.ops->remove(world->store.context,
                                   rpi_world_key(world, subject, number, id, key));
}

rp_status rpi_world_await_mark(rp_world *world, const char *subject, uint32_t number,
                               uint32_t id, double wait_s) {
    char key[RPI_WORLD_KEY_BYTES];
    size_t bytes = 0;
    rp_status status = world->store.ops->get(world->store.context,
                                             rpi_world_key(world, subject, number, id, key),
                                             wait_s, NULL, 0, &bytes);
    return status == RP_TIMEOUT ? RP_OK : status;
}

/* ---- what this process says ---- */

/* One after the other, so that the store has the latest statement; and without the lock, for
 * which no other thread is to wait until the store replies. */
rp_status rpi_world_say(rp_world *world) {
    char key[RPI_WORLD_KEY_BYTES], text[RPI_STATEMENT_BYTES];
    pthread_mutex_lock(&world->saying);
    pthread_mutex_lock(&world->lock);
    world->says.beats++;
    rpi_statement_write(&world->says, text);
    rpi_world_key(world, "member", world->id, 0, key);
    pthread_mutex_unlock(&world->lock);
    rp_status status = world->store.ops->set(world->store.context, key, text, strlen(text));
    pthread_mutex_unlock(&world->saying);
    return status;
}

static rp_status count_ids(rp_world *world, int64_t amount, uint32_t *out_count) {
    char key[RPI_WORLD_KEY_BYTES];
    int64_t count = 0;
    RP_TRY(world->store.ops->add(world->store.context, rpi_world_key(world, "ids", 0, 0, key),
                                 amount, &count));
    if (count < 0 || count >= INT_MAX)
        return RP_FAIL(CORRUPT, "the store counts %lld processes of world '%s'",
                       (long long)count, world->name);
    *out_count = (uint32_t)count;
    return RP_OK;
}

rp_status rpi_world_take_id(rp_world *world) {
    uint32_t id = 0;
    RP_TRY(count_ids(world, 1, &id));
    pthread_mutex_lock(&world->lock);
    world->id = id;
    pthread_mutex_unlock(&world->lock);
    return rpi_world_say(world);
}

/* ---- the newest view ---- */

static rp_status take_text(rp_world *world, size_t bytes) {
    if (bytes >= RPI_VIEW_RECORD_BYTES)
        return RP_FAIL(CORRUPT, "the store's view of world '%s' has %zu bytes", world->name,
                       bytes);
    world->other_text[bytes] = '\0';
    RP_TRY(rpi_view_record_read(world->other_text, &world->newest));
    char *old = world->text;
    world->text = world->other_text;
    world->other_text = old;
    return RP_OK;
}

rp_status rpi_world_read(rp_world *world) {
    char key[RPI_WORLD_KEY_BYTES];
    size_t bytes = 0;
    rp_status status =
        world->store.ops->get(world->store.context, rpi_world_key(world, "view", 0, 0, key), 0,
                              world->other_text, RPI_VIEW_RECORD_BYTES - 1, &bytes);
    if (status == RP_TIMEOUT) return RP_OK; /* there is none so far */
    return status == RP_OK ? take_text(world, bytes) : status;
}

rp_status rpi_world_propose(rp_world *world) {
    char key[RPI_WORLD_KEY_BYTES];
    size_t bytes = rpi_view_record_write(&world->next, world->other_text);
    RP_TRY(world->store.ops->compare_set(world->store.context,
                                         rpi_world_key(world, "view", 0, 0, key), world->text,
                                         strlen(world->text), world->other_text, bytes,
                                         world->page, RPI_VIEW_RECORD_BYTES - 1, &bytes));
    memcpy(world->other_text, world->page, bytes < RPI_VIEW_RECORD_BYTES ? bytes : 0);
    return take_text(world, bytes);
}

/* ---- all others ---- */

static rp_status make_room(rp_world *world, int count) {
    int room = world->candidate_room ? world->candidate_room : 16;
    while (room < count) room *= 2;
    if (room == world->candidate_room) return RP_OK;
    size_t had = (size_t)world->candidate_room;
    RP_TRY(rpi_grow_array(had, (size_t)room, sizeof *world->candidates, "members",
                          &world->candidates));
    RP_TRY(rpi_grow_array(had, (size_t)room, sizeof *world->fresh, "members", &world->fresh));
    world->candidate_room = room;
    return RP_OK;
}

/* A process's statement; one that makes no sense counts as gone. Pages also have those of
 * processes that are candidates no longer. */
static rp_status take_statement(rp_world *world, uint32_t id, const char *value, size_t bytes,
                                int64_t now_ns, int *count) {
    char text[RPI_STATEMENT_BYTES];
    rpi_statement says;
    bool is_candidate =
        id >= world->newest.first || rpi_view_record_find(&world->newest, id) >= 0;
    if (bytes >= sizeof text || !is_candidate) return RP_OK;
    memcpy(text, value, bytes);
    text[bytes] = '\0';
    if (strlen(text) != bytes || rpi_statement_read(text, &says) != RP_OK) return RP_OK;
    RP_TRY(make_room(world, *count + 1));
    const rpi_view_candidate *old =
        rpi_view_candidate_find(world->candidates, world->candidate_count, id);
    rpi_view_candidate *one = &world->fresh[(*count)++];
    *one = old ? *old : (rpi_view_candidate){.id = id, .says = says};
    rpi_view_candidate_note(one, &says, now_ns, world->silence_ns / 4);
    return RP_OK;
}

/* The last id on a page, from this one on, that is a candidate's. */
static uint32_t last_of_page(const rpi_view_record *newest, uint32_t at, uint32_t last) {
    uint32_t end = last - at < PAGE_MOST ? last : at + PAGE_MOST - 1, most = at;
    if (end >= newest->first) return end;
    for (int rank = 0; rank < newest->count; rank++) {
        uint32_t id = newest->members[rank].id;
        if (id > most && id <= end) most = id;
    }
    return most;
}

/* From this id on, as many as fit on a page; from the next one if the first is absent. */
static rp_status look_at_page(rp_world *world, uint32_t *at, uint32_t last, int *count) {
    char prefix[RPI_WORLD_KEY_BYTES];
    size_t sizes[PAGE_MOST];
    int got = 0, asked = (int)(last_of_page(&world->newest, *at, last) - *at + 1);
    rpi_world_key(world, "member/", 0, 0, prefix);
    rp_status status = rpi_store_get_page(&world->store, prefix, (int)*at, asked, 0,
                                          world->page, RPI_STORE_VALUE_BYTES, sizes, &got);
    if (status == RP_TIMEOUT) {
        ++*at;
        return RP_OK;
    }
    RP_TRY(status);
    const char *value = world->page;
    int64_t now_ns = rpi_now_ns();
    for (int i = 0; i < got; value += sizes[i++])
        RP_TRY(take_statement(world, *at + (uint32_t)i, value, sizes[i], now_ns, count));
    *at += (uint32_t)got;
    return RP_OK;
}

rp_status rpi_world_look_around(rp_world *world) {
    uint32_t last = 0, at = rpi_view_record_candidate(&world->newest, 1);
    int count = 0;
    RP_TRY(count_ids(world, 0, &last));
    while (at <= last) {
        RP_TRY(look_at_page(world, &at, last, &count));
        at = rpi_view_record_candidate(&world->newest, at);
    }
    rpi_view_candidate *old = world->candidates;
    world->candidates = world->fresh;
    world->fresh = old;
    world->candidate_count = count;
    return RP_OK;
}
