/* Traces of spot nodes, read and played through. */
#include "plan/foresight/spot_replay.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"
#include "plan/foresight/failures.h"

#include <math.h>
#include <stdio.h>

static rp_status read_trace(const char *text, rpi_spot_trace *out) {
    static char copy[4096];
    snprintf(copy, sizeof copy, "%s", text);
    return rpi_spot_trace_parse(copy, out);
}

/* ---- known answers: add a row ---- */

#define EVENTS "second,event,node\n"
static const struct {
    const char *trace;
    rpi_spot_rules rules;
    double all, useful, lost, saving, standing, waiting, spare; /* node seconds, by hand */
} known[] = {
    /* Two nodes for 1000 s: 10 of work, 1 to save, 90 times, and 10 more; as a spreadsheet
     * writes it. */
    {"\xef\xbb\xbfsecond,nodes\n0,2\n1000,2\n",
     {2, 1, 10, 1, false, 0, false, 0, 0, NULL},
     2000,
     1820,
     0,
     180,
     0,
     0,
     0},
    /* It starts for 10 s, and one is lost at 100. */
    {"second,nodes\n0,2\n100,1\n200,1\n",
     {2, 1, 95, 0, false, 10, false, 0, 0, NULL},
     300,
     90,
     180,
     0,
     30,
     0,
     0},
    {"second,nodes\n0,2\n100,1\n200,1\n",
     {2, 1, 80, 5, false, 10, false, 0, 0, NULL},
     300,
     245,
     10,
     15,
     30,
     0,
     0},
    {"second,nodes\n0,2\n100,1\n200,1\n",
     {2, 1, 80, 5, true, 10, false, 0, 0, NULL},
     300,
     255,
     0,
     15,
     30,
     0,
     0},
    /* It needs both. */
    {"second,nodes\n0,2\n100,1\n200,2\n300,2\n",
     {2, 2, 50, 0, false, 0, false, 0, 0, NULL},
     500,
     400,
     0,
     0,
     0,
     100,
     0},
    /* A spare comes, and goes with one at work. */
    {"second,nodes\n0,2\n50,3\n100,2\n200,2\n",
     {2, 1, 30, 0, false, 0, false, 0, 0, NULL},
     450,
     380,
     20,
     0,
     0,
     0,
     50},
    /* A new change begins the restart anew. */
    {EVENTS "0,join,a\n8,join,b\n15,join,c\n40,lost,a\n40,lost,b\n50,lost,c\n",
     {9, 1, 100, 0, false, 10, false, 0, 0, NULL},
     8 + 14 + 75 + 10,
     0,
     45,
     0,
     8 + 14 + 30 + 10,
     0,
     0},
    /* Elastic: the joiner idles for 10 s, all stand for 5 s at the loss. */
    {EVENTS "0,join,a\n0,join,b\n100,join,c\n200,lost,b\n300,lost,a\n",
     {9, 1, 100, 0, false, 99, true, 5, 10, NULL},
     200 + 300 + 200,
     700 - 20 - 10 - 10,
     0,
     0,
     40,
     0,
     0},
    /* None is left: what was not saved is lost. */
    {"second,nodes\n0,2\n130,0\n200,1\n300,1\n",
     {2, 1, 100, 0, false, 0, true, 0, 0, NULL},
     360,
     300,
     60,
     0,
     0,
     0,
     0},
};
enum { KNOWN = sizeof known / sizeof known[0] };

static void traces_come_to_what_they_do_by_hand(void) {
    for (int i = 0; i < KNOWN; i++) {
        rpi_spot_trace t;
        REQUIRE_OK(read_trace(known[i].trace, &t));
        rpi_spot_account a = rpi_spot_replay(&t, &known[i].rules);
        rpi_free(t.changes);
        const double is[] = {a.all, a.useful, a.lost, a.saving, a.standing, a.waiting, a.spare};
        const double wanted[] = {known[i].all,    known[i].useful,   known[i].lost,
                                 known[i].saving, known[i].standing, known[i].waiting,
                                 known[i].spare};
        for (int k = 0; k < 7; k++)
            CHECK_MSG(fabs(is[k] - wanted[k]) < 1e-6, "trace %d, item %d: %g, not %g", i, k,
                      is[k], wanted[k]);
        double sum = a.useful + a.lost + a.saving + a.standing + a.waiting + a.spare;
        CHECK(fabs(sum - a.all) < 1e-6);
        CHECK(fabs(a.useful_s * (double)known[i].rules.most - a.useful) < 1e-6);
    }
}

/* ---- failures at random, beside the formula ---- */

/* A node is lost and another one joins in the same second, as exponential failures are. */
static void make_random(double every_s, int count, uint64_t seed, rpi_spot_change *changes) {
    rpi_rng rng = rpi_rng_make(seed, RPI_RNG_FORESIGHT, 0);
    double second = 0;
    for (int i = 0; i < count; i++) {
        changes[i] = (rpi_spot_change){second, 4, i ? 1 : 4, i ? 1 : 0};
        second -= every_s * log(((double)rpi_rng_u32(&rng) + .5) * 0x1p-32);
    }
}

static void failures_at_random_cost_what_the_formula_says(void) {
    static const struct {
        double every_s, interval_s, save_s, restart_s;
        bool notice_fits;
    } jobs[] = {{10800, 785.1, 30, 300, false},
                {3600, 445, 30, 120, false},
                {1800, 425.6, 60, 180, false},
                {1800, 425.6, 60, 180, true}};
    enum { COUNT = 60000 };
    rpi_spot_change *changes;
    REQUIRE_OK(rpi_alloc_array(COUNT, sizeof *changes, "a trace", &changes));
    for (int i = 0; i < (int)(sizeof jobs / sizeof jobs[0]); i++) {
        bool fits = jobs[i].notice_fits;
        double every_s = jobs[i].every_s, each_s = jobs[i].interval_s + jobs[i].save_s;
        rpi_failures f = {1 / every_s, 0, jobs[i].save_s, 0, jobs[i].restart_s};
        rpi_failure_account account;
        rpi_spot_rules rules = {
            4, 4,   jobs[i].interval_s, jobs[i].save_s, fits, jobs[i].restart_s, false, 0,
            0, NULL};
        make_random(every_s, COUNT, 7, changes);
        rpi_spot_account a = rpi_spot_replay(&(rpi_spot_trace){changes, COUNT}, &rules);
        REQUIRE_OK(rpi_failures_account(&f, jobs[i].interval_s, 1e9, &account));
        /* A notice keeps all work but saves, which lie L apart from each restart on: of a run
         * they are what an exponential leaves of (T, L), (L + T, 2 L), .. */
        double past = exp(-each_s / every_s), begun = exp(-jobs[i].interval_s / every_s);
        double kept = exp(-jobs[i].restart_s / every_s) * (1 - (begun - past) / (1 - past));
        double wanted = fits ? kept : account.goodput, share = a.useful / a.all;
        CHECK_MSG(fabs(share / wanted - 1) < .01, "job %d: %.5f of the time, not %.5f", i,
                  share, wanted);
    }
    rpi_free(changes);
}

static void the_best_interval_is_the_best_of_those_tried(void) {
    rpi_spot_trace t;
    REQUIRE_OK(read_trace("second,nodes\n0,2\n1000,1\n3000,2\n9000,1\n9999,1\n", &t));
    rpi_spot_rules r = {2, 1, 0, 10, false, 60, false, 0, 0, NULL};
    r.interval_s = rpi_spot_best_interval(&t, &r);
    double best = rpi_spot_replay(&t, &r).useful;
    for (double interval_s = 10; interval_s < 9999; interval_s *= 1.0289) {
        r.interval_s = interval_s;
        CHECK(rpi_spot_replay(&t, &r).useful <= best * 1.005);
    }
    rpi_free(t.changes);
}

/* ---- until the work is done: add a row ---- */

static const double thirds[] = {0, .25, 1}, pairs_only[] = {0, 0, 1};
static const struct {
    const char *trace;
    rpi_spot_rules rules;
    double work_s;
    double seconds, node_seconds, useful; /* by hand; seconds 0: it is never done */
} finishes[] = {
    /* 50 s of work, and each 10 of them a save of 1 s, the last of which is not needed. */
    {"second,nodes\n0,2\n1000,2\n",
     {2, 1, 10, 1, false, 0, false, 0, 0, NULL},
     50,
     54,
     108,
     100},
    /* Three times over, with a start of 10 s each time: 90, 90 and 20. */
    {"second,nodes\n0,2\n100,2\n",
     {2, 1, 500, 0, false, 10, false, 0, 0, NULL},
     200,
     230,
     460,
     400},
    /* Half a world does half as much, .. */
    {"second,nodes\n0,2\n100,1\n500,1\n",
     {2, 1, 10, 0, true, 0, false, 0, 0, NULL},
     150,
     200,
     300,
     300},
    /* .. or as much as is said, .. */
    {"second,nodes\n0,2\n100,1\n500,1\n",
     {2, 1, 10, 0, true, 0, false, 0, 0, thirds},
     150,
     300,
     400,
     400},
    /* .. or nothing: it waits for the trace to begin anew. */
    {"second,nodes\n0,2\n100,1\n500,1\n",
     {2, 1, 10, 0, true, 0, false, 0, 0, pairs_only},
     150,
     550,
     700,
     300},
    {"second,nodes\n0,2\n100,1\n500,1\n",
     {2, 1, 10, 0, true, 0, true, 0, 0, pairs_only},
     150,
     550,
     700,
     300},
    /* Done within a run whose end would lose it. */
    {"second,nodes\n0,2\n100,1\n101,2\n102,2\n",
     {2, 2, 1000, 0, false, 0, false, 0, 0, NULL},
     99,
     99,
     198,
     198},
    /* Each turn keeps nothing. */
    {"second,nodes\n0,2\n100,1\n110,1\n",
     {2, 2, 1000, 0, false, 0, false, 0, 0, NULL},
     101,
     0,
     0,
     0},
    {"second,nodes\n0,1\n100,1\n110,1\n",
     {2, 2, 10, 0, false, 0, false, 0, 0, NULL},
     1,
     0,
     0,
     0},
    /* Elastic: each who joins idles for 10 s. */
    {"second,nodes\n0,1\n100,2\n500,2\n",
     {2, 1, 10, 0, false, 0, true, 0, 10, NULL},
     90,
     150,
     200,
     180},
};
enum { FINISHES = sizeof finishes / sizeof finishes[0] };

static void work_is_done_when_it_is_by_hand(void) {
    for (int i = 0; i < FINISHES; i++) {
        rpi_spot_trace t;
        rpi_spot_finish f = {.seconds = 0};
        REQUIRE_OK(read_trace(finishes[i].trace, &t));
        bool is_done = rpi_spot_finish_find(&t, &finishes[i].rules, finishes[i].work_s, &f);
        CHECK_MSG(is_done == (finishes[i].seconds > 0), "row %d: done %d", i, is_done);
        CHECK_MSG(fabs(f.seconds - finishes[i].seconds) < 1e-6, "row %d: %.9g s, not %g", i,
                  f.seconds, finishes[i].seconds);
        CHECK_MSG(fabs(f.account.all - finishes[i].node_seconds) < 1e-6,
                  "row %d: %.9g node seconds, not %g", i, f.account.all,
                  finishes[i].node_seconds);
        CHECK_MSG(fabs(f.account.useful - finishes[i].useful) < 1e-6,
                  "row %d: %.9g useful, not %g", i, f.account.useful, finishes[i].useful);
        rpi_free(t.changes);
    }
}

/* Cut where it is done, a trace comes to the work that was asked for. */
static void a_trace_that_is_cut_comes_to_the_work(void) {
    rpi_spot_trace t;
    REQUIRE_OK(read_trace(
        "second,nodes\n0,3\n400,2\n700,4\n1500,1\n2000,0\n2100,4\n4000,3\n6000,3\n", &t));
    for (int i = 0; i < 80; i++) {
        rpi_spot_rules r = {4, 1 + i % 2, 100, 7, i % 3 == 0, 30, i % 5 == 0, 5, 60, NULL};
        rpi_spot_finish f;
        double work_s = 1 + i * 37;
        REQUIRE(rpi_spot_finish_find(&t, &r, work_s, &f));
        rpi_spot_change cut[16];
        int count = 0;
        if (f.seconds > 6000) continue;
        while (t.changes[count].second < f.seconds) {
            cut[count] = t.changes[count];
            count++;
        }
        cut[count++] = (rpi_spot_change){.second = f.seconds};
        rpi_spot_account a = rpi_spot_replay(&(rpi_spot_trace){cut, count}, &r);
        CHECK_MSG(fabs(a.useful_s - work_s) < 1e-6, "%d: %g, not %g", i, a.useful_s, work_s);
        CHECK(fabs(a.all - f.account.all) < 1e-6);
    }
    rpi_free(t.changes);
}

/* ---- what a table holds ---- */

static void a_trace_is_known_by_its_facts(void) {
    rpi_spot_trace t;
    REQUIRE_OK(read_trace(
        "# of mine\r\n second , zone, nodes \r\n\n0,x,3\n10,y,1\n10,z,2\n30,,0\n40,,0", &t));
    rpi_spot_facts f = rpi_spot_trace_facts(&t);
    CHECK(f.seconds == 40 && f.node_seconds == 70 && f.most_nodes == 3);
    CHECK(f.lost == 4 && f.bursts == 2 && f.largest_burst == 2);
    rpi_free(t.changes);
}

/* ---- what is refused: add a row ---- */

static const struct {
    const char *text, *why;
} wrong[] = {
    {"", "two seconds at least"},
    {"second,nodes\n", "two seconds at least"},
    {"second,nodes\n5,3\n", "two seconds at least"},
    {"second,nodes\n5,3\n5,4\n", "two seconds at least"},
    {"second\n1\n", "line 1: columns are second,nodes or second,event,node"},
    {"nodes,node\n1,2\n", "line 1: columns are"},
    {"second,event\n1,join\n", "line 1: columns are"},
    {"second,nodes,event,node\n1,1,join,a\n", "line 1: columns are"},
    {"second,nodes,nodes\n1,1,1\n", "line 1: the column nodes stands twice"},
    {"#\nsecond,nodes\n1,\n", "line 3: nodes is empty"},
    {"second,nodes\n1\n", "line 2: nodes is empty"},
    {"second,nodes\n,1\n", "line 2: second is empty"},
    {"second,nodes\n-1,1\n", "line 2: second: '-1' is not from 0"},
    {"second,nodes\nnan,1\n", "line 2: second: "},
    {"second,nodes\ninf,1\n", "line 2: second: "},
    {"second,nodes\n1e300,1\n", "line 2: second: "},
    {"second,nodes\n1,two\n", "line 2: nodes: "},
    {"second,nodes\n1,-2\n", "line 2: nodes: '-2' is not from 0"},
    {"second,nodes\n1,1.5\n", "line 2: nodes: 1.5 is no whole number"},
    {"second,nodes\n1,1,000\n", "line 2: 3 cells, and the first line names 2"},
    {"second,nodes\n1,1e12\n", "line 2: nodes: '1e12' is not from 0"},
    {"second,nodes\n9,1\n8,1\n", "line 3: second 8 is before 9 of a line above"},
    {EVENTS "1,joins,a\n", "line 2: event: 'joins' is not join or lost"},
    {EVENTS "1,join,\n", "line 2: node is empty"},
    {EVENTS "1,join,a\n2,join,a\n", "line 3: node a joins, and is there"},
    {EVENTS "1,join,a\n2,lost,b\n", "line 3: node b is lost, and is not there"},
    {EVENTS "1,join,a\n2,lost,a\n3,lost,a\n", "line 4: node a is lost, and is not there"},
    {"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,second,nodes\n", "16 columns are the most"},
};

static void what_is_no_trace_is_refused(void) {
    for (int i = 0; i < (int)(sizeof wrong / sizeof wrong[0]); i++) {
        rpi_spot_trace t;
        CHECK_FAILS(read_trace(wrong[i].text, &t), INVALID, wrong[i].why);
    }
}

static void lack_of_memory_is_said(void) {
    for (int i = 1; i <= 2; i++) {
        rpi_spot_trace t;
        (void)rpi_memory_fail_after(i);
        CHECK_FAILS(read_trace("second,nodes\n0,1\n1,1\n", &t), NOMEM, "no memory");
        (void)rpi_memory_fail_after(0);
    }
}

CASES({"traces come to what they do by hand", traces_come_to_what_they_do_by_hand},
      {"failures at random cost what the formula says",
       failures_at_random_cost_what_the_formula_says},
      {"the best interval is the best of those tried",
       the_best_interval_is_the_best_of_those_tried},
      {"work is done when it is by hand", work_is_done_when_it_is_by_hand},
      {"a trace that is cut comes to the work", a_trace_that_is_cut_comes_to_the_work},
      {"a trace is known by its facts", a_trace_is_known_by_its_facts},
      {"what is no trace is refused", what_is_no_trace_is_refused},
      {"lack of memory is said", lack_of_memory_is_said})
