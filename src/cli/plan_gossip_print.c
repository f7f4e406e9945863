/* What `redpoll plan gossip` says to people. */
#include "base/append.h"
#include "base/memory.h"
#include "base/wrap.h"
#include "cli/numbers.h"
#include "cli/plan_gossip.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- a round for people: edges of one weight on a line ---- */

typedef struct drawn { /* an edge to print; both: it goes the other way, too */
    rpi_fraction weight;
    int from, to;
    int from_vector, into_vector;
    bool both;
} drawn;

static int by_weight(const void *left, const void *right) {
    const drawn *a = left, *b = right;
    int64_t x = (int64_t)a->weight.times * b->weight.over;
    int64_t y = (int64_t)b->weight.times * a->weight.over;
    if (x != y) return x > y ? -1 : 1;
    if (a->into_vector != b->into_vector) return a->into_vector - b->into_vector;
    if (a->from_vector != b->from_vector) return a->from_vector - b->from_vector;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    return a->to < b->to ? -1 : 1;
}

static bool same_line(const drawn *a, const drawn *b) {
    return a->weight.times == b->weight.times && a->weight.over == b->weight.over &&
           a->into_vector == b->into_vector && a->from_vector == b->from_vector;
}

/* Does the edge go back with the same weight? */
static bool goes_back(const rpi_mixing *mixing, int to, const rpi_edge *edge) {
    rpi_edges out = rpi_mixing_out(mixing, to);
    for (int e = 0; e < out.count; e++)
        if (out.list[e].rank == edge->rank && out.list[e].into == edge->into &&
            out.list[e].from == edge->from)
            return out.list[e].weight.times == edge->weight.times &&
                   out.list[e].weight.over == edge->weight.over;
    return false;
}

static rp_status draw(const rpi_mixing *mixing, drawn **out_list, int *out_count) {
    drawn *list = NULL;
    int count = 0;
    size_t edges = (size_t)mixing->in_first[mixing->ranks];
    RP_TRY(rpi_alloc_array(edges, sizeof *list, "edges to print", &list));
    for (int rank = 0; rank < mixing->ranks; rank++) {
        rpi_edges in = rpi_mixing_in(mixing, rank);
        for (int e = 0; e < in.count; e++) {
            const rpi_edge *edge = &in.list[e];
            bool both = goes_back(mixing, rank, edge);
            if (both && edge->rank > rank) continue; /* printed with the other rank */
            list[count++] =
                (drawn){edge->weight, edge->rank, rank, edge->from, edge->into, both};
        }
    }
    if (count) qsort(list, (size_t)count, sizeof *list, by_weight);
    *out_list = list;
    *out_count = count;
    return RP_OK;
}

const char *rpi_gossip_fraction(rpi_fraction weight, char text[32]) {
    if (weight.over == 1)
        snprintf(text, 32, "%d", weight.times);
    else
        snprintf(text, 32, "%d/%d", weight.times, weight.over);
    return text;
}

/* "    3  1/2       0-1 2-3", broken between edges. */
typedef struct line {
    int head, column;
} line;
enum { WIDTH = 96 };

static void begin_line(line *l, const char *round, const char *weight, const char *vectors) {
    l->head = l->column = printf("%5s  %-9s%s", round, weight, vectors);
}

static void add_word(line *l, const char *format, ...) {
    char word[48];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(word, sizeof word, format, arguments);
    va_end(arguments);
    if (l->column + 1 + length > WIDTH) l->column = printf("\n%*s", l->head, "") - 1;
    l->column += printf(" %s", word);
}

/* Prints ranks whose own weight is not what the other weights of their row leave of 1; a rule
 * of senders makes such rows. */
static void print_kept(const rpi_mixing *mixing, bool rows) {
    char text[32];
    line l;
    if (rows || mixing->vectors > 1) return;
    begin_line(&l, "", "kept", "");
    for (int rank = 0; rank < mixing->ranks; rank++)
        add_word(&l, "%d:%s", rank,
                 rpi_gossip_fraction(rpi_mixing_own(mixing, rank).list->weight, text));
    printf("\n");
}

static rp_status print_edges(const rpi_mixing *mixing, int64_t step, bool rows) {
    drawn *list = NULL;
    int count = 0;
    char round[24], weight[32], vectors[16] = "";
    line l = {0};
    RP_TRY(draw(mixing, &list, &count));
    snprintf(round, sizeof round, "%lld", (long long)step);
    if (!count) printf("%5s  nobody sends\n", round);
    for (int i = 0; i < count; i++) {
        const drawn *it = &list[i];
        if (i == 0 || !same_line(it, it - 1)) {
            if (i) printf("\n");
            if (mixing->vectors > 1)
                snprintf(vectors, sizeof vectors, "  %c to %c ", 'A' + it->from_vector,
                         'A' + it->into_vector);
            begin_line(&l, i ? "" : round, rpi_gossip_fraction(it->weight, weight), vectors);
        }
        add_word(&l, "%d%c%d", it->from, it->both ? '-' : '>', it->to);
    }
    if (count) printf("\n");
    print_kept(mixing, rows);
    rpi_free(list);
    return RP_OK;
}

/* How many edges, to how many neighbours, by which weights, where there are too many to list.
 */
static void print_summary(const rpi_mixing *mixing, int64_t step) {
    int edges = 0, most = 0, idle = 0;
    double least_weight = INFINITY, most_weight = 0;
    for (int rank = 0; rank < mixing->ranks; rank++) {
        rpi_edges in = rpi_mixing_in(mixing, rank), out = rpi_mixing_out(mixing, rank);
        int sent = rpi_edges_ranks(out);
        edges += sent;
        if (sent > most) most = sent;
        idle += sent == 0 && in.count == 0;
        for (int e = 0; e < in.count; e++) {
            /* Not fmin() and fmax(): gcc 12 fails on that loop for AArch64. */
            double weight = rpi_edge_weight(&in.list[e]);
            if (weight < least_weight) least_weight = weight;
            if (weight > most_weight) most_weight = weight;
        }
    }
    printf("%5lld  %7d  %10d  %4d", (long long)step, edges, most, idle);
    if (!edges)
        printf("\n");
    else if (least_weight < most_weight)
        printf("  %.4g to %.4g\n", least_weight, most_weight);
    else
        printf("  %.4g\n", most_weight);
}

static rp_status print_rounds(const rpi_gossip_plan *plan, bool all) {
    enum { MOST_ROUNDS = 64 };
    rpi_mixing mixing = {0};
    rp_status status = RP_OK;
    int64_t rounds = plan->properties.rounds;
    if (!plan->topology->period && rounds > 4) rounds = 4;
    if (!all && rounds > MOST_ROUNDS) rounds = MOST_ROUNDS;
    printf(all ? "\nround  weight   %s edges\n"
               : "\nround    edges  most peers  idle  weights\n",
           plan->topology->vectors > 1 ? "  vectors" : "");
    for (int64_t step = 0; step < rounds && status == RP_OK; step++) {
        status = rpi_topology_mix(plan->topology, step, &mixing);
        if (status != RP_OK) break;
        if (all)
            status = print_edges(&mixing, step, plan->properties.rows);
        else
            print_summary(&mixing, step);
    }
    rpi_mixing_free(&mixing);
    if (!plan->topology->period)
        printf("  ...  and so on, drawn anew in each step\n");
    else if (rounds < plan->topology->period)
        printf("  ...  %lld more rounds\n", (long long)(plan->topology->period - rounds));
    if (!all) printf("--all lists every edge\n");
    return status;
}

/* ---- what it promises ---- */

static void print_fact(const char *name, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("  %-13s ", name);
    rpi_print_wrapped(stdout, text, 16, 16);
}

static const char *sums_text(const rpi_gossip_plan *plan) {
    const rpi_topology_properties *p = &plan->properties;
    if (plan->topology->vectors > 1)
        return "rows are 1 over both vectors; the average comes out at the end of a period";
    if (p->rows && p->columns)
        return p->symmetric ? "rows and columns are 1 (doubly stochastic), symmetric: averages "
                              "stay right"
                            : "rows and columns are 1 (doubly stochastic): averages stay right";
    if (p->rows)
        return "rows are 1, columns are not: ranks agree, on a weighted mean that is biased";
    if (p->columns)
        return "columns are 1, rows are not: the sum stays, and push-sum finds the average";
    return "neither rows nor columns are 1 in all rounds";
}

static void print_gap(const rpi_topology_properties *p) {
    if (isnan(p->second))
        print_fact("spectral gap", "not computed for more than %d ranks", RPI_PROPERTIES_RANKS);
    else if (p->second > 1 - 1e-12)
        print_fact("spectral gap", "0: ranks never agree");
    else if (p->second == 0)
        print_fact("spectral gap",
                   "1 over %lld round%s: nothing is left of what ranks differ by",
                   (long long)p->rounds, p->rounds == 1 ? "" : "s");
    else if (p->rounds == 1)
        print_fact("spectral gap", "%.6g; a round leaves %.4g of what ranks differ by",
                   1 - p->second, p->factor);
    else
        print_fact("spectral gap",
                   "%.6g over %lld rounds; a round leaves %.4g of what ranks differ by",
                   1 - p->second, (long long)p->rounds, p->factor);
}

static void print_exact(const rpi_topology_properties *p) {
    if (p->exact_rounds)
        print_fact("exact average", "after %d round%s%s", p->exact_rounds,
                   p->exact_rounds == 1 ? "" : "s",
                   p->exact_proved ? ", proved by fractions" : ", within 1e-9");
    else if (!isnan(p->second))
        print_fact("exact average",
                   p->second > 1 - 1e-12 ? "never" : "never; every round comes closer");
}

static void print_period(const rpi_gossip_plan *plan) {
    int64_t period = plan->topology->period;
    if (period == 1)
        print_fact("period", "1: every round is the same");
    else if (period)
        print_fact("period", "%lld rounds", (long long)period);
    else
        print_fact("period", "none: each step is drawn anew");
}

/* "awc, atc; not exact-diffusion (diverges), choco (changes)" */
static void print_rules(const rpi_gossip_plan *plan) {
    char good[256] = "", bad[256] = "";
    const rpi_gossip_rule *rule;
    for (int i = 0; i < RPI_GOSSIP_RULES && (rule = rpi_gossip_rule_at(i)) != NULL; i++) {
        const rpi_gossip_fit *fit = &plan->fits[i];
        bool fits = rpi_gossip_fits(fit);
        char *text = fits ? good : bad;
        rpi_append(text, sizeof good, "%s%s", text[0] ? ", " : "", rule->name);
        if (fit->verdict != RPI_GOSSIP_FITS)
            rpi_append(text, sizeof good, " (%s)", rpi_gossip_verdict_name(fit->verdict));
    }
    if (plan->topology->ranks > RPI_GOSSIP_JUDGED)
        print_fact("algorithms", "not looked at for more than %d ranks", RPI_GOSSIP_JUDGED);
    else
        print_fact("algorithms", "%s%s%s", good[0] ? good : "none", bad[0] ? "; not " : "",
                   bad);
}

static void print_promises(const rpi_gossip_plan *plan) {
    const rpi_topology_properties *p = &plan->properties;
    print_period(plan);
    print_fact("peers", "a rank sends to %d at most in a round, receives from %d%s",
               p->most_out, p->most_in,
               plan->topology->vectors > 1 ? "; it holds two vectors" : "");
    print_fact("sums", "%s", sums_text(plan));
    print_fact("connected", p->connected ? "yes" : "no: some ranks never hear of others");
    print_gap(p);
    print_exact(p);
    print_rules(plan);
}

/* ---- what it takes ---- */

static void print_prices(const rpi_gossip_plan *plan) {
    char texts[3][RPI_TIME_BYTES];
    int exact = plan->properties.exact_rounds;
    printf("\npredicted: a round %s, %.2f MB sent by the busiest rank",
           rpi_time_text(plan->mean.time_s, texts[0]), plan->mean.wire_bytes * 1e-6);
    if (plan->slowest.time_s > 1.01 * plan->mean.time_s)
        printf("; the slowest %s, %.2f MB", rpi_time_text(plan->slowest.time_s, texts[1]),
               plan->slowest.wire_bytes * 1e-6);
    printf("\n");
    if (exact > 1)
        printf("           the exact average %s\n",
               rpi_time_text(exact * plan->mean.time_s, texts[2]));
    if (plan->topology->ranks > 1)
        printf("           an all-reduce by %s %s, %.2f MB\n", plan->algorithm->name,
               rpi_time_text(plan->all_reduce.time_s, texts[0]),
               plan->all_reduce.wire_bytes * 1e-6);
}

rp_status rpi_gossip_print(const rpi_gossip_plan *plan, bool all) {
    int ranks = plan->topology->ranks;
    printf("gossip by %s, %d rank%s", plan->topology->text, ranks, ranks == 1 ? "" : "s");
    if (plan->hosts)
        printf(" on %lld host%s", (long long)plan->hosts, plan->hosts == 1 ? "" : "s");
    printf(", %.1f MB as %s (%.1f MB encoded), link %s", (double)plan->bytes * 1e-6,
           plan->codec, (double)plan->encoded * 1e-6, plan->link);
    if (plan->hosts) printf(", inside %s", plan->local);
    printf("\n");
    print_promises(plan);
    RP_TRY(print_rounds(plan, all));
    print_prices(plan);
    return RP_OK;
}
