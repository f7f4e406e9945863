#include "methods/parameter_server/push_ledger.h"

#include "base/memory.h"

#include <string.h>

rp_status rpi_ledger_open(int workers, int64_t staleness, int quorum, rpi_push_ledger *out) {
    rpi_push_ledger ledger = {.count = workers, .staleness = staleness, .quorum = quorum};
    size_t count = (size_t)workers;
    RP_TRY(rpi_alloc_array(count, sizeof *ledger.workers, "workers", &ledger.workers));
    rp_status status =
        rpi_alloc_array(count * count, sizeof *ledger.seen, "workers", &ledger.seen);
    if (status != RP_OK)
        rpi_ledger_close(&ledger);
    else
        *out = ledger;
    return status;
}

void rpi_ledger_close(rpi_push_ledger *ledger) {
    rpi_free(ledger->workers);
    rpi_free(ledger->seen);
    *ledger = (rpi_push_ledger){0};
}

void rpi_ledger_restart(rpi_push_ledger *l) {
    for (int w = 0; w < l->count; w++) {
        l->workers[w].wanted = 0;
        if (!l->workers[w].is_lost) l->workers[w].state = RPI_WORKER_EXPECTED;
    }
}

static int count_in(const rpi_push_ledger *l, rpi_worker_state state) {
    int count = 0;
    for (int w = 0; w < l->count; w++) count += l->workers[w].state == state;
    return count;
}

/* ---- what comes ---- */

rp_status rpi_ledger_greet(rpi_push_ledger *l, int worker) {
    rpi_ledger_worker *one = &l->workers[worker];
    if (one->state != RPI_WORKER_EXPECTED)
        return RP_FAIL(CORRUPT, "parameter server: worker %d asks to begin a second time",
                       worker);
    one->state = RPI_WORKER_WAITING;
    return RP_OK;
}

rp_status rpi_ledger_push(rpi_push_ledger *l, int worker, uint64_t number, bool *out_again) {
    rpi_ledger_worker *one = &l->workers[worker];
    bool again = number <= one->received;
    if (number > one->received + 1)
        return RP_FAIL(CORRUPT,
                       "parameter server: push %llu of worker %d came where number %llu is "
                       "the next",
                       (unsigned long long)number, worker,
                       (unsigned long long)one->received + 1);
    if (!again && one->state != RPI_WORKER_COMPUTING)
        return RP_FAIL(CORRUPT, "parameter server: worker %d pushes without parameters",
                       worker);
    *out_again = again;
    if (again) return RP_OK;
    one->received = number;
    one->state = RPI_WORKER_PENDING;
    return RP_OK;
}

void rpi_ledger_end(rpi_push_ledger *l, int worker) {
    l->workers[worker].state = RPI_WORKER_AWAY;
}

void rpi_ledger_lose(rpi_push_ledger *l, int worker) {
    l->workers[worker].state = RPI_WORKER_AWAY;
    l->workers[worker].is_lost = true;
}

/* ---- merges ---- */

/* The next push of this worker must not exceed the bound for anybody who still computes. */
static bool may_go(const rpi_push_ledger *l, int worker) {
    uint64_t merged = l->workers[worker].merged;
    if (l->version < l->workers[worker].wanted) return false;
    if (l->staleness <= 0) return true;
    for (int w = 0; w < l->count; w++) {
        uint64_t seen = l->seen[(size_t)w * (size_t)l->count + (size_t)worker];
        if (w != worker && l->workers[w].state == RPI_WORKER_COMPUTING &&
            merged - seen + 1 > (uint64_t)l->staleness)
            return false;
    }
    return true;
}

/* Nobody is left who could push before something is merged. A worker that waits for parameters
 * and may have them now is one who could. */
static bool all_have_pushed(const rpi_push_ledger *l) {
    for (int w = 0; w < l->count; w++)
        if (l->workers[w].state == RPI_WORKER_WAITING && may_go(l, w)) return false;
    return count_in(l, RPI_WORKER_EXPECTED) + count_in(l, RPI_WORKER_COMPUTING) == 0;
}

/* A push that has come counts, whether or not its worker is still there. */
static bool is_pending(const rpi_ledger_worker *one) {
    return one->received > one->merged;
}

static int count_pending(const rpi_push_ledger *l) {
    int count = 0;
    for (int w = 0; w < l->count; w++) count += is_pending(&l->workers[w]);
    return count;
}

bool rpi_ledger_has_quorum(const rpi_push_ledger *l) {
    return l->quorum && count_pending(l) >= l->quorum;
}

static bool is_due(const rpi_push_ledger *l, bool grace_over) {
    if (!count_pending(l)) return false;
    if (l->staleness != 0 && !l->quorum) return true;
    return all_have_pushed(l) || (grace_over && rpi_ledger_has_quorum(l));
}

static uint64_t *seen_of(rpi_push_ledger *l, int worker) {
    return l->seen + (size_t)worker * (size_t)l->count;
}

/* How much has been merged of others while it computed. */
static void measure(rpi_push_ledger *l, int worker) {
    rpi_ledger_worker *one = &l->workers[worker];
    const uint64_t *seen = seen_of(l, worker);
    one->staleness = 0;
    one->updates = (int64_t)(l->version - one->version);
    for (int x = 0; x < l->count; x++) {
        int64_t merged = (int64_t)(l->workers[x].merged - seen[x]);
        if (x != worker && merged > one->staleness) one->staleness = merged;
    }
}

static void take(rpi_push_ledger *l, const int *workers, int count) {
    for (int i = 0; i < count; i++) measure(l, workers[i]);
    for (int i = 0; i < count; i++) {
        rpi_ledger_worker *one = &l->workers[workers[i]];
        one->merged = one->received;
        if (one->state == RPI_WORKER_PENDING) one->state = RPI_WORKER_WAITING;
    }
}

int rpi_ledger_merge(rpi_push_ledger *l, bool grace_over, int *out_workers) {
    bool one_by_one = l->staleness != 0 && !l->quorum;
    int count = 0;
    if (!is_due(l, grace_over)) return 0;
    for (int w = 0; w < l->count && !(one_by_one && count); w++)
        if (is_pending(&l->workers[w])) out_workers[count++] = w;
    take(l, out_workers, count);
    l->version++;
    return count;
}

/* ---- following ---- */

bool rpi_ledger_can_follow(const rpi_push_ledger *l, const uint64_t *numbers) {
    for (int w = 0; w < l->count; w++)
        if (l->workers[w].received < numbers[w] && l->workers[w].state != RPI_WORKER_AWAY)
            return false;
    return true;
}

int rpi_ledger_follow(rpi_push_ledger *l, const uint64_t *numbers, uint64_t version,
                      int *out_workers) {
    int count = 0;
    for (int w = 0; w < l->count; w++)
        if (numbers[w] && is_pending(&l->workers[w]) && l->workers[w].received == numbers[w])
            out_workers[count++] = w;
    take(l, out_workers, count);
    l->version = version;
    return count;
}

int rpi_ledger_merge_rest(rpi_push_ledger *l, int *out_workers) {
    int count = 0;
    for (int w = 0; w < l->count; w++)
        if (is_pending(&l->workers[w])) out_workers[count++] = w;
    take(l, out_workers, count);
    return count;
}

/* ---- admission ---- */

int rpi_ledger_admit(rpi_push_ledger *l) {
    for (int w = 0; w < l->count; w++) {
        rpi_ledger_worker *one = &l->workers[w];
        if (one->state != RPI_WORKER_WAITING || !may_go(l, w)) continue;
        one->state = RPI_WORKER_COMPUTING;
        one->version = l->version;
        for (int x = 0; x < l->count; x++) seen_of(l, w)[x] = l->workers[x].merged;
        return w;
    }
    return -1;
}

bool rpi_ledger_is_over(const rpi_push_ledger *l) {
    return count_in(l, RPI_WORKER_AWAY) == l->count && !count_pending(l);
}

int rpi_ledger_lost(const rpi_push_ledger *l) {
    int lost = 0;
    for (int w = 0; w < l->count; w++) lost += l->workers[w].is_lost;
    return lost;
}
