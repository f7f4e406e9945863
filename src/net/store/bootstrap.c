#include "net/store/bootstrap.h"

#include "base/clock.h"
#include "base/memory.h"
#include "net/store/store_page.h"
#include "net/store/store_wait.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* While waiting for one value, how often to see whether somebody has given up. */
#define LOOK_UP_S 0.1
/* In worlds above this the more seldom, so that waiting ranks do not keep the store busy. */
enum { LOOK_UP_WORLD = 64 };
/* Ranks that give up at the same deadline, counted from their own arrivals, do so within this.
 */
#define CHAIN_NS (RPI_SECOND_NS / 2)

enum { KEY_BYTES = 256 };

/* "<name>/<generation>/<subject>/<rank>" or, with rank -1, without a rank. */
static const char *key_of(const rpi_bootstrap *bootstrap, const char *subject, int rank,
                          char *key) {
    if (rank >= 0)
        snprintf(key, KEY_BYTES, "%s/%s/%d", bootstrap->prefix, subject, rank);
    else
        snprintf(key, KEY_BYTES, "%s/%s", bootstrap->prefix, subject);
    return key;
}

static rp_status add(rpi_bootstrap *bootstrap, const char *subject, int rank,
                     int64_t *out_value) {
    char key[KEY_BYTES];
    return bootstrap->store->ops->add(bootstrap->store->context,
                                      key_of(bootstrap, subject, rank, key), 1, out_value);
}

static rp_status get(const rpi_bootstrap *bootstrap, const char *subject, int rank,
                     double timeout_s, char *text, size_t capacity) {
    char key[KEY_BYTES];
    size_t bytes = 0;
    RP_TRY(bootstrap->store->ops->get(bootstrap->store->context,
                                      key_of(bootstrap, subject, rank, key), timeout_s, text,
                                      capacity - 1, &bytes));
    if (bytes >= capacity)
        return RP_FAIL(CORRUPT, "store key '%s' has %zu bytes; fewer than %zu were expected",
                       key, bytes, capacity);
    text[bytes] = '\0';
    return RP_OK;
}

static rp_status set(rpi_bootstrap *bootstrap, const char *subject, int rank,
                     const char *text) {
    char key[KEY_BYTES];
    return bootstrap->store->ops->set(
        bootstrap->store->context, key_of(bootstrap, subject, rank, key), text, strlen(text));
}

static void take_down(rpi_bootstrap *bootstrap, const char *subject, int rank) {
    char key[KEY_BYTES];
    (void)bootstrap->store->ops->remove(bootstrap->store->context,
                                        key_of(bootstrap, subject, rank, key));
}

/* The outcome is "go", or "status rank message" of the first rank that gave up. */
static rp_status read_outcome(const char *outcome) {
    if (strcmp(outcome, "go") == 0) return RP_OK;
    char *next = NULL;
    long status = strtol(outcome, &next, 10);
    long rank = strtol(next, &next, 10);
    if (status >= 0 || status < RP_INTERNAL || *next != ' ')
        return RP_FAIL(CORRUPT, "the outcome in the store is '%s'", outcome);
    return rpi_fail((rp_status)status, __FILE__, __LINE__, "rank %ld gave up connecting: %s",
                    rank, next + 1);
}

/* RP_OK: nobody has given up so far. */
static rp_status look_up(const rpi_bootstrap *bootstrap) {
    char outcome[RPI_BOOTSTRAP_BYTES];
    rp_status status = get(bootstrap, "outcome", -1, 0, outcome, sizeof outcome);
    if (status == RP_OK) return read_outcome(outcome);
    return status == RP_TIMEOUT ? RP_OK : status;
}

rp_status rpi_bootstrap_look(rpi_bootstrap *bootstrap) {
    RP_TRY(look_up(bootstrap));
    return bootstrap->look.ask ? bootstrap->look.ask(bootstrap->look.context) : RP_OK;
}

/* The first to claim the outcome decides it, so that all ranks read the same one. */
static rp_status settle(rpi_bootstrap *bootstrap, const char *outcome, bool *out_first) {
    int64_t claims = 0;
    RP_TRY(add(bootstrap, "claims", -1, &claims));
    *out_first = claims == 1;
    return claims == 1 ? set(bootstrap, "outcome", -1, outcome) : RP_OK;
}

rp_status rpi_bootstrap_give_up(rpi_bootstrap *bootstrap, rp_status status) {
    char outcome[RPI_BOOTSTRAP_BYTES];
    bool first = true;
    snprintf(outcome, sizeof outcome, "%d %d %.900s", (int)status, bootstrap->rank,
             rp_last_error()->message);
    rp_status settled = settle(bootstrap, outcome, &first);
    if (settled == RP_OK && !first) {
        char other[RPI_BOOTSTRAP_BYTES];
        if (get(bootstrap, "outcome", -1, LOOK_UP_S, other, sizeof other) == RP_OK) {
            rp_status theirs = read_outcome(other);
            if (theirs != RP_OK) return theirs;
        }
    }
    return rpi_fail(status, __FILE__, __LINE__, "%s",
                    strchr(strchr(outcome, ' ') + 1, ' ') + 1);
}

rp_status rpi_bootstrap_check_name(const char *name) {
    size_t length = strlen(name);
    if (length >= 1 && length <= RPI_BOOTSTRAP_NAME_MAX) return RP_OK;
    return RP_FAIL(INVALID, "the name '%.40s%s' has %zu bytes; 1 to %d are allowed", name,
                   length > 40 ? "..." : "", length, RPI_BOOTSTRAP_NAME_MAX);
}

rp_status rpi_bootstrap_decline(const rp_store *store, int rank, int world, const char *name,
                                double timeout_s, rp_status status) {
    rpi_bootstrap bootstrap;
    rpi_kept_error reason;
    rpi_error_keep(&reason);
    rp_status arrived = rpi_bootstrap_arrive(&bootstrap, store, rank, world, name, timeout_s);
    rpi_error_put_back(&reason);
    return arrived == RP_OK ? rpi_bootstrap_give_up(&bootstrap, status) : status;
}

/* ---- arriving ---- */

static rp_status read_generation(const rpi_bootstrap *bootstrap, int64_t amount, int64_t *out) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s/generation", bootstrap->name);
    return bootstrap->store->ops->add(bootstrap->store->context, key, amount, out);
}

/* Has somebody opened the next bootstrap of this name, until the deadline? */
static rp_status await_next(const rpi_bootstrap *bootstrap, int64_t generation,
                            int64_t deadline_ns, bool *out_moved) {
    int64_t now = generation;
    for (;;) {
        RP_TRY(read_generation(bootstrap, 0, &now));
        *out_moved = now > generation;
        if (*out_moved || rpi_now_ns() >= deadline_ns) return RP_OK;
        rpi_sleep_until_ns(rpi_now_ns() + RPI_SECOND_NS / 50);
    }
}

/* This rank has been in that bootstrap, which has failed: it comes to the next one of the name.
 */
static rp_status open_next(rpi_bootstrap *bootstrap, int64_t generation) {
    int64_t claims = 0, next = 0;
    bool moved = false;
    RP_TRY(add(bootstrap, "next", -1, &claims));
    if (claims == 1) return read_generation(bootstrap, 1, &next);
    return await_next(bootstrap, generation, bootstrap->deadline_ns, &moved);
}

/* The bootstrap of this name that goes on now. *out_again: it was one that had failed before,
 * and the next one is open. Who has not been in a failed one is told why it failed, unless
 * others who have come back at that moment: a failure is of one bootstrap, not of a name. */
static rp_status enter(rpi_bootstrap *bootstrap, bool *out_again) {
    int64_t generation = 0, arrivals = 0;
    *out_again = false;
    RP_TRY(read_generation(bootstrap, 0, &generation));
    snprintf(bootstrap->prefix, sizeof bootstrap->prefix, "%s/%lld", bootstrap->name,
             (long long)generation);
    RP_TRY(add(bootstrap, "arrived", bootstrap->rank, &arrivals));
    rp_status status = look_up(bootstrap);
    if (arrivals == 1 && status == RP_OK) return RP_OK;
    if (status == RP_OK)
        return rpi_bootstrap_give_up(
            bootstrap,
            RP_FAIL(MISMATCH, "two processes say that they are rank %d", bootstrap->rank));
    if (arrivals > 1) {
        *out_again = true;
        return open_next(bootstrap, generation);
    }
    rpi_kept_error why;
    rpi_error_keep(&why);
    RP_TRY(await_next(bootstrap, generation, rpi_now_ns() + CHAIN_NS, out_again));
    rpi_error_put_back(&why);
    return *out_again ? RP_OK : status;
}

rp_status rpi_bootstrap_arrive(rpi_bootstrap *bootstrap, const rp_store *store, int rank,
                               int world, const char *name, double timeout_s) {
    *bootstrap = (rpi_bootstrap){.store = store,
                                 .rank = rank,
                                 .world = world,
                                 .timeout_s = timeout_s,
                                 .deadline_ns = rpi_deadline_ns(timeout_s)};
    int length = snprintf(bootstrap->name, sizeof bootstrap->name, "%s", name);
    if (length < 1 || (size_t)length >= sizeof bootstrap->name)
        return RP_FAIL(INVALID, "the name '%.40s' has %d bytes; 1 to %zu are allowed", name,
                       length, sizeof bootstrap->name - 1);
    rp_status status;
    bool again;
    do status = enter(bootstrap, &again);
    while (status == RP_OK && again);
    return status;
}

#define REPLACED "%s/replaced"

rp_status rpi_bootstrap_replace(const rp_store *store, int rank, int world, const char *name,
                                bool *out_has_met) {
    rpi_bootstrap bootstrap = {.store = store, .rank = rank, .world = world};
    char key[KEY_BYTES], text[40];
    int64_t generation = 0, arrivals = 0;
    snprintf(key, sizeof key, "%s/generation", name);
    RP_TRY(store->ops->add(store->context, key, 0, &generation));
    *out_has_met = generation > 0;
    if (*out_has_met) {
        snprintf(key, sizeof key, REPLACED, name);
        snprintf(text, sizeof text, "%d %lld", rank, (long long)generation);
        return store->ops->set(store->context, key, text, strlen(text) + 1);
    }
    snprintf(bootstrap.prefix, sizeof bootstrap.prefix, "%s/0", name);
    RP_TRY(store->ops->add(store->context, key_of(&bootstrap, "arrived", rank, key), 0,
                           &arrivals));
    if (arrivals == 0) return RP_OK;
    return rpi_bootstrap_give_up(
        &bootstrap,
        RP_FAIL(PEER, "the process before this one died while the ranks were meeting "
                      "(connection closed by peer), and they cannot meet without it; start the "
                      "job again"));
}

int rpi_bootstrap_replaced(const rp_store *store, const char *name) {
    char key[KEY_BYTES], text[40] = "", *next = NULL;
    size_t bytes = 0;
    int64_t generation = 0;
    snprintf(key, sizeof key, REPLACED, name);
    if (store->ops->get(store->context, key, 0, text, sizeof text - 1, &bytes) != RP_OK)
        return -1;
    long rank = strtol(text, &next, 10);
    snprintf(key, sizeof key, "%s/generation", name);
    if (store->ops->add(store->context, key, 0, &generation) != RP_OK) return -1;
    return strtoll(next, NULL, 10) == generation ? (int)rank : -1;
}

rp_status rpi_bootstrap_show(rpi_bootstrap *bootstrap, const char *subject, const char *value) {
    return set(bootstrap, subject, bootstrap->rank, value);
}

typedef struct rank_list {
    int count;
    char text[200]; /* "1, 3" */
} rank_list;

/* The ranks that have not set their key on this subject. */
static rank_list list_without(rpi_bootstrap *bootstrap, const char *subject) {
    rank_list list = {0};
    char value[RPI_BOOTSTRAP_BYTES];
    size_t used = 0;
    for (int rank = 0; rank < bootstrap->world; rank++) {
        if (get(bootstrap, subject, rank, 0, value, sizeof value) != RP_TIMEOUT) continue;
        if (used < sizeof list.text)
            used += (size_t)snprintf(list.text + used, sizeof list.text - used, "%s%d",
                                     list.count ? ", " : "", rank);
        list.count++;
    }
    return list;
}

static const char *plural(const rank_list *list) {
    return list->count == 1 ? "" : "s";
}

static rp_status check_arrivals(rpi_bootstrap *bootstrap) {
    rank_list missing = list_without(bootstrap, "arrived");
    if (missing.count == 0) return RP_OK;
    return RP_FAIL(TIMEOUT,
                   "timed out: rank%s %s did not arrive within %g s: %d of %d ranks are here",
                   plural(&missing), missing.text, bootstrap->timeout_s,
                   bootstrap->world - missing.count, bootstrap->world);
}

/* How long to wait for a value before looking up again; 0: the deadline has come. */
static double wait_seconds(const rpi_bootstrap *bootstrap) {
    double left_s = rpi_seconds(bootstrap->deadline_ns - rpi_now_ns());
    int times = 1 + bootstrap->world / LOOK_UP_WORLD;
    double look_s = LOOK_UP_S * times;
    return left_s < 0 ? 0 : left_s < look_s ? left_s : look_s;
}

/* The value of a rank has not come for `waited_s`: RP_OK to wait on. */
static rp_status wait_on(rpi_bootstrap *bootstrap, const char *subject, int rank,
                         double waited_s) {
    RP_TRY(rpi_bootstrap_look(bootstrap));
    if (waited_s > 0) return RP_OK;
    RP_TRY(check_arrivals(bootstrap));
    return RP_FAIL(
        TIMEOUT,
        "timed out: rank %d has arrived, but did not go on within %g s (no %s of it is in "
        "the store): is it stopped?",
        rank, bootstrap->timeout_s, subject);
}

rp_status rpi_bootstrap_read(rpi_bootstrap *bootstrap, const char *subject, int rank,
                             char *value, size_t bytes) {
    for (;;) {
        double wait_s = wait_seconds(bootstrap);
        rp_status status = get(bootstrap, subject, rank, wait_s, value, bytes);
        if (status != RP_TIMEOUT) return status;
        RP_TRY(wait_on(bootstrap, subject, rank, wait_s));
    }
}

typedef struct bootstrap_page {
    unsigned char values[RPI_STORE_VALUE_BYTES];
    int first, got;
    size_t sizes[]; /* [world] */
} bootstrap_page;

/* Hand out what one request has brought. */
static rp_status take_page(const bootstrap_page *page, const char *subject,
                           rpi_bootstrap_take *take, void *context) {
    const unsigned char *next = page->values;
    char value[RPI_BOOTSTRAP_BYTES];
    for (int i = 0; i < page->got; i++) {
        size_t bytes = page->sizes[i];
        if (bytes >= sizeof value)
            return RP_FAIL(CORRUPT, "the %s of rank %d has %zu bytes; fewer than %zu are right",
                           subject, page->first + i, bytes, sizeof value);
        memcpy(value, next, bytes);
        value[bytes] = '\0';
        RP_TRY(take(context, page->first + i, value));
        next += bytes;
    }
    return RP_OK;
}

static rp_status read_pages(rpi_bootstrap *bootstrap, const char *subject, bootstrap_page *page,
                            rpi_bootstrap_take *take, void *context) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s/%s/", bootstrap->prefix, subject);
    while (page->first < bootstrap->world) {
        double wait_s = wait_seconds(bootstrap);
        rp_status status = rpi_store_get_page(
            bootstrap->store, key, page->first, bootstrap->world - page->first, wait_s,
            page->values, sizeof page->values, page->sizes, &page->got);
        if (status == RP_OK) {
            RP_TRY(take_page(page, subject, take, context));
            page->first += page->got;
            continue;
        }
        if (status != RP_TIMEOUT) return status;
        RP_TRY(wait_on(bootstrap, subject, page->first, wait_s));
    }
    return RP_OK;
}

rp_status rpi_bootstrap_read_all(rpi_bootstrap *bootstrap, const char *subject,
                                 rpi_bootstrap_take *take, void *context) {
    bootstrap_page *page = NULL;
    RP_TRY(rpi_alloc(sizeof *page + (size_t)bootstrap->world * sizeof page->sizes[0],
                     "a page of the store", &page));
    rp_status status = read_pages(bootstrap, subject, page, take, context);
    rpi_free(page);
    return status;
}

void rpi_bootstrap_go_on(rpi_bootstrap *bootstrap) {
    bootstrap->deadline_ns = rpi_deadline_ns(bootstrap->timeout_s);
}

/* A note of who waits in vain: "rank reason". */
static bool read_note(const rpi_bootstrap *bootstrap, int rank, int *out_peer, char *reason,
                      size_t bytes) {
    char note[RPI_BOOTSTRAP_BYTES], *next = NULL;
    if (get(bootstrap, "waits", rank, 0, note, sizeof note) != RP_OK) return false;
    long peer = strtol(note, &next, 10);
    if (peer < 0 || peer >= bootstrap->world || *next != ' ') return false;
    *out_peer = (int)peer;
    snprintf(reason, bytes, "%s", next + 1);
    return true;
}

void rpi_bootstrap_find_pair(rpi_bootstrap *bootstrap, int peer, const char *reason,
                             rpi_bootstrap_pair *out_pair) {
    rpi_bootstrap_pair pair = {.waiter = bootstrap->rank, .late = peer};
    char note[RPI_BOOTSTRAP_BYTES], theirs[sizeof pair.reason];
    int next = 0;
    snprintf(pair.reason, sizeof pair.reason, "%s", reason);
    snprintf(note, sizeof note, "%d %s", peer, pair.reason);
    (void)set(bootstrap, "waits", bootstrap->rank, note);
    rpi_sleep_until_ns(rpi_now_ns() + CHAIN_NS);
    for (int hops = 0; hops < bootstrap->world && !pair.mutual; hops++) {
        if (!read_note(bootstrap, pair.late, &next, theirs, sizeof theirs)) break;
        pair.mutual = next == pair.waiter;
        if (!pair.mutual || pair.late > pair.waiter)
            snprintf(pair.reason, sizeof pair.reason, "%s", theirs);
        if (pair.mutual) break;
        pair.waiter = pair.late;
        pair.late = next;
    }
    *out_pair = pair;
}

/* Those who could not connect know more than those who only wait for them, and speak first. */
static rp_status wait_outcome(rpi_bootstrap *bootstrap) {
    char key[KEY_BYTES], outcome[RPI_BOOTSTRAP_BYTES];
    int64_t deadline_ns = bootstrap->deadline_ns + 3 * CHAIN_NS;
    size_t bytes = 0;
    bootstrap->look.next_ns = 0;
    rp_status status =
        rpi_store_wait(bootstrap->store, key_of(bootstrap, "outcome", -1, key), deadline_ns,
                       &bootstrap->look, outcome, sizeof outcome - 1, &bytes);
    if (status == RP_OK) {
        outcome[bytes < sizeof outcome ? bytes : sizeof outcome - 1] = '\0';
        return read_outcome(outcome);
    }
    if (status != RP_TIMEOUT) return status;
    rank_list missing = list_without(bootstrap, "ready");
    return RP_FAIL(
        TIMEOUT,
        "timed out: rank%s %s arrived, but did not finish connecting within %g s, nor said why "
        "not: stopped?",
        plural(&missing), missing.text, bootstrap->timeout_s);
}

/* Nothing of a bootstrap that went well stays in the store; the last one to go takes the rest.
 */
static rp_status clean_up(rpi_bootstrap *bootstrap, const char *const *subjects) {
    int64_t left = 0;
    for (int i = 0; subjects[i]; i++) take_down(bootstrap, subjects[i], bootstrap->rank);
    take_down(bootstrap, "arrived", bootstrap->rank);
    take_down(bootstrap, "ready", bootstrap->rank);
    RP_TRY(add(bootstrap, "left", -1, &left));
    if (left < bootstrap->world) return RP_OK;
    static const char *const common[] = {"outcome", "claims", "count", "left", "next"};
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        take_down(bootstrap, common[i], -1);
    return RP_OK;
}

rp_status rpi_bootstrap_leave(rpi_bootstrap *bootstrap, const char *const *subjects) {
    int64_t count = 0, generation = 0;
    bool first = false;
    char key[KEY_BYTES];
    /* Who dies between any two of these requests has not said that it is ready, or has let all
     * go on: no count is short of a rank that nobody can name. */
    RP_TRY(add(bootstrap, "count", -1, &count));
    if (count == bootstrap->world) {
        /* From here on a new bootstrap of this name is another one. */
        snprintf(key, sizeof key, "%s/generation", bootstrap->name);
        RP_TRY(bootstrap->store->ops->add(bootstrap->store->context, key, 1, &generation));
        RP_TRY(settle(bootstrap, "go", &first));
    }
    RP_TRY(set(bootstrap, "ready", bootstrap->rank, "yes"));
    RP_TRY(wait_outcome(bootstrap));
    return clean_up(bootstrap, subjects);
}
