#include "plan/foresight/spot_replay.h"

#include <math.h>

enum { TRIED_INTERVALS = 240, BISECTIONS = 60, MOST_TURNS = 1000000 };

typedef struct replay {
    const rpi_spot_rules *rules;
    rpi_spot_account *a;
    int64_t world;   /* nodes that work, or are stopped; 0: the job waits */
    double since_s;  /* age of this world, for a job that restarts */
    double unsafe_s; /* time since the last save, for an elastic job */
} replay;

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static double pace(const rpi_spot_rules *r, int64_t world) {
    return r->pace ? r->pace[world] : (double)world / (double)r->most;
}

/* Adds work of the world in so many node seconds; negative: work that was lost. */
static void work(replay *p, int64_t world, double node_seconds) {
    p->a->useful += node_seconds;
    p->a->useful_s += node_seconds / (double)world * pace(p->rules, world);
}

/* The work in such a running time: whole intervals with their saves, and the begun one. */
static double whole_intervals(const rpi_spot_rules *r, double run_s, double *rest_s) {
    double each_s = r->interval_s + r->save_s;
    double whole = floor(run_s / each_s * (1 + 1e-12));
    *rest_s = fmax(0, run_s - whole * each_s);
    return whole;
}

/* ---- a world that restarts ---- */

/* Ends a world, which was stopped and then ran; is_kept: the work since the last save is kept.
 */
static void end_world(replay *p, bool is_kept) {
    const rpi_spot_rules *r = p->rules;
    double nodes = (double)p->world, stood_s = fmin(r->restart_s, p->since_s), rest_s;
    double whole = whole_intervals(r, p->since_s - stood_s, &rest_s);
    double begun_s = fmin(rest_s, r->interval_s);
    p->a->standing += nodes * stood_s;
    p->a->saving += nodes * (whole * r->save_s + rest_s - begun_s);
    work(p, p->world, nodes * (whole * r->interval_s + (is_kept ? begun_s : 0)));
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

/* Runs an elastic world for so long: divides the time into work and saves. */
static void run_elastic(replay *p, double nodes, double run_s) {
    const rpi_spot_rules *r = p->rules;
    double rest_s, each_s = r->interval_s + r->save_s;
    double share = r->interval_s / each_s;
    if (nodes > 0) work(p, p->world, nodes * run_s * share);
    p->a->saving += nodes * run_s * (1 - share);
    (void)whole_intervals(r, p->unsafe_s + run_s, &rest_s);
    p->unsafe_s = rest_s;
}

/* Joining nodes are idle while the others work; a loss stops all of them. */
static void pass_elastic(replay *p, const rpi_spot_change *c, int64_t before, double length_s) {
    const rpi_spot_rules *r = p->rules;
    double stall_s = c->lost > 0 && before > 0 ? fmin(r->stall_s, length_s) : 0;
    double nodes = (double)p->world, joined = (double)least(c->joined, p->world);
    double idle = joined * fmin(r->join_s, fmax(0, length_s - stall_s));
    p->a->standing += nodes * stall_s + idle;
    double run_s = length_s - stall_s;
    run_elastic(p, nodes > 0 && run_s > 0 ? nodes - idle / run_s : 0, run_s);
}

/* No node is left that has the state. */
static void lose_all(replay *p) {
    double nodes = (double)p->world;
    double lost = p->rules->notice_fits ? 0 : nodes * fmin(p->unsafe_s, p->rules->interval_s);
    lost = fmin(lost, p->a->useful);
    work(p, p->world, -lost);
    p->a->useful_s = fmax(0, p->a->useful_s);
    p->a->lost += lost;
    p->unsafe_s = 0;
}

/* ---- the trace ---- */

/* The number of these nodes that work together. */
static int64_t world_of(const rpi_spot_rules *r, int64_t alive) {
    int64_t world = alive >= r->least ? least(alive, r->most) : 0;
    return world > 0 && pace(r, world) > 0 ? world : 0;
}

static void take_change(replay *p, const rpi_spot_change *c, double length_s) {
    const rpi_spot_rules *r = p->rules;
    int64_t world = world_of(r, c->alive), before = p->world;
    if (!r->is_elastic) {
        change_world(p, c, world);
        p->since_s += length_s;
    } else {
        if (c->alive == 0 && before > 0) lose_all(p);
        p->a->changes += world != before || (c->lost > 0 && before > 0);
        p->world = world;
        pass_elastic(p, c, before, length_s);
    }
    double beyond = (double)(c->alive - p->world) * length_s;
    p->a->all += (double)c->alive * length_s;
    *(p->world > 0 ? &p->a->spare : &p->a->waiting) += beyond;
}

/* The account if the trace ended here, which is not a loss. */
static rpi_spot_account account_of(const replay *p) {
    rpi_spot_account account = *p->a;
    replay end = *p;
    end.a = &account;
    if (!p->rules->is_elastic && p->world > 0) end_world(&end, true);
    return account;
}

static double length_of(const rpi_spot_trace *t, int i) {
    return t->changes[i + 1].second - t->changes[i].second;
}

rpi_spot_account rpi_spot_replay(const rpi_spot_trace *t, const rpi_spot_rules *rules) {
    rpi_spot_account account = {0};
    replay p = {.rules = rules, .a = &account};
    for (int i = 0; i + 1 < t->count; i++) take_change(&p, &t->changes[i], length_of(t, i));
    return account_of(&p);
}

/* ---- until the work is done ---- */

/* The change during which so much work is done for the first time, and the account before it;
 * -1: the work is never done, and the account of the whole trace. `out_most_s`: the most work
 * at any time. */
static int change_with(const rpi_spot_trace *t, replay *p, double work_s, replay *before,
                       rpi_spot_account *before_account, double *out_most_s) {
    for (int i = 0; i + 1 < t->count; i++) {
        *before_account = *p->a;
        *before = *p;
        before->a = before_account;
        take_change(p, &t->changes[i], length_of(t, i));
        *out_most_s = fmax(*out_most_s, account_of(p).useful_s);
        if (account_of(p).useful_s >= work_s) return i;
    }
    return -1;
}

/* The account after everything before change `c` and so much of it. */
static rpi_spot_account account_after(const replay *before, const rpi_spot_change *c,
                                      double length_s) {
    rpi_spot_account account = *before->a;
    replay p = *before;
    p.a = &account;
    take_change(&p, c, length_s);
    return account_of(&p);
}

static double length_until(const replay *before, const rpi_spot_change *c, double work_s,
                           double high_s) {
    double low_s = 0;
    for (int i = 0; i < BISECTIONS; i++) {
        double middle_s = (low_s + high_s) / 2;
        bool is_done = account_after(before, c, middle_s).useful_s >= work_s;
        *(is_done ? &high_s : &low_s) = middle_s;
    }
    return high_s;
}

static void add_turns(rpi_spot_account *to, const rpi_spot_account *turn, double turns) {
    to->all += turns * turn->all;
    to->useful += turns * turn->useful;
    to->lost += turns * turn->lost;
    to->saving += turns * turn->saving;
    to->standing += turns * turn->standing;
    to->waiting += turns * turn->waiting;
    to->spare += turns * turn->spare;
    to->useful_s += turns * turn->useful_s;
    to->changes += (int64_t)(turns * (double)turn->changes);
}

bool rpi_spot_finish_find(const rpi_spot_trace *t, const rpi_spot_rules *rules, double work_s,
                          rpi_spot_finish *out) {
    rpi_spot_account account = {0}, before_account, turn;
    replay p = {.rules = rules, .a = &account}, before;
    double most_s = 0, turns = 0;
    double length_s = t->changes[t->count - 1].second - t->changes[0].second;
    (void)change_with(t, &p, INFINITY, &before, &before_account, &most_s);
    turn = account_of(&p);
    if (most_s < work_s && turn.useful_s <= 0) return false;
    if (most_s < work_s) turns = ceil((work_s - most_s) / turn.useful_s);
    double rest_s = fmin(work_s - turns * turn.useful_s, most_s);
    if (turns > MOST_TURNS) return false;
    account = (rpi_spot_account){0};
    p = (replay){.rules = rules, .a = &account};
    int i = change_with(t, &p, rest_s, &before, &before_account, &most_s);
    if (i < 0) i = t->count - 2;
    double part_s = length_until(&before, &t->changes[i], rest_s, length_of(t, i));
    *out = (rpi_spot_finish){.account = account_after(&before, &t->changes[i], part_s)};
    out->seconds = turns * length_s + t->changes[i].second - t->changes[0].second + part_s;
    out->turns = out->seconds / length_s;
    add_turns(&out->account, &turn, turns);
    return true;
}

double rpi_spot_best_interval(const rpi_spot_trace *t, const rpi_spot_rules *rules) {
    rpi_spot_rules r = *rules;
    double low = fmax(rules->save_s, 1), most = -1, best = low;
    double high = fmax(low, t->changes[t->count - 1].second - t->changes[0].second);
    for (int i = 0; i <= TRIED_INTERVALS; i++) {
        r.interval_s = low * pow(high / low, (double)i / TRIED_INTERVALS);
        double useful = rpi_spot_replay(t, &r).useful_s;
        if (useful <= most) continue;
        most = useful;
        best = r.interval_s;
    }
    return best;
}
