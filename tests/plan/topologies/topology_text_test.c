/* What users write: names, options, files; and what is said to those who err. */
#include "plan/topologies/topology.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"
#include "plan/topologies/graph_text.h"
#include "plan/topologies/topology_properties.h"

#define REFUSED(text, ranks, part)                                                             \
    do {                                                                                       \
        rpi_topology *refused = NULL;                                                          \
        CHECK_FAILS(rpi_topology_open(text, ranks, &refused), INVALID, part);                  \
        CHECK(refused == NULL);                                                                \
    } while (0)

static void mistakes_are_named(void) {
    REFUSED("rnig", 4, "did you mean 'ring'?");
    REFUSED("", 4, "unknown topology ''");
    REFUSED("ring", 0, "1 to 4096 are allowed");
    REFUSED("ring", 5000, "1 to 4096 are allowed");
    REFUSED("ring:direction=up", 4, "both, left and right are allowed");
    REFUSED("ring:k=2", 4, "unknown option 'k'; it takes direction, weights");
    REFUSED("ring:directoin=left", 4, "did you mean 'direction'?");
    REFUSED("ring:direction", 4, "option 'direction' lacks a value");
    REFUSED("ring:direction=", 4, "option 'direction' lacks a value");
    REFUSED("ring:direction=left,", 4, "ends in a comma");
    REFUSED("ring:direction=left,direction=left", 4, "option 'direction' comes twice");
    REFUSED("ring:weights=fair", 4, "uniform, sender and metropolis-hastings are");
    REFUSED("ring:weights=given", 4, "'given' is no rule");
    REFUSED("ring:direction=left,weights=metropolis-hastings", 4, "does not send back");
    REFUSED("base:k=0", 4, "k: '0' is out of range; 1 to 63 are allowed");
    REFUSED("base:k=two", 4, "k: ");
    REFUSED("mesh:shape=3x3", 8, "shape 3x3 has 9 ranks, not 8; 2x4 would do");
    REFUSED("mesh:shape=3", 9, "write 4x6");
    REFUSED("star:centre=4", 4, "the ranks are 0 to 3");
    REFUSED("star:centre=-1", 4, "centre: ");
    REFUSED("exponential:base=1", 4, "base: '1' is out of range");
    REFUSED("ceca:ports=1", 7, "7 ranks do not go in pairs");
    REFUSED("ceca:ports=3", 8, "ports: '3' is too large; 1 to 2 are allowed");
    REFUSED("equi:degree=8", 8, "8 ranks have 1 to 7 shifts");
    REFUSED("hierarchical", 8, "say how many ranks a machine has");
    REFUSED("hierarchical:local=3", 8, "8 ranks are no whole machines of 3");
    REFUSED("hierarchical:local=2,machines=ceca:ports=1", 6, "3 ranks do not go in pairs");
    REFUSED("inner-outer-ring:local=2", 8, "3 or more");
    REFUSED("inner-outer-expo:local=4", 4, "2 machines are needed");
    REFUSED("file", 4, "write file:PATH");
    REFUSED("file:", 4, "write file:PATH");
    rpi_topology *topology = NULL;
    CHECK_FAILS(rpi_topology_open("file:/nowhere/graph.txt", 4, &topology), NOT_FOUND,
                "topology 'file:/nowhere/graph.txt': ");
    CHECK_FAILS(rpi_topology_open("file:/dev/zero", 4, &topology), CORRUPT, "/dev/zero");
    REQUIRE_OK(rpi_topology_open("ring", 4, &topology));
    rpi_mixing mixing = {0};
    CHECK_FAILS(rpi_topology_mix(topology, -1, &mixing), INVALID, "step is -1");
    rpi_topology_close(topology);
    CHECK_FAILS(rpi_topology_open("full", 4096, &topology), UNSUPPORTED,
                "all-reduce is cheaper");
    rpi_topology_close(NULL);
}

static void long_texts_are_refused(void) {
    char text[RPI_TOPOLOGY_TEXT + 8];
    memset(text, 'x', sizeof text);
    memcpy(text, "file:", 5);
    text[sizeof text - 1] = '\0';
    REFUSED(text, 4, "longer than 1023 bytes");
}

static void inner_topologies_take_the_rest(void) {
    rpi_topology *topology = NULL;
    rpi_mixing mixing = {0};
    REQUIRE_OK(rpi_topology_open(
        "hierarchical:local=2,machines=ring:direction=left,weights=sender", 6, &topology));
    CHECK_OK(rpi_topology_mix(topology, 0, &mixing));
    rpi_edges in = rpi_mixing_in(&mixing, 0);
    REQUIRE(in.count == 3);
    CHECK(in.list[0].rank == 1 && in.list[1].rank == 2 && in.list[2].rank == 3);
    for (int e = 0; e < 3; e++) CHECK_NEAR(rpi_edge_weight(&in.list[e]), .25, 0);
    rpi_mixing_free(&mixing);
    rpi_topology_close(topology);
}

/* ---- fractions ---- */

static void fractions_are_exact(void) {
    static const struct {
        const char *text;
        int times, over;
    } good[] = {{"1", 1, 1},
                {"0", 0, 1},
                {"0.25", 1, 4},
                {".5", 1, 2},
                {"1.", 1, 1},
                {"2/6", 1, 3},
                {"0/7", 0, 1},
                {"0.3", 3, 10},
                {"0.333", 333, 1000},
                {"0.3333333333333333", 1, 3},
                {"0.6666666666666667", 2, 3},
                {"0.06666666666666667", 1, 15},
                {"0.1428571428571428", 1, 7},
                {"0.9375000000", 15, 16},
                {"0.0000000000", 0, 1},
                {"1.0000000000000000", 1, 1}};
    rpi_fraction got;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK_OK(rpi_fraction_parse(good[i].text, &got));
        CHECK_MSG(got.times == good[i].times && got.over == good[i].over, "%s is %d/%d",
                  good[i].text, got.times, got.over);
    }
    CHECK_FAILS(rpi_fraction_parse("-0.5", &got), INVALID, "negative");
    CHECK_FAILS(rpi_fraction_parse("-1/2", &got), INVALID, "negative");
    CHECK_FAILS(rpi_fraction_parse("1/0", &got), INVALID, "is no weight");
    CHECK_FAILS(rpi_fraction_parse("1/-2", &got), INVALID, "is no weight");
    CHECK_FAILS(rpi_fraction_parse("/2", &got), INVALID, "is no weight");
    CHECK_FAILS(rpi_fraction_parse("1/2/3", &got), INVALID, "is no weight");
    CHECK_FAILS(rpi_fraction_parse("half", &got), INVALID, "is no weight");
    CHECK_FAILS(rpi_fraction_parse("nan", &got), INVALID, "is no weight");
    CHECK_FAILS(rpi_fraction_parse("0x1", &got), INVALID, "is no weight");
    CHECK_FAILS(rpi_fraction_parse("1e-1", &got), INVALID, "is no weight");
    CHECK_FAILS(rpi_fraction_parse("", &got), INVALID, "is no weight");
    CHECK_FAILS(rpi_fraction_parse("1/9999999999", &got), INVALID, "31 bits");
}

/* ---- files ---- */

static const char *file_of(const char *content) {
    static char text[600];
    char path[512];
    snprintf(path, sizeof path, "%s/graph,a=b.txt", check_folder());
    FILE *file = fopen(path, "w");
    if (file) {
        fputs(content, file);
        fclose(file);
    }
    snprintf(text, sizeof text, "file:%s", path);
    return text;
}

static void files_are_read(void) {
    rpi_topology *topology = NULL;
    rpi_topology_properties p;
    rpi_mixing mixing = {0};
    REQUIRE_OK(rpi_topology_open(file_of("# a path\nranks 3\nundirected\nedges\n0 1\n1 2 # the "
                                         "end\n"),
                                 3, &topology));
    REQUIRE_OK(rpi_topology_examine(topology, &p));
    CHECK(p.rows && p.columns && p.symmetric && p.connected && p.rounds == 1);
    rpi_topology_close(topology);

    REQUIRE_OK(rpi_topology_open(file_of("matrix\r\n0.5, 0.5, 0\r\n0 1/2 1/2\r\n1/2 0 1/2\r\n"),
                                 3, &topology));
    CHECK_OK(rpi_topology_mix(topology, 0, &mixing));
    CHECK_EQ(rpi_mixing_in(&mixing, 0).list[0].rank, 1);
    CHECK_EQ(rpi_mixing_out(&mixing, 0).list[0].rank, 2);
    rpi_topology_close(topology);

    /* Weights of senders: columns alone, and what a rank keeps is said. */
    REQUIRE_OK(rpi_topology_open(file_of("edges\n0 0 1/3\n0 1 1/3\n0 2 1/3\n1 1 1/2\n1 2 .5\n"
                                         "2 2 1/2\n2 0 1/2"),
                                 3, &topology));
    REQUIRE_OK(rpi_topology_examine(topology, &p));
    CHECK(!p.rows && p.columns);
    CHECK_NEAR(p.second, .2887, 5e-5);
    rpi_topology_close(topology);

    /* Two rounds, each a matching: exact for four ranks. */
    REQUIRE_OK(rpi_topology_open(file_of("undirected\nedges\n0 1\n2 3\nround\n0 2\n1 3\n"), 4,
                                 &topology));
    REQUIRE_OK(rpi_topology_examine(topology, &p));
    CHECK_EQ(topology->period, 2);
    CHECK_EQ(p.exact_rounds, 2);
    CHECK(p.exact_proved);
    rpi_topology_close(topology);

    /* A de Bruijn graph: static, and exact after two rounds. */
    REQUIRE_OK(rpi_topology_open(
        file_of("matrix\n.5 0 .5 0\n.5 0 .5 0\n0 .5 0 .5\n0 .5 0 .5\n"), 4, &topology));
    REQUIRE_OK(rpi_topology_examine(topology, &p));
    CHECK(p.exact_rounds == 2 && p.exact_proved && p.connected);
    rpi_topology_close(topology);

    /* Ranks that swap for ever are connected and never agree. */
    REQUIRE_OK(rpi_topology_open(file_of("matrix\n0 1\n1 0\n"), 2, &topology));
    REQUIRE_OK(rpi_topology_examine(topology, &p));
    CHECK(p.connected && p.exact_rounds == 0);
    CHECK_NEAR(p.second, 1, 1e-12);
    rpi_topology_close(topology);
    rpi_mixing_free(&mixing);
}

static void bad_files_are_refused(void) {
    REFUSED(file_of(""), 3, "no line that says 'edges' or 'matrix'");
    REFUSED(file_of("0 1\n"), 3, "line 1: numbers before");
    REFUSED(file_of("ranks 4\nedges\n0 1\n"), 3, "line 1: the graph is of 4 ranks");
    REFUSED(file_of("edges\n0 3\n"), 3, "line 2: rank 3 is not in a world of 3");
    REFUSED(file_of("edges\n0 -1\n"), 3, "line 2: rank -1 is not in a world of 3");
    REFUSED(file_of("edges\n0 1 2 3\n"), 3, "line 2: 4 words");
    REFUSED(file_of("edges\n0 1 -1/3\n"), 3, "negative");
    REFUSED(file_of("edges\n0 1\n1 0 1/2\n"), 3, "line 3: some edges have weights");
    REFUSED(file_of("edges\n0 one\n"), 3, "'one' is no rank");
    REFUSED(file_of("graph\n0 1\n"), 3, "'graph' is none of: ranks N");
    REFUSED(file_of("edges\nundirected\n0 1\n"), 3, "'undirected' stands before 'edges'");
    REFUSED(file_of("edges\nmatrix\n"), 3, "a second list or matrix");
    REFUSED(file_of("round\n"), 3, "'round' before");
    REFUSED(file_of("weights fair\nedges\n"), 3, "weights 'fair'");
    REFUSED(file_of("weights uniform\nedges\n0 1 1/2\n"), 3, "and gives weights");
    REFUSED(file_of("matrix\n1 0\n"), 3, "row 0 with 2 numbers");
    REFUSED(file_of("matrix\n1/2 1/2\n"), 2, "the matrix has 1 rows for 2 ranks");
    REFUSED(file_of("matrix\n1 0\n0 1\n0 1\n"), 2, "row 2 with 2 numbers");
    REFUSED(file_of("matrix\n.5 .4\n.3 .5\n"), 2, "must sum to 1");
    REFUSED(file_of("edges\n0 1 1/2\n1 0 3/2\n"), 2, "weights are 0 or more");
    REFUSED(file_of("undirected\nedges\n0 1\n2 3\n"), 4,
            "nothing of rank 0 ever reaches rank 2");
    REFUSED(file_of("edges\n0 1\n1 2\n"), 3, "nothing of rank 1 ever reaches rank 0");
}

/* Lines of words that mean something, in any order, and bytes that mean nothing. */
static void random_files_never_crash(void) {
    static const char *const words[] = {
        "edges",      "matrix",     "round",   "ranks",
        "weights",    "undirected", "uniform", "sender",
        "0",          "1",          "2",       "3",
        "-1",         "1/2",        "1/3",     "0.25",
        "1/0",        ".",          "#",       ",",
        "\n",         "\n",         "\n",      "\r\n",
        "3000000",    "1e9",        "2/",      "0.3333333333333333",
        "9999999999", "\xff"};
    enum { WORDS = sizeof words / sizeof words[0] };
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    int read = 0;
    for (int trial = 0; trial < 20000; trial++) {
        char text[512] = "";
        size_t used = 0;
        rpi_graph_text graph = {0};
        if (rpi_rng_below(&rng, 2)) used += (size_t)snprintf(text, sizeof text, "edges\n");
        for (uint32_t left = rpi_rng_below(&rng, 40); left > 0 && used + 24 < sizeof text;
             left--)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s ",
                                     words[rpi_rng_below(&rng, WORDS)]);
        rp_status status = rpi_graph_text_read(text, 4, &graph);
        CHECK(status == RP_OK || status == RP_INVALID);
        for (size_t i = 0; status == RP_OK && i < graph.used; i++)
            CHECK(graph.links[i].to >= 0 && graph.links[i].to < 4 && graph.links[i].from >= 0 &&
                  graph.links[i].from < 4 && graph.links[i].weight.times >= 0);
        read += status == RP_OK;
        rpi_graph_text_free(&graph);
    }
    CHECK(read > 0);
}

static void memory_failing_anywhere_is_reported(void) {
    static const char *const texts[] = {"ring",
                                        "base:k=2",
                                        "ceca",
                                        "equi:degree=3",
                                        "equi:directed=off",
                                        "hierarchical:local=2,machines=base",
                                        "inner-outer-ring:local=5"};
    enum { TEXTS = sizeof texts / sizeof texts[0] };
    for (int t = 0; t <= TEXTS; t++) {
        const char *text = t < TEXTS ? texts[t]
                                     : file_of("undirected\nedges\n0 1\n1 2\n2 3\n3 4\n4 5\n"
                                               "5 6\n6 7\n7 8\n8 9\n");
        rp_status status = RP_NOMEM;
        for (long n = 1; n < 3000 && status == RP_NOMEM; n++) {
            rpi_topology *topology = NULL;
            rpi_topology_properties p;
            (void)rpi_memory_fail_after(n);
            status = rpi_topology_open(text, 10, &topology);
            if (status == RP_OK) status = rpi_topology_examine(topology, &p);
            (void)rpi_memory_fail_after(0);
            rpi_topology_close(topology);
        }
        CHECK_MSG(status == RP_OK, "%s: %s", text, rp_last_error()->message);
    }
}

CASES({"mistakes_are_named", mistakes_are_named},
      {"long_texts_are_refused", long_texts_are_refused},
      {"inner_topologies_take_the_rest", inner_topologies_take_the_rest},
      {"fractions_are_exact", fractions_are_exact}, {"files_are_read", files_are_read},
      {"bad_files_are_refused", bad_files_are_refused},
      {"random_files_never_crash", random_files_never_crash},
      {"memory_failing_anywhere_is_reported", memory_failing_anywhere_is_reported})
