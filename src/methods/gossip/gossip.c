/* A rule (plan/gossip/gossip_rule.h), a topology's rounds and the exchange with neighbours, put
 * together. */
#include "redpoll/gossip.h"

#include "base/append.h"
#include "base/fpenv.h"
#include "base/memory.h"
#include "base/sized_options.h"
#include "base/status.h"
#include "methods/gossip/gossip_copies.h"
#include "methods/gossip/topology_rounds.h"
#include "plan/gossip/gossip_fit.h"

#include <string.h>

struct rp_gossip {
    rp_comm *comm; /* may be destroyed after the last post */
    int rank;
    rp_gossip_setup setup;
    const rpi_gossip_rule *rule;
    rpi_topology_rounds *rounds;
    rpi_gossip_fit fit;
    void *slots[RPI_GOSSIP_SLOTS];
    void *own[RPI_GOSSIP_SLOTS]; /* those that this object has allocated, and frees */
    double p, sent_p, mixed_p;   /* of a pushing rule; else 1 */
    rp_segment *segments;        /* of all that is sent, and where it goes */
    void **outputs;
    size_t segment_count;
    void *scratch;     /* to decode what was sent, of a rule with copies */
    double own_weight; /* of the exchange in flight, of a rule with copies */
    double
        fitting_gamma; /* the largest with which the codec is stable, of a rule with copies */
    int64_t step;      /* of the exchange in flight */
    bool has_begun;    /* the rule's `begin` has run */
    bool is_begun;     /* `before` has run, and `after` is due */
    bool is_posted;    /* an exchange that was not applied yet */
    bool is_exact;     /* its segments were sent without codecs */
};

/* ---- checks ---- */

/* The fit is of the ranks that there are. */
static rp_status find(const char *topology, const char *algorithm, int ranks, int rank,
                      const rpi_gossip_rule **out_rule, rpi_topology_rounds **out_rounds,
                      rpi_gossip_fit *out_fit) {
    RP_TRY(rpi_gossip_rule_find(algorithm ? algorithm : "atc", out_rule));
    if (!topology) topology = (*out_rule)->topology;
    RP_TRY(rpi_topology_rounds_open(topology, ranks, rank, out_rounds));
    rp_status status =
        rpi_gossip_check_fit(*out_rule, rpi_topology_rounds_of(*out_rounds), out_fit);
    if (status != RP_OK) {
        rpi_topology_rounds_close(*out_rounds);
        *out_rounds = NULL;
    }
    return status;
}

static rp_gossip_info info_of(const rpi_gossip_rule *rule) {
    int own = 0;
    for (int i = 0; i < rule->sends; i++) own += !rule->lies_in[i] + !rule->lies_in[2 + i];
    return (rp_gossip_info){.early = rpi_gossip_rule_is_early(rule),
                            .exchanged = rule->sends,
                            .states = rule->states,
                            .pushes = rule->pushes,
                            .held = rule->states + own,
                            .copies = rule->copies,
                            .topology = rule->topology};
}

rp_status rp_gossip_check(const char *topology, const char *algorithm, int ranks,
                          rp_gossip_info *out_info) {
    const rpi_gossip_rule *rule = NULL;
    rpi_topology_rounds *rounds = NULL;
    rpi_gossip_fit fit;
    RP_TRY(find(topology, algorithm, ranks, 0, &rule, &rounds, &fit));
    rpi_topology_rounds_close(rounds);
    if (out_info) *out_info = info_of(rule);
    return RP_OK;
}

/* ---- opening ---- */

static size_t bytes_of(const rp_gossip *g) {
    return g->setup.count * rp_dtype_bytes(g->setup.dtype);
}

static rp_status allocate_slot(rp_gossip *g, int slot) {
    RP_TRY(rpi_alloc(bytes_of(g), "gossip", &g->own[slot]));
    g->slots[slot] = g->own[slot];
    return RP_OK;
}

static rp_status allocate(rp_gossip *g) {
    g->slots[RPI_GOSSIP_X] = g->setup.x;
    g->slots[RPI_GOSSIP_GRADIENT] = g->setup.gradient;
    for (int i = 0; i < g->rule->states; i++) RP_TRY(allocate_slot(g, RPI_GOSSIP_STATE + i));
    static const int first[] = {RPI_GOSSIP_SENT, RPI_GOSSIP_MIXED};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < g->rule->sends; i++) {
            int host = g->rule->lies_in[2 * k + i], slot = first[k] + i;
            if (host)
                g->slots[slot] = g->slots[host - 1];
            else
                RP_TRY(allocate_slot(g, slot));
        }
    return RP_OK;
}

static void add_segment(rp_gossip *g, rp_segment segment, void *data, void *output) {
    segment.data = data;
    if (g->rule->copies)
        segment.residual =
            NULL; /* the next change brings what the codec has lost of this one */
    g->segments[g->segment_count] = segment;
    g->outputs[g->segment_count++] = output;
}

static rp_status add_vector(rp_gossip *g, int vector) {
    rp_segment whole = {.count = g->setup.count, .dtype = g->setup.dtype};
    const rp_segment *layout = g->setup.layouts[vector];
    size_t count = layout ? g->setup.layout_counts[vector] : 1, first = 0;
    for (size_t i = 0; i < count; i++) {
        rp_segment segment = layout ? layout[i] : whole;
        if (segment.dtype != g->setup.dtype || segment.count > g->setup.count - first)
            return RP_FAIL(INVALID,
                           "gossip: segment %zu of layout %d is of %zu %s, and vectors are of "
                           "%zu %s",
                           i, vector, segment.count, rp_dtype_name(segment.dtype),
                           g->setup.count, rp_dtype_name(g->setup.dtype));
        size_t offset = first * rp_dtype_bytes(g->setup.dtype);
        add_segment(g, segment, (char *)g->slots[RPI_GOSSIP_SENT + vector] + offset,
                    (char *)g->slots[RPI_GOSSIP_MIXED + vector] + offset);
        first += segment.count;
    }
    if (first == g->setup.count) return RP_OK;
    return RP_FAIL(INVALID, "gossip: layout %d is of %zu elements, and vectors are of %zu",
                   vector, first, g->setup.count);
}

static rp_status lay_out(rp_gossip *g) {
    size_t most = 3;
    for (int i = 0; i < 2; i++) most += g->setup.layout_counts[i];
    RP_TRY(rpi_alloc_array(most, sizeof *g->segments, "segments", &g->segments));
    RP_TRY(rpi_alloc_array(most, sizeof *g->outputs, "segments", &g->outputs));
    for (int i = 0; i < g->rule->sends; i++) RP_TRY(add_vector(g, i));
    rp_segment weight = {.count = 1, .dtype = RP_F64};
    if (g->rule->pushes) add_segment(g, weight, &g->sent_p, &g->mixed_p);
    g->setup.layouts[0] = g->setup.layouts[1] =
        NULL; /* they are the caller's memory, and nobody reads them again */
    return RP_OK;
}

/* A gamma is looked for even where the caller gives one: with some codecs no gamma is stable,
 * and these are refused. */
static rp_status prepare_copies(rp_gossip *g) {
    RP_TRY(rpi_copies_gamma(g->segments, g->segment_count, &g->fitting_gamma));
    if (g->setup.gamma == 0) g->setup.gamma = g->fitting_gamma;
    return rpi_alloc(rpi_copies_scratch(g->segments, g->segment_count), "gossip", &g->scratch);
}

static rp_status check_gamma(const rpi_gossip_rule *rule, double gamma) {
    if (gamma == 0 || (rule->copies && gamma > 0 && gamma <= 1)) return RP_OK;
    if (!rule->copies)
        return RP_FAIL(INVALID, "gossip: gamma is %g, and %s has none; choco does", gamma,
                       rule->name);
    return RP_FAIL(INVALID,
                   "gossip: gamma is %g; above 0 and up to 1 are allowed, and 0: chosen by the "
                   "codec",
                   gamma);
}

static rp_status read_setup(const rp_gossip_setup *given, rp_gossip_setup *out_own) {
    static const rpi_sized sized = {.name = "rp_gossip_setup",
                                    .initializer = "RP_GOSSIP_SETUP",
                                    .least = RPI_SIZE_UP_TO(rp_gossip_setup, gamma),
                                    .known = sizeof(rp_gossip_setup)};
    return rpi_sized_read(&sized, given, out_own);
}

static rp_status check_setup(const rp_comm *comm, const rp_gossip_setup *given,
                             rp_gossip **out_gossip, rp_gossip_setup *setup) {
    if (!comm || !given || !out_gossip)
        return RP_FAIL(INVALID, "gossip: %s is NULL",
                       !comm    ? "comm"
                       : !given ? "setup"
                                : "the place for the result");
    RP_TRY(read_setup(given, setup));
    if (setup->dtype != RP_F32 && setup->dtype != RP_F64)
        return RP_FAIL(INVALID, "gossip: dtype is %s; f32 and f64 are allowed",
                       rp_dtype_name(setup->dtype));
    if (setup->count && (!setup->x || !setup->gradient))
        return RP_FAIL(INVALID, "gossip: %s is NULL, and there are %zu elements",
                       setup->x ? "gradient" : "x", setup->count);
    return RP_OK;
}

rp_status rp_gossip_create(rp_comm *comm, const rp_gossip_setup *given,
                           rp_gossip **out_gossip) {
    rp_gossip *g = NULL;
    rp_gossip_setup own, *setup = &own;
    RP_TRY(check_setup(comm, given, out_gossip, setup));
    RP_TRY(rpi_alloc(sizeof *g, "gossip", &g));
    g->comm = comm;
    g->rank = rp_comm_rank(comm);
    g->setup = *setup;
    g->p = 1;
    rp_status status = find(setup->topology, setup->algorithm, rp_comm_world(comm),
                            rp_comm_rank(comm), &g->rule, &g->rounds, &g->fit);
    if (status == RP_OK) status = check_gamma(g->rule, setup->gamma);
    if (status == RP_OK) status = allocate(g);
    if (status == RP_OK) status = lay_out(g);
    if (status == RP_OK && g->rule->copies) status = prepare_copies(g);
    if (status == RP_OK)
        *out_gossip = g;
    else
        rp_gossip_destroy(g);
    return status;
}

void rp_gossip_destroy(rp_gossip *g) {
    if (!g) return;
    for (int i = 0; i < RPI_GOSSIP_SLOTS; i++) rpi_free(g->own[i]);
    rpi_free(g->scratch);
    rpi_free(g->segments);
    rpi_free(g->outputs);
    rpi_topology_rounds_close(g->rounds);
    rpi_free(g);
}

static rp_status check_open(const rp_gossip *g) {
    return g ? RP_OK : RP_FAIL(INVALID, "gossip is NULL");
}

void rp_gossip_get_info(const rp_gossip *g, rp_gossip_info *out_info) {
    if (!out_info)
        (void)RP_FAIL(INVALID, "info is NULL");
    else if (check_open(g) == RP_OK) {
        *out_info = info_of(g->rule);
        out_info->gamma = g->setup.gamma;
    }
}

/* ---- what should be known before the first step ---- */

/* From this multiple of the fitting gamma on, ranks drifted apart in some worlds. */
static const double MUCH_FARTHER = 2;

static void advise_gamma(const rp_gossip *g, char *text, size_t bytes) {
    if (!g->rule->copies || !(g->setup.gamma > MUCH_FARTHER * g->fitting_gamma)) return;
    rpi_append(
        text, bytes,
        "%s with a gamma of %.3g goes further towards neighbours' copies than this codec "
        "lets them be right, and ranks may drift apart; %.3g fits (what is taken where "
        "none is given)",
        g->rule->name, g->setup.gamma, g->fitting_gamma);
}

/* What a codec loses of parameters, or of gradients that are tracked, moves them. Copies are
 * different: the next change brings what this one has lost. */
static rp_status advise_codec(const rp_gossip *g, char *text, size_t bytes) {
    double taken = 1;
    if (g->rule->copies) return RP_OK;
    rp_status status = rpi_copies_taken(g->segments, g->segment_count, &taken);
    if (status != RP_OK) return status;
    if (taken >= (g->rule->sends > 1 ? .95 : .9)) return RP_OK;
    rpi_append(
        text, bytes,
        "%s%s sends parameters%s, and a codec of so few bits moves them: ranks may drift "
        "apart; take bf16, q8 or q4, or algorithm choco, which bears it",
        text[0] ? "; " : "", g->rule->name, g->rule->sends > 1 ? " and tracked gradients" : "");
    return RP_OK;
}

rp_status rp_gossip_advise(const rp_gossip *g, char *text, size_t bytes) {
    char topology[RPI_GOSSIP_ADVICE];
    RP_TRY(check_open(g));
    if (!text || !bytes) return RP_FAIL(INVALID, "gossip: no room for a text");
    text[0] = '\0';
    if (rpi_topology_rounds_of(g->rounds)->ranks == 1) return RP_OK;
    rpi_gossip_advise(g->rule, rpi_topology_rounds_of(g->rounds), &g->fit, topology);
    rpi_append(text, bytes, "%s", topology);
    advise_gamma(g, text, bytes);
    return advise_codec(g, text, bytes);
}

void *rp_gossip_state(rp_gossip *g, int index) {
    if (check_open(g) != RP_OK) return NULL;
    bool is_one = index >= 0 && index < g->rule->states;
    return is_one ? g->slots[RPI_GOSSIP_STATE + index] : NULL;
}

double rp_gossip_push_weight(const rp_gossip *g) {
    return check_open(g) == RP_OK ? g->p : 0;
}

rp_status rp_gossip_resume(rp_gossip *g, double push_weight) {
    RP_TRY(check_open(g));
    if (!(push_weight > 0))
        return RP_FAIL(INVALID, "gossip: push_weight is %g; it is above 0", push_weight);
    g->p = push_weight;
    g->has_begun = true;
    return RP_OK;
}

/* ---- steps ---- */

static void run_lines(rp_gossip *g, const rpi_gossip_line lines[RPI_GOSSIP_LINES],
                      double rate) {
    rpi_gossip_numbers numbers = {.rate = rate, .p = g->p, .gamma = g->setup.gamma};
    if (g->setup.dtype == RP_F64)
        rpi_gossip_lines_f64(lines, &numbers, g->setup.count, (double *const *)g->slots);
    else
        rpi_gossip_lines_f32(lines, &numbers, g->setup.count, (float *const *)g->slots);
}

static rp_status send(rp_gossip *g, const rp_neighbors *neighbors, rp_request **out_request) {
    rp_collective_options options =
        RP_COLLECTIVE_OPTIONS(.seed = g->setup.seed, .step = (uint64_t)g->step);
    g->sent_p = g->p;
    return rp_neighbor_all_reduce_start(g->comm, g->segments, g->outputs, g->segment_count,
                                        neighbors, &options, out_request);
}

/* Ranks exchange what has changed since the copies were made. Before the first exchange
 * there are no copies: x itself is sent, exactly, so that copies begin as x and a codec
 * has changes alone to carry. The own change counts as neighbours decode it:
 * add_own_change() sees to that. */
static rp_status send_changes(rp_gossip *g, const rp_neighbors *neighbors,
                              rp_request **out_request) {
    rp_neighbors others = *neighbors;
    others.self_weight = 0;
    g->own_weight = neighbors->self_weight;
    g->is_exact = !g->has_begun;
    if (!g->is_exact) return send(g, &others, out_request);
    rp_segment *lossy = g->segments;
    RP_TRY(rpi_alloc_array(g->segment_count, sizeof *g->segments, "segments", &g->segments));
    for (size_t i = 0; i < g->segment_count; i++) {
        g->segments[i] = lossy[i];
        g->segments[i].codec = (rp_codec){0};
    }
    rp_status status = send(g, &others, out_request);
    rpi_free(g->segments);
    g->segments = lossy;
    return status;
}

static rp_status add_own_change(rp_gossip *g) {
    void *sent = g->slots[RPI_GOSSIP_SENT], *mixed = g->slots[RPI_GOSSIP_MIXED];
    if (!g->is_exact)
        RP_TRY(rpi_copies_decode(g->segments, g->segment_count, g->setup.seed,
                                 (uint64_t)g->step, g->rank, g->scratch));
    for (size_t i = 0; i < g->setup.count; i++)
        if (g->setup.dtype == RP_F64)
            ((double *)mixed)[i] += g->own_weight * ((double *)sent)[i];
        else
            ((float *)mixed)[i] += (float)g->own_weight * ((float *)sent)[i];
    return RP_OK;
}

rp_status rp_gossip_post(rp_gossip *g, int64_t step, double rate, rp_request **out_request) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_open(g));
    if (!out_request) return RP_FAIL(INVALID, "request is NULL");
    if (step < 0)
        return RP_FAIL(INVALID, "gossip: step is %lld; is it negative?", (long long)step);
    if (g->is_posted)
        return RP_FAIL(STATE, "gossip: the exchange before step %lld was not applied",
                       (long long)step);
    const rp_neighbors *neighbors = NULL;
    RP_TRY(rpi_topology_rounds_at(g->rounds, step, &neighbors));
    if (!g->has_begun) run_lines(g, g->rule->begin, rate);
    run_lines(g, g->rule->before, rate);
    g->is_begun = true;
    g->step = step;
    RP_TRY(g->rule->copies ? send_changes(g, neighbors, out_request)
                           : send(g, neighbors, out_request));
    g->has_begun = g->is_posted = true;
    return RP_OK;
}

rp_status rp_gossip_apply(rp_gossip *g, double rate) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_open(g));
    if (!g->is_posted)
        return RP_FAIL(STATE, "gossip: nothing was posted that could be applied");
    g->is_posted = g->is_begun = false;
    if (g->rule->pushes) g->p = g->mixed_p;
    if (g->rule->copies) RP_TRY(add_own_change(g));
    run_lines(g, g->rule->after, rate);
    return RP_OK;
}

/* The exchange has failed, and this rank takes its step without neighbours: what it has sent
 * stands in for the sums, as if its row of W had its own entry alone. */
rp_status rp_gossip_alone(rp_gossip *g, double rate) {
    RPI_FPENV_SCOPE;
    RP_TRY(check_open(g));
    if (!g->is_begun)
        return RP_FAIL(STATE, "gossip: nothing was posted that this rank could do alone");
    if (g->rule->pushes)
        return RP_FAIL(UNSUPPORTED,
                       "gossip: %s shares a sum of which the lost rank has had a part; take "
                       "atc, awc, exact-diffusion, choco or gradient-tracking",
                       g->rule->name);
    g->is_posted = g->is_begun = false;
    if (g->rule->copies)
        return RP_OK; /* x has taken its step before the exchange, and the copies are of no use
                         any more */
    for (int i = 0; i < g->rule->sends; i++)
        memcpy(g->slots[RPI_GOSSIP_MIXED + i], g->slots[RPI_GOSSIP_SENT + i], bytes_of(g));
    run_lines(g, g->rule->after, rate);
    return RP_OK;
}
