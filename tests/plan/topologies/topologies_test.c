/* Every topology of the catalogue in worlds of all sizes, and the answers that their papers and
 * BlueFog give. */
#include "plan/topologies/topology.h"

#include "base/rng.h"
#include "harness/check.h"
#include "plan/topologies/topology_product.h"
#include "plan/topologies/topology_properties.h"

/* Weights of one round as doubles, W[i][j]: what i puts on the vector of j. */
enum { MOST = 64 };
typedef struct matrix {
    double at[MOST][MOST];
} matrix;

static void read_matrix(const rpi_mixing *mixing, matrix *m) {
    memset(m, 0, sizeof *m);
    for (int rank = 0; rank < mixing->ranks; rank++) {
        rpi_edges in = rpi_mixing_in(mixing, rank), own = rpi_mixing_own(mixing, rank);
        for (int e = 0; e < in.count; e++)
            m->at[rank][in.list[e].rank] = rpi_edge_weight(&in.list[e]);
        for (int e = 0; e < own.count; e++) m->at[rank][rank] = rpi_edge_weight(&own.list[e]);
    }
}

static void round_matrix(const char *text, int ranks, int64_t step, matrix *m) {
    rpi_topology *topology = NULL;
    rpi_mixing mixing = {0};
    memset(m, 0, sizeof *m);
    REQUIRE_OK(rpi_topology_open(text, ranks, &topology));
    CHECK_OK(rpi_topology_mix(topology, step, &mixing));
    read_matrix(&mixing, m);
    rpi_mixing_free(&mixing);
    rpi_topology_close(topology);
}

/* ---- every kind, every world ---- */

/* In rounds of several forms; %d is a divisor of the world, at least 3. */
static const char *const forms[] = {
    "ring",
    "ring:direction=left",
    "ring:direction=right,weights=sender",
    "mesh",
    "mesh:weights=uniform",
    "torus",
    "star",
    "star:centre=1,weights=sender",
    "star:weights=uniform",
    "full",
    "exponential",
    "exponential:base=3",
    "exponential:base=4,symmetric=on",
    "exponential:base=3,symmetric=on,weights=metropolis-hastings",
    "one-peer-exponential",
    "one-peer-exponential:base=3",
    "base",
    "base:k=2",
    "base:k=3",
    "base:k=4",
    "base:k=7",
    "ceca",
    "ceca:ports=1",
    "equi",
    "equi:directed=off,seed=7",
    "equi:degree=2",
    "equi:degree=2,directed=off",
    "hierarchical:local=%d",
    "hierarchical:local=%d,machines=ring:direction=left,weights=uniform",
    "inner-outer-ring:local=%d",
    "inner-outer-expo:local=%d",
};
enum { FORMS = sizeof forms / sizeof forms[0] };

static int divisor_of(int ranks) {
    for (int d = 3; d < ranks; d++)
        if (ranks % d == 0) return d;
    return ranks;
}

static bool opens(const char *form, int ranks, rpi_topology **out_topology) {
    char text[128];
    snprintf(text, sizeof text, form, divisor_of(ranks));
    rp_status status = rpi_topology_open(text, ranks, out_topology);
    CHECK_MSG(status == RP_OK || status == RP_INVALID, "%s of %d ranks: %s", text, ranks,
              rp_last_error()->message);
    return status == RP_OK;
}

/* The k-th edge into `to` is also one out of its source, with the same weight. */
static bool is_sent(const rpi_mixing *mixing, int to, const rpi_edge *edge) {
    rpi_edges out = rpi_mixing_out(mixing, edge->rank);
    for (int e = 0; e < out.count; e++)
        if (out.list[e].rank == to && out.list[e].from == edge->from &&
            out.list[e].into == edge->into)
            return out.list[e].weight.times == edge->weight.times &&
                   out.list[e].weight.over == edge->weight.over;
    return false;
}

static void check_round(const rpi_topology *topology, int64_t step, const rpi_mixing *mixing) {
    int in = 0, out = 0;
    for (int rank = 0; rank < mixing->ranks; rank++) {
        rpi_edges sources = rpi_mixing_in(mixing, rank), own = rpi_mixing_own(mixing, rank);
        in += sources.count;
        out += rpi_mixing_out(mixing, rank).count;
        CHECK(own.count >= 1 && own.count <= mixing->vectors * mixing->vectors);
        for (int e = 0; e < sources.count; e++) {
            const rpi_edge *edge = &sources.list[e];
            CHECK(edge->rank != rank && edge->rank >= 0 && edge->rank < mixing->ranks);
            CHECK(edge->weight.times > 0 && edge->weight.over > 0);
            CHECK(e == 0 || edge->rank >= edge[-1].rank);
            CHECK_MSG(is_sent(mixing, rank, edge), "%s of %d ranks, step %lld: %d -> %d",
                      topology->text, mixing->ranks, (long long)step, edge->rank, rank);
        }
    }
    CHECK_EQ(in, out);
}

/* Both ends of each edge agree on it, steps repeat after a period, and a step of another
 * number in the same mixing changes nothing. */
static void rounds_are_sound(void) {
    for (int f = 0; f < FORMS; f++)
        for (int ranks = 1; ranks <= 40; ranks++) {
            rpi_topology *topology = NULL;
            rpi_mixing mixing = {0};
            matrix first, again;
            if (!opens(forms[f], ranks, &topology)) continue;
            int64_t rounds = rpi_topology_rounds(topology);
            for (int64_t step = 0; step < rounds && step < 12; step++) {
                REQUIRE_OK(rpi_topology_mix(topology, step, &mixing));
                check_round(topology, step, &mixing);
                read_matrix(&mixing, &first);
                CHECK_OK(rpi_topology_mix(topology, step + topology->period, &mixing));
                read_matrix(&mixing, &again);
                CHECK(memcmp(&first, &again, sizeof first) == 0);
            }
            rpi_mixing_free(&mixing);
            rpi_topology_close(topology);
        }
}

/* Sums of both kinds, unless the form chooses one. */
static void sums_are_what_they_should_be(void) {
    for (int f = 0; f < FORMS; f++)
        for (int ranks = 2; ranks <= 36; ranks += ranks < 13 ? 1 : 12) {
            rpi_topology *topology = NULL;
            rpi_topology_properties p;
            if (!opens(forms[f], ranks, &topology)) continue;
            bool sender = strstr(forms[f], "sender") != NULL;
            bool uniform = strstr(forms[f], "star:weights=uniform") != NULL;
            bool two = topology->vectors == 2;
            REQUIRE_OK(rpi_topology_examine(topology, &p));
            CHECK_MSG(p.connected, "%s of %d ranks", topology->text, ranks);
            CHECK_MSG(p.rows || sender, "%s of %d ranks: rows", topology->text, ranks);
            CHECK_MSG(p.columns || uniform || two || strstr(forms[f], "mesh:weights=uniform"),
                      "%s of %d ranks: columns", topology->text, ranks);
            CHECK(!uniform || ranks <= 2 || !p.columns);
            CHECK(!sender || strstr(forms[f], "ring") || ranks <= 2 || !p.rows);
            CHECK(!two || !p.columns);
            if (strncmp(forms[f], "base", 4) == 0) CHECK(p.symmetric);
            if (strcmp(forms[f], "one-peer-exponential") == 0) CHECK(p.most_out <= 1);
            rpi_topology_close(topology);
        }
}

/* ---- exact averages ---- */

static void check_exact(const char *form, int ranks, int64_t rounds) {
    rpi_topology *topology = NULL;
    bool averages = false, fits = false;
    char text[64];
    snprintf(text, sizeof text, form, divisor_of(ranks));
    REQUIRE_OK(rpi_topology_open(text, ranks, &topology));
    if (rounds) CHECK_EQ(topology->period, rounds);
    CHECK_OK(rpi_topology_averages(topology, topology->period, &averages, &fits));
    CHECK_MSG(averages && fits, "%s of %d ranks is not exact after %lld rounds%s", text, ranks,
              (long long)topology->period, fits ? "" : " (overflow)");
    rpi_topology_close(topology);
}

static int log2_up(int number) {
    int count = 0;
    while (1 << count < number) count++;
    return count;
}

/* Rounds of Base-(k+1) for 2 to 64 ranks; a digit each, a is 10. */
static const char *const base_rounds[] = {
    "13254537"
    "6757674989"
    "7989698979"
    "895bab9bab"
    "8bab9bab7b"
    "ab9bab8bab"
    "9bab6",
    "11232432"
    "4535544536"
    "5566466367"
    "5756674776"
    "6767757757"
    "7677487788"
    "68866",
    "11132322"
    "4424442535"
    "4455355345"
    "5535663665"
    "5656556636"
    "6656465666"
    "56653",
    "11112322"
    "2424422434"
    "2444325345"
    "3535543555"
    "3555535535"
    "3556455566"
    "36653",
};

static void base_is_exact(void) {
    for (int k = 1; k <= 4; k++)
        for (int ranks = 2; ranks <= 64; ranks++) {
            char text[16], digit = base_rounds[k - 1][ranks - 2];
            snprintf(text, sizeof text, "base:k=%d", k);
            check_exact(text, ranks, digit >= 'a' ? digit - 'a' + 10 : digit - '0');
        }
    check_exact("base", 1, 1);
    for (int ranks = 65; ranks <= 140; ranks += 3) check_exact("base:k=1", ranks, 0);
    check_exact("base:k=2", 243, 5); /* 3^5, where floating logarithms err */
    check_exact("base:k=1", 256, 8);
    check_exact("base:k=12", 169, 2);
    check_exact("base:k=63", 64, 1);
}

static void others_are_exact(void) {
    for (int ranks = 2; ranks <= 64; ranks++) {
        check_exact("full", ranks, 1);
        check_exact("ceca", ranks, log2_up(ranks));
        check_exact("hierarchical:local=%d", ranks, 0);
        if (ranks % 2 == 0) check_exact("ceca:ports=1", ranks, log2_up(ranks));
        if ((ranks & (ranks - 1)) == 0)
            check_exact("one-peer-exponential", ranks, log2_up(ranks));
    }
}

/* Any log2(n) rounds in a row of one-peer exponential are exact, and every whole period of base
 * that follows a broken one. */
static void exact_from_the_middle(void) {
    rpi_topology *topology = NULL;
    rpi_mixing mixing = {0};
    rpi_product product = {0};
    REQUIRE_OK(rpi_topology_open("one-peer-exponential", 16, &topology));
    REQUIRE_OK(rpi_product_open(topology, &product));
    for (int step = 3; step < 7; step++) {
        CHECK_OK(rpi_topology_mix(topology, step, &mixing));
        rpi_product_apply(&product, &mixing);
        CHECK((step == 6) == rpi_product_averages(&product, &mixing, 0));
    }
    rpi_product_close(&product);
    rpi_mixing_free(&mixing);
    rpi_topology_close(topology);
}

/* ---- known rounds ---- */

typedef struct known {
    int a, b;
    double weight;
} known;

static void check_edges(const char *text, int ranks, int64_t step, const known *edges) {
    matrix m, wanted = {{{0}}};
    round_matrix(text, ranks, step, &m);
    for (; edges->weight > 0; edges++)
        wanted.at[edges->a][edges->b] = wanted.at[edges->b][edges->a] = edges->weight;
    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < ranks; j++)
            if (i != j)
                CHECK_MSG(fabs(m.at[i][j] - wanted.at[i][j]) < 1e-15,
                          "%s of %d ranks, step %lld: %d -> %d has %g, not %g", text, ranks,
                          (long long)step, j, i, m.at[i][j], wanted.at[i][j]);
}

static void base_has_the_rounds_of_the_paper(void) {
    static const known five[5][4] = {{{0, 1, .5}, {2, 3, .5}},
                                     {{0, 2, .5}, {1, 3, .5}},
                                     {{0, 1, .5}, {3, 4, .8}},
                                     {{0, 1, .5}, {2, 3, .5}},
                                     {{0, 2, .5}, {1, 3, .5}}};
    static const known six[4][4] = {{{0, 1, .5}, {3, 4, .5}},
                                    {{1, 2, 2. / 3}, {4, 5, 2. / 3}},
                                    {{0, 1, .5}, {3, 4, .5}},
                                    {{0, 3, .5}, {1, 4, .5}, {2, 5, .5}}};
    static const known seven[5][4] = {{{0, 1, .5}, {2, 3, .5}, {4, 5, .5}},
                                      {{0, 2, .5}, {1, 3, .5}, {4, 5, .5}},
                                      {{1, 5, 4. / 7}, {2, 4, 4. / 7}, {3, 6, 4. / 7}},
                                      {{0, 1, .5}, {2, 3, .5}, {5, 6, 2. / 3}},
                                      {{0, 2, .5}, {1, 3, .5}, {4, 5, .5}}};
    static const known seven_by_two[4][8] = {
        {{0, 1, .5}, {2, 3, .5}, {4, 5, .5}},
        {{0, 2, 1. / 3},
         {2, 4, 1. / 3},
         {0, 4, 1. / 3},
         {1, 3, 1. / 3},
         {3, 5, 1. / 3},
         {1, 5, 1. / 3}},
        {{0, 1, 1. / 3}, {1, 3, 1. / 3}, {0, 3, 1. / 3}, {2, 6, 3. / 7}, {5, 6, 3. / 7}},
        {{0, 1, 1. / 3},
         {1, 2, 1. / 3},
         {0, 2, 1. / 3},
         {3, 4, 1. / 3},
         {4, 5, 1. / 3},
         {3, 5, 1. / 3}}};
    static const known meeting[] = {{15, 24, .64},
                                    {14, 16, .64},
                                    {13, 17, .64},
                                    {12, 18, .64},
                                    {11, 19, .64},
                                    {10, 20, .64},
                                    {9, 21, .64},
                                    {8, 22, .64},
                                    {7, 23, .64},
                                    {0, 1, .5},
                                    {2, 3, .5},
                                    {4, 5, .5},
                                    {0}};
    for (int t = 0; t < 5; t++) check_edges("base", 5, t, five[t]);
    for (int t = 0; t < 4; t++) check_edges("base", 6, t, six[t]);
    for (int t = 0; t < 5; t++) check_edges("base:k=1", 7, t, seven[t]);
    for (int t = 0; t < 4; t++) check_edges("base:k=2", 7, t, seven_by_two[t]);
    check_edges("base", 25, 4, meeting);
}

/* x = 0 ... 5: what rank 0 has after each round. */
static void ceca_has_the_means_of_the_paper(void) {
    static const double a_of_0[] = {2.5, 3, 2.5}, b_of_0[] = {5, 4.5, 3};
    rpi_topology *topology = NULL;
    rpi_mixing mixing = {0};
    rpi_product product = {0};
    REQUIRE_OK(rpi_topology_open("ceca", 6, &topology));
    REQUIRE_OK(rpi_product_open(topology, &product));
    for (int step = 0; step < 3; step++) {
        double a = 0, b = 0;
        CHECK_OK(rpi_topology_mix(topology, step, &mixing));
        rpi_product_apply(&product, &mixing);
        for (int i = 0; i < 6; i++) {
            a += product.at[2 * i] * i;
            b += product.at[12 + 2 * i] * i;
        }
        CHECK_NEAR(a, a_of_0[step], 1e-14);
        CHECK_NEAR(b, b_of_0[step], 1e-14);
        CHECK_EQ(rpi_edges_ranks(rpi_mixing_in(&mixing, 0)), 1);
        CHECK_EQ(rpi_edges_ranks(rpi_mixing_out(&mixing, 0)), 1);
    }
    rpi_product_close(&product);
    rpi_mixing_free(&mixing);
    rpi_topology_close(topology);
}

static void check_neighbours(const char *text, int ranks, bool in, const int *wanted) {
    rpi_topology *topology = NULL;
    rpi_mixing mixing = {0};
    REQUIRE_OK(rpi_topology_open(text, ranks, &topology));
    CHECK_OK(rpi_topology_mix(topology, 0, &mixing));
    rpi_edges got = in ? rpi_mixing_in(&mixing, 0) : rpi_mixing_out(&mixing, 0);
    int count = 0;
    for (; wanted[count] >= 0; count++)
        CHECK(count < got.count && got.list[count].rank == wanted[count]);
    CHECK_EQ(got.count, count);
    rpi_mixing_free(&mixing);
    rpi_topology_close(topology);
}

/* Of rank 0, as BlueFog's constructors have them. */
static void neighbours_are_those_of_bluefog(void) {
    check_neighbours("exponential", 8, true, (const int[]){4, 6, 7, -1});
    check_neighbours("exponential", 8, false, (const int[]){1, 2, 4, -1});
    check_neighbours("exponential:base=3", 12, false, (const int[]){1, 3, 9, -1});
    check_neighbours("exponential:base=4,symmetric=on", 12, false,
                     (const int[]){1, 4, 8, 11, -1});
    check_neighbours("ring:direction=left", 5, true, (const int[]){1, -1});
    check_neighbours("ring:direction=left", 5, false, (const int[]){4, -1});
    check_neighbours("ring:direction=right", 5, true, (const int[]){4, -1});
    check_neighbours("mesh", 12, true, (const int[]){1, 4, -1});
    check_neighbours("mesh:shape=2x6", 12, true, (const int[]){1, 6, -1});
    check_neighbours("torus", 12, true, (const int[]){1, 3, 4, 8, -1});
    check_neighbours("torus", 6, true, (const int[]){1, 2, 3, -1});
    check_neighbours("torus", 5, true, (const int[]){1, 4, -1});
    check_neighbours("star:centre=3", 5, true, (const int[]){3, -1});
}

/* The sources of BlueFog's inner-outer iterators are said apart from the destinations. */
static void inner_outer_receives_from_whom_it_should(void) {
    for (int machines = 2; machines <= 8; machines++)
        for (int local = 3; local <= 8; local++) {
            char text[48];
            snprintf(text, sizeof text, "inner-outer-expo:local=%d", local);
            rpi_topology *topology = NULL;
            rpi_mixing mixing = {0};
            REQUIRE_OK(rpi_topology_open(text, machines * local, &topology));
            for (int t = 0; t < topology->period && t < 60; t++) {
                int o = t % local, d = 1, outside = 1, turns = 0;
                for (int left = local - 2; left > 1; left /= 2) turns++;
                d <<= t % (turns + 1);
                turns = 0;
                for (int left = machines - 1; left > 1; left /= 2) turns++;
                outside <<= t % (turns + 1);
                CHECK_OK(rpi_topology_mix(topology, t, &mixing));
                for (int rank = 0; rank < machines * local; rank++) {
                    int m = rank / local, l = rank % local;
                    int back = d >= (l - o + local) % local ? d + 1 : d;
                    int from =
                        l == o ? ((m - outside) % machines + machines) % machines * local + l
                               : m * local + (l - back + local) % local;
                    rpi_edges in = rpi_mixing_in(&mixing, rank);
                    REQUIRE(in.count == 1);
                    CHECK_EQ(in.list[0].rank, from);
                    CHECK_EQ(in.list[0].weight.over, 2);
                }
            }
            rpi_mixing_free(&mixing);
            rpi_topology_close(topology);
        }
}

/* ---- weights ---- */

static void rules_give_their_weights(void) {
    matrix m;
    round_matrix("star:centre=1", 4, 0, &m);
    CHECK_NEAR(m.at[0][1], .25, 0);
    CHECK_NEAR(m.at[0][0], .75, 0);
    CHECK_NEAR(m.at[1][1], .25, 0);
    round_matrix("star:weights=uniform", 4, 0, &m);
    CHECK_NEAR(m.at[1][0], .5, 0);
    CHECK_NEAR(m.at[0][1], .25, 0);
    round_matrix("star:weights=sender", 5, 0, &m); /* x = 0 ... 4 becomes 5, .5, 1, 1.5, 2 */
    CHECK_NEAR(m.at[1][0], .2, 0);
    CHECK_NEAR(m.at[0][1], .5, 0);
    CHECK_NEAR(m.at[1][1], .5, 0);
    round_matrix("ring", 2, 0, &m);
    CHECK_NEAR(m.at[0][1], .5, 0);
    round_matrix("mesh", 6, 0, &m); /* 0 1 2 over 3 4 5: three neighbours in the middle */
    CHECK_NEAR(m.at[0][1], .25, 0);
    CHECK_NEAR(m.at[0][3], 1. / 3, 1e-16);
    CHECK_NEAR(m.at[0][0], 1 - .25 - 1. / 3, 1e-15);
}

/* What unweighted averaging on graphs of unequal degrees converges to, as BlueFog's does. */
static void uniform_weights_are_biased(void) {
    static const double x4[] = {0, 1, 2, 3}, x6[] = {10, 1, 2, 3, 4, 5};
    static const struct {
        const char *text;
        int ranks;
        const double *x;
        double limit;
    } cases[] = {{"star:weights=uniform", 4, x4, 1.2},
                 {"star", 4, x4, 1.5},
                 {"mesh:weights=uniform", 6, x6, 4},
                 {"mesh", 6, x6, 25. / 6}};
    for (int c = 0; c < 4; c++) {
        rpi_topology *topology = NULL;
        rpi_mixing mixing = {0};
        rpi_product product = {0};
        REQUIRE_OK(rpi_topology_open(cases[c].text, cases[c].ranks, &topology));
        REQUIRE_OK(rpi_product_open(topology, &product));
        CHECK_OK(rpi_topology_mix(topology, 0, &mixing));
        for (int i = 0; i < 400; i++) rpi_product_apply(&product, &mixing);
        for (int rank = 0; rank < cases[c].ranks; rank++) {
            double y = 0;
            for (int i = 0; i < cases[c].ranks; i++)
                y += product.at[rank * cases[c].ranks + i] * cases[c].x[i];
            CHECK_NEAR(y, cases[c].limit, 1e-12);
        }
        rpi_product_close(&product);
        rpi_mixing_free(&mixing);
        rpi_topology_close(topology);
    }
}

/* The mean square of what is left after a round, over shifts as they are drawn. */
static void equi_forgets_as_the_paper_says(void) {
    enum { STEPS = 20000 };
    for (int ranks = 5; ranks <= 20; ranks += 15) {
        rpi_topology *topology = NULL;
        rpi_mixing mixing = {0};
        double mean = 0, wanted = (ranks - 2.) / (2 * (ranks - 1.));
        REQUIRE_OK(rpi_topology_open("equi", ranks, &topology));
        for (int step = 0; step < STEPS; step++) {
            double left = 0, all = 0;
            CHECK_OK(rpi_topology_mix(topology, step, &mixing));
            for (int rank = 0; rank < ranks; rank++) {
                int source = rpi_mixing_in(&mixing, rank).list[0].rank;
                double x = rank - (ranks - 1) / 2., y = source - (ranks - 1) / 2.;
                left += (x + y) * (x + y) / 4;
                all += x * x;
            }
            mean += left / all / STEPS;
        }
        CHECK_NEAR(mean, wanted, .02 * wanted);
        rpi_mixing_free(&mixing);
        rpi_topology_close(topology);
    }
}

CASES({"rounds_are_sound", rounds_are_sound},
      {"sums_are_what_they_should_be", sums_are_what_they_should_be},
      {"base_is_exact", base_is_exact}, {"others_are_exact", others_are_exact},
      {"exact_from_the_middle", exact_from_the_middle},
      {"base_has_the_rounds_of_the_paper", base_has_the_rounds_of_the_paper},
      {"ceca_has_the_means_of_the_paper", ceca_has_the_means_of_the_paper},
      {"neighbours_are_those_of_bluefog", neighbours_are_those_of_bluefog},
      {"inner_outer_receives_from_whom_it_should", inner_outer_receives_from_whom_it_should},
      {"rules_give_their_weights", rules_give_their_weights},
      {"uniform_weights_are_biased", uniform_weights_are_biased},
      {"equi_forgets_as_the_paper_says", equi_forgets_as_the_paper_says})
