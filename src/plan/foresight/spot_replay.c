#include "plan/foresight/spot_replay.h"

#include <math.h>

enum { TRIED_INTERVALS = 240 };

typedef struct replay {
    const rpi_spot_rules *rules;
    rpi_spot_account *a;
    int64_t world;   /* nodes at work, or standing; 0: it waits */
    double since_s;  /* how long this world has been, of one that restarts */
    double unsafe_s; /* that an elastic one has run since its last save */
} replay;

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Of so long a run: whole intervals with their saves, and what has begun. */
static double whole_intervals(const rpi_spot_rules *r, double run_s, double *rest_s) {
    double each_s = r->interval_s + r->save_s;
    double whole = floor(run_s / each_s * (1 + 1e-12));
    *rest_s = fmax(0, run_s - whole * each_s);
    return whole;
}

/* ---- a world that restarts ---- */

/* Since it began it stood, and ran; is_kept: the work since the last save, too. */
static void end_world(replay *p, bool is_kept) {
    const rpi_spot_rules *r = p->rules;
    double nodes = (double)p->world, stood_s = fmin(r->restart_s, p->since_s), rest_s;
    double whole = whole_intervals(r, p->since_s - stood_s, &rest_s);
    double begun_s = fmin(rest_s, r->interval_s);
    p->a->standing += nodes * stood_s;
    p->a->saving += nodes * (whole * r->save_s + rest_s - begun_s);
    p->a->useful += nodes * (whole * r->interval_s + (is_kept ? begun_s : 0));
    p->a->lost += is_kept ? 0 : nodes * begun_s;
}

static void change_world(replay *p, const rpi_spot_change *c, int64_t world) {
    bool loses = p->world > 0 && c->lost > 0;
    if (world == p->world && !loses) return;
    if (p->world > 0) end_world(p, p->rules->notice_fits);
    p->a->changes += p->world > 0 || world > 0;
    p->world = world;
    p->since_s = 0;
}

/* ---- an elastic world ---- */

/* Of a world that runs for so long: how much of it is work, the rest saves. */
static void run_elastic(replay *p, double nodes, double run_s) {
    const rpi_spot_rules *r = p->rules;
    double rest_s, each_s = r->interval_s + r->save_s;
    double share = r->interval_s / each_s;
    p->a->useful += nodes * run_s * share;
    p->a->saving += nodes * run_s * (1 - share);
    (void)whole_intervals(r, p->unsafe_s + run_s, &rest_s);
    p->unsafe_s = rest_s;
}

/* Nodes that join idle, while the others work; a loss makes all stand. */
static void pass_elastic(replay *p, const rpi_spot_change *c, int64_t before, double length_s) {
    const rpi_spot_rules *r = p->rules;
    double stall_s = c->lost > 0 && before > 0 ? fmin(r->stall_s, length_s) : 0;
    double nodes = (double)p->world, joined = (double)least(c->joined, p->world);
    double idle = joined * fmin(r->join_s, fmax(0, length_s - stall_s));
    p->a->standing += nodes * stall_s + idle;
    double run_s = length_s - stall_s;
    run_elastic(p, nodes > 0 && run_s > 0 ? nodes - idle / run_s : 0, run_s);
}

/* Nobody is left who has the state. */
static void lose_all(replay *p, double nodes) {
    double lost = p->rules->notice_fits ? 0 : nodes * fmin(p->unsafe_s, p->rules->interval_s);
    lost = fmin(lost, p->a->useful);
    p->a->useful -= lost;
    p->a->lost += lost;
    p->unsafe_s = 0;
}

/* ---- the trace ---- */

static void take_change(replay *p, const rpi_spot_change *c, double length_s) {
    const rpi_spot_rules *r = p->rules;
    int64_t world = c->alive >= r->least ? least(c->alive, r->most) : 0, before = p->world;
    if (!r->is_elastic) {
        change_world(p, c, world);
        p->since_s += length_s;
    } else {
        if (c->alive == 0 && before > 0) lose_all(p, (double)before);
        p->a->changes += world != before || (c->lost > 0 && before > 0);
        p->world = world;
        pass_elastic(p, c, before, length_s);
    }
    double beyond = (double)(c->alive - p->world) * length_s;
    p->a->all += (double)c->alive * length_s;
    *(p->world > 0 ? &p->a->spare : &p->a->waiting) += beyond;
}

/* The trace's end is no loss. */
rpi_spot_account rpi_spot_replay(const rpi_spot_trace *t, const rpi_spot_rules *rules) {
    rpi_spot_account account = {0};
    replay p = {.rules = rules, .a = &account};
    for (int i = 0; i + 1 < t->count; i++)
        take_change(&p, &t->changes[i], t->changes[i + 1].second - t->changes[i].second);
    if (!rules->is_elastic && p.world > 0) end_world(&p, true);
    account.useful_s = account.useful / (double)rules->most;
    return account;
}

double rpi_spot_best_interval(const rpi_spot_trace *t, const rpi_spot_rules *rules) {
    rpi_spot_rules r = *rules;
    double low = fmax(rules->save_s, 1), most = -1, best = low;
    double high = fmax(low, t->changes[t->count - 1].second - t->changes[0].second);
    for (int i = 0; i <= TRIED_INTERVALS; i++) {
        r.interval_s = low * pow(high / low, (double)i / TRIED_INTERVALS);
        double useful = rpi_spot_replay(t, &r).useful;
        if (useful <= most) continue;
        most = useful;
        best = r.interval_s;
    }
    return best;
}
