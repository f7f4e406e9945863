#include "comm/gossip.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>

struct rpi_gossip {
    rpi_gossip_setup setup;
    const rpi_gossip_rule *rule;
    rpi_topology_rounds *rounds;
    void *slots[RPI_GOSSIP_SLOTS];
    double p, sent_p, mixed_p; /* of a pushing rule; else 1 */
    rp_segment *segments;      /* of all that is sent, and where it goes */
    void **outputs;
    size_t segment_count;
    rp_request *request; /* the step's exchange; NULL: not begun */
    bool has_begun;      /* the rule's `begin` has run */
};

/* ---- checks ---- */

/* Pushing rules divide by p what the rows have wrong; others take averages as they are. */
static rp_status check_sums(const rpi_topology_rounds *rounds, const rpi_gossip_rule *rule) {
    bool rows = false, columns = false;
    const char *text = rpi_topology_rounds_of(rounds)->text;
    RP_TRY(rpi_topology_rounds_sums(rounds, &rows, &columns));
    if (columns && (rows || rule->pushes)) return RP_OK;
    if (rule->pushes)
        return RP_FAIL(INVALID,
                       "%s needs a sender's weights, and those of topology %s do not sum to 1 "
                       "for each sender; add weights=sender",
                       rule->name, text);
    return RP_FAIL(INVALID,
                   "%s needs weights that sum to 1 for receivers and senders, and those of "
                   "topology %s do not: its average would be biased; take another topology, or "
                   "push-sum with weights=sender",
                   rule->name, text);
}

static rp_status find(const char *topology, const char *algorithm, int ranks, int rank,
                      const rpi_gossip_rule **out_rule, rpi_topology_rounds **out_rounds) {
    RP_TRY(rpi_gossip_rule_find(algorithm, out_rule));
    RP_TRY(rpi_topology_rounds_open(topology, ranks, rank, out_rounds));
    rp_status status = check_sums(*out_rounds, *out_rule);
    if (status != RP_OK) {
        rpi_topology_rounds_close(*out_rounds);
        *out_rounds = NULL;
    }
    return status;
}

rp_status rpi_gossip_check(const char *topology, const char *algorithm, int ranks) {
    const rpi_gossip_rule *rule = NULL;
    rpi_topology_rounds *rounds = NULL;
    rp_status status = find(topology, algorithm, ranks, 0, &rule, &rounds);
    rpi_topology_rounds_close(rounds);
    return status;
}

/* ---- opening ---- */

static size_t bytes_of(const rpi_gossip *g) {
    return g->setup.count * rp_dtype_bytes(g->setup.dtype);
}

static rp_status allocate(rpi_gossip *g) {
    int first[] = {RPI_GOSSIP_SENT, RPI_GOSSIP_MIXED, RPI_GOSSIP_STATE};
    int counts[] = {g->rule->sends, g->rule->sends, g->rule->states};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < counts[k]; i++)
            RP_TRY(rpi_alloc(bytes_of(g), "gossip", &g->slots[first[k] + i]));
    g->slots[RPI_GOSSIP_X] = g->setup.x;
    g->slots[RPI_GOSSIP_GRADIENT] = g->setup.gradient;
    return RP_OK;
}

static void add_segment(rpi_gossip *g, rp_segment segment, void *data, void *output) {
    segment.data = data;
    g->segments[g->segment_count] = segment;
    g->outputs[g->segment_count++] = output;
}

static rp_status add_vector(rpi_gossip *g, int vector) {
    rp_segment whole = {.count = g->setup.count, .dtype = g->setup.dtype};
    const rp_segment *layout = g->setup.layouts[vector];
    size_t count = layout ? g->setup.layout_counts[vector] : 1, first = 0;
    for (size_t i = 0; i < count; i++) {
        rp_segment segment = layout ? layout[i] : whole;
        size_t offset = first * rp_dtype_bytes(g->setup.dtype);
        add_segment(g, segment, (char *)g->slots[RPI_GOSSIP_SENT + vector] + offset,
                    (char *)g->slots[RPI_GOSSIP_MIXED + vector] + offset);
        first += segment.count;
    }
    if (first == g->setup.count) return RP_OK;
    return RP_FAIL(INTERNAL, "a layout of %zu elements for vectors of %zu", first,
                   g->setup.count);
}

static rp_status lay_out(rpi_gossip *g) {
    size_t most = 3;
    for (int i = 0; i < 2; i++) most += g->setup.layout_counts[i];
    RP_TRY(rpi_alloc_array(most, sizeof *g->segments, "segments", &g->segments));
    RP_TRY(rpi_alloc_array(most, sizeof *g->outputs, "segments", &g->outputs));
    for (int i = 0; i < g->rule->sends; i++) RP_TRY(add_vector(g, i));
    rp_segment weight = {.count = 1, .dtype = RP_F64};
    if (g->rule->pushes) add_segment(g, weight, &g->sent_p, &g->mixed_p);
    g->setup.layouts[0] = g->setup.layouts[1] = NULL; /* the caller's, and not needed again */
    return RP_OK;
}

rp_status rpi_gossip_open(const rpi_gossip_setup *setup, rpi_gossip **out_gossip) {
    rpi_gossip *g = NULL;
    RP_TRY(rpi_alloc(sizeof *g, "gossip", &g));
    g->setup = *setup;
    g->p = 1;
    rp_status status = find(setup->topology, setup->algorithm, rp_comm_world(setup->comm),
                            rp_comm_rank(setup->comm), &g->rule, &g->rounds);
    if (status == RP_OK) status = allocate(g);
    if (status == RP_OK) status = lay_out(g);
    if (status == RP_OK)
        *out_gossip = g;
    else
        rpi_gossip_close(g);
    return status;
}

void rpi_gossip_close(rpi_gossip *g) {
    if (!g) return;
    if (g->request) (void)rp_request_wait(&g->request);
    for (int i = RPI_GOSSIP_SENT; i < RPI_GOSSIP_SLOTS; i++) rpi_free(g->slots[i]);
    rpi_free(g->segments);
    rpi_free(g->outputs);
    rpi_topology_rounds_close(g->rounds);
    rpi_free(g);
}

const rpi_gossip_rule *rpi_gossip_rule_of(const rpi_gossip *g) {
    return g->rule;
}

void *rpi_gossip_state(rpi_gossip *g, int index) {
    return g->slots[RPI_GOSSIP_STATE + index];
}

double *rpi_gossip_push_weight(rpi_gossip *g) {
    return &g->p;
}

void rpi_gossip_resume(rpi_gossip *g) {
    g->has_begun = true;
}

/* ---- steps ---- */

static void run_lines(rpi_gossip *g, const rpi_gossip_line lines[RPI_GOSSIP_LINES],
                      double rate) {
    if (g->setup.dtype == RP_F64)
        rpi_gossip_lines_f64(lines, rate, g->p, g->setup.count, (double *const *)g->slots);
    else
        rpi_gossip_lines_f32(lines, (float)rate, (float)g->p, g->setup.count,
                             (float *const *)g->slots);
}

static bool uses(const rpi_gossip_line lines[RPI_GOSSIP_LINES], int slot) {
    for (int i = 0; i < RPI_GOSSIP_LINES; i++)
        for (int t = 0; t < RPI_GOSSIP_TERMS && lines[i].terms[t].halves; t++)
            if (lines[i].terms[t].slot == slot) return true;
    return false;
}

static rp_status post(rpi_gossip *g, int64_t step) {
    const rp_neighbors *neighbors = NULL;
    RP_TRY(rpi_topology_rounds_at(g->rounds, step, &neighbors));
    rp_collective_options options = {.seed = g->setup.seed, .step = (uint64_t)step};
    g->sent_p = g->p;
    return rp_neighbor_all_reduce_start(g->setup.comm, g->segments, g->outputs,
                                        g->segment_count, neighbors, &options, &g->request);
}

rp_status rpi_gossip_start(rpi_gossip *g, int64_t step) {
    if (uses(g->rule->before, RPI_GOSSIP_GRADIENT)) return RP_OK;
    run_lines(g, g->rule->before, 0);
    return post(g, step);
}

rp_status rpi_gossip_finish(rpi_gossip *g, int64_t step, double rate) {
    if (!g->has_begun) run_lines(g, g->rule->begin, rate);
    g->has_begun = true;
    if (!g->request) {
        run_lines(g, g->rule->before, rate);
        RP_TRY(post(g, step));
    }
    RP_TRY(rp_request_wait(&g->request));
    if (g->rule->pushes) g->p = g->mixed_p;
    run_lines(g, g->rule->after, rate);
    return RP_OK;
}
