#include "engine/team/gate.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LONG_NS = 5000000, /* as long as nobody is in the way */
    SHORT_NS = 10000,  /* in company: about what falling asleep and waking cost */
    OFFER_NS = 50000,  /* between two offers of the processor */
    TAKEN_NS = 30000,  /* an offer that takes longer was accepted */
    PAUSES = 16,       /* between two looks at the clock */
    /* How long company is assumed, the first time and after many. */
    LEAST_COMPANY_NS = 20000000,
    MOST_COMPANY_NS = 320000000,
};

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

bool rpi_in_company(const rpi_company *company) {
    int64_t until = atomic_load_explicit(&company->until_ns, memory_order_relaxed);
    return until && rpi_now_ns() < until;
}

/* Twice as long as the last time, unless that is long ago. */
static void note_company(rpi_company *company, int64_t now) {
    int64_t until = atomic_load(&company->until_ns), length = atomic_load(&company->length_ns);
    bool again = length && now - until < 2 * length;
    length = again ? 2 * length : LEAST_COMPANY_NS;
    if (length > MOST_COMPANY_NS) length = MOST_COMPANY_NS;
    atomic_store(&company->length_ns, length);
    atomic_store(&company->until_ns, now + length);
}

static bool is_changed(rpi_gate *gate, unsigned old) {
    return atomic_load_explicit(&gate->value, memory_order_acquire) != old;
}

static bool spin_a_little(rpi_gate *gate, unsigned old) {
    for (int i = 0; i < PAUSES; i++) {
        if (is_changed(gate, old)) return true;
        pause_briefly();
    }
    return false;
}

/* False: this has taken long enough. */
static bool spin(rpi_gate *gate, unsigned old, rpi_company *company) {
    int64_t start = rpi_now_ns(), offered = start, now = start;
    int64_t until = atomic_load_explicit(&company->until_ns, memory_order_relaxed);
    int64_t end = start + (start < until ? SHORT_NS : LONG_NS);
    while (now < end) {
        if (spin_a_little(gate, old)) return true;
        now = rpi_now_ns();
        if (now - offered < OFFER_NS) continue;
        sched_yield();
        offered = rpi_now_ns();
        if (offered - now < TAKEN_NS) continue;
        note_company(company, offered);
        return is_changed(gate, old);
    }
    return false;
}

/* ThreadSanitizer knows no fences. */
#if defined(__SANITIZE_THREAD__)
void rpi_gate_put(rpi_gate *gate, unsigned value) {
    atomic_store(&gate->value, value);
}

void rpi_gate_fence(void) {
}
#else
void rpi_gate_put(rpi_gate *gate, unsigned value) {
    atomic_store_explicit(&gate->value, value, memory_order_release);
}

void rpi_gate_fence(void) {
    atomic_thread_fence(memory_order_seq_cst);
}
#endif

void rpi_gate_wake(rpi_gate *gate) {
    if (atomic_load(&gate->sleepers))
        syscall(SYS_futex, &gate->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void rpi_gate_set(rpi_gate *gate, unsigned value) {
    atomic_store(&gate->value, value);
    rpi_gate_wake(gate);
}

unsigned rpi_gate_wait(rpi_gate *gate, unsigned old, rpi_company *company) {
    if (spin_a_little(gate, old) || spin(gate, old, company)) return atomic_load(&gate->value);
    unsigned now = 0;
    atomic_fetch_add(&gate->sleepers, 1);
    while ((now = atomic_load(&gate->value)) == old)
        syscall(SYS_futex, &gate->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&gate->sleepers, 1);
    return now;
}
