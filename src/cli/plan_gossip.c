#include "cli/plan_gossip.h"

#include "base/status.h"
#include "cli/commands.h"
#include "cli/option_rows.h"
#include "cli/plan_model.h"
#include "plan/algorithms.h"
#include "plan/choose.h"

#include <stdlib.h>

enum {
    MOST_PRICED = 32, /* rounds: those of a longer period are all alike */
    SIMULATED = 256   /* ranks up to which the all-reduce is */
};

typedef struct settings {
    const char *topology, *codec_text, *link, *local;
    int64_t ranks, hosts, count, bytes, chunk_bytes;
    bool all, json;
    rp_codec codec;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"topology", "t", NULL, RPI_OPTION_TEXT, FIELD(topology), "base", 0, 0, "TOPOLOGY",
     "NAME or NAME:option=value,...", NULL},
    RPI_ROWS_RANKS(FIELD(ranks), NULL, "8", 1, RPI_TOPOLOGY_RANKS, "ranks of the world"),
    {"size", NULL, NULL, RPI_OPTION_BYTES, FIELD(bytes), "100MB", 0, 1e15, "BYTES",
     "of the vector of a rank, as floats of 32 bits", NULL},
    {"count", NULL, NULL, RPI_OPTION_COUNT, FIELD(count), NULL, 0, 1e14, "N",
     "elements of the vector, instead of --size", NULL},
    RPI_ROW_CODEC(FIELD(codec_text), NULL, "fp32", "codec; fp32 is exact"),
    RPI_ROW_LINK(FIELD(link), NULL, "1Gbit,50us", "of each host, each way"),
    {"hosts", NULL, NULL, RPI_OPTION_COUNT, FIELD(hosts), NULL, 1, RPI_TOPOLOGY_RANKS, "N",
     "that the ranks are on, evenly; each is on its own when absent", NULL},
    RPI_ROW_LOCAL(FIELD(local), "5GB,2us", "between ranks of one host"),
    RPI_ROW_CHUNK(FIELD(chunk_bytes), NULL,
                  "in flight as one piece; the executor's choice when absent"),
    {"all", NULL, NULL, RPI_OPTION_FLAG, FIELD(all), NULL, 0, 0, NULL,
     "every edge of every round, also of more than 16 ranks", NULL},
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

/* ---- prices ---- */

static rp_status price_rounds(rpi_gossip_plan *plan, const rpi_plan_request *request,
                              const rpi_cost_model *model) {
    int64_t rounds = plan->properties.rounds;
    plan->priced = rounds < MOST_PRICED ? (int)rounds : MOST_PRICED;
    return rpi_plan_gossip_rounds(plan->topology, plan->priced, request, plan->bytes,
                                  plan->encoded, model, &plan->mean, &plan->slowest);
}

/* Which algorithms go with it? */
static rp_status judge_rules(rpi_gossip_plan *plan) {
    const rpi_gossip_rule *rule;
    if (plan->topology->ranks > RPI_GOSSIP_JUDGED) return RP_OK;
    for (int i = 0; i < RPI_GOSSIP_RULES && (rule = rpi_gossip_rule_at(i)) != NULL; i++)
        RP_TRY(rpi_gossip_examine(rule, plan->topology, &plan->fits[i]));
    return RP_OK;
}

static rp_status make_plan(const settings *s, const rpi_topology *topology,
                           rpi_gossip_plan *plan) {
    size_t count = (size_t)s->count;
    bool lossy = !rp_codec_is_exact(&s->codec, RP_F32);
    rpi_cost_model model;
    rpi_plan_request request = {
        .world = (int)s->ranks, .mean = true, .host_of = rpi_plan_layout(s->ranks, s->hosts)};
    *plan = (rpi_gossip_plan){.topology = topology,
                              .hosts = s->hosts,
                              .bytes = count * sizeof(float),
                              .encoded = rp_codec_encoded_bytes(&s->codec, RP_F32, count),
                              .link = s->link,
                              .local = s->local};
    rp_codec_text(&s->codec, plan->codec, sizeof plan->codec);
    RP_TRY(rpi_topology_examine(topology, &plan->properties));
    RP_TRY(judge_rules(plan));
    RP_TRY(rpi_plan_model_make(s->link, s->local, &s->codec, &model));
    model.chunk_bytes = (size_t)s->chunk_bytes;
    RP_TRY(price_rounds(plan, &request, &model));
    return rpi_plan_all_reduce(&request, lossy, plan->bytes, plan->encoded, &model, SIMULATED,
                               &plan->algorithm, &plan->all_reduce);
}

/* ---- the command ---- */

static rp_status read_settings(int argc, char **argv, settings *s, bool *wants_help) {
    RP_TRY(rpi_options_defaults(options, s));
    s->count = -1; /* not said */
    RP_TRY(rpi_options_environment(options, getenv, s));
    RP_TRY(rpi_options_parse(options, argc, argv, s, NULL, wants_help));
    if (*wants_help) return RP_OK;
    RP_TRY(rp_codec_parse(s->codec_text, &s->codec));
    if (s->count < 0) s->count = s->bytes / (int64_t)sizeof(float);
    if (s->hosts > s->ranks)
        return RP_FAIL(INVALID, "--hosts %lld is more than the %lld ranks; say -n, too",
                       (long long)s->hosts, (long long)s->ranks);
    return RP_OK;
}

static bool is_mistake(rp_status status) {
    return status == RP_INVALID || status == RP_NOT_FOUND || status == RP_UNSUPPORTED ||
           status == RP_CORRUPT;
}

static rp_status plan_and_print(const settings *s) {
    rpi_topology *topology = NULL;
    rpi_gossip_plan plan;
    RP_TRY(rpi_topology_open(s->topology, (int)s->ranks, &topology));
    rp_status status = make_plan(s, topology, &plan);
    bool all = s->all || s->ranks <= RPI_GOSSIP_SHOWN;
    if (status == RP_OK)
        status = s->json ? rpi_gossip_print_json(&plan, all) : rpi_gossip_print(&plan, all);
    rpi_topology_close(topology);
    return status;
}

static int run(int argc, char **argv) {
    settings s = {0};
    bool wants_help = false;
    rp_status status = read_settings(argc, argv, &s, &wants_help);
    if (status != RP_OK) return rpi_command_misused("plan gossip", status);
    if (wants_help) {
        rpi_command_print_help(&rpi_command_plan_gossip, stdout);
        return RPI_EXIT_DONE;
    }
    status = plan_and_print(&s);
    if (is_mistake(status)) return rpi_command_misused("plan gossip", status);
    return status == RP_OK ? RPI_EXIT_DONE : rpi_command_failed(status);
}

const rpi_command rpi_command_plan_gossip = {
    .name = "plan gossip",
    .summary = "rounds, properties and time of averaging with neighbours",
    .about =
        "Prints who averages with whom in each round of a topology and with which weight, what "
        "that promises (sums of weights, connectedness, spectral gap, rounds to the exact "
        "average), which algorithms of training go with it, and what a round takes beside an "
        "all-reduce of the same vector. "
        "docs/topologies.md says which topology is for what.\n\n"
        "'a-b' are two ranks that send to each other, 'a>b' is one that sends and one that "
        "receives. The weight is what the receiver puts on what comes; it keeps the rest of 1, "
        "unless 'kept' says otherwise.",
    .notes =
        "topologies: ring:direction=both|left|right, mesh:shape=4x6, torus:shape=4x6, "
        "star:centre=R, full, exponential:base=B,symmetric=on (all of these with "
        "weights=uniform|sender|metropolis-hastings), one-peer-exponential:base=B, base:k=K, "
        "ceca:ports=1|2, equi:degree=M,directed=off,seed=N, "
        "hierarchical:local=L,machines=TOPOLOGY, inner-outer-ring:local=L, "
        "inner-outer-expo:local=L, file:PATH.",
    .examples =
        "  redpoll plan gossip --topology base --ranks 24\n"
        "  redpoll plan gossip --topology base:k=2 -n 12 --codec q4 --link 100Mbit,1ms\n"
        "  redpoll plan gossip -n 8 --topology hierarchical:local=4,machines=ring \\\n"
        "      --hosts 2\n"
        "  redpoll plan gossip -n 4 --topology file:graph.txt --json\n",
    .options = options,
    .run = run,
};
