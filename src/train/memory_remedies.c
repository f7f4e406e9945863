#include "train/memory_remedies.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

/* One way to train, by its changes of the options. */
typedef struct remedy {
    int64_t zero;
    int64_t tensor, context, stages;
    bool one_sample, repeats;
    double cost; /* the time that it costs, as a rough share of a step */
    int order;   /* of equal costs the first in the list wins */
} remedy;

/* The memory that a rank needs in one layout, for all stages of ZeRO. */
typedef struct counted {
    remedy of;
    double need[RPI_ZERO_STAGES];
} counted;

enum { SHAPES = 8, CONTEXTS = 3, ALL_SHAPES = SHAPES + CONTEXTS };
enum { REMEDIES = ALL_SHAPES * RPI_ZERO_STAGES * 4, COUNTED = ALL_SHAPES * 4 };

typedef struct search {
    const rpi_remedy_search *asked;
    remedy remedies[REMEDIES];
    int count;
    counted counted[COUNTED];
    int counted_count;
} search;

/* ---- what there is to try ---- */

/* The time in which stages wait for the first and the last micro-batch, as a share of the rest.
 */
static double bubble_of(const rpi_remedy_search *s, const remedy *r) {
    const rpi_train_options *o = s->options;
    int64_t now = rpi_train_axis(o->tensor_ranks) * rpi_train_axis(o->context_ranks) *
                  rpi_train_axis(o->stages);
    double runs = (double)(s->runs * r->tensor * r->context * r->stages) / (double)now;
    if (r->one_sample) runs *= (double)s->together;
    return (double)(r->stages - 1) / runs;
}

/* Roughly what `redpoll train` was measured to take longer (docs/training.md,
 * docs/parallel.md): ranks with ZeRO gather and scatter more, with pipeline stages after each
 * micro-batch; activations are computed twice; runs of one sample use a core less well; layers,
 * keys and stages are waited for. */
static double cost_of(const rpi_remedy_search *s, const remedy *r) {
    static const double of_zero[RPI_ZERO_STAGES] = {0, 0.01, 0.05, 0.15};
    const rpi_train_options *o = s->options;
    double cost = of_zero[r->zero] + (r->repeats ? 0.3 : 0) + (r->one_sample ? 0.2 : 0);
    if (r->tensor != rpi_train_axis(o->tensor_ranks))
        cost += 0.15 + 0.05 * log2((double)r->tensor);
    if (r->context != rpi_train_axis(o->context_ranks))
        cost += 0.2 + 0.05 * log2((double)r->context);
    if (r->stages != rpi_train_axis(o->stages)) cost += 0.05 + bubble_of(s, r);
    if (r->stages > 1 && r->zero > 1) cost += 0.2;
    return cost;
}

static void add(search *s, remedy r) {
    if (s->count == REMEDIES) return;
    r.cost = cost_of(s->asked, &r);
    r.order = s->count;
    s->remedies[s->count++] = r;
}

static void add_shape(search *s, int64_t tensor, int64_t context, int64_t stages) {
    const rpi_train_options *o = s->asked->options;
    for (int64_t zero = o->zero; zero < RPI_ZERO_STAGES; zero++)
        for (int one = 0; one <= (s->asked->together > 1); one++)
            for (int twice = o->recompute; twice <= (o->recompute || s->asked->repeats);
                 twice++)
                add(s, (remedy){.zero = zero,
                                .tensor = tensor,
                                .context = context,
                                .stages = stages,
                                .one_sample = one,
                                .repeats = twice && !o->recompute});
}

/* Lists the present layout, and layouts with more ranks a replica, the fewest first. */
static void list_shapes(search *s) {
    const rpi_train_options *o = s->asked->options;
    int64_t world = s->asked->world, tensor = rpi_train_axis(o->tensor_ranks);
    int64_t stages = rpi_train_axis(o->stages), context = rpi_train_axis(o->context_ranks);
    int shapes = 0;
    for (int64_t ranks = tensor * stages; ranks * context <= world && shapes < SHAPES; ranks++)
        for (int64_t t = tensor; t <= ranks && shapes < SHAPES; t++) {
            if (world % (ranks * context) || ranks % t || ranks / t < stages) continue;
            add_shape(s, t, context, ranks / t);
            shapes++;
        }
}

/* Lists more ranks for each sequence, with the same number for layers. */
static void list_contexts(search *s) {
    const rpi_train_options *o = s->asked->options;
    int64_t others = rpi_train_axis(o->tensor_ranks) * rpi_train_axis(o->stages);
    int shapes = 0;
    for (int64_t c = rpi_train_axis(o->context_ranks) + 1;
         others * c <= s->asked->world && shapes < CONTEXTS; c++) {
        if (s->asked->world % (others * c)) continue;
        add_shape(s, rpi_train_axis(o->tensor_ranks), c, rpi_train_axis(o->stages));
        shapes++;
    }
}

static int by_cost(const void *a, const void *b) {
    const remedy *x = a, *y = b;
    if (x->cost < y->cost || x->cost > y->cost) return x->cost < y->cost ? -1 : 1;
    return x->order - y->order;
}

/* ---- trying ---- */

/* The options with the changes of a remedy. */
static rpi_train_options options_with(const search *s, const remedy *r) {
    rpi_train_options o = *s->asked->options;
    o.zero = r->zero;
    o.tensor_ranks = r->tensor;
    o.context_ranks = r->context;
    o.stages = r->stages;
    o.replicas = 0;
    o.recompute = o.recompute || r->repeats;
    if (r->one_sample) o.micro_batch_size = 1;
    return o;
}

static bool is_same_layout(const remedy *a, const remedy *b) {
    return a->tensor == b->tensor && a->context == b->context && a->stages == b->stages &&
           a->repeats == b->repeats && a->one_sample == b->one_sample;
}

static double need_of(search *s, const remedy *r, const rpi_train_options *changed) {
    int i = 0;
    while (i < s->counted_count && !is_same_layout(&s->counted[i].of, r)) i++;
    if (i == s->counted_count) {
        s->counted[i].of = *r;
        s->asked->need(s->asked->context, changed, s->counted[i].need);
        s->counted_count++;
    }
    return s->counted[i].need[r->zero];
}

static void tell(const rpi_train_options *o, const remedy *r, char *text, size_t bytes) {
    const char *and = "";
    text[0] = '\0';
    if (r->tensor != rpi_train_axis(o->tensor_ranks)) {
        rpi_append(text, bytes, "--tp %lld", (long long)r->tensor);
        and = " and ";
    }
    if (r->context != rpi_train_axis(o->context_ranks)) {
        rpi_append(text, bytes, "%s--cp %lld", and, (long long)r->context);
        and = " and ";
    }
    if (r->stages != rpi_train_axis(o->stages)) {
        rpi_append(text, bytes, "%s--pp %lld", and, (long long)r->stages);
        and = " and ";
    }
    if (r->zero != o->zero) {
        rpi_append(text, bytes, "%s--zero %lld", and, (long long)r->zero);
        and = " and ";
    }
    if (r->repeats) {
        rpi_append(text, bytes, "%s--recompute", and);
        and = " and ";
    }
    if (r->one_sample) rpi_append(text, bytes, "%s--micro-batch-size 1", and);
}

static rp_status try_all(search *s, char *text, size_t bytes) {
    for (int i = 0; i < s->count; i++) {
        const remedy *r = &s->remedies[i];
        rpi_train_options changed = options_with(s, r);
        bool fits = false;
        if (rpi_train_check(&changed, s->asked->world) != RP_OK) continue;
        RP_TRY(s->asked->fits(s->asked->context, need_of(s, r, &changed), &fits));
        if (!fits) continue;
        tell(s->asked->options, r, text, bytes);
        return RP_OK;
    }
    return RP_OK;
}

rp_status rpi_remedy_find(const rpi_remedy_search *asked, char *text, size_t bytes) {
    search *s = NULL;
    text[0] = '\0';
    RP_TRY(rpi_alloc(sizeof *s, "remedies", &s));
    s->asked = asked;
    list_shapes(s);
    list_contexts(s);
    qsort(s->remedies, (size_t)s->count, sizeof *s->remedies, by_cost);
    rp_status status = try_all(s, text, bytes);
    rpi_free(s);
    return status;
}
