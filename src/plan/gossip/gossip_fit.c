#include "plan/gossip/gossip_fit.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"
#include "plan/gossip/gossip_iteration.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- sums ---- */

static bool are_one(const double *sums, int count) {
    for (int i = 0; i < count; i++)
        if (fabs(sums[i] - 1) > 1e-9) return false;
    return true;
}

/* sums: rows, then columns. */
static void add_edges(rpi_edges edges, int rank, int ranks, double *sums) {
    for (int i = 0; i < edges.count; i++) {
        double weight = rpi_edge_weight(&edges.list[i]);
        sums[rank] += weight;
        sums[ranks + edges.list[i].rank] += weight;
    }
}

static rp_status look_at_round(const rpi_topology *topology, int64_t step, rpi_mixing *mixing,
                               double *sums, bool *in_out_rows, bool *in_out_columns) {
    int ranks = topology->ranks;
    RP_TRY(rpi_topology_mix(topology, step, mixing));
    for (int i = 0; i < 2 * ranks; i++) sums[i] = 0;
    for (int rank = 0; rank < ranks; rank++) {
        add_edges(rpi_mixing_in(mixing, rank), rank, ranks, sums);
        add_edges(rpi_mixing_own(mixing, rank), rank, ranks, sums);
    }
    *in_out_rows &= are_one(sums, ranks);
    *in_out_columns &= are_one(sums + ranks, ranks);
    return RP_OK;
}

/* Are rows, and columns, 1 in the rounds of a period, or in the first ones? */
static rp_status find_sums(const rpi_topology *topology, bool *out_rows, bool *out_columns) {
    enum { LOOKED_AT = 16 }; /* rounds: those of a longer period are all alike */
    int64_t period = topology->period;
    int64_t steps = period > 0 && period < LOOKED_AT ? period : LOOKED_AT;
    double *sums = NULL;
    rpi_mixing mixing = {0};
    *out_rows = *out_columns = true;
    rp_status status =
        rpi_alloc_array(2 * (size_t)topology->ranks, sizeof *sums, "sums of weights", &sums);
    for (int64_t step = 0; step < steps && status == RP_OK; step++)
        status = look_at_round(topology, step, &mixing, sums, out_rows, out_columns);
    rpi_mixing_free(&mixing);
    rpi_free(sums);
    return status;
}

/* ---- the verdict ---- */

static const double NEARLY = 1e-6; /* of a radius: what is lost to rounding, and more */

/* Pushing rules divide by p what the rows have wrong; others take averages as they are. Copies
 * are sums of the same neighbours, which their changes keep. */
static rp_status look_at_weights(const rpi_gossip_rule *rule, const rpi_topology *topology,
                                 rpi_gossip_verdict *out_verdict) {
    bool rows = false, columns = false;
    *out_verdict = RPI_GOSSIP_VECTORS;
    if (topology->vectors > 1) return RP_OK;
    RP_TRY(find_sums(topology, &rows, &columns));
    if (!columns || (!rows && !rule->pushes))
        *out_verdict = RPI_GOSSIP_BIASED;
    else
        *out_verdict =
            rule->copies && topology->period != 1 ? RPI_GOSSIP_CHANGES : RPI_GOSSIP_FITS;
    return RP_OK;
}

static rp_status bears(const rpi_gossip_rule *rule, const rpi_topology *topology, double step,
                       bool *out_bears) {
    double radius = 0;
    RP_TRY(rpi_gossip_radius(rule, topology, step, 1, &radius));
    *out_bears = radius < 1 + NEARLY;
    return RP_OK;
}

static rp_status look_at_iteration(const rpi_gossip_rule *rule, const rpi_topology *topology,
                                   rpi_gossip_fit *fit) {
    bool least = false, small = false;
    RP_TRY(rpi_gossip_radius(rule, topology, 0, 1, &fit->radius));
    fit->verdict = RPI_GOSSIP_DIVERGES;
    if (!(fit->radius < 1 - NEARLY)) return RP_OK;
    RP_TRY(bears(rule, topology, RPI_GOSSIP_LEAST_STEP, &least));
    if (least) RP_TRY(bears(rule, topology, RPI_GOSSIP_SMALL_STEP, &small));
    fit->verdict = !least ? RPI_GOSSIP_UNSTABLE : small ? RPI_GOSSIP_FITS : RPI_GOSSIP_SLOW;
    return RP_OK;
}

rp_status rpi_gossip_examine(const rpi_gossip_rule *rule, const rpi_topology *topology,
                             rpi_gossip_fit *out_fit) {
    rpi_gossip_fit fit = {.radius = NAN};
    RP_TRY(look_at_weights(rule, topology, &fit.verdict));
    if (fit.verdict == RPI_GOSSIP_FITS) RP_TRY(look_at_iteration(rule, topology, &fit));
    *out_fit = fit;
    return RP_OK;
}

const char *rpi_gossip_verdict_name(rpi_gossip_verdict verdict) {
    static const char *const names[] = {
        [RPI_GOSSIP_FITS] = "fits",         [RPI_GOSSIP_SLOW] = "small rates",
        [RPI_GOSSIP_VECTORS] = "vectors",   [RPI_GOSSIP_BIASED] = "biased",
        [RPI_GOSSIP_CHANGES] = "changes",   [RPI_GOSSIP_DIVERGES] = "diverges",
        [RPI_GOSSIP_UNSTABLE] = "unstable",
    };
    return names[verdict];
}

/* ---- what to say ---- */

/* Does this one fit, of as many ranks? What cannot be asked does not. */
static bool would_fit(const rpi_gossip_rule *rule, const char *text, int ranks) {
    rpi_topology *topology = NULL;
    rpi_gossip_fit fit = {.verdict = RPI_GOSSIP_DIVERGES};
    bool fits = rpi_topology_open(text, ranks, &topology) == RP_OK &&
                rpi_gossip_examine(rule, topology, &fit) == RP_OK &&
                fit.verdict == RPI_GOSSIP_FITS;
    rpi_topology_close(topology);
    return fits;
}

/* "torus, ring or star": those of the usual ones that fit, the algorithm's own first. */
static void name_those_that_fit(const rpi_gossip_rule *rule, int ranks, char *out_text,
                                size_t bytes) {
    static const char *const usual[] = {
        "base", "torus", "ring", "exponential:symmetric=on", "star", "exponential"};
    enum { USUAL = sizeof usual / sizeof usual[0] };
    const char *found[USUAL + 1];
    int count = 0;
    if (would_fit(rule, rule->topology, ranks)) found[count++] = rule->topology;
    for (int i = 0; i < USUAL && count < 4; i++)
        if (strcmp(usual[i], rule->topology) != 0 && would_fit(rule, usual[i], ranks))
            found[count++] = usual[i];
    out_text[0] = '\0';
    for (int i = 0; i < count; i++)
        rpi_append(out_text, bytes, "%s%s",
                   i == 0          ? ""
                   : i + 1 < count ? ", "
                                   : " or ",
                   found[i]);
    if (count == 0) rpi_append(out_text, bytes, "another algorithm");
}

static rp_status refuse_iteration(const rpi_gossip_rule *rule, const rpi_topology *topology,
                                  const rpi_gossip_fit *fit) {
    char others[160];
    name_those_that_fit(rule, topology->ranks, others, sizeof others);
    if (fit->verdict == RPI_GOSSIP_UNSTABLE)
        return RP_FAIL(INVALID,
                       "%s over topology %s with %d ranks diverges at usual learning rates (it "
                       "bears less than a twentieth of what gradient descent does); take %s",
                       rule->name, topology->text, topology->ranks, others);
    if (fit->radius < 1 + NEARLY)
        return RP_FAIL(INVALID,
                       "%s over topology %s with %d ranks never agrees: what they differ by "
                       "does not vanish; take %s",
                       rule->name, topology->text, topology->ranks, others);
    return RP_FAIL(INVALID,
                   "%s over topology %s with %d ranks diverges: what they differ by grows %.4g "
                   "times in each step, at any learning rate%s; take %s",
                   rule->name, topology->text, topology->ranks, fit->radius,
                   rule->needs ? rule->needs : "", others);
}

static rp_status refuse(const rpi_gossip_rule *rule, const rpi_topology *topology,
                        const rpi_gossip_fit *fit) {
    const char *text = topology->text;
    switch (fit->verdict) {
    case RPI_GOSSIP_VECTORS: return rpi_topology_check_single(topology);
    case RPI_GOSSIP_BIASED:
        if (rule->pushes)
            return RP_FAIL(
                INVALID,
                "%s needs a sender's weights, and those of topology %s do not sum to "
                "1 for each sender; add weights=sender",
                rule->name, text);
        return RP_FAIL(
            INVALID,
            "%s needs weights that sum to 1 for receivers and senders, and those of "
            "topology %s do not: its average would be biased; take another topology, "
            "or push-sum with weights=sender",
            rule->name, text);
    case RPI_GOSSIP_CHANGES:
        return RP_FAIL(INVALID,
                       "%s keeps copies of its neighbours, which must stay the same, and "
                       "topology %s changes them from round to round; take torus, ring or "
                       "exponential",
                       rule->name, text);
    default: return refuse_iteration(rule, topology, fit);
    }
}

rp_status rpi_gossip_check_fit(const rpi_gossip_rule *rule, const rpi_topology *topology,
                               rpi_gossip_fit *out_fit) {
    RP_TRY(rpi_gossip_examine(rule, topology, out_fit));
    return rpi_gossip_fits(out_fit) ? RP_OK : refuse(rule, topology, out_fit);
}

void rpi_gossip_advise(const rpi_gossip_rule *rule, const rpi_topology *topology,
                       const rpi_gossip_fit *fit, char out_text[RPI_GOSSIP_ADVICE]) {
    char others[160];
    out_text[0] = '\0';
    if (fit->verdict != RPI_GOSSIP_SLOW) return;
    name_those_that_fit(rule, topology->ranks, others, sizeof others);
    snprintf(out_text, RPI_GOSSIP_ADVICE,
             "%s over topology %.256s with %d ranks bears a tenth of the learning rate that "
             "gradient "
             "descent does, or less: ranks drift apart above it; %s bear more",
             rule->name, topology->text, topology->ranks, others);
}
