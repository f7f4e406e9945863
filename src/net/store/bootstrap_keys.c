#include "net/store/bootstrap_keys.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *rpi_bootstrap_key(const rpi_bootstrap *bootstrap, const char *subject, int rank,
                              char *key) {
    if (rank >= 0)
        snprintf(key, RPI_BOOTSTRAP_KEY_BYTES, "%s/%s/%d", bootstrap->prefix, subject, rank);
    else
        snprintf(key, RPI_BOOTSTRAP_KEY_BYTES, "%s/%s", bootstrap->prefix, subject);
    return key;
}

rp_status rpi_bootstrap_add(rpi_bootstrap *bootstrap, const char *subject, int rank,
                            int64_t *out_value) {
    char key[RPI_BOOTSTRAP_KEY_BYTES];
    return bootstrap->store->ops->add(bootstrap->store->context,
                                      rpi_bootstrap_key(bootstrap, subject, rank, key), 1,
                                      out_value);
}

rp_status rpi_bootstrap_get(const rpi_bootstrap *bootstrap, const char *subject, int rank,
                            double timeout_s, char *text, size_t capacity) {
    char key[RPI_BOOTSTRAP_KEY_BYTES];
    size_t bytes = 0;
    RP_TRY(bootstrap->store->ops->get(bootstrap->store->context,
                                      rpi_bootstrap_key(bootstrap, subject, rank, key),
                                      timeout_s, text, capacity - 1, &bytes));
    if (bytes >= capacity)
        return RP_FAIL(CORRUPT, "store key '%s' has %zu bytes; fewer than %zu were expected",
                       key, bytes, capacity);
    text[bytes] = '\0';
    return RP_OK;
}

rp_status rpi_bootstrap_set(rpi_bootstrap *bootstrap, const char *subject, int rank,
                            const char *text) {
    char key[RPI_BOOTSTRAP_KEY_BYTES];
    return bootstrap->store->ops->set(bootstrap->store->context,
                                      rpi_bootstrap_key(bootstrap, subject, rank, key), text,
                                      strlen(text));
}

void rpi_bootstrap_take_down(rpi_bootstrap *bootstrap, const char *subject, int rank) {
    char key[RPI_BOOTSTRAP_KEY_BYTES];
    (void)bootstrap->store->ops->remove(bootstrap->store->context,
                                        rpi_bootstrap_key(bootstrap, subject, rank, key));
}

rp_status rpi_bootstrap_add_generation(const rpi_bootstrap *bootstrap, int64_t amount,
                                       int64_t *out) {
    char key[RPI_BOOTSTRAP_KEY_BYTES];
    snprintf(key, sizeof key, "%s/generation", bootstrap->name);
    return bootstrap->store->ops->add(bootstrap->store->context, key, amount, out);
}

rp_status rpi_bootstrap_read_outcome(const char *outcome) {
    if (strcmp(outcome, "go") == 0) return RP_OK;
    char *next = NULL;
    long status = strtol(outcome, &next, 10);
    long rank = strtol(next, &next, 10);
    if (status >= 0 || status < RP_INTERNAL || *next != ' ')
        return RP_FAIL(CORRUPT, "the outcome in the store is '%s'", outcome);
    return rpi_fail((rp_status)status, __FILE__, __LINE__, "rank %ld gave up connecting: %s",
                    rank, next + 1);
}

rp_status rpi_bootstrap_look_up(const rpi_bootstrap *bootstrap) {
    char outcome[RPI_BOOTSTRAP_BYTES];
    rp_status status = rpi_bootstrap_get(bootstrap, "outcome", -1, 0, outcome, sizeof outcome);
    if (status == RP_OK) return rpi_bootstrap_read_outcome(outcome);
    return status == RP_TIMEOUT ? RP_OK : status;
}

rp_status rpi_bootstrap_look(rpi_bootstrap *bootstrap) {
    RP_TRY(rpi_bootstrap_look_up(bootstrap));
    return bootstrap->look.ask ? bootstrap->look.ask(bootstrap->look.context) : RP_OK;
}

rp_status rpi_bootstrap_settle(rpi_bootstrap *bootstrap, const char *outcome, bool *out_first) {
    int64_t claims = 0;
    RP_TRY(rpi_bootstrap_add(bootstrap, "claims", -1, &claims));
    *out_first = claims == 1;
    return claims == 1 ? rpi_bootstrap_set(bootstrap, "outcome", -1, outcome) : RP_OK;
}

rp_status rpi_bootstrap_give_up(rpi_bootstrap *bootstrap, rp_status status) {
    char outcome[RPI_BOOTSTRAP_BYTES];
    bool first = true;
    snprintf(outcome, sizeof outcome, "%d %d %.900s", (int)status, bootstrap->rank,
             rp_last_error()->message);
    rp_status settled = rpi_bootstrap_settle(bootstrap, outcome, &first);
    if (settled == RP_OK && !first) {
        char other[RPI_BOOTSTRAP_BYTES];
        if (rpi_bootstrap_get(bootstrap, "outcome", -1, RPI_BOOTSTRAP_LOOK_UP_S, other,
                              sizeof other) == RP_OK) {
            rp_status theirs = rpi_bootstrap_read_outcome(other);
            if (theirs != RP_OK) return theirs;
        }
    }
    return rpi_fail(status, __FILE__, __LINE__, "%s",
                    strchr(strchr(outcome, ' ') + 1, ' ') + 1);
}

rpi_rank_list rpi_bootstrap_ranks_without(rpi_bootstrap *bootstrap, const char *subject) {
    rpi_rank_list list = {0};
    char value[RPI_BOOTSTRAP_BYTES];
    size_t used = 0;
    for (int rank = 0; rank < bootstrap->world; rank++) {
        if (rpi_bootstrap_get(bootstrap, subject, rank, 0, value, sizeof value) != RP_TIMEOUT)
            continue;
        if (used < sizeof list.text)
            used += (size_t)snprintf(list.text + used, sizeof list.text - used, "%s%d",
                                     list.count ? ", " : "", rank);
        list.count++;
    }
    return list;
}

const char *rpi_bootstrap_plural(const rpi_rank_list *list) {
    return list->count == 1 ? "" : "s";
}
