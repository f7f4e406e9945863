#include "plan/topologies/mixing.h"

#include "base/memory.h"
#include "plan/rational.h"

#include <stdlib.h>

static const char *const rule_names[RPI_WEIGHT_RULES] = {
    [RPI_WEIGHTS_GIVEN] = "given",
    [RPI_WEIGHTS_UNIFORM] = "uniform",
    [RPI_WEIGHTS_SENDER] = "sender",
    [RPI_WEIGHTS_METROPOLIS] = "metropolis-hastings",
};

const char *rpi_weight_rule_name(int rule) {
    return rule >= 0 && rule < RPI_WEIGHT_RULES ? rule_names[rule] : NULL;
}

static void free_order(rpi_mixing *mixing) {
    rpi_free(mixing->in);
    rpi_free(mixing->out);
    rpi_free(mixing->own);
    rpi_free(mixing->in_first);
    rpi_free(mixing->out_first);
    rpi_free(mixing->own_first);
    mixing->in = mixing->out = mixing->own = NULL;
    mixing->in_first = mixing->out_first = mixing->own_first = NULL;
}

void rpi_mixing_free(rpi_mixing *mixing) {
    free_order(mixing);
    rpi_free(mixing->links);
    *mixing = (rpi_mixing){0};
}

/* ---- for readers ---- */

static rpi_edges edges_of(const rpi_edge *list, const int *first, int rank) {
    return (rpi_edges){.list = list + first[rank], .count = first[rank + 1] - first[rank]};
}

rpi_edges rpi_mixing_in(const rpi_mixing *mixing, int rank) {
    return edges_of(mixing->in, mixing->in_first, rank);
}

rpi_edges rpi_mixing_out(const rpi_mixing *mixing, int rank) {
    return edges_of(mixing->out, mixing->out_first, rank);
}

rpi_edges rpi_mixing_own(const rpi_mixing *mixing, int rank) {
    return edges_of(mixing->own, mixing->own_first, rank);
}

int rpi_edges_ranks(rpi_edges edges) {
    int ranks = 0;
    for (int i = 0; i < edges.count; i++)
        ranks += i == 0 || edges.list[i].rank != edges.list[i - 1].rank;
    return ranks;
}

/* ---- writing ---- */

void rpi_mixing_start(rpi_mixing *mixing, int ranks, int vectors) {
    free_order(mixing);
    mixing->ranks = ranks;
    mixing->vectors = vectors;
    mixing->used = 0;
    mixing->status = RP_OK;
}

static rp_status append(rpi_mixing *mixing, rpi_mixing_entry link) {
    if (mixing->used == mixing->room) {
        if (mixing->used >= RPI_MIXING_EDGES)
            return RP_FAIL(UNSUPPORTED, "more than %d edges a round; all-reduce is cheaper",
                           RPI_MIXING_EDGES);
        size_t room = mixing->room ? 2 * mixing->room : 64;
        RP_TRY(rpi_grow_array(mixing->used, room, sizeof *mixing->links, "edges of a topology",
                              &mixing->links));
        mixing->room = room;
    }
    mixing->links[mixing->used++] = link;
    return RP_OK;
}

void rpi_mixing_weigh_vector(rpi_mixing *mixing, rpi_mixing_entry link) {
    if (mixing->status == RP_OK) mixing->status = append(mixing, link);
}

void rpi_mixing_weigh(rpi_mixing *mixing, int from, int to, rpi_fraction weight) {
    rpi_mixing_weigh_vector(mixing,
                            (rpi_mixing_entry){.to = to, .from = from, .weight = weight});
}

void rpi_mixing_link(rpi_mixing *mixing, int from, int to) {
    if (from != to) rpi_mixing_weigh(mixing, from, to, (rpi_fraction){0});
}

void rpi_mixing_clique(rpi_mixing *mixing, const int *ranks, int count) {
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            if (i != j) rpi_mixing_weigh(mixing, ranks[i], ranks[j], (rpi_fraction){1, count});
}

/* ---- weights ---- */

static rp_status narrow(const rpi_mixing_entry *link, rpi_rational wide,
                        rpi_fraction *out_weight) {
    if (wide.times < 0)
        return RP_FAIL(INVALID,
                       "rank %d puts %lld/%lld on the vector of rank %d; weights are 0 or "
                       "more, and what a rank takes from others at most 1 in all where it does "
                       "not say what it keeps",
                       link->to, (long long)wide.times, (long long)wide.over, link->from);
    if (wide.times > INT32_MAX || wide.over > INT32_MAX)
        return RP_FAIL(INVALID,
                       "the weight of rank %d for rank %d is %lld/%lld; numerator and "
                       "denominator may have 31 bits",
                       link->to, link->from, (long long)wide.times, (long long)wide.over);
    *out_weight = (rpi_fraction){(int32_t)wide.times, (int32_t)wide.over};
    return RP_OK;
}

static rpi_rational widen(rpi_fraction weight) {
    return rpi_rational_of(weight.times, weight.over);
}

static rp_status add_weights(const rpi_mixing_entry *link, rpi_rational a, rpi_rational b,
                             rpi_rational *out_sum) {
    if (rpi_rational_add(a, b, out_sum)) return RP_OK;
    return RP_FAIL(INVALID,
                   "the weights of rank %d have no common denominator of 63 bits; write them "
                   "as fractions of one denominator",
                   link->to);
}

static int by_place(const void *left, const void *right) {
    const rpi_mixing_entry *a = left, *b = right;
    if (a->to != b->to) return a->to < b->to ? -1 : 1;
    if (a->from != b->from) return a->from < b->from ? -1 : 1;
    if (a->into_vector != b->into_vector) return a->into_vector < b->into_vector ? -1 : 1;
    return (int)a->from_vector - (int)b->from_vector;
}

/* Equal places become one. */
static rp_status merge(rpi_mixing *mixing) {
    size_t kept = 0;
    if (mixing->used) qsort(mixing->links, mixing->used, sizeof *mixing->links, by_place);
    for (size_t i = 0; i < mixing->used; i++) {
        rpi_mixing_entry *link = &mixing->links[i],
                         *before = kept ? &mixing->links[kept - 1] : NULL;
        if (!before || by_place(before, link) != 0) {
            mixing->links[kept++] = *link;
        } else if (link->weight.over && before->weight.over) {
            rpi_rational sum = {0, 1};
            RP_TRY(add_weights(link, widen(before->weight), widen(link->weight), &sum));
            RP_TRY(narrow(link, sum, &before->weight));
        }
    }
    mixing->used = kept;
    return RP_OK;
}

typedef struct degrees {
    int *in, *out; /* [ranks], a rank itself not counted */
} degrees;

static rp_status count_degrees(const rpi_mixing *mixing, degrees *out_degrees) {
    size_t ranks = (size_t)mixing->ranks;
    RP_TRY(rpi_alloc_array(ranks, sizeof(int), "degrees", &out_degrees->in));
    RP_TRY(rpi_alloc_array(ranks, sizeof(int), "degrees", &out_degrees->out));
    for (size_t i = 0; i < mixing->used; i++) {
        const rpi_mixing_entry *link = &mixing->links[i];
        if (link->to == link->from) continue;
        out_degrees->in[link->to]++;
        out_degrees->out[link->from]++;
    }
    return RP_OK;
}

static bool has_link(const rpi_mixing *mixing, int from, int to) {
    rpi_mixing_entry wanted = {.to = to, .from = from};
    return bsearch(&wanted, mixing->links, mixing->used, sizeof wanted, by_place) != NULL;
}

static rp_status check_both_ways(const rpi_mixing *mixing) {
    for (size_t i = 0; i < mixing->used; i++) {
        const rpi_mixing_entry *link = &mixing->links[i];
        if (!has_link(mixing, link->to, link->from))
            return RP_FAIL(INVALID,
                           "rank %d sends to rank %d, which does not send back; "
                           "metropolis-hastings needs links in both directions, uniform and "
                           "sender do not",
                           link->from, link->to);
    }
    return RP_OK;
}

static int link_denominator(const rpi_mixing_entry *link, rpi_weight_rule rule,
                            const degrees *d) {
    if (rule == RPI_WEIGHTS_UNIFORM) return d->in[link->to] + 1;
    if (rule == RPI_WEIGHTS_SENDER) return d->out[link->from] + 1;
    int a = d->out[link->from], b = d->in[link->to];
    return (a > b ? a : b) + 1;
}

/* What a rank keeps is no link: of a rule it is known, else what is missing to 1. */
static rp_status apply_rule(rpi_mixing *mixing, rpi_weight_rule rule, const degrees *d) {
    size_t kept = 0;
    if (rule == RPI_WEIGHTS_METROPOLIS) RP_TRY(check_both_ways(mixing));
    for (size_t i = 0; i < mixing->used; i++) {
        rpi_mixing_entry link = mixing->links[i];
        if (link.to == link.from) continue;
        link.weight = (rpi_fraction){1, link_denominator(&link, rule, d)};
        mixing->links[kept++] = link;
    }
    mixing->used = kept;
    for (int rank = 0; rank < mixing->ranks && rule == RPI_WEIGHTS_SENDER; rank++)
        RP_TRY(append(mixing, (rpi_mixing_entry){
                                  .to = rank, .from = rank, .weight = {1, d->out[rank] + 1}}));
    return RP_OK;
}

/* What a rank that does not say it keeps: the rest of its row. */
static rp_status keep_the_rest(rpi_mixing *mixing) {
    size_t links = mixing->used, at = 0;
    for (int rank = 0; rank < mixing->ranks; rank++) {
        rpi_rational rest = {1, 1};
        rpi_mixing_entry own = {.to = rank, .from = rank};
        bool said = false;
        for (; at < links && mixing->links[at].to == rank; at++) {
            rpi_rational weight = widen(mixing->links[at].weight);
            said = said || mixing->links[at].from == rank;
            RP_TRY(add_weights(&own, rest, (rpi_rational){-weight.times, weight.over}, &rest));
        }
        if (said) continue;
        RP_TRY(narrow(&own, rest, &own.weight));
        RP_TRY(append(mixing, own));
    }
    return RP_OK;
}

static rp_status weigh(rpi_mixing *mixing, rpi_weight_rule rule) {
    RP_TRY(merge(mixing));
    if (rule != RPI_WEIGHTS_GIVEN) {
        degrees d = {0};
        rp_status status = count_degrees(mixing, &d);
        if (status == RP_OK) status = apply_rule(mixing, rule, &d);
        rpi_free(d.in);
        rpi_free(d.out);
        RP_TRY(status);
    }
    if (mixing->vectors == 1 && rule != RPI_WEIGHTS_SENDER) RP_TRY(keep_the_rest(mixing));
    return merge(mixing);
}

/* ---- order ---- */

/* Which list a link is in, and under which rank. */
typedef enum list_kind { IN, OUT, OWN } list_kind;

static bool is_listed(const rpi_mixing_entry *link, list_kind kind) {
    return (link->to == link->from) == (kind == OWN) &&
           (kind == OWN || link->weight.times != 0);
}

static rp_status make_list(const rpi_mixing *mixing, list_kind kind, rpi_edge **out_list,
                           int **out_first) {
    size_t ranks = (size_t)mixing->ranks;
    RP_TRY(rpi_alloc_array(mixing->used, sizeof **out_list, "edges of a topology", out_list));
    RP_TRY(rpi_alloc_array(ranks + 2, sizeof **out_first, "edges of a topology", out_first));
    int *first = *out_first;
    for (size_t i = 0; i < mixing->used; i++) {
        const rpi_mixing_entry *link = &mixing->links[i];
        if (is_listed(link, kind)) first[(kind == OUT ? link->from : link->to) + 2]++;
    }
    for (size_t rank = 0; rank < ranks; rank++) first[rank + 2] += first[rank + 1];
    /* first[rank + 1] is now where the next edge of the rank goes, and in the end its end. */
    for (size_t i = 0; i < mixing->used; i++) {
        const rpi_mixing_entry *link = &mixing->links[i];
        int rank = kind == OUT ? link->from : link->to;
        if (is_listed(link, kind))
            (*out_list)[first[rank + 1]++] =
                (rpi_edge){.rank = kind == OUT ? link->to : link->from,
                           .from = link->from_vector,
                           .into = link->into_vector,
                           .weight = link->weight};
    }
    return RP_OK;
}

rp_status rpi_mixing_finish(rpi_mixing *mixing, rpi_weight_rule rule) {
    RP_TRY(mixing->status);
    RP_TRY(weigh(mixing, rule));
    for (size_t i = 0; i < mixing->used; i++)
        RP_TRY(narrow(&mixing->links[i], widen(mixing->links[i].weight),
                      &mixing->links[i].weight));
    RP_TRY(make_list(mixing, IN, &mixing->in, &mixing->in_first));
    RP_TRY(make_list(mixing, OUT, &mixing->out, &mixing->out_first));
    return make_list(mixing, OWN, &mixing->own, &mixing->own_first);
}
