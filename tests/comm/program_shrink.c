/* Smaller programs that still fail: without steps, then without what makes steps hard. A
 * failure may be a matter of time, so a program counts as good only when it has passed a few
 * times. */
#include "comm/random_program.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

enum { TRIES = 3 };

typedef struct shrinker {
    program *best;
    program_fails fails;
    int64_t deadline_ns;
} shrinker;

static bool is_over(const shrinker *s) {
    return rpi_now_ns() >= s->deadline_ns;
}

static bool accept(shrinker *s, const program *smaller) {
    for (int i = 0; i < TRIES && !is_over(s); i++)
        if (s->fails(smaller)) {
            *s->best = *smaller;
            return true;
        }
    return false;
}

static void without(const program *p, int first, int count, program *out) {
    *out = *p;
    out->count = 0;
    for (int i = 0; i < p->count; i++)
        if (i < first || i >= first + count) out->steps[out->count++] = p->steps[i];
}

static void drop_steps(shrinker *s) {
    for (int length = s->best->count / 2; length >= 1; length = length == 1 ? 0 : length / 2)
        for (int first = s->best->count - length; first >= 0 && !is_over(s); first -= length) {
            program smaller;
            if (first + length > s->best->count) continue;
            without(s->best, first, length, &smaller);
            if (smaller.count) (void)accept(s, &smaller);
        }
}

/* One change to a program or to one step of it; false: there is nothing to change. */
typedef bool (*simplification)(program *p, int step);

static bool without_delay(program *p, int i) {
    bool had = p->steps[i].slow >= 0;
    p->steps[i].slow = -1;
    p->steps[i].us = 0;
    return had;
}
static bool blocking(program *p, int i) {
    bool had = p->steps[i].how != WAIT_BLOCKING;
    p->steps[i].how = WAIT_BLOCKING;
    p->steps[i].lag = 0;
    return had;
}
static bool shorter(program *p, int i) {
    bool had = p->steps[i].count > 1 && p->steps[i].tag != 100;
    if (had) p->steps[i].count /= 4;
    return had;
}
static bool exact(program *p, int i) {
    bool had = strcmp(p->steps[i].codec, "fp32") != 0;
    snprintf(p->steps[i].codec, sizeof p->steps[i].codec, "fp32");
    return had;
}
static bool one_part(program *p, int i) {
    bool had = p->steps[i].parts > 1;
    p->steps[i].parts = 1;
    return had;
}
static bool one_communicator(program *p, int i) {
    bool had = p->comms > 1 && i == 0;
    if (!had) return false;
    p->comms = 1;
    for (int k = 0; k < p->count; k++) p->steps[k].comm = 0;
    return true;
}
static bool without_thread(program *p, int i) {
    if (i > 0 || !p->progress_thread || p->comms > 1) return false;
    for (int k = 0; k < p->count; k++)
        if (p->steps[k].how == WAIT_QUEUE) return false;
    p->progress_thread = 0;
    return true;
}
static bool with_credit(program *p, int i) {
    bool had = p->asks && i == 0;
    if (had) p->asks = 0;
    return had;
}
static bool smaller_world(program *p, int i) {
    if (i > 0 || p->world <= 2) return false;
    p->world--;
    for (int k = 0; k < p->count; k++) {
        program_step *s = &p->steps[k];
        if (s->root >= p->world) s->root = 0;
        if (s->peer >= p->world || s->peer == s->root) s->peer = (s->root + 1) % p->world;
        if (s->slow >= p->world) s->slow = -1;
    }
    return true;
}

static bool simplify(shrinker *s) {
    static const simplification all[] = {
        smaller_world, one_communicator, without_thread, with_credit, without_delay,
        blocking,      shorter,          exact,          one_part};
    bool better = false;
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        for (int i = 0; i < s->best->count && !is_over(s); i++) {
            program simpler = *s->best;
            while (!is_over(s) && all[k](&simpler, i) && accept(s, &simpler)) {
                better = true;
                simpler = *s->best;
            }
        }
    return better;
}

void program_shrink(program *in_out, program_fails fails, double budget_s) {
    shrinker s = {in_out, fails, rpi_deadline_ns(budget_s)};
    do drop_steps(&s);
    while (!is_over(&s) && simplify(&s));
}
