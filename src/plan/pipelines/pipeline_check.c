#include "plan/pipelines/pipeline_check.h"

#include "base/memory.h"
#include "base/status.h"
#include "plan/pipelines/pipeline_price.h"

#include <math.h>

/* ---- the order of one stage ---- */

/* Passes for weights have a count of their own. */
static rp_status check_micro_batches(const rpi_pipeline_orders *o, int stage) {
    int next[2][RPI_PIPELINE_CHUNKS] = {{0}};
    char text[RPI_PIPELINE_TEXT];
    for (int k = 0; k < o->each; k++) {
        int i = stage * o->each + k;
        const rpi_pipeline_pass *pass = &o->passes[i];
        if (pass->kind == RPI_PASS_FORWARD) continue;
        int *expected = &next[pass->kind == RPI_PASS_WEIGHTS][pass->chunk];
        if (pass->micro_batch != *expected)
            return RP_FAIL(INTERNAL, "%s: %s runs where micro-batch %d is next", o->kind->name,
                           rpi_pipeline_text_of(o, i, text), *expected);
        ++*expected;
    }
    return RP_OK;
}

int rpi_pipeline_most_kept(const rpi_pipeline_orders *o, int stage) {
    int kept = 0, most = 0;
    for (int k = 0; k < o->each; k++) {
        int kind = o->passes[stage * o->each + k].kind;
        if (kind == RPI_PASS_FORWARD) kept++;
        if (kept > most) most = kept;
        if (kind == RPI_PASS_BACKWARD || kind == RPI_PASS_WEIGHTS) kept--;
    }
    return most;
}

static rp_status check_kept(const rpi_pipeline_orders *o, int stage) {
    int most = rpi_pipeline_most_kept(o, stage);
    int promised = o->kind->kept(&o->shape, stage);
    if (most == promised) return RP_OK;
    return RP_FAIL(INTERNAL, "%s: stage %d keeps %d micro-batches, not %d", o->kind->name,
                   stage, most, promised);
}

/* ---- all stages, with room for so many messages a link ---- */

/* Messages from one stage to another, of one direction, that have been sent and not been used.
 */
typedef struct link {
    int count;
    int oldest; /* the pass of the sender from which on to look for the oldest one's */
} link;

typedef struct walk {
    const rpi_pipeline_orders *o;
    int room;    /* of a link */
    int *at;     /* [stages] passes that it has run */
    int *held;   /* [stages] what it could not send yet; -1: nothing */
    link *links; /* [stages][stages][2] */
} walk;

/* Where a message lies between the stages of two passes. */
static link *link_of(const walk *w, int sender, int receiver) {
    int stages = w->o->shape.stages, from = rpi_pipeline_stage_of(w->o, sender);
    int to = rpi_pipeline_stage_of(w->o, receiver);
    bool back = w->o->passes[sender].kind != RPI_PASS_FORWARD;
    return &w->links[((size_t)from * (size_t)stages + (size_t)to) * 2 + back];
}

/* false: there is no room for it. */
static bool send_held(walk *w, int stage) {
    int sender = w->held[stage];
    link *l = link_of(w, sender, rpi_pipeline_receiver(w->o, sender));
    if (l->count == w->room) return false;
    l->count++;
    w->held[stage] = -1;
    return true;
}

static bool goes_by(const walk *w, int sender, const link *l) {
    int receiver = rpi_pipeline_receiver(w->o, sender);
    return receiver >= 0 && link_of(w, sender, receiver) == l;
}

/* Is the input of this pass there, and the oldest of its link? Takes it. */
static bool take_input(walk *w, int stage, int pass) {
    int input = rpi_pipeline_input(w->o, pass);
    if (input < 0) return true;
    if (rpi_pipeline_stage_of(w->o, input) == stage)
        return input - stage * w->o->each < w->at[stage];
    link *l = link_of(w, input, pass);
    if (l->count == 0) return false;
    while (!goes_by(w, l->oldest, l)) l->oldest++;
    if (l->oldest != input) return false;
    l->oldest++;
    l->count--;
    return true;
}

/* What a stage could not send before, or else its next pass; false: it cannot be. */
static bool go_on(walk *w, int stage) {
    if (w->held[stage] >= 0) return send_held(w, stage);
    if (w->at[stage] == w->o->each) return false;
    int pass = stage * w->o->each + w->at[stage];
    if (!take_input(w, stage, pass)) return false;
    w->at[stage]++;
    if (rpi_pipeline_receiver(w->o, pass) >= 0) w->held[stage] = pass;
    return true;
}

static rp_status fail_stuck(const walk *w) {
    int stage = 0;
    char text[RPI_PIPELINE_TEXT];
    while (w->at[stage] == w->o->each && w->held[stage] < 0) stage++;
    bool sends = w->held[stage] >= 0;
    int pass = sends ? w->held[stage] : stage * w->o->each + w->at[stage];
    return RP_FAIL(INTERNAL, "%s: all wait for ever: %s %s", w->o->kind->name,
                   rpi_pipeline_text_of(w->o, pass, text),
                   sends ? "cannot be sent" : "has no input");
}

static rp_status walk_all(walk *w) {
    int stages = w->o->shape.stages;
    bool moved;
    do {
        moved = false;
        for (int s = 0; s < stages; s++)
            while (go_on(w, s)) moved = true;
    } while (moved);
    for (int s = 0; s < stages; s++)
        if (w->at[s] < w->o->each || w->held[s] >= 0) return fail_stuck(w);
    return RP_OK;
}

static void open_links(walk *w) {
    size_t stages = (size_t)w->o->shape.stages;
    for (size_t s = 0; s < stages; s++) w->held[s] = -1;
    for (size_t i = 0; i < 2 * stages * stages; i++)
        w->links[i].oldest = (int)(i / (2 * stages)) * w->o->each;
}

static rp_status check_links(const rpi_pipeline_orders *o) {
    size_t stages = (size_t)o->shape.stages;
    walk w = {.o = o, .room = rpi_pipeline_room(o->kind, &o->shape)};
    rp_status status = rpi_alloc_array(stages, sizeof *w.at, "a check", &w.at);
    if (status == RP_OK) status = rpi_alloc_array(stages, sizeof *w.held, "a check", &w.held);
    if (status == RP_OK)
        status = rpi_alloc_array(2 * stages * stages, sizeof *w.links, "a check", &w.links);
    if (status == RP_OK) {
        open_links(&w);
        status = walk_all(&w);
    }
    rpi_free(w.at);
    rpi_free(w.held);
    rpi_free(w.links);
    return status;
}

/* ---- its time ---- */

static rp_status check_time(const rpi_pipeline_orders *o) {
    double units[RPI_PIPELINE_STAGES];
    for (int s = 0; s < o->shape.stages; s++) units[s] = o->shape.chunks;
    rpi_pipeline_model model = {
        .entries = o->shape.stages, .forward_s = units, .inputs_s = units, .weights_s = units};
    rpi_pipeline_price price;
    RP_TRY(rpi_pipeline_price_make(o, &model, &price));
    double time = price.time_s, promised = (double)o->kind->unit_time(&o->shape);
    rpi_pipeline_price_free(&price);
    if (fabs(time - promised) < 1e-6) return RP_OK;
    return RP_FAIL(INTERNAL, "%s: is done after %.0f units, not %.0f", o->kind->name, time,
                   promised);
}

rp_status rpi_pipeline_check(rpi_pipeline_orders *o) {
    RP_TRY(rpi_pipeline_orders_index(o));
    for (int stage = 0; stage < o->shape.stages; stage++) RP_TRY(check_micro_batches(o, stage));
    RP_TRY(check_links(o));
    for (int stage = 0; stage < o->shape.stages; stage++) RP_TRY(check_kept(o, stage));
    return check_time(o);
}
