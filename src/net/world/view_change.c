/* Making the next view: arrive, see which others have, close it or wait until another process
 * has. */
#include "net/world/view_world.h"

#include "base/clock.h"
#include "base/fpenv.h"
#include "base/states.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The process that closes the view looks this often, and more often when something has just
 * changed; others in a fraction of silence_s, because they are woken. */
#define CLOSER_FIRST_S 0.0005
#define CLOSER_S       0.02
#define AWAITING_S     0.05
enum { LOOKS_OF_SILENCE = 8 };

static const rpi_states world_next[] = {
    [RPI_WORLD_WAITING] = RPI_STATE(RPI_WORLD_MEMBER),
    [RPI_WORLD_MEMBER] = RPI_STATE(RPI_WORLD_MEMBER) | RPI_STATE(RPI_WORLD_LEFT_OUT),
    [RPI_WORLD_LEFT_OUT] = RPI_STATE(RPI_WORLD_LEFT_OUT),
};

/* One call of rp_world_next(). */
typedef struct visit {
    double timeout_s;
    int64_t deadline_ns;
    uint32_t making; /* that it has come to; 0: none yet */
    rpi_view_change_state state;
    int awaited;      /* rank of the view before */
    int seen, missed; /* members of the next view, and the awaited one, at the last wait */
    double pause_s;
} visit;

/* ---- the view that is closed ---- */

static void adopt(rp_world *world) {
    rp_view *view = &world->view;
    RPI_ENTER(world_next, world->state, RPI_WORLD_MEMBER);
    if (world->held.number) rpi_world_unmark(world, "meet", world->held.number, world->id);
    world->held = world->newest;
    *view = (rp_view){.number = world->held.number,
                      .rank = rpi_view_record_find(&world->held, world->id),
                      .count = world->held.count,
                      .left_count = world->held.left_count,
                      .members = world->held.members,
                      .left = world->held.left};
    for (int i = 0; i < view->count; i++) view->came += view->members[i].previous < 0;
    pthread_mutex_lock(&world->lock);
    world->says.lost = -1;
    atomic_store(&world->number, view->number); /* ranks lost later are lost in this view */
    pthread_mutex_unlock(&world->lock);
    atomic_store(&world->changing, false);
}

static const char *reason_of(const rp_world *world) {
    static const char *const reasons[] = {
        [RP_MEMBER_STAYS] = "was away while several views were made",
        [RP_MEMBER_LEFT] = "had said that it leaves",
        [RP_MEMBER_SILENT] = "had said nothing for longer than silence_s: stopped, or cut off",
        [RP_MEMBER_LOST] = "was lost by the others' communicators",
        [RP_MEMBER_LATE] = "had not come within late_after_s"};
    for (int i = 0; i < world->newest.left_count; i++)
        if (world->newest.left[i].id == world->id)
            return reasons[world->newest.left[i].departure];
    return reasons[RP_MEMBER_STAYS];
}

static rp_status left_out(rp_world *world) {
    RPI_ENTER(world_next, world->state, RPI_WORLD_LEFT_OUT);
    return RP_FAIL(STATE,
                   "world '%s' went on to view %" PRIu32 " without this process, which was "
                   "rank %d of view %" PRIu32 " and %s; close the world, and open it again to "
                   "come back as a new member",
                   world->name, world->newest.number, world->view.rank, world->held.number,
                   reason_of(world));
}

/* RP_PENDING: the newest view is not one for this process to return. */
static rp_status take_newest(rp_world *world) {
    const rpi_view_record *newest = &world->newest;
    if (world->state == RPI_WORLD_LEFT_OUT) return left_out(world);
    if (newest->number <= world->held.number) return RP_PENDING;
    if (rpi_view_record_find(newest, world->id) >= 0) {
        adopt(world);
        return RP_OK;
    }
    if (world->state == RPI_WORLD_MEMBER) return left_out(world);
    /* Others took it for dead before it could write anything. */
    if (world->id < newest->first) RP_TRY(rpi_world_take_id(world));
    return RP_PENDING;
}

/* ---- the view that is made ---- */

static rp_status say_making(rp_world *world, uint32_t number) {
    pthread_mutex_lock(&world->lock);
    world->says.making = number;
    pthread_mutex_unlock(&world->lock);
    return rpi_world_say(world);
}

static rp_status come(rp_world *world, visit *v) {
    uint32_t number = world->newest.number + 1;
    if (v->making == number) return RP_OK;
    v->making = number;
    v->missed = -1;
    v->pause_s = 0;
    RP_TRY(say_making(world, number));
    RP_TRY(rpi_world_mark(world, "meet", number, world->id));
    bool has_place = world->state == RPI_WORLD_MEMBER || world->newest.count < world->most;
    bool knocks = world->newest.number > 0 && has_place;
    return knocks ? rpi_world_mark(world, "knock", number, 0) : RP_OK;
}

/* Since the last look. Any time beyond the pauses between looks this process was away, in no
 * call or stopped, and others have not waited for it alone. */
static int64_t since_last_look(rp_world *world) {
    rpi_view_waits *waits = &world->waits;
    int64_t now_ns = rpi_now_ns(), most_ns = world->silence_ns / 4;
    if (waits->making != world->newest.number + 1)
        *waits = (rpi_view_waits){.making = world->newest.number + 1, .looked_ns = now_ns};
    int64_t since_ns = now_ns - waits->looked_ns;
    waits->looked_ns = now_ns;
    return since_ns < most_ns ? since_ns : most_ns;
}

static bool is_over(int64_t *waited_ns, int64_t since_ns, bool runs, double after_s) {
    *waited_ns = runs ? *waited_ns + since_ns : 0;
    return runs && rpi_seconds(*waited_ns) >= after_s;
}

static void decide(rp_world *world, visit *v) {
    rpi_view_change change = {.before = &world->newest,
                              .candidates = world->candidates,
                              .count = world->candidate_count,
                              .least = world->least,
                              .most = world->most,
                              .silence_ns = world->silence_ns};
    v->state = rpi_view_change_decide(&change, &world->next, &v->awaited);
    int64_t since_ns = since_last_look(world);
    bool members_here = world->next.count > 0 && world->next.members[0].previous >= 0;
    bool is_last_call = v->state == RPI_VIEW_CHANGE_LAST_CALL;
    change.late_are_left =
        is_over(&world->waits.late_ns, since_ns, members_here, world->late_after_s);
    change.last_call_over =
        is_over(&world->waits.call_ns, since_ns, is_last_call, world->last_call_s);
    if (change.late_are_left || change.last_call_over)
        v->state = rpi_view_change_decide(&change, &world->next, &v->awaited);
}

/* A view's first member closes it; others would write the same. */
static bool is_closer(const rp_world *world) {
    return world->next.count > 0 && world->next.members[0].id == world->id;
}

static rp_status close_view(rp_world *world) {
    uint32_t number = world->next.number;
    RP_TRY(rpi_world_propose(world));
    RP_TRY(rpi_world_mark(world, "closed", number, 0));
    if (number < 3) return RP_OK;
    rpi_world_unmark(world, "closed", number - 2, 0);
    rpi_world_unmark(world, "knock", number - 2, 0);
    return RP_OK;
}

/* The closer's pause until it looks again: short after a change. */
static double next_pause_s(const rp_world *world, visit *v) {
    bool is_new = v->seen != world->next.count || v->missed != v->awaited;
    v->pause_s = is_new || v->pause_s <= 0   ? CLOSER_FIRST_S
                 : 2 * v->pause_s < CLOSER_S ? 2 * v->pause_s
                                             : CLOSER_S;
    v->seen = world->next.count;
    v->missed = v->awaited;
    return v->pause_s;
}

/* The closer waits for the missing member, all others for the closer. One that was waited for
 * and has arrived at another view than this wakes nobody again. */
static rp_status wait_a_while(rp_world *world, visit *v) {
    bool closes = is_closer(world);
    bool awaits =
        closes && v->state == RPI_VIEW_CHANGE_AWAITS_MEMBERS && v->missed != v->awaited;
    double left_s = rpi_seconds(v->deadline_ns - rpi_now_ns());
    double wait_s =
        closes ? next_pause_s(world, v) : rpi_seconds(world->silence_ns) / LOOKS_OF_SILENCE;
    if (awaits) wait_s = AWAITING_S;
    if (left_s < wait_s) wait_s = left_s > 0 ? left_s : 0;
    if (awaits)
        return rpi_world_await_mark(world, "meet", v->making,
                                    world->newest.members[v->awaited].id, wait_s);
    return rpi_world_await_mark(world, "closed", v->making, 0, wait_s);
}

static rp_status timed_out(const rp_world *world, const visit *v) {
    const rpi_view_record *newest = &world->newest;
    if (v->state == RPI_VIEW_CHANGE_AWAITS_MEMBERS)
        return RP_FAIL(TIMEOUT,
                       "timed out: rank %d (%s) of view %" PRIu32 " of world '%s' did not come "
                       "to make view %" PRIu32 " within %g s, though it lives",
                       v->awaited, newest->members[v->awaited].name, newest->number,
                       world->name, v->making, v->timeout_s);
    if (v->state == RPI_VIEW_CHANGE_TOO_FEW)
        return RP_FAIL(TIMEOUT,
                       "timed out: %d of at least %d members have come to make view %" PRIu32
                       " of world '%s' within %g s",
                       world->next.count, world->least, v->making, world->name, v->timeout_s);
    bool has_place = rpi_view_record_find(&world->next, world->id) >= 0;
    return RP_FAIL(TIMEOUT, "timed out: view %" PRIu32 " of world '%s' %s within %g s",
                   v->making, world->name,
                   has_place ? "was not closed" : "had no place for this process",
                   v->timeout_s);
}

/* It may have been closed at this moment, with this process in it. */
static rp_status give_up(rp_world *world, uint32_t making, rp_status status) {
    rpi_kept_error reason;
    rpi_error_keep(&reason);
    rp_status read = say_making(world, 0);
    rpi_world_unmark(world, "meet", making, world->id);
    if (read == RP_OK) read = rpi_world_read(world);
    if (read == RP_OK && take_newest(world) == RP_OK) return RP_OK;
    rpi_error_put_back(&reason);
    return status;
}

/* Another thread may say so at any time. */
static rp_status check_leaving(rp_world *world) {
    pthread_mutex_lock(&world->lock);
    bool leaves = world->says.leaving;
    pthread_mutex_unlock(&world->lock);
    if (!leaves) return RP_OK;
    return RP_FAIL(STATE,
                   "this process has left world '%s': close it, and open it again to come back",
                   world->name);
}

/* RP_PENDING: once more. */
static rp_status take_part(rp_world *world, visit *v) {
    RP_TRY(check_leaving(world));
    RP_TRY(rpi_world_read(world));
    rp_status taken = take_newest(world);
    if (taken != RP_PENDING) return taken;
    RP_TRY(come(world, v));
    RP_TRY(rpi_world_look_around(world));
    decide(world, v);
    if (v->state == RPI_VIEW_CHANGE_READY && is_closer(world)) {
        RP_TRY(close_view(world));
        taken = take_newest(world);
        if (taken != RP_PENDING) return taken;
    }
    if (rpi_now_ns() >= v->deadline_ns) return timed_out(world, v);
    RP_TRY(wait_a_while(world, v));
    return RP_PENDING;
}

rp_status rp_world_next(rp_world *world, double timeout_s, const rp_view **out_view) {
    RPI_FPENV_SCOPE;
    if (!world) return RP_FAIL(INVALID, "world is NULL");
    if (!out_view) return RP_FAIL(INVALID, "there is nowhere to put the view");
    if (timeout_s != timeout_s) return RP_FAIL(INVALID, "timeout_s is not a number");
    visit v = {.timeout_s = timeout_s, .deadline_ns = rpi_deadline_ns(timeout_s), .missed = -1};
    rp_status status = RP_PENDING;
    while (status == RP_PENDING) status = take_part(world, &v);
    if (status != RP_OK && v.making && world->state != RPI_WORLD_LEFT_OUT)
        status = give_up(world, v.making, status);
    if (status == RP_OK) *out_view = &world->view;
    return status;
}

const rp_view *rp_world_view(const rp_world *world) {
    if (!world) {
        (void)RP_FAIL(INVALID, "world is NULL");
        return NULL;
    }
    return world->held.number ? &world->view : NULL;
}

int rp_world_changing(const rp_world *world) {
    if (!world) {
        (void)RP_FAIL(INVALID, "world is NULL");
        return 0;
    }
    return atomic_load(&world->changing);
}
