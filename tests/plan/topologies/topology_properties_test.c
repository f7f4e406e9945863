/* Spectral gaps against closed forms and the tables of the papers, and rounds to the average.
 */
#include "plan/topologies/topology_properties.h"

#include "harness/check.h"

static rpi_topology_properties examined(const char *text, int ranks) {
    rpi_topology *topology = NULL;
    rpi_topology_properties p = {0};
    CHECK_OK(rpi_topology_open(text, ranks, &topology));
    if (topology) CHECK_OK(rpi_topology_examine(topology, &p));
    rpi_topology_close(topology);
    return p;
}

static void gaps_have_closed_forms(void) {
    static const int worlds[] = {3, 4, 5, 8, 12, 17, 32};
    for (int i = 0; i < 7; i++) {
        int n = worlds[i];
        double angle = acos(-1) / n;
        if (n > 3) CHECK_NEAR(examined("ring", n).second, (1 + 2 * cos(2 * angle)) / 3, 1e-11);
        CHECK_NEAR(examined("ring:direction=right", n).second, cos(angle), 1e-11);
        CHECK_NEAR(examined("star", n).second, 1 - 1. / n, 1e-11);
        CHECK_NEAR(examined("full", n).second, 0, 0);
    }
    for (int bits = 2; bits <= 6; bits++)
        CHECK_NEAR(examined("exponential", 1 << bits).second, 1 - 2. / (bits + 1), 1e-11);
}

static void gaps_are_those_of_the_tables(void) {
    static const struct {
        const char *text;
        int ranks;
        double factor;
    } rows[] = {
        {"ring", 6, .6667},
        {"ring", 7, .7490},
        {"ring", 48, .9943},
        {"mesh", 5, .8727},
        {"mesh", 6, .7500},
        {"mesh", 7, .9340},
        {"mesh", 8, .8536},
        {"mesh", 9, .7674},
        {"mesh", 12, .8636},
        {"mesh", 16, .8686},
        {"mesh", 20, .9143},
        {"mesh", 25, .9162},
        {"mesh", 32, .9658},
        {"torus", 4, .3333},
        {"torus", 5, .5393},
        {"torus", 6, .5},
        {"torus", 8, .5},
        {"torus", 9, .4},
        {"torus", 12, .6},
        {"torus", 16, .6},
        {"torus", 25, .7236},
        {"torus", 32, .8828},
        {"torus", 63, .9064},
        {"exponential", 5, .25},
        {"exponential", 6, .5},
        {"exponential", 7, .3536},
        {"exponential", 9, .4418},
        {"exponential", 25, .5109},
        {"exponential", 31, .5623},
        {"exponential", 63, .6109},
        {"exponential:base=3", 4, .3333},
        {"exponential:base=3", 8, .5774},
        {"exponential:base=3", 16, .6807},
        {"exponential:base=3", 32, .6596},
        {"exponential:base=4,symmetric=on", 8, .5},
        {"exponential:base=4,symmetric=on", 16, .6},
        {"exponential:base=4,symmetric=on", 32, .6667},
        {"mesh:weights=uniform", 8, .8143},
        {"star:weights=uniform", 8, .5},
        {"one-peer-exponential", 5, .5870},
        {"one-peer-exponential", 6, .6005},
        {"one-peer-exponential", 7, .5},
        {"one-peer-exponential", 9, .5854},
        {"one-peer-exponential", 12, .6762},
        {"one-peer-exponential", 20, .7174},
        {"one-peer-exponential", 25, .7190},
        {"one-peer-exponential", 48, .7691},
        {"inner-outer-ring:local=4", 8, .7607},
        {"inner-outer-expo:local=4", 8, .6766},
        {"inner-outer-ring:local=4", 16, .8993},
        {"inner-outer-expo:local=4", 16, .8605},
        {"inner-outer-ring:local=8", 32, .9487},
        {"inner-outer-expo:local=8", 32, .9344},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double factor = examined(rows[i].text, rows[i].ranks).factor;
        CHECK_MSG(fabs(factor - rows[i].factor) <= 5.1e-5, "%s of %d ranks: %.6f, not %.4f",
                  rows[i].text, rows[i].ranks, factor, rows[i].factor);
    }
}

static void exact_ones_are_found(void) {
    static const struct {
        const char *text;
        int ranks, rounds;
    } rows[] = {{"ring", 3, 1},
                {"full", 7, 1},
                {"exponential", 3, 1},
                {"base", 25, 9},
                {"base:k=2", 25, 6},
                {"one-peer-exponential", 64, 6},
                {"ceca", 25, 5},
                {"ceca", 64, 6},
                {"one-peer-exponential", 12, 0},
                {"ring", 12, 0},
                {"equi:degree=6", 7, 1},
                {"ring", 1, 1},
                {"hierarchical:local=4,machines=full", 12, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rpi_topology_properties p = examined(rows[i].text, rows[i].ranks);
        CHECK_MSG(p.exact_rounds == rows[i].rounds, "%s of %d ranks: exact after %d rounds",
                  rows[i].text, rows[i].ranks, p.exact_rounds);
        CHECK(p.exact_proved == (rows[i].rounds > 0));
        CHECK(!p.exact_proved || p.second == 0);
        CHECK(p.exact_proved || p.second > 0);
    }
}

static void large_worlds_have_sums_and_degrees(void) {
    rpi_topology_properties p = examined("base", 1000);
    CHECK(p.rows && p.columns && p.symmetric && p.connected && p.most_out == 1);
    CHECK(isnan(p.second) && isnan(p.factor) && p.exact_rounds == 0);
    p = examined("exponential", 4096);
    CHECK(p.rows && p.columns && p.connected && p.most_out == 12 && p.most_in == 12);
    p = examined("equi", 300);
    CHECK(p.rounds == RPI_PROPERTIES_DRAWN && !p.whole_period && p.connected);
}

CASES({"gaps_have_closed_forms", gaps_have_closed_forms},
      {"gaps_are_those_of_the_tables", gaps_are_those_of_the_tables},
      {"exact_ones_are_found", exact_ones_are_found},
      {"large_worlds_have_sums_and_degrees", large_worlds_have_sums_and_degrees})
