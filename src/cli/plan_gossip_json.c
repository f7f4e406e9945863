/* What `redpoll plan gossip --json` says to programs (docs/json.md). */
#include "cli/command.h"
#include "cli/plan_gossip.h"

#include <cjson/cJSON.h>
#include <math.h>

/* A number that does not exist is null. */
static void add_number(cJSON *object, const char *key, double value) {
    if (isfinite(value))
        cJSON_AddNumberToObject(object, key, value);
    else
        cJSON_AddNullToObject(object, key);
}

static void add_edges(cJSON *list, const rpi_mixing *mixing, int rank, rpi_edges edges,
                      bool own) {
    char text[32];
    for (int e = 0; e < edges.count; e++) {
        const rpi_edge *edge = &edges.list[e];
        cJSON *object = cJSON_CreateObject();
        cJSON_AddItemToArray(list, object);
        cJSON_AddNumberToObject(object, "from", own ? rank : edge->rank);
        cJSON_AddNumberToObject(object, "to", rank);
        cJSON_AddStringToObject(object, "weight", rpi_gossip_fraction(edge->weight, text));
        if (mixing->vectors == 1) continue;
        cJSON_AddNumberToObject(object, "from_vector", edge->from);
        cJSON_AddNumberToObject(object, "to_vector", edge->into);
    }
}

static rp_status add_rounds(cJSON *object, const rpi_gossip_plan *plan) {
    rpi_mixing mixing = {0};
    rp_status status = RP_OK;
    cJSON *rounds = cJSON_AddArrayToObject(object, "rounds");
    for (int64_t step = 0; step < plan->properties.rounds; step++) {
        status = rpi_topology_mix(plan->topology, step, &mixing);
        if (status != RP_OK) break;
        cJSON *round = cJSON_CreateArray();
        cJSON_AddItemToArray(rounds, round);
        for (int rank = 0; rank < mixing.ranks; rank++) {
            add_edges(round, &mixing, rank, rpi_mixing_own(&mixing, rank), true);
            add_edges(round, &mixing, rank, rpi_mixing_in(&mixing, rank), false);
        }
    }
    rpi_mixing_free(&mixing);
    return status;
}

static void add_rules(cJSON *object, const rpi_gossip_plan *plan) {
    const rpi_gossip_rule *rule;
    if (plan->topology->ranks > RPI_GOSSIP_JUDGED) {
        cJSON_AddNullToObject(object, "algorithms");
        return;
    }
    cJSON *rules = cJSON_AddObjectToObject(object, "algorithms");
    for (int i = 0; i < RPI_GOSSIP_RULES && (rule = rpi_gossip_rule_at(i)) != NULL; i++) {
        const rpi_gossip_fit *fit = &plan->fits[i];
        cJSON *one = cJSON_AddObjectToObject(rules, rule->name);
        cJSON_AddBoolToObject(one, "fits", rpi_gossip_fits(fit));
        cJSON_AddStringToObject(one, "verdict", rpi_gossip_verdict_name(fit->verdict));
        add_number(one, "factor_per_step", fit->radius);
    }
}

static void add_promises(cJSON *object, const rpi_gossip_plan *plan) {
    const rpi_topology_properties *p = &plan->properties;
    add_number(object, "period", plan->topology->period ? (double)plan->topology->period : NAN);
    cJSON_AddNumberToObject(object, "vectors", plan->topology->vectors);
    cJSON_AddNumberToObject(object, "most_out", p->most_out);
    cJSON_AddNumberToObject(object, "most_in", p->most_in);
    cJSON_AddBoolToObject(object, "row_stochastic", p->rows);
    cJSON_AddBoolToObject(object, "column_stochastic", p->columns);
    cJSON_AddBoolToObject(object, "symmetric", p->symmetric);
    cJSON_AddBoolToObject(object, "connected", p->connected);
    add_number(object, "spectral_gap", 1 - p->second);
    add_number(object, "factor_per_round", p->factor);
    add_number(object, "exact_rounds", p->exact_rounds ? p->exact_rounds : NAN);
    add_rules(object, plan);
}

rp_status rpi_gossip_print_json(const rpi_gossip_plan *plan, bool all) {
    cJSON *object = cJSON_CreateObject();
    int ranks = plan->topology->ranks;
    cJSON_AddStringToObject(object, "op", "gossip");
    cJSON_AddStringToObject(object, "topology", plan->topology->text);
    cJSON_AddNumberToObject(object, "ranks", ranks);
    cJSON_AddNumberToObject(object, "hosts", plan->hosts ? (double)plan->hosts : ranks);
    cJSON_AddNumberToObject(object, "bytes", (double)plan->bytes);
    cJSON_AddStringToObject(object, "codec", plan->codec);
    cJSON_AddNumberToObject(object, "encoded_bytes", (double)plan->encoded);
    add_promises(object, plan);
    cJSON_AddNumberToObject(object, "round_s", plan->mean.time_s);
    cJSON_AddNumberToObject(object, "slowest_round_s", plan->slowest.time_s);
    cJSON_AddNumberToObject(object, "round_wire_bytes", plan->mean.wire_bytes);
    cJSON_AddStringToObject(object, "all_reduce", plan->algorithm->name);
    cJSON_AddNumberToObject(object, "all_reduce_s", plan->all_reduce.time_s);
    cJSON_AddNumberToObject(object, "all_reduce_wire_bytes", plan->all_reduce.wire_bytes);
    rp_status status = all ? add_rounds(object, plan) : RP_OK;
    if (status == RP_OK)
        rpi_command_print_json(object);
    else
        cJSON_Delete(object);
    return status;
}
