/* All algorithms on decentralised least squares, simulated serially over topologies: first
 * iterates and limits as the papers' equations have them. f_i(x) = a_i (x - b_i)^2 / 2, a = 1 2
 * 3 4, b = 1 -1 2 .5: the optimum of all is 0.7. */
#include "plan/gossip/gossip_rule.h"

#include "harness/check.h"
#include "plan/topologies/topology.h"

enum { RANKS = 4 };

static const double a[RANKS] = {1, 2, 3, 4}, b[RANKS] = {1, -1, 2, .5};

typedef struct simulation {
    const rpi_gossip_rule *rule;
    rpi_topology *topology;
    rpi_mixing mixing;
    double rate, gamma;
    double at[RANKS][RPI_GOSSIP_SLOTS];
    double *slots[RANKS][RPI_GOSSIP_SLOTS];
    double p[RANKS];
    int64_t step;
} simulation;

static void set_gradients(simulation *s) {
    for (int r = 0; r < RANKS; r++)
        s->at[r][RPI_GOSSIP_GRADIENT] = a[r] * (s->at[r][RPI_GOSSIP_X] - b[r]);
}

static rpi_gossip_numbers numbers(const simulation *s, int rank) {
    return (rpi_gossip_numbers){.rate = s->rate, .p = s->p[rank], .gamma = s->gamma};
}

static void start(simulation *s, const char *rule, const char *topology, double rate) {
    *s = (simulation){.rate = rate, .gamma = 1};
    CHECK_OK(rpi_gossip_rule_find(rule, &s->rule));
    CHECK_OK(rpi_topology_open(topology, RANKS, &s->topology));
    for (int r = 0; r < RANKS; r++) {
        s->p[r] = 1;
        for (int k = 0; k < RPI_GOSSIP_SLOTS; k++) s->slots[r][k] = &s->at[r][k];
    }
    set_gradients(s);
    for (int r = 0; r < RANKS; r++) {
        rpi_gossip_numbers n = numbers(s, r);
        rpi_gossip_lines_f64(s->rule->begin, &n, 1, s->slots[r]);
    }
}

static void stop(simulation *s) {
    rpi_mixing_free(&s->mixing);
    rpi_topology_close(s->topology);
}

/* Row r of the round over what ranks have at `value`. */
static double mixed(const simulation *s, int r, const double *value, size_t stride) {
    rpi_edges in = rpi_mixing_in(&s->mixing, r);
    double sum =
        rpi_edge_weight(rpi_mixing_own(&s->mixing, r).list) * value[(size_t)r * stride];
    for (int e = 0; e < in.count; e++)
        sum += rpi_edge_weight(&in.list[e]) * value[(size_t)in.list[e].rank * stride];
    return sum;
}

static void exchange(simulation *s) {
    double p[RANKS];
    CHECK_OK(rpi_topology_mix(s->topology, s->step++, &s->mixing));
    for (int r = 0; r < RANKS; r++) {
        for (int k = 0; k < s->rule->sends; k++)
            s->at[r][RPI_GOSSIP_MIXED + k] =
                mixed(s, r, &s->at[0][RPI_GOSSIP_SENT + k], RPI_GOSSIP_SLOTS);
        p[r] = mixed(s, r, s->p, 1);
    }
    if (s->rule->pushes) memcpy(s->p, p, sizeof p);
}

static void run(simulation *s, int steps) {
    for (int i = 0; i < steps; i++) {
        for (int r = 0; r < RANKS; r++) {
            rpi_gossip_numbers n = numbers(s, r);
            rpi_gossip_lines_f64(s->rule->before, &n, 1, s->slots[r]);
        }
        exchange(s);
        for (int r = 0; r < RANKS; r++) {
            rpi_gossip_numbers n = numbers(s, r);
            rpi_gossip_lines_f64(s->rule->after, &n, 1, s->slots[r]);
        }
        set_gradients(s);
    }
}

static void check_x(const simulation *s, const double wanted[RANKS], const char *what) {
    for (int r = 0; r < RANKS; r++)
        CHECK_MSG(fabs(s->at[r][RPI_GOSSIP_X] - wanted[r]) < 1e-10,
                  "%s, %s: rank %d at %.12f, not %.12f", s->rule->name, what, r,
                  s->at[r][RPI_GOSSIP_X], wanted[r]);
}

static void iterates_are_those_of_the_equations(void) {
    static const struct {
        const char *rule;
        double rate;
        double x[3][RANKS];
    } cases[] = {
        {"awc",
         .1,
         {{.1, -.2, .6, .2},
          {.1233333333333, .0066666666667, .62, .42},
          {.271, .0486666666667, .7628888888889, .4197777777778}}},
        {"atc",
         .1,
         {{.0333333333333, .1666666666667, .2, .3},
          {.1477777777778, .2677777777778, .3511111111111, .4166666666667},
          {.2324074074074, .3643333333333, .4366666666667, .5095925925926}}},
        {"exact-diffusion",
         .1,
         {{.0666666666667, -.0166666666667, .4, .25},
          {.1461111111111, .1144444444444, .515, .4011111111111},
          {.2635925925926, .2817407407407, .5155185185185, .4633703703704}}},
        {"gradient-tracking",
         .05,
         {{.05, -.1, .3, .1},
          {.0308333333333, .1766666666667, .155, .28},
          {.242625, .1473333333333, .3184166666667, .1856666666667}}},
        {"choco", /* as atc with (1 + W) / 2 */
         .1,
         {{.0666666666667, -.0166666666667, .4, .25},
          {.1294444444444, .0311111111111, .6094444444444, .4066666666667},
          {.1891481481481, .0904444444444, .7292222222222, .5031851851852}}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        simulation s;
        start(&s, cases[c].rule, "ring", cases[c].rate);
        if (s.rule->copies) s.gamma = .5;
        for (int k = 0; k < 3; k++) {
            run(&s, 1);
            check_x(&s, cases[c].x[k], "iterate");
        }
        stop(&s);
    }
}

/* Of awc and atc the limits are biased where the data differ: solutions of
 * (I - W + rate A) x = rate A b, and of the same behind W. The others reach the optimum. */
static void limits_are_those_of_the_equations(void) {
    static const double awc[] = {.5879120879121, .3736263736264, .9835164835165,
                                 .6785714285714};
    static const double atc[] = {.5194116641, .6598255516, .6916367368, .7715067556};
    static const double best[] = {.7, .7, .7, .7};
    static const struct {
        const char *rule, *topology;
        double rate;
        const double *limit;
    } cases[] = {{"awc", "ring", .1, awc},
                 {"atc", "ring", .1, atc},
                 {"choco", "ring", .1, atc}, /* gamma is 1, and no codec */
                 {"exact-diffusion", "ring", .1, best},
                 {"exact-diffusion", "star", .1, best},
                 {"gradient-tracking", "ring", .05, best},
                 {"gradient-tracking", "one-peer-exponential", .02, best},
                 {"push-diging", "ring:direction=right,weights=sender", .1, best},
                 {"push-diging", "ring:direction=right,weights=sender", .02, best},
                 {"push-diging", "star:weights=sender", .02, best}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        simulation s;
        start(&s, cases[c].rule, cases[c].topology, cases[c].rate);
        run(&s, 20000);
        check_x(&s, cases[c].limit, cases[c].topology);
        stop(&s);
    }
}

/* Weights with the eigenvalue -0.8, with which the rule diverges unless it halves them. */
static void exact_diffusion_bears_negative_eigenvalues(void) {
    char path[512], text[600];
    snprintf(path, sizeof path, "%s/circulant.txt", check_folder());
    snprintf(text, sizeof text, "file:%s", path);
    FILE *file = fopen(path, "w");
    REQUIRE(file);
    fputs("matrix\n.1 .45 0 .45\n.45 .1 .45 0\n0 .45 .1 .45\n.45 0 .45 .1\n", file);
    fclose(file);
    simulation s;
    start(&s, "exact-diffusion", text, .1);
    run(&s, 20000);
    check_x(&s, (const double[]){.7, .7, .7, .7}, "limit");
    stop(&s);
}

/* The sum of tracked gradients is that of the gradients in every step. */
static void tracking_keeps_the_sum(void) {
    simulation s;
    start(&s, "gradient-tracking", "base", .05);
    for (int step = 0; step < 50; step++) {
        double tracked = 0, wanted = 0;
        for (int r = 0; r < RANKS; r++) wanted += s.at[r][RPI_GOSSIP_GRADIENT];
        run(&s, 1);
        for (int r = 0; r < RANKS; r++) tracked += s.at[r][RPI_GOSSIP_STATE];
        CHECK_NEAR(tracked, wanted, 1e-12);
    }
    stop(&s);
}

/* Without steps push-sum is averaging: on a graph that goes one way, whose senders' weights
 * alone would be biased, it finds the average, and p keeps its sum. */
static void push_sum_finds_the_average(void) {
    simulation s;
    double sum = 0;
    start(&s, "push-sum", "star:weights=sender", 0);
    for (int r = 0; r < RANKS; r++) s.at[r][RPI_GOSSIP_X] = s.at[r][RPI_GOSSIP_STATE] = r;
    run(&s, 200);
    check_x(&s, (const double[]){1.5, 1.5, 1.5, 1.5}, "average");
    for (int r = 0; r < RANKS; r++) sum += s.p[r];
    CHECK_NEAR(sum, RANKS, 1e-12);
    CHECK(s.p[0] > 1.5); /* the middle holds more than its share */
    stop(&s);
}

/* The catalogue says how many vectors there are, and floats do what doubles do. */
static void rules_are_sound(void) {
    const rpi_gossip_rule *rule, *found = NULL;
    for (int i = 0; (rule = rpi_gossip_rule_at(i)) != NULL; i++) {
        const rpi_gossip_line *lists[] = {rule->begin, rule->before, rule->after};
        CHECK_OK(rpi_gossip_rule_find(rule->name, &found));
        CHECK(found == rule && rule->summary[0] && rule->sends >= 1 && rule->sends <= 2);
        for (int l = 0; l < 3; l++) {
            float at[RPI_GOSSIP_SLOTS], *slots[RPI_GOSSIP_SLOTS];
            double exact[RPI_GOSSIP_SLOTS], *doubles[RPI_GOSSIP_SLOTS];
            for (int k = 0; k < RPI_GOSSIP_SLOTS; k++) {
                exact[k] = at[k] = (float)(k + 1) / 4;
                slots[k] = &at[k];
                doubles[k] = &exact[k];
            }
            rpi_gossip_numbers numbers = {.rate = .25, .p = 2, .gamma = .75};
            rpi_gossip_lines_f32(lists[l], &numbers, 1, slots);
            rpi_gossip_lines_f64(lists[l], &numbers, 1, doubles);
            for (int k = 0; k < RPI_GOSSIP_SLOTS; k++) CHECK_NEAR(at[k], exact[k], 1e-6);
            for (int k = 0; k < RPI_GOSSIP_LINES && lists[l][k].terms[0].halves; k++) {
                int into = lists[l][k].into;
                CHECK(into < RPI_GOSSIP_STATE + rule->states);
                CHECK(into != RPI_GOSSIP_SENT_2 || rule->sends == 2);
                CHECK(!lists[l][k].pushes || rule->pushes);
            }
        }
    }
    CHECK_FAILS(rpi_gossip_rule_find("act", &found), INVALID, "unknown gossip algorithm 'act'");
}

/* ---- the table: add a row. Rules of which the exchange waits for no gradient, and the vectors
 * that a step reads and writes where they lie in each other's memory ---- */

static void costs_are_those_of_the_lines(void) {
    static const struct {
        const char *rule;
        bool early;
        int passes;
    } rows[] = {
        {"awc", true, 3},               /* m, g -> x */
        {"atc", false, 5},              /* x, g -> x; m -> x */
        {"exact-diffusion", false, 10}, /* x, g, psi -> s; x, g -> psi; s, m -> x */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const rpi_gossip_rule *rule = NULL;
        CHECK_OK(rpi_gossip_rule_find(rows[i].rule, &rule));
        CHECK(rpi_gossip_rule_is_early(rule) == rows[i].early);
        CHECK_MSG(rpi_gossip_rule_passes(rule) == rows[i].passes, "%s: %d", rule->name,
                  rpi_gossip_rule_passes(rule));
    }
}

/* Many elements become what each becomes alone, also where vectors lie in the same memory. */
static void elements_do_not_meet(void) {
    enum { MANY = 1000 };
    static float many[RPI_GOSSIP_SLOTS][MANY], each[RPI_GOSSIP_SLOTS][MANY];
    const rpi_gossip_rule *rule;
    const rpi_gossip_numbers numbers = {.rate = .3, .p = 1.7, .gamma = .6};
    for (int r = 0; (rule = rpi_gossip_rule_at(r)) != NULL; r++) {
        float *slots[RPI_GOSSIP_SLOTS], *one[RPI_GOSSIP_SLOTS];
        for (int k = 0; k < RPI_GOSSIP_SLOTS; k++) {
            int at = k - RPI_GOSSIP_SENT;
            int lies = at >= 0 && at < 4 && rule->lies_in[at] ? rule->lies_in[at] - 1 : k;
            for (int i = 0; i < MANY; i++)
                many[k][i] = each[k][i] = (float)((i * 7 + k * 13) % 101) / 9 - 3;
            slots[k] = many[lies];
            one[k] = each[lies];
        }
        rpi_gossip_lines_f32(rule->before, &numbers, MANY, slots);
        rpi_gossip_lines_f32(rule->after, &numbers, MANY, slots);
        for (int i = 0; i < MANY; i++) {
            float *here[RPI_GOSSIP_SLOTS];
            for (int k = 0; k < RPI_GOSSIP_SLOTS; k++) here[k] = one[k] + i;
            rpi_gossip_lines_f32(rule->before, &numbers, 1, here);
            rpi_gossip_lines_f32(rule->after, &numbers, 1, here);
        }
        CHECK_MSG(memcmp(many, each, sizeof many) == 0, "%s", rule->name);
    }
}

CASES({"costs_are_those_of_the_lines", costs_are_those_of_the_lines},
      {"elements_do_not_meet", elements_do_not_meet},
      {"iterates_are_those_of_the_equations", iterates_are_those_of_the_equations},
      {"limits_are_those_of_the_equations", limits_are_those_of_the_equations},
      {"exact_diffusion_bears_negative_eigenvalues",
       exact_diffusion_bears_negative_eigenvalues},
      {"tracking_keeps_the_sum", tracking_keeps_the_sum},
      {"push_sum_finds_the_average", push_sum_finds_the_average},
      {"rules_are_sound", rules_are_sound})
