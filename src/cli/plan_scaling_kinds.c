/* What each strategy exchanges, and how long that takes: the schedules that run, priced. */
#include "base/memory.h"
#include "base/status.h"
#include "cli/plan_model.h"
#include "cli/plan_scaling.h"
#include "plan/algorithms.h"
#include "plan/choose.h"
#include "plan/gossip/gossip_rule.h"
#include "plan/outline.h"
#include "plan/topologies/topology.h"
#include "train/strategies/strategy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIMULATED = 32,   /* ranks up to which schedules are; beyond by their closed forms */
    MOST_PRICED = 16, /* rounds of a topology */
};

/* ---- values of a strategy's options ---- */

static const rpi_option *row_of(const rpi_strategy *strategy, const char *name) {
    const rpi_option *row = strategy->options;
    while (strcmp(row->name, name) != 0) row++; /* which are rows of the strategy's table */
    return row;
}

static int64_t count_of(const rpi_strategy *strategy, const void *options, const char *name) {
    int64_t value;
    memcpy(&value, (const char *)options + row_of(strategy, name)->offset, sizeof value);
    return value;
}

static const char *text_of(const rpi_strategy *strategy, const void *options,
                           const char *name) {
    const char *value;
    memcpy(&value, (const char *)options + row_of(strategy, name)->offset, sizeof value);
    return value;
}

/* ---- sums ---- */

static rp_status price_by(const rpi_scaling_world *w, const char *name, size_t bytes,
                          rpi_cost *out) {
    const rpi_algorithm *algorithm;
    rpi_world_shape shape;
    size_t encoded = rp_codec_encoded_bytes(&w->codec, RP_F32, bytes / sizeof(float));
    bool lossy = !rp_codec_is_exact(&w->codec, RP_F32);
    if (!name)
        return rpi_plan_all_reduce(&w->request, lossy, bytes, encoded, &w->model, SIMULATED,
                                   &algorithm, out);
    RP_TRY(rpi_algorithm_find(RPI_ALL_REDUCE, name, &algorithm));
    if (!rpi_algorithm_fits(algorithm, w->ranks))
        return RP_FAIL(INVALID, "%s is no all-reduce of %d ranks", name, w->ranks);
    if (w->ranks <= SIMULATED)
        return rpi_plan_cost(algorithm, &w->request, bytes, encoded, &w->model, out);
    RP_TRY(rpi_world_shape_make(&w->request, &shape));
    rpi_outline outline = algorithm->outline(&shape);
    *out = (rpi_cost){.time_s = rpi_outline_price(&outline, &shape, bytes, encoded, &w->model),
                      .wire_bytes = outline.host_bytes * (double)encoded};
    return RP_OK;
}

static size_t bytes_of(const rpi_scaling_world *w) {
    return w->count * sizeof(float);
}

/* Buckets are summed one after the other while gradients become final. The first one begins
 * when the backward pass has filled it, the last one when all are. */
static rp_status price_all_reduce(const rpi_scaling_world *w, const rpi_strategy *strategy,
                                  const void *options, rpi_scaling_exchange *x) {
    size_t bytes = bytes_of(w), bucket = w->bucket_bytes < bytes ? w->bucket_bytes : bytes;
    rpi_cost cost;
    (void)strategy, (void)options;
    RP_TRY(price_by(w, w->algorithm, bucket, &cost));
    double buckets = (double)bytes / (double)bucket;
    x->time_s = cost.time_s * buckets;
    x->wire_bytes = cost.wire_bytes * buckets;
    x->last_s = cost.time_s;
    x->window_s = w->work.backward_s * (1 - 1 / buckets);
    return RP_OK;
}

/* ---- neighbours ---- */

static rp_status price_topology(const rpi_scaling_world *w, const rpi_topology *topology,
                                rpi_scaling_exchange *x) {
    rpi_cost mean, slowest;
    rpi_mixing mixing = {0};
    size_t bytes = bytes_of(w), encoded = rp_codec_encoded_bytes(&w->codec, RP_F32, w->count);
    int64_t period = topology->period;
    int rounds = period > 0 && period < MOST_PRICED ? (int)period : MOST_PRICED;
    RP_TRY(rpi_plan_gossip_rounds(topology, rounds, &w->request, bytes, encoded, &w->model,
                                  &mean, &slowest));
    rp_status status = rpi_topology_mix(topology, 0, &mixing);
    for (int rank = 0; rank < w->ranks && status == RP_OK; rank++)
        x->waits_for = fmax(x->waits_for, 1 + rpi_mixing_in(&mixing, rank).count);
    rpi_mixing_free(&mixing);
    x->time_s = mean.time_s;
    x->wire_bytes = mean.wire_bytes;
    return status;
}

/* What training by a rule has beside the work of a rank alone: gradients are scaled; x is kept
 * before the optimizer's step, which afterwards is what x has moved, and undone; and the rule's
 * own lines. */
static double gossip_passes_s(const rpi_scaling_world *w, const rpi_gossip_rule *rule) {
    enum { SCALED = 2, KEPT = 2, TAKEN = 4 };
    double bytes = (SCALED + KEPT + TAKEN + rpi_gossip_rule_passes(rule)) * (double)bytes_of(w);
    return w->work.memory_bytes_s > 0 ? bytes / w->work.memory_bytes_s : 0;
}

/* A rank waits for its neighbours alone, of which there is one in most rounds. An exchange that
 * does not wait for gradients begins with the step, and both passes hide it, of which the one
 * forward is half as long as the one backward. Any other begins when the optimizer has run, and
 * nothing hides it. */
static rp_status price_gossip(const rpi_scaling_world *w, const rpi_strategy *strategy,
                              const void *options, rpi_scaling_exchange *x) {
    const char *text = text_of(strategy, options, "topology");
    const rpi_gossip_rule *rule = NULL;
    rpi_topology *topology = NULL;
    RP_TRY(rpi_gossip_rule_find(text_of(strategy, options, "algorithm"), &rule));
    RP_TRY(rpi_topology_open(text ? text : rule->topology, w->ranks, &topology));
    bool is_early = rpi_gossip_rule_is_early(rule);
    x->window_s = is_early ? fmin(w->work.compute_s, 1.5 * w->work.backward_s) : 0;
    x->core_s = gossip_passes_s(w, rule);
    x->waits_for = 1;
    rp_status status = price_topology(w, topology, x);
    rpi_topology_close(topology);
    return status;
}

/* ---- local steps ---- */

static rp_status price_local_sgd(const rpi_scaling_world *w, const rpi_strategy *strategy,
                                 const void *options, rpi_scaling_exchange *x) {
    rpi_cost cost;
    double fragments = (double)count_of(strategy, options, "fragments");
    double every = (double)count_of(strategy, options, "every");
    double delay = (double)count_of(strategy, options, "delay");
    size_t count = (size_t)ceil((double)w->count / fragments);
    RP_TRY(price_by(w, w->algorithm, count * sizeof(float), &cost));
    x->time_s = cost.time_s;
    x->wire_bytes = cost.wire_bytes;
    x->window_s = delay * w->work.compute_s;
    x->every = every / fragments;
    return RP_OK;
}

/* ---- servers ---- */

/* Every rank keeps a part, which all send to it and fetch from it. */
static rp_status price_shared(const rpi_scaling_world *w, rpi_scaling_exchange *x) {
    rpi_cost cost;
    RP_TRY(price_by(w, "sra", bytes_of(w), &cost));
    x->time_s = cost.time_s;
    x->wire_bytes = cost.wire_bytes;
    x->last_s = cost.time_s / 2; /* fetched when all have pushed */
    return RP_OK;
}

/* The busiest way of any host, where `bytes` go from each worker to the servers, which are the
 * first ranks, or back. */
static double busiest_s(const rpi_scaling_world *w, int servers, double bytes) {
    double most = 0, workers = w->ranks - servers;
    for (int first = 0; first < w->ranks; first += w->ranks_per_host) {
        int last = first + w->ranks_per_host < w->ranks ? first + w->ranks_per_host : w->ranks;
        double here = fmin(fmax(servers - first, 0), last - first), learn = last - first - here;
        double in = here / servers * (workers - learn) * bytes;
        double out = learn * (1 - here / servers) * bytes;
        double inside = fmax(learn, here > 0 ? 1 : 0) * here / servers * bytes;
        double between_s = w->model.bytes_per_s > 0 ? fmax(in, out) / w->model.bytes_per_s : 0;
        double inside_s =
            w->model.inside_bytes_per_s > 0 ? inside / w->model.inside_bytes_per_s : 0;
        most = fmax(most, fmax(between_s, inside_s));
    }
    return most +
           (w->ranks > w->ranks_per_host ? w->model.latency_s : w->model.inside_latency_s);
}

static rp_status price_servers(const rpi_scaling_world *w, const rpi_strategy *strategy,
                               const void *options, rpi_scaling_exchange *x) {
    const char *text = text_of(strategy, options, "servers");
    int servers = strategy->servers ? atoi(text) : 0; /* shared: 0 */
    double encoded = (double)rp_codec_encoded_bytes(&w->codec, RP_F32, w->count);
    x->window_s = w->work.backward_s;
    if (servers == 0) return price_shared(w, x);
    if (servers >= w->ranks)
        return RP_FAIL(INVALID, "%d servers leave no worker of %d ranks", servers, w->ranks);
    x->workers = x->waits_for = w->ranks - servers;
    x->last_s = busiest_s(w, servers, (double)bytes_of(w)); /* parameters come exact */
    x->time_s = busiest_s(w, servers, encoded) + x->last_s;
    x->wire_bytes = fmax(encoded, (double)bytes_of(w) * x->workers / servers);
    return RP_OK;
}

static const rpi_scaling_kind kinds[] = {
    {"all-reduce", price_all_reduce},
    {"gossip", price_gossip},
    {"local-sgd", price_local_sgd},
    {"parameter-server", price_servers},
};

const rpi_scaling_kind *rpi_scaling_kind_at(int index) {
    int count = (int)(sizeof kinds / sizeof kinds[0]);
    return index >= 0 && index < count ? &kinds[index] : NULL;
}
