/* Leaving: all ranks pass, or none does. */
#include "net/store/bootstrap_keys.h"

#include "base/clock.h"
#include "net/store/store_wait.h"

#include <stdio.h>

/* Ranks that could not connect know more than those that only wait for them, and give up first.
 */
static rp_status wait_outcome(rpi_bootstrap *bootstrap) {
    char key[RPI_BOOTSTRAP_KEY_BYTES], outcome[RPI_BOOTSTRAP_BYTES];
    int64_t deadline_ns = bootstrap->deadline_ns + 3 * RPI_BOOTSTRAP_CHAIN_NS;
    size_t bytes = 0;
    bootstrap->look.next_ns = 0;
    rp_status status =
        rpi_store_wait(bootstrap->store, rpi_bootstrap_key(bootstrap, "outcome", -1, key),
                       deadline_ns, &bootstrap->look, outcome, sizeof outcome - 1, &bytes);
    if (status == RP_OK) {
        outcome[bytes < sizeof outcome ? bytes : sizeof outcome - 1] = '\0';
        return rpi_bootstrap_read_outcome(outcome);
    }
    if (status != RP_TIMEOUT) return status;
    rpi_rank_list missing = rpi_bootstrap_ranks_without(bootstrap, "ready");
    return RP_FAIL(
        TIMEOUT,
        "timed out: rank%s %s arrived, but did not finish connecting within %g s, nor said why "
        "not: stopped?",
        rpi_bootstrap_plural(&missing), missing.text, bootstrap->timeout_s);
}

/* Nothing of a successful bootstrap stays in the store; the last rank to leave removes the
 * rest. */
static rp_status clean_up(rpi_bootstrap *bootstrap, const char *const *subjects) {
    int64_t left = 0;
    for (int i = 0; subjects[i]; i++)
        rpi_bootstrap_take_down(bootstrap, subjects[i], bootstrap->rank);
    rpi_bootstrap_take_down(bootstrap, "arrived", bootstrap->rank);
    rpi_bootstrap_take_down(bootstrap, "ready", bootstrap->rank);
    RP_TRY(rpi_bootstrap_add(bootstrap, "left", -1, &left));
    if (left < bootstrap->world) return RP_OK;
    static const char *const common[] = {"outcome", "claims", "count", "left", "next"};
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        rpi_bootstrap_take_down(bootstrap, common[i], -1);
    return RP_OK;
}

rp_status rpi_bootstrap_leave(rpi_bootstrap *bootstrap, const char *const *subjects) {
    int64_t count = 0, generation = 0;
    bool first = false;
    char key[RPI_BOOTSTRAP_KEY_BYTES];
    /* A rank that dies between any two of these requests has not published that it is ready, or
     * has let all go on: a count never lacks a rank that nobody can name. */
    RP_TRY(rpi_bootstrap_add(bootstrap, "count", -1, &count));
    if (count == bootstrap->world) {
        /* From here on a new bootstrap of this name is another one. */
        snprintf(key, sizeof key, "%s/generation", bootstrap->name);
        RP_TRY(bootstrap->store->ops->add(bootstrap->store->context, key, 1, &generation));
        RP_TRY(rpi_bootstrap_settle(bootstrap, "go", &first));
    }
    RP_TRY(rpi_bootstrap_set(bootstrap, "ready", bootstrap->rank, "yes"));
    RP_TRY(wait_outcome(bootstrap));
    return clean_up(bootstrap, subjects);
}
