/* Texts that ranks publish, and ranks that do not come to publish or read them. */
#include "net/store/bootstrap_keys.h"

#include "base/clock.h"
#include "base/memory.h"
#include "net/store/store_page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In larger worlds values are asked for less often, so that waiting ranks do not keep the store
 * busy. */
enum { LOOK_UP_WORLD = 64 };

rp_status rpi_bootstrap_show(rpi_bootstrap *bootstrap, const char *subject, const char *value) {
    return rpi_bootstrap_set(bootstrap, subject, bootstrap->rank, value);
}

static rp_status check_arrivals(rpi_bootstrap *bootstrap) {
    rpi_rank_list missing = rpi_bootstrap_ranks_without(bootstrap, "arrived");
    if (missing.count == 0) return RP_OK;
    return RP_FAIL(TIMEOUT,
                   "timed out: rank%s %s did not arrive within %g s: %d of %d ranks are here",
                   rpi_bootstrap_plural(&missing), missing.text, bootstrap->timeout_s,
                   bootstrap->world - missing.count, bootstrap->world);
}

/* How long to wait for a value before checking again; 0: the deadline is over. */
static double wait_seconds(const rpi_bootstrap *bootstrap) {
    double left_s = rpi_seconds(bootstrap->deadline_ns - rpi_now_ns());
    int times = 1 + bootstrap->world / LOOK_UP_WORLD;
    double look_s = RPI_BOOTSTRAP_LOOK_UP_S * times;
    return left_s < 0 ? 0 : left_s < look_s ? left_s : look_s;
}

/* The value of a rank has been missing for `waited_s`: RP_OK to continue waiting. */
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
        rp_status status = rpi_bootstrap_get(bootstrap, subject, rank, wait_s, value, bytes);
        if (status != RP_TIMEOUT) return status;
        RP_TRY(wait_on(bootstrap, subject, rank, wait_s));
    }
}

typedef struct bootstrap_page {
    unsigned char values[RPI_STORE_VALUE_BYTES];
    int first, got;
    size_t sizes[]; /* [world] */
} bootstrap_page;

/* Pass on the values of one request. */
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
    char key[RPI_BOOTSTRAP_KEY_BYTES];
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

/* The note of a rank that waits in vain: "rank reason". */
static bool read_note(const rpi_bootstrap *bootstrap, int rank, int *out_peer, char *reason,
                      size_t bytes) {
    char note[RPI_BOOTSTRAP_BYTES], *next = NULL;
    if (rpi_bootstrap_get(bootstrap, "waits", rank, 0, note, sizeof note) != RP_OK)
        return false;
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
    (void)rpi_bootstrap_set(bootstrap, "waits", bootstrap->rank, note);
    rpi_sleep_until_ns(rpi_now_ns() + RPI_BOOTSTRAP_CHAIN_NS);
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
