/* Verdicts on algorithm and topology against what becomes of ranks: every rule of the catalogue
 * over every topology of the table (add a row), with 1 to 16 ranks, simulated in doubles by
 * equations written out once more here, from random starts. */
#include "plan/gossip/gossip_fit.h"

#include "harness/check.h"
#include "plan/gossip/gossip_iteration.h"

enum { MOST = 16, STEPS = 6000 };

/* ---- the same iteration by other means ---- */

typedef double vectors[MOST];

typedef struct simulation {
    const char *rule;
    rpi_topology *topology;
    rpi_mixing mixing;
    int ranks;
    double step;                  /* rate times curvature */
    vectors x, psi, y, old, u, p; /* old: the gradient before */
} simulation;

static void mix(const simulation *s, const vectors from, vectors into) {
    vectors sums;
    for (int r = 0; r < s->ranks; r++) {
        rpi_edges in = rpi_mixing_in(&s->mixing, r);
        sums[r] = rpi_edge_weight(rpi_mixing_own(&s->mixing, r).list) * from[r];
        for (int e = 0; e < in.count; e++)
            sums[r] += rpi_edge_weight(&in.list[e]) * from[in.list[e].rank];
    }
    memcpy(into, sums, sizeof sums);
}

static void begin(simulation *s) {
    for (int r = 0; r < s->ranks; r++) {
        s->psi[r] = s->u[r] = s->x[r];
        s->y[r] = s->old[r] = s->step * s->x[r];
        s->p[r] = 1;
    }
}

static void track(simulation *s) {
    for (int r = 0; r < s->ranks; r++) {
        double g = s->step * s->x[r];
        s->y[r] += g - s->old[r];
        s->old[r] = g;
    }
}

static void divide(simulation *s) {
    mix(s, s->p, s->p);
    for (int r = 0; r < s->ranks; r++) s->x[r] = s->u[r] / s->p[r];
}

static void take_step(simulation *s) {
    vectors way, phi = {0};
    int n = s->ranks;
    for (int r = 0; r < n; r++) way[r] = s->x[r] - s->step * s->x[r];
    if (strcmp(s->rule, "atc") == 0 || strcmp(s->rule, "choco") == 0) {
        mix(s, way, s->x);
    } else if (strcmp(s->rule, "awc") == 0) {
        for (int r = 0; r < n; r++) way[r] = s->step * s->x[r];
        mix(s, s->x, s->x);
        for (int r = 0; r < n; r++) s->x[r] -= way[r];
    } else if (strcmp(s->rule, "exact-diffusion") == 0) {
        for (int r = 0; r < n; r++) phi[r] = way[r] + s->x[r] - s->psi[r];
        memcpy(s->psi, way, sizeof way);
        mix(s, phi, way);
        for (int r = 0; r < n; r++) s->x[r] = (way[r] + phi[r]) / 2;
    } else if (strcmp(s->rule, "gradient-tracking") == 0) {
        track(s);
        mix(s, s->x, s->x);
        for (int r = 0; r < n; r++) s->x[r] -= s->y[r];
        mix(s, s->y, s->y);
    } else if (strcmp(s->rule, "push-sum") == 0) {
        for (int r = 0; r < n; r++) s->u[r] -= s->step * s->x[r];
        mix(s, s->u, s->u);
        divide(s);
    } else if (strcmp(s->rule, "push-diging") == 0) {
        track(s);
        for (int r = 0; r < n; r++) s->u[r] -= s->y[r];
        mix(s, s->u, s->u);
        mix(s, s->y, s->y);
        divide(s);
    } else {
        CHECK_MSG(false, "%s has no equations here; write them", s->rule);
    }
}

/* The farthest two ranks are apart. */
static double apart(const simulation *s) {
    double least = s->x[0], most = s->x[0];
    for (int r = 1; r < s->ranks; r++) {
        if (s->x[r] < least) least = s->x[r];
        if (s->x[r] > most) most = s->x[r];
    }
    return most - least;
}

/* How far apart ranks are after so many steps, of 1 at first; NaN and infinite ones are far. */
static double distance_after(const char *rule, const char *text, int ranks, double step,
                             int steps) {
    simulation s = {.rule = rule, .ranks = ranks, .step = step};
    CHECK_OK(rpi_topology_open(text, ranks, &s.topology));
    for (int r = 0; r < ranks; r++) s.x[r] = sin(1 + 7.3 * r) + (r % 2);
    begin(&s);
    double first = apart(&s), last = first;
    for (int i = 0; i < steps && last < 1e6 * first && last > 1e-9 * first; i++) {
        if (i == 0 || s.topology->period != 1)
            CHECK_OK(rpi_topology_mix(s.topology, i, &s.mixing));
        take_step(&s);
        last = apart(&s);
        if (!isfinite(last)) last = INFINITY;
    }
    rpi_mixing_free(&s.mixing);
    rpi_topology_close(s.topology);
    return last / first;
}

/* ---- the table ---- */

static const char *const topologies[] = {
    "ring",
    "ring:direction=left",
    "ring:direction=right",
    "mesh",
    "torus",
    "star",
    "star:weights=sender",
    "full",
    "exponential",
    "exponential:base=3",
    "exponential:base=4,symmetric=on",
    "exponential:symmetric=on",
    "one-peer-exponential",
    "base",
    "base:k=2",
    "base:k=3",
    "equi",
    "equi:directed=off",
    "equi:degree=1",
    "equi:degree=2",
    "equi:degree=3,directed=off",
    "hierarchical:local=2,machines=base",
    "hierarchical:local=2,machines=ring",
    "inner-outer-ring:local=3",
    "inner-outer-expo:local=4",
};
enum { TOPOLOGIES = sizeof topologies / sizeof topologies[0] };

static void check_verdict(const rpi_gossip_rule *rule, const char *text, int ranks,
                          const rpi_gossip_fit *fit) {
    double alone = distance_after(rule->name, text, ranks, 0, STEPS);
    double slow = distance_after(rule->name, text, ranks, RPI_GOSSIP_LEAST_STEP, STEPS);
    if (rpi_gossip_fits(fit)) {
        CHECK_MSG(alone < .5, "%s, %s, %d: fits, and %g is left", rule->name, text, ranks,
                  alone);
        CHECK_MSG(slow < .5, "%s, %s, %d: fits, and %g is left of training", rule->name, text,
                  ranks, slow);
    } else if (fit->verdict == RPI_GOSSIP_DIVERGES) {
        CHECK_MSG(alone > .1, "%s, %s, %d: diverges by %g, and %g is left", rule->name, text,
                  ranks, fit->radius, alone);
    } else {
        CHECK_MSG(slow > 2, "%s, %s, %d: unstable, and %g is left", rule->name, text, ranks,
                  slow);
    }
}

static void try_one(const rpi_gossip_rule *rule, const char *text, int ranks,
                    int counts[RPI_GOSSIP_UNSTABLE + 1]) {
    rpi_topology *topology = NULL;
    rpi_gossip_fit fit, again;
    if (rpi_topology_open(text, ranks, &topology) != RP_OK) return; /* not for so many */
    CHECK_OK(rpi_gossip_examine(rule, topology, &fit));
    counts[fit.verdict]++;
    if (ranks > 1 && !isnan(fit.radius)) check_verdict(rule, text, ranks, &fit);
    rp_status status = rpi_gossip_check_fit(rule, topology, &again);
    CHECK((status == RP_OK) == rpi_gossip_fits(&fit));
    if (fit.verdict >= RPI_GOSSIP_DIVERGES)
        CHECK_MSG(strstr(rp_last_error()->message, rule->name) &&
                      strstr(rp_last_error()->message, text) &&
                      strstr(rp_last_error()->message, "take "),
                  "'%s'", rp_last_error()->message);
    rpi_topology_close(topology);
}

static void verdicts_are_what_becomes_of_ranks(void) {
    int counts[RPI_GOSSIP_UNSTABLE + 1] = {0};
    const rpi_gossip_rule *rule;
    for (int i = 0; (rule = rpi_gossip_rule_at(i)) != NULL; i++)
        for (int t = 0; t < TOPOLOGIES; t++)
            for (int ranks = 1; ranks <= MOST; ranks++)
                try_one(rule, topologies[t], ranks, counts);
    for (int v = 0; v <= RPI_GOSSIP_UNSTABLE; v++)
        printf("%s: %d\n", rpi_gossip_verdict_name((rpi_gossip_verdict)v), counts[v]);
    CHECK(counts[RPI_GOSSIP_DIVERGES] > 50 && counts[RPI_GOSSIP_UNSTABLE] > 10);
    CHECK(counts[RPI_GOSSIP_FITS] > 1000);
}

/* What an algorithm has when nothing is said fits, however many ranks there are or are left. */
static void own_topologies_fit_all_worlds(void) {
    const rpi_gossip_rule *rule;
    for (int i = 0; (rule = rpi_gossip_rule_at(i)) != NULL; i++)
        for (int ranks = 1; ranks <= 40; ranks++) {
            rpi_topology *topology = NULL;
            rpi_gossip_fit fit;
            REQUIRE_OK(rpi_topology_open(rule->topology, ranks, &topology));
            CHECK_OK(rpi_gossip_check_fit(rule, topology, &fit));
            rpi_topology_close(topology);
        }
}

/* ---- what is said ---- */

#define SLOW " bears a tenth of the learning rate that gradient descent does, or less: ranks "
#define FAST                                                                                   \
    "diverges at usual learning rates (it bears less than a twentieth of what gradient "
#define GROW "diverges: what they differ by grows "
#define BIAS " do not: its average would be biased; take another topology, or push-sum with "

/* The whole of what is told, to its end. */
static const struct {
    const char *rule, *topology;
    int ranks;
    const char *told; /* "": nothing */
} sayings[] = {
    {"exact-diffusion", "torus", 8, ""},
    {"gradient-tracking", "base", 8, ""},
    {"exact-diffusion", "ring:direction=left", 8,
     "exact-diffusion over topology ring:direction=left with 8 ranks " GROW
     "1.256 times in each step, at any learning rate; it needs one that is symmetric and "
     "stays the same; take torus, base, ring or exponential:symmetric=on"},
    {"exact-diffusion", "ring:direction=left", 12,
     "exact-diffusion over topology ring:direction=left with 12 ranks " GROW
     "1.246 times in each step, at any learning rate; it needs one that is symmetric and "
     "stays the same; take torus, ring, exponential:symmetric=on or star"},
    {"gradient-tracking", "ring:direction=left", 8,
     "gradient-tracking over topology ring:direction=left with 8 ranks " FAST
     "descent does); take base, ring, exponential:symmetric=on or star"},
    {"gradient-tracking", "torus", 8,
     "gradient-tracking over topology torus with 8 ranks" SLOW
     "drift apart above it; base, ring, exponential:symmetric=on or star bear more"},
    {"atc", "star:weights=sender", 4,
     "atc needs weights that sum to 1 for receivers and senders, and those of topology "
     "star:weights=sender" BIAS "weights=sender"},
    {"push-sum", "star:weights=uniform", 4,
     "push-sum needs a sender's weights, and those of topology star:weights=uniform do not "
     "sum to 1 for each sender; add weights=sender"},
    {"choco", "one-peer-exponential", 8,
     "choco keeps copies of its neighbours, which must stay the same, and topology "
     "one-peer-exponential changes them from round to round; take torus, ring or exponential"},
    {"atc", "ceca", 8, "ceca"}, /* in the topology's own words */
};

static void check_saying(const char *told, const char *wanted) {
    bool is_whole = strcmp(told, wanted) == 0, has_part = *wanted && strstr(told, wanted);
    CHECK_MSG(is_whole || (has_part && !strchr(wanted, ' ')), "'%s', not '%s'", told, wanted);
}

static void what_is_told_names_what_fits(void) {
    for (size_t i = 0; i < sizeof sayings / sizeof sayings[0]; i++) {
        const rpi_gossip_rule *rule = NULL;
        rpi_topology *topology = NULL;
        rpi_gossip_fit fit;
        char advice[RPI_GOSSIP_ADVICE];
        REQUIRE_OK(rpi_gossip_rule_find(sayings[i].rule, &rule));
        REQUIRE_OK(rpi_topology_open(sayings[i].topology, sayings[i].ranks, &topology));
        rp_status status = rpi_gossip_check_fit(rule, topology, &fit);
        if (status == RP_OK) rpi_gossip_advise(rule, topology, &fit, advice);
        check_saying(status == RP_OK ? advice : rp_last_error()->message, sayings[i].told);
        rpi_topology_close(topology);
    }
}

static double radius(const char *name, const char *text, int ranks, double step) {
    const rpi_gossip_rule *rule = NULL;
    rpi_topology *topology = NULL;
    double found = NAN;
    CHECK_OK(rpi_gossip_rule_find(name, &rule));
    CHECK_OK(rpi_topology_open(text, ranks, &topology));
    CHECK_OK(rpi_gossip_radius(rule, topology, step, 1, &found));
    rpi_topology_close(topology);
    return found;
}

static void check_near(double found, double wanted, double most, const char *what) {
    CHECK_MSG(fabs(found - wanted) < most, "%s: %.9f, not %.9f", what, found, wanted);
}

/* Eigenvalues that can be written down: of exact diffusion z^2 - 2 l z + l = 0 for an
 * eigenvalue l of (1 + W) / 2, so that |z|^2 = l; gradient tracking over the mean of all is
 * stable to 1/2.
 */
static void radii_are_those_of_closed_forms(void) {
    double ring = (1 + 2 * cos(2 * acos(-1) / 7)) / 3;
    check_near(radius("atc", "ring", 7, 0), ring, 1e-9, "a ring");
    check_near(radius("atc", "ring", 7, .3), .7 * ring, 1e-9, "a ring that descends");
    check_near(radius("exact-diffusion", "ring", 7, 0), sqrt((1 + ring) / 2), 1e-9,
               "exact diffusion");
    check_near(radius("push-sum", "ring:direction=right,weights=sender", 4, 0), sqrt(.5), 1e-9,
               "a ring that pushes");
    CHECK(radius("gradient-tracking", "full", 6, .49) < 1);
    CHECK(radius("gradient-tracking", "full", 6, .51) > 1);
    check_near(radius("exact-diffusion", "base", 5, 0), 1.0162, 1e-4, "base of 5");
    check_near(radius("exact-diffusion", "ring:direction=left", 11, 0), 1.2433, 1e-4,
               "one way");
}

/* Of more ranks than a matrix is made for. */
static void large_worlds_are_told_apart(void) {
    double ring = (1 + 2 * cos(2 * acos(-1) / 100)) / 3;
    CHECK(radius("atc", "ring", 400, 0) < 1);
    check_near(radius("exact-diffusion", "ring", 100, 0), sqrt((1 + ring) / 2), 2e-3, "of 100");
    check_near(radius("exact-diffusion", "ring:direction=left", 100, 0), 1.2559, 5e-3,
               "one way");
    CHECK(radius("exact-diffusion", "base", 300, 0) > 1.01);
    double full = radius("atc", "full", 200, 0); /* nothing is left of any difference */
    CHECK_MSG(full >= 0 && full < 1e-6, "%g", full);
    full = radius("atc", "full", 256, .5);
    CHECK_MSG(full >= 0 && full < 1e-6, "%g", full);
}

CASES({"verdicts_are_what_becomes_of_ranks", verdicts_are_what_becomes_of_ranks},
      {"own_topologies_fit_all_worlds", own_topologies_fit_all_worlds},
      {"what_is_told_names_what_fits", what_is_told_names_what_fits},
      {"radii_are_those_of_closed_forms", radii_are_those_of_closed_forms},
      {"large_worlds_are_told_apart", large_worlds_are_told_apart})
