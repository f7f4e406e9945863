/* What is the same for all topologies: their text, their rounds. */
#include "plan/topologies/topology.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "plan/rational.h"

#include <string.h>

enum { NAMES_BYTES = 256 };

static const char *name_at(const void *context, int index) {
    const rpi_topology_kind *kind = ((const rpi_topology_kind *const *)context)[index];
    return kind ? kind->name : NULL;
}

/* ---- text ---- */

static const char *option_at(const void *context, int index) {
    return ((const rpi_option *)context)[index].name;
}

static rp_status fail_unknown_option(const rpi_topology_kind *kind, const char *name) {
    char names[NAMES_BYTES] = "", hint[96];
    if (!kind->options->name) return RP_FAIL(INVALID, "it takes no options, so not '%s'", name);
    for (const rpi_option *option = kind->options; option->name; option++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", option->name);
    }
    return RP_FAIL(INVALID, "unknown option '%s'; it takes %s%s", name, names,
                   rpi_suggest_text(name, option_at, kind->options, hint, sizeof hint));
}

static bool takes(const rpi_topology_kind *kind, const char *name) {
    for (const rpi_option *option = kind->options; option->name; option++)
        if (strcmp(option->name, name) == 0) return true;
    return false;
}

/* "k=2" at `word`. */
static rp_status set_option(rpi_topology *topology, char *word) {
    const rpi_topology_kind *kind = topology->kind;
    char *value = strchr(word, '=');
    if (value) *value++ = '\0';
    if (!takes(kind, word)) return fail_unknown_option(kind, word);
    if (!value || !*value)
        return RP_FAIL(INVALID, "option '%s' lacks a value; write %s=VALUE", word, word);
    return rpi_options_set_yaml(kind->options, word, value, &topology->options);
}

/* The rest of the text belongs to an option that takes it whole. */
static bool takes_rest(const rpi_topology_kind *kind, const char *word) {
    size_t length = kind->rest ? strlen(kind->rest) : 0;
    return length && strncmp(word, kind->rest, length) == 0 && word[length] == '=';
}

static rp_status parse_options(rpi_topology *topology, char *rest) {
    const rpi_topology_kind *kind = topology->kind;
    uint64_t seen = 0;
    if (kind->is_rest)
        return rpi_options_set_yaml(kind->options, kind->rest, rest ? rest : "",
                                    &topology->options);
    while (rest && *rest) {
        char *word = rest;
        rest = takes_rest(kind, word) ? NULL : strchr(word, ',');
        if (rest) *rest++ = '\0';
        RP_TRY(set_option(topology, word));
        for (int i = 0; kind->options[i].name; i++) {
            if (strcmp(kind->options[i].name, word) != 0) continue;
            if (seen >> i & 1) return RP_FAIL(INVALID, "option '%s' comes twice", word);
            seen |= UINT64_C(1) << i;
        }
        if (rest && !*rest) return RP_FAIL(INVALID, "it ends in a comma");
    }
    return RP_OK;
}

static rp_status find_rule(const char *name, rpi_weight_rule *out_rule) {
    for (int rule = RPI_WEIGHTS_UNIFORM; rpi_weight_rule_name(rule); rule++) {
        if (strcmp(rpi_weight_rule_name(rule), name) != 0) continue;
        *out_rule = (rpi_weight_rule)rule;
        return RP_OK;
    }
    return RP_FAIL(
        INVALID, "weights: '%s' is no rule; uniform, sender and metropolis-hastings are", name);
}

static rp_status parse_name(rpi_topology *topology, char **out_rest) {
    char *rest = strchr(topology->words, ':');
    int index = 0;
    if (rest) *rest++ = '\0';
    RP_TRY(rpi_name_find("topology", topology->words, name_at, topology->kinds, &index));
    topology->kind = topology->kinds[index];
    *out_rest = rest;
    return RP_OK;
}

/* Everything behind the name, and what it means for these ranks. */
static rp_status set_up(rpi_topology *topology, char *rest) {
    const rpi_topology_kind *kind = topology->kind;
    RP_TRY(rpi_options_defaults(kind->options, &topology->options));
    RP_TRY(parse_options(topology, rest));
    topology->weights = kind->weights;
    topology->vectors = kind->vectors ? kind->vectors : 1;
    if (topology->options.weights)
        RP_TRY(find_rule(topology->options.weights, &topology->weights));
    if (kind->check) RP_TRY(kind->check(topology));
    if (kind->open) RP_TRY(kind->open(topology));
    topology->period = kind->period ? kind->period(topology) : 1;
    return RP_OK;
}

/* Rules may refuse links, and there may be too many: better said before anything runs. */
static rp_status try_first_round(const rpi_topology *topology) {
    rpi_mixing mixing = {0};
    rp_status status = rpi_topology_mix(topology, 0, &mixing);
    rpi_mixing_free(&mixing);
    return status;
}

static rp_status fill(rpi_topology *topology, const char *text) {
    char *rest = NULL;
    if (snprintf(topology->text, sizeof topology->text, "%s", text) >= RPI_TOPOLOGY_TEXT)
        return RP_FAIL(INVALID, "the topology's text is longer than %d bytes",
                       RPI_TOPOLOGY_TEXT - 1);
    memcpy(topology->words, topology->text, sizeof topology->words);
    RP_TRY(parse_name(topology, &rest));
    rp_status status = set_up(topology, rest);
    if (status == RP_OK) status = try_first_round(topology);
    return status == RP_OK ? RP_OK
                           : rpi_fail_context(status, "topology '%s': ", topology->text);
}

rp_status rpi_topology_open_of(const rpi_topology_kind *const *kinds, const char *text,
                               int ranks, rpi_topology **out_topology) {
    if (ranks < 1 || ranks > RPI_TOPOLOGY_RANKS)
        return RP_FAIL(INVALID, "a topology of %d ranks; 1 to %d are allowed", ranks,
                       RPI_TOPOLOGY_RANKS);
    rpi_topology *topology = NULL;
    RP_TRY(rpi_alloc(sizeof *topology, "a topology", &topology));
    topology->kinds = kinds;
    topology->ranks = ranks;
    rp_status status = fill(topology, text);
    if (status == RP_OK)
        *out_topology = topology;
    else
        rpi_topology_close(topology);
    return status;
}

void rpi_topology_close(rpi_topology *topology) {
    if (!topology) return;
    if (topology->kind && topology->kind->close) topology->kind->close(topology);
    rpi_free(topology);
}

rp_status rpi_topology_check_single(const rpi_topology *topology) {
    if (topology->vectors == 1) return RP_OK;
    return RP_FAIL(
        UNSUPPORTED,
        "topology %s gives each rank %d vectors, and an exchange has one; take base, "
        "which is exact in few rounds too",
        topology->text, topology->vectors);
}

/* ---- rounds ---- */

rp_status rpi_topology_mix(const rpi_topology *topology, int64_t step, rpi_mixing *in_out) {
    if (step < 0)
        return RP_FAIL(INVALID, "step is %lld; 0 is the first of a topology", (long long)step);
    if (topology->period) step %= topology->period;
    rpi_mixing_start(in_out, topology->ranks, topology->vectors);
    topology->kind->mix(topology, step, in_out);
    return rpi_mixing_finish(in_out, topology->weights);
}

/* ---- for kinds ---- */

int rpi_topology_wrap(int64_t rank, int ranks) {
    int64_t rest = rank % ranks;
    return (int)(rest < 0 ? rest + ranks : rest);
}

rp_status rpi_topology_check_machines(const rpi_topology *topology, int least_local) {
    int64_t local = topology->options.local;
    if (local < least_local)
        return RP_FAIL(INVALID, "local is %lld; say how many ranks a machine has, %d or more",
                       (long long)local, least_local);
    if (topology->ranks % local != 0)
        return RP_FAIL(INVALID, "%d ranks are no whole machines of %lld", topology->ranks,
                       (long long)local);
    return RP_OK;
}

int64_t rpi_least_common_multiple(int64_t a, int64_t b) {
    return a / rpi_common_divisor(a, b) * b;
}
