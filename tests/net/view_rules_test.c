/* Who is in the next view: known answers, and worlds in which processes come, look, decide by
 * what they saw some time ago, stop, go on and die in random order. */
#include "net/world/view_rules.h"

#include "base/rng.h"
#include "harness/check.h"

enum { SILENCE = 1000 };

/* ---- known answers ---- */

static rpi_view_record before, next;

/* "+ new view: members of the view before with ids 1, 2, ..., then others". */
typedef struct known {
    const char *about;
    int before;        /* members of view 4, with ids 1 to this */
    const char *says;  /* of ids 1, 2, ...: see statement_of() */
    int least, most;   /* 0: 1, and RP_WORLD_MOST */
    bool late, called; /* is over */
    rpi_view_change_state state;
    const char *members; /* ids, those of the view before with their rank behind */
    const char *left;    /* ids and departures */
    int awaited;
    uint32_t first; /* 0: any */
    int came;       /* so many of the members came with view 4: the last */
} known;

/* Of each process a letter: c has come, w works on, q has come and is silent, s is silent, l
 * has come and leaves, o leaves, x is not there, r (joiners) has come to the view before this;
 * 0 to 9: has come, and has lost that rank. */
static const known rows[] = {
    {"all have come", 3, "ccc", .state = RPI_VIEW_CHANGE_READY, .members = "1:0 2:1 3:2 ",
     .awaited = -1},
    {"one works on", 3, "cwc", .state = RPI_VIEW_CHANGE_AWAITS_MEMBERS, .members = "1:0 3:2 ",
     .awaited = 1},
    {"one does not come", 3, "cwc", .late = true, .state = RPI_VIEW_CHANGE_READY,
     .members = "1:0 3:2 ", .left = "2:4 ", .awaited = -1},
    {"the first is dead", 3, "scc", .state = RPI_VIEW_CHANGE_READY, .members = "2:1 3:2 ",
     .left = "1:2 ", .awaited = -1},
    {"one came and died", 3, "cqc", .state = RPI_VIEW_CHANGE_READY, .members = "1:0 3:2 ",
     .left = "2:2 ", .awaited = -1},
    {"one has left", 3, "ccx", .state = RPI_VIEW_CHANGE_READY, .members = "1:0 2:1 ",
     .left = "3:1 ", .awaited = -1},
    {"one leaves, another works", 3, "cow", .state = RPI_VIEW_CHANGE_AWAITS_MEMBERS,
     .members = "1:0 ", .left = "2:1 ", .awaited = 2},
    {"one is lost that would work", 3, "1wc", .state = RPI_VIEW_CHANGE_READY,
     .members = "1:0 3:2 ", .left = "2:3 ", .awaited = -1},
    {"one is lost that has come", 3, "c2c", .state = RPI_VIEW_CHANGE_READY,
     .members = "1:0 2:1 ", .left = "3:3 ", .awaited = -1},
    {"two have lost each other", 3, "c21", .state = RPI_VIEW_CHANGE_READY,
     .members = "1:0 2:1 ", .left = "3:3 ", .awaited = -1},
    {"a chain: who is lost is not heard", 4, "123c", .state = RPI_VIEW_CHANGE_READY,
     .members = "1:0 3:2 ", .left = "2:3 4:3 ", .awaited = -1},
    {"one has lost itself", 2, "c1", .state = RPI_VIEW_CHANGE_READY, .members = "1:0 2:1 ",
     .awaited = -1},
    {"a rank that is none", 2, "c7", .state = RPI_VIEW_CHANGE_READY, .members = "1:0 2:1 ",
     .awaited = -1},
    {"newcomers come behind", 2, "cccc", .state = RPI_VIEW_CHANGE_READY,
     .members = "1:0 2:1 3 4 ", .awaited = -1},
    {"newcomers wait for members", 2, "cwcc", .state = RPI_VIEW_CHANGE_AWAITS_MEMBERS,
     .members = "1:0 3 4 ", .awaited = 1},
    {"there is room for one", 2, "cccc", .most = 3, .state = RPI_VIEW_CHANGE_READY,
     .members = "1:0 2:1 3 ", .awaited = -1},
    {"a newcomer that is silent, one that leaves, one that works", 2, "ccqowlc",
     .state = RPI_VIEW_CHANGE_READY, .members = "1:0 2:1 7 ", .awaited = -1},
    {"a newcomer takes the place of one that died", 2, "csc", .most = 2,
     .state = RPI_VIEW_CHANGE_READY, .members = "1:0 3 ", .left = "2:2 ", .awaited = -1},
    {"too few are left", 3, "csx", .least = 2, .state = RPI_VIEW_CHANGE_TOO_FEW,
     .members = "1:0 ", .left = "2:2 3:1 ", .awaited = -1},
    {"a newcomer that came for the view before", 2, "ccr", .state = RPI_VIEW_CHANGE_READY,
     .members = "1:0 2:1 ", .awaited = -1},
    {"all members are dead", 2, "sxc", .state = RPI_VIEW_CHANGE_READY, .members = "3 ",
     .left = "1:2 2:1 ", .awaited = -1},
    {"nobody has come", 2, "ww", .state = RPI_VIEW_CHANGE_AWAITS_MEMBERS, .members = "",
     .awaited = 0},
    {"one stays, of others that were there nobody is looked at again", 1, "coxqsc",
     .state = RPI_VIEW_CHANGE_READY, .members = "1:0 6 ", .awaited = -1, .first = 7},
    {"one waits for a place, another has only opened", 2, "ccowcc", .most = 3,
     .state = RPI_VIEW_CHANGE_READY, .members = "1:0 2:1 5 ", .awaited = -1, .first = 4},
    {"a newcomer fell silent: others wait for one view", 3, "ccsc", .came = 1,
     .state = RPI_VIEW_CHANGE_READY, .members = "1:0 2:1 ", .left = "3:2 ", .awaited = -1,
     .first = 4},
    {"of two newcomers one fell silent", 3, "csccw", .came = 2, .state = RPI_VIEW_CHANGE_READY,
     .members = "1:0 3:2 ", .left = "2:2 ", .awaited = -1, .first = 4},
    {"a newcomer fell silent, and too few stay", 3, "scsc", .came = 1, .least = 2,
     .state = RPI_VIEW_CHANGE_READY, .members = "2:1 4 ", .left = "1:2 3:2 ", .awaited = -1},
    {"all were newcomers, and nobody stays", 2, "ssc", .came = 2,
     .state = RPI_VIEW_CHANGE_READY, .members = "3 ", .left = "1:2 2:2 ", .awaited = -1},
    {"a newcomer has left", 3, "ccoc", .came = 1, .state = RPI_VIEW_CHANGE_READY,
     .members = "1:0 2:1 4 ", .left = "3:1 ", .awaited = -1},
    {"a newcomer was lost", 3, "c2wc", .came = 1, .state = RPI_VIEW_CHANGE_READY,
     .members = "1:0 2:1 4 ", .left = "3:3 ", .awaited = -1},
    {"the first view waits for others", 0, "cc", .least = 2, .state = RPI_VIEW_CHANGE_LAST_CALL,
     .members = "1 2 ", .awaited = -1},
    {"the first view has waited", 0, "cc", .least = 2, .called = true,
     .state = RPI_VIEW_CHANGE_READY, .members = "1 2 ", .awaited = -1},
    {"the first view is full", 0, "ccc", .most = 2, .state = RPI_VIEW_CHANGE_READY,
     .members = "1 2 ", .awaited = -1},
    {"the first view has too few", 0, "cw", .least = 2, .called = true,
     .state = RPI_VIEW_CHANGE_TOO_FEW, .members = "1 ", .awaited = -1},
};

static bool statement_of(char letter, uint32_t making, rpi_view_candidate *out) {
    bool has_come = strchr("cql", letter) || (letter >= '0' && letter <= '9');
    *out = (rpi_view_candidate){.id = out->id,
                                .silent_ns = strchr("qs", letter) ? SILENCE : SILENCE - 1};
    out->says.making = has_come ? making : letter == 'r' ? making - 1 : 0;
    out->says.lost = letter >= '0' && letter <= '9' ? letter - '0' : -1;
    out->says.leaving = strchr("lo", letter) != NULL;
    snprintf(out->says.name, sizeof out->says.name, "m%u", out->id);
    return letter != 'x';
}

static void begin(int members, int came) {
    before = (rpi_view_record){.number = members ? 4 : 0, .count = members};
    for (int i = 0; i < members; i++) {
        before.members[i].id = (uint32_t)i + 1;
        before.members[i].previous = i < members - came ? i : -1;
        snprintf(before.members[i].name, RP_MEMBER_NAME, "m%d", i + 1);
    }
}

static const char *members_text(void) {
    static char text[200];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < next.count; i++) {
        const rp_member *m = &next.members[i];
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 m->previous < 0 ? "%u " : "%u:%d ", m->id, m->previous);
    }
    return text;
}

static const char *left_text(void) {
    static char text[200];
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < next.left_count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%u:%d ", next.left[i].id,
                                 (int)next.left[i].departure);
    return text;
}

static void known_answers(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const known *row = &rows[i];
        rpi_view_candidate candidates[16];
        int count = 0, awaited = -7;
        begin(row->before, row->came);
        for (int c = 0; row->says[c]; c++) {
            candidates[count].id = (uint32_t)c + 1;
            count += statement_of(row->says[c], before.number + 1, &candidates[count]);
        }
        rpi_view_change change = {.before = &before,
                                  .candidates = candidates,
                                  .count = count,
                                  .least = row->least ? row->least : 1,
                                  .most = row->most ? row->most : RP_WORLD_MOST,
                                  .silence_ns = SILENCE,
                                  .late_are_left = row->late,
                                  .last_call_over = row->called};
        rpi_view_change_state state = rpi_view_change_decide(&change, &next, &awaited);
        CHECK_MSG(state == row->state, "%s: state %d", row->about, (int)state);
        CHECK_MSG(strcmp(members_text(), row->members) == 0, "%s: members %s", row->about,
                  members_text());
        CHECK_MSG(strcmp(left_text(), row->left ? row->left : "") == 0, "%s: left %s",
                  row->about, left_text());
        CHECK_MSG(awaited == row->awaited, "%s: awaits %d", row->about, awaited);
        CHECK_EQ(next.number, before.number + 1);
        if (row->first) CHECK_EQ(next.first, row->first);
    }
}

/* ---- silence ---- */

static void silence_is_what_was_looked_at(void) {
    rpi_statement first = {.beats = 5}, second = {.beats = 6};
    rpi_view_candidate one = {.id = 1, .says = first};
    rpi_view_candidate_note(&one, &first, 1000, 50);
    CHECK_EQ(one.silent_ns, 0); /* never looked at before */
    rpi_view_candidate_note(&one, &first, 1030, 50);
    CHECK_EQ(one.silent_ns, 30);
    rpi_view_candidate_note(&one, &first, 9000, 50); /* we were away ourselves */
    CHECK_EQ(one.silent_ns, 80);
    rpi_view_candidate_note(&one, &second, 9010, 50);
    CHECK_EQ(one.silent_ns, 0);
    rpi_view_candidate_note(&one, &second, 9020, 50);
    CHECK_EQ(one.silent_ns, 10);
}

/* ---- random interleavings ---- */

enum { PROCESSES = 9, VIEWS = 60, STEPS = 1500 };

typedef struct process {
    uint32_t id; /* 0: it is not there */
    rpi_statement says;
    uint32_t held; /* the number of its view */
    bool stopped;  /* it does nothing until it goes on, or is dead */
    bool has_seen; /* what it saw some time ago, by which it decides: */
    rpi_view_record saw;
    rpi_view_candidate seen[PROCESSES * 4];
    int seen_count;
} process;

typedef struct sim {
    rpi_rng rng;
    process processes[PROCESSES];
    rpi_view_record record;              /* the store's */
    rpi_view_candidate statements[4096]; /* the store's: of all that ever came */
    int ids;
    rpi_view_record closed[VIEWS]; /* all that ever were, by number */
    bool is_quiet;                 /* nobody stops, nor is anybody too late */
    int closings;                  /* comparisons that won */
} sim;

static sim world;

static void say(process *p) {
    p->says.beats++;
    world.statements[p->id - 1] = (rpi_view_candidate){.id = p->id, .says = p->says};
}

static void arrive(process *p) {
    *p = (process){.id = (uint32_t)++world.ids, .says.lost = -1};
    snprintf(p->says.name, sizeof p->says.name, "p%u", p->id);
    say(p);
}

/* Silence is known: who is stopped or dead is silent to those that look now. */
static void look(process *p) {
    p->saw = world.record;
    p->seen_count = 0;
    for (int i = 0; i < PROCESSES; i++) {
        uint32_t least = UINT32_MAX;
        const process *who = NULL;
        for (int j = 0; j < PROCESSES; j++) {
            const process *one = &world.processes[j];
            bool is_later = p->seen_count == 0 || one->id > p->seen[p->seen_count - 1].id;
            bool is_candidate = rpi_view_record_candidate(&p->saw, one->id) == one->id;
            if (one->id && one->id < least && is_later && is_candidate) {
                least = one->id;
                who = one;
            }
        }
        if (!who) break;
        rpi_view_candidate *seen = &p->seen[p->seen_count++];
        *seen = world.statements[who->id - 1];
        seen->silent_ns = who->stopped ? SILENCE : 0;
    }
    p->has_seen = true;
}

static bool is_same(const rpi_view_record *a, const rpi_view_record *b) {
    static char x[RPI_VIEW_RECORD_BYTES], y[RPI_VIEW_RECORD_BYTES];
    rpi_view_record_write(a, x);
    rpi_view_record_write(b, y);
    return a->number == b->number && (a->number == 0 || strcmp(x, y) == 0);
}

/* What holds of each view at the moment when it is closed. */
static void check_closed(const rpi_view_record *old, const rpi_view_record *fresh) {
    static char text[RPI_VIEW_RECORD_BYTES];
    static rpi_view_record again;
    int last = -1;
    CHECK(fresh->number == old->number + 1 && fresh->count >= 1);
    for (int i = 0; i < fresh->count; i++) {
        const rp_member *m = &fresh->members[i];
        CHECK_EQ(m->previous, rpi_view_record_find(old, m->id));
        if (m->previous >= 0) {
            CHECK(m->previous > last && last < RP_WORLD_MOST); /* those that stay come first */
            last = m->previous;
        } else {
            last = RP_WORLD_MOST;
        }
    }
    int stay = 0;
    for (int i = 0; i < fresh->count; i++) stay += fresh->members[i].previous >= 0;
    CHECK_EQ(stay + fresh->left_count, old->count);
    rpi_view_record_write(fresh, text);
    CHECK_OK(rpi_view_record_read(text, &again));
}

/* Decide by what was seen, and compare and set. */
static void decide(process *p) {
    int awaited = 0;
    rpi_view_change change = {.before = &p->saw,
                              .candidates = p->seen,
                              .count = p->seen_count,
                              .least = 1,
                              .most = 5,
                              .silence_ns = SILENCE,
                              .late_are_left =
                                  !world.is_quiet && rpi_rng_below(&world.rng, 20) == 0,
                              .last_call_over = true};
    p->has_seen = false;
    bool ready = rpi_view_change_decide(&change, &next, &awaited) == RPI_VIEW_CHANGE_READY;
    bool closes = ready && next.count > 0 && next.members[0].id == p->id;
    if (!closes || !is_same(&p->saw, &world.record) || next.number >= VIEWS) return;
    check_closed(&world.record, &next);
    world.record = world.closed[next.number] = next;
    world.closings++;
}

/* One turn in rp_world_next(): what view_change.c does with a record. */
static void take_part(process *p) {
    const rpi_view_record *newest = &world.record;
    if (newest->number > p->held) {
        if (rpi_view_record_find(newest, p->id) >= 0) {
            p->held = newest->number;
            p->says.lost = -1;
            CHECK(is_same(newest, &world.closed[p->held]));
            return;
        }
        if (p->held > 0) {
            arrive(p); /* it was left out, and comes again */
            return;
        }
    }
    if (p->held == 0 && p->id < newest->first) {
        arrive(p); /* it was taken for dead while it waited */
        return;
    }
    if (p->says.making != newest->number + 1) {
        p->says.making = newest->number + 1;
        say(p);
    }
    if (p->has_seen)
        decide(p);
    else
        look(p);
}

static void go_on(void) {
    for (int i = 0; i < PROCESSES; i++) world.processes[i].stopped = false;
}

static void do_something(void) {
    process *p = &world.processes[rpi_rng_below(&world.rng, PROCESSES)];
    uint32_t what = rpi_rng_below(&world.rng, 100);
    if (!p->id) {
        if (what < 10) arrive(p);
    } else if (p->stopped) {
        if (what < 20) p->stopped = false;
        if (what >= 97) p->id = 0; /* it was dead */
    } else if (what < 3) {
        p->stopped = true;
    } else if (what < 5) {
        p->says.leaving = true;
        say(p);
        p->id = 0;
    } else if (what < 8 && p->held == world.record.number) {
        p->says.lost = (int)rpi_rng_below(&world.rng, 5);
        say(p);
    } else {
        take_part(p);
    }
}

/* Once all is quiet those that live find themselves in one view. */
static void settle(void) {
    go_on();
    world.is_quiet = true;
    for (int i = 0; i < PROCESSES; i++)
        if (world.processes[i].id) {
            world.processes[i].says.lost = -1;
            say(&world.processes[i]);
        }
    uint32_t first = world.record.number;
    for (int turn = 0; turn < 200 && world.record.number < first + 3; turn++)
        for (int i = 0; i < PROCESSES; i++)
            if (world.processes[i].id) take_part(&world.processes[i]);
    int living = 0, members = 0;
    for (int i = 0; i < PROCESSES; i++) {
        const process *p = &world.processes[i];
        living += p->id != 0;
        members += p->id && rpi_view_record_find(&world.record, p->id) >= 0;
    }
    CHECK_EQ(members, living < 5 ? living : 5);
}

static void views_agree_in_any_order(void) {
    for (uint64_t run = 0; run < 40 && !check_failures(); run++) {
        memset(&world, 0, sizeof world);
        world.rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, run);
        for (int i = 0; i < 5; i++) arrive(&world.processes[i]);
        for (int step = 0; step < STEPS && world.record.number < VIEWS - 10; step++)
            do_something();
        CHECK_EQ(world.closings, world.record.number);
        if (world.record.number < VIEWS - 10) settle();
    }
}

CASES({"known_answers", known_answers},
      {"silence_is_what_was_looked_at", silence_is_what_was_looked_at},
      {"views_agree_in_any_order", views_agree_in_any_order})
