/* Entering a world, living in it, leaving it. */
#include "net/world/view_world.h"

#include "net/bytes/signal_masked_thread.h"
#include "net/store/dictionary.h"
#include "net/store/store_shared.h"
#include "net/world/join.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/memory.h"
#include "base/sized_options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SILENCE_LEAST_S 0.2
#define NEVER_S         1e9 /* longer times are as long */
enum { BEATS_OF_SILENCE = 5, TERMS_BYTES = 160 };

/* ---- options ---- */

static double time_or(double value, double fallback) {
    double seconds = value > 0 ? value : fallback;
    return seconds < NEVER_S ? seconds : NEVER_S;
}

static rp_status check_seconds(const char *name, double seconds) {
    if (seconds >= 0) return RP_OK;
    return RP_FAIL(INVALID, "%s is %g; a number of seconds is needed, or 0 for the default",
                   name, seconds);
}

static rp_status check_name(const char *name) {
    size_t length = strlen(name);
    if (length >= 1 && length <= RPI_WORLD_NAME_MAX) return RP_OK;
    return RP_FAIL(INVALID, "the world's name '%.40s' has %zu bytes; 1 to %d are allowed", name,
                   length, RPI_WORLD_NAME_MAX);
}

static rp_status check_options(const rp_world_options *options) {
    RP_TRY(check_seconds("last_call_s", options->last_call_s));
    RP_TRY(check_seconds("silence_s", options->silence_s));
    RP_TRY(check_seconds("late_after_s", options->late_after_s));
    if (options->silence_s > 0 && options->silence_s < SILENCE_LEAST_S)
        return RP_FAIL(INVALID, "silence_s is %g; at least %g is needed", options->silence_s,
                       SILENCE_LEAST_S);
    if (options->least < 0 || options->most < 0 || options->least > RP_WORLD_MOST ||
        options->most > RP_WORLD_MOST)
        return RP_FAIL(INVALID,
                       "least is %d and most is %d; 1 to %d are allowed, or 0 for the "
                       "default",
                       options->least, options->most, RP_WORLD_MOST);
    if (options->most && options->least > options->most)
        return RP_FAIL(INVALID, "least is %d and most is %d: no view could be closed",
                       options->least, options->most);
    if (options->name) RP_TRY(check_name(options->name));
    return options->member ? rpi_member_name_check(options->member) : RP_OK;
}

static rp_status check_store(const rp_store *store) {
    if (!store || !store->ops) return RP_FAIL(INVALID, "a world of views needs a store");
    const rp_store_ops *ops = store->ops;
    if (!ops->set || !ops->get || !ops->add || !ops->remove)
        return RP_FAIL(INVALID, "the store lacks one of set, get, add and remove");
    return RP_OK;
}

static void name_member(const rp_world_options *options, char name[RP_MEMBER_NAME]) {
    char host[RP_MEMBER_NAME] = "";
    if (options->member) {
        snprintf(name, RP_MEMBER_NAME, "%s", options->member);
        return;
    }
    if (gethostname(host, sizeof host - 1) != 0 || rpi_member_name_check(host) != RP_OK)
        snprintf(host, sizeof host, "host");
    snprintf(name, RP_MEMBER_NAME, "%.27s:%ld", host, (long)getpid());
}

/* ---- the thread ---- */

/* False: it is to end. */
static bool sleep_until(rp_world *world, int64_t time_ns) {
    struct timespec at = {.tv_sec = time_ns / RPI_SECOND_NS,
                          .tv_nsec = time_ns % RPI_SECOND_NS};
    pthread_mutex_lock(&world->lock);
    while (!world->stop && rpi_now_ns() < time_ns)
        pthread_cond_timedwait(&world->woken, &world->lock, &at);
    bool goes_on = !world->stop;
    pthread_mutex_unlock(&world->lock);
    return goes_on;
}

static void look_for_knocks(rp_world *world) {
    char key[RPI_WORLD_KEY_BYTES];
    size_t bytes = 0;
    uint32_t number = atomic_load(&world->number);
    if (!number) return;
    rpi_world_key(world, "knock", number + 1, 0, key);
    bool has_knocked =
        world->store.ops->get(world->store.context, key, 0, NULL, 0, &bytes) == RP_OK;
    if (has_knocked && atomic_load(&world->number) == number)
        atomic_store(&world->changing, true);
}

/* A failure here also fails the calls of the owner, which report it. */
static void *live(void *context) {
    rp_world *world = context;
    int64_t pause_ns = world->silence_ns / BEATS_OF_SILENCE;
    rpi_fpenv_default();
    while (sleep_until(world, rpi_now_ns() + pause_ns)) {
        (void)rpi_world_say(world);
        look_for_knocks(world);
    }
    return NULL;
}

/* ---- open, close ---- */

/* All processes of a world must have the same terms: the first one's count. */
static rp_status agree_on_terms(rp_world *world) {
    char key[RPI_WORLD_KEY_BYTES], own[TERMS_BYTES], all[TERMS_BYTES];
    size_t bytes = 0;
    int length = snprintf(own, sizeof own, "least=%d most=%d last_call=%lldms silence=%lldms",
                          world->least, world->most, (long long)(world->last_call_s * 1e3),
                          (long long)(world->silence_ns / 1000000));
    RP_TRY(world->store.ops->compare_set(world->store.context,
                                         rpi_world_key(world, "terms", 0, 0, key), "", 0, own,
                                         (size_t)length, all, sizeof all - 1, &bytes));
    all[bytes < sizeof all ? bytes : sizeof all - 1] = '\0';
    if (strcmp(own, all) == 0) return RP_OK;
    return RP_FAIL(
        MISMATCH,
        "world '%s' was opened with %s, and this process says %s: all processes of a "
        "world have the same options",
        world->name, all, own);
}

static void set_options(rp_world *world, const rp_world_options *options) {
    snprintf(world->name, sizeof world->name, "%s", options->name ? options->name : "world");
    world->least = options->least ? options->least : 1;
    world->most = options->most ? options->most : RP_WORLD_MOST;
    world->last_call_s = time_or(options->last_call_s, 1);
    world->late_after_s = time_or(options->late_after_s, 600);
    world->silence_ns = (int64_t)(time_or(options->silence_s, 5) * 1e9);
    world->says.lost = -1;
    name_member(options, world->says.name);
}

static void initialise(rp_world *world) {
    pthread_mutex_init(&world->saying, NULL);
    pthread_mutex_init(&world->lock, NULL);
    rpi_condition_init(&world->woken);
    atomic_store(&world->references, 1);
}

void rpi_world_keep(rp_world *world) {
    atomic_fetch_add(&world->references, 1);
}

void rpi_world_release(rp_world *world) {
    if (!world || atomic_fetch_sub(&world->references, 1) > 1) return;
    rp_store_close(&world->store);
    rpi_join_close(world->join);
    rpi_free(world->text);
    rpi_free(world->other_text);
    rpi_free(world->page);
    rpi_free(world->candidates);
    rpi_free(world->fresh);
    pthread_cond_destroy(&world->woken);
    pthread_mutex_destroy(&world->lock);
    pthread_mutex_destroy(&world->saying);
    rpi_free(world);
}

static rp_status begin(rp_world *world, const rp_store *store) {
    RP_TRY(rpi_alloc(RPI_VIEW_RECORD_BYTES, "a view", &world->text));
    RP_TRY(rpi_alloc(RPI_VIEW_RECORD_BYTES, "a view", &world->other_text));
    RP_TRY(rpi_alloc(RPI_STORE_VALUE_BYTES, "members", &world->page));
    RP_TRY(rpi_store_share(store, &world->store));
    RP_TRY(agree_on_terms(world));
    RP_TRY(rpi_world_take_id(world));
    return rpi_signal_masked_thread("a world of views", live, world, &world->thread);
}

rp_status rp_world_open(const rp_store *store, const rp_world_options *options,
                        rp_world **out_world) {
    RPI_FPENV_SCOPE;
    static const rpi_sized sized = {.name = "rp_world_options",
                                    .initializer = "RP_WORLD_OPTIONS",
                                    .least = RPI_SIZE_UP_TO(rp_world_options, late_after_s),
                                    .known = sizeof(rp_world_options)};
    rp_world_options own;
    rp_world *world = NULL;
    if (!out_world) return RP_FAIL(INVALID, "there is nowhere to put the world");
    RP_TRY(check_store(store));
    RP_TRY(rpi_sized_read(&sized, options, &own));
    RP_TRY(check_options(&own));
    RP_TRY(rpi_alloc(sizeof *world, "a world of views", &world));
    initialise(world);
    set_options(world, &own);
    rp_status status = begin(world, store);
    if (status != RP_OK)
        rpi_world_release(world);
    else
        *out_world = world;
    return status;
}

rp_status rp_world_leave(rp_world *world) {
    if (!world) return RP_FAIL(INVALID, "world is NULL");
    uint32_t number = atomic_load(&world->number);
    pthread_mutex_lock(&world->lock);
    world->says.leaving = true;
    pthread_mutex_unlock(&world->lock);
    RP_TRY(rpi_world_say(world));
    return number ? rpi_world_mark(world, "knock", number + 1, 0) : RP_OK;
}

void rp_world_close(rp_world *world) {
    if (!world) return;
    rpi_kept_error reason;
    rpi_error_keep(&reason);
    pthread_mutex_lock(&world->lock);
    world->stop = true;
    pthread_cond_broadcast(&world->woken);
    pthread_mutex_unlock(&world->lock);
    pthread_join(world->thread, NULL);
    (void)rp_world_leave(world);
    rpi_world_release(world);
    rpi_error_put_back(&reason);
}
