/* Arriving: which bootstrap of a name is going on, and which ranks are in it already. */
#include "net/store/bootstrap_keys.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether a rank has opened the next bootstrap of this name, until the deadline. */
static rp_status await_next(const rpi_bootstrap *bootstrap, int64_t generation,
                            int64_t deadline_ns, bool *out_moved) {
    int64_t now = generation;
    for (;;) {
        RP_TRY(rpi_bootstrap_add_generation(bootstrap, 0, &now));
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
    RP_TRY(rpi_bootstrap_add(bootstrap, "next", -1, &claims));
    if (claims == 1) return rpi_bootstrap_add_generation(bootstrap, 1, &next);
    return await_next(bootstrap, generation, bootstrap->deadline_ns, &moved);
}

/* The bootstrap of this name that is going on. *out_again: it had failed before, and the next
 * one is open. A rank that was not in a failed one gets the reason why it failed, unless others
 * come back at that moment: a failure belongs to one bootstrap, not to a name. */
static rp_status enter(rpi_bootstrap *bootstrap, bool *out_again) {
    int64_t generation = 0, arrivals = 0;
    *out_again = false;
    RP_TRY(rpi_bootstrap_add_generation(bootstrap, 0, &generation));
    snprintf(bootstrap->prefix, sizeof bootstrap->prefix, "%s/%lld", bootstrap->name,
             (long long)generation);
    RP_TRY(rpi_bootstrap_add(bootstrap, "arrived", bootstrap->rank, &arrivals));
    rp_status status = rpi_bootstrap_look_up(bootstrap);
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
    RP_TRY(await_next(bootstrap, generation, rpi_now_ns() + RPI_BOOTSTRAP_CHAIN_NS, out_again));
    rpi_error_put_back(&why);
    return *out_again ? RP_OK : status;
}

rp_status rpi_bootstrap_check_name(const char *name) {
    size_t length = strlen(name);
    if (length >= 1 && length <= RPI_BOOTSTRAP_NAME_MAX) return RP_OK;
    return RP_FAIL(INVALID, "the name '%.40s%s' has %zu bytes; 1 to %d are allowed", name,
                   length > 40 ? "..." : "", length, RPI_BOOTSTRAP_NAME_MAX);
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

rp_status rpi_bootstrap_decline(const rp_store *store, int rank, int world, const char *name,
                                double timeout_s, rp_status status) {
    rpi_bootstrap bootstrap;
    rpi_kept_error reason;
    rpi_error_keep(&reason);
    rp_status arrived = rpi_bootstrap_arrive(&bootstrap, store, rank, world, name, timeout_s);
    rpi_error_put_back(&reason);
    return arrived == RP_OK ? rpi_bootstrap_give_up(&bootstrap, status) : status;
}

#define REPLACED "%s/replaced"

rp_status rpi_bootstrap_replace(const rp_store *store, int rank, int world, const char *name,
                                bool *out_has_met) {
    rpi_bootstrap bootstrap = {.store = store, .rank = rank, .world = world};
    char key[RPI_BOOTSTRAP_KEY_BYTES], text[40];
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
    RP_TRY(store->ops->add(store->context, rpi_bootstrap_key(&bootstrap, "arrived", rank, key),
                           0, &arrivals));
    if (arrivals == 0) return RP_OK;
    return rpi_bootstrap_give_up(
        &bootstrap,
        RP_FAIL(PEER, "the process before this one died while the ranks were meeting "
                      "(connection closed by peer), and they cannot meet without it; start the "
                      "job again"));
}

int rpi_bootstrap_replaced(const rp_store *store, const char *name) {
    char key[RPI_BOOTSTRAP_KEY_BYTES], text[40] = "", *next = NULL;
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
