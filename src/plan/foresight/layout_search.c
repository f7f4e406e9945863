#include "plan/foresight/layout_search.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"
#include "plan/context_lengths.h"

#include <string.h>

enum { MOST_MICRO_BATCH = 1024, FRONTIER = 0 };

typedef struct search {
    const rpi_open_choices *open;
    const rpi_machine *machine;
    int64_t ranks;
    int most;          /* FRONTIER: all layouts that no other beats */
    rp_status refusal; /* the first one, whose reason is kept, or that memory ran out */
    rpi_kept_error reason;
    rpi_found_layouts *out;
} search;

/* Options that were left open begin with their smallest numbers, so that the first refusal is
 * about the options that were given. */
static void refuse(search *s, rp_status status) {
    if (s->refusal != RP_OK && status != RP_NOMEM) return;
    s->refusal = status;
    rpi_error_keep(&s->reason);
}

/* Inserts it by its speed; there is room for one more. */
static void insert(rpi_found_layouts *found, const rpi_candidate *c) {
    rpi_candidate *best = found->best;
    int place = found->count++;
    while (place > 0 && best[place - 1].forecast.step_s > c->forecast.step_s) place--;
    memmove(best + place + 1, best + place, (size_t)(found->count - place - 1) * sizeof *best);
    best[place] = *c;
}

/* ---- layouts that no other beats ---- */

/* Is `a` no slower than `b`, with no more memory? */
static bool beats(const rpi_forecast *a, const rpi_forecast *b) {
    return a->step_s <= b->step_s && a->memory.all <= b->memory.all;
}

static bool is_beaten(const rpi_found_layouts *found, const rpi_forecast *f) {
    for (int i = 0; i < found->count; i++)
        if (beats(&found->best[i].forecast, f)) return true;
    return false;
}

/* Inserts it in place of all layouts that it beats. */
static rp_status keep_unbeaten(rpi_found_layouts *found, const rpi_candidate *c) {
    int left = 0;
    if (is_beaten(found, &c->forecast)) return RP_OK;
    for (int i = 0; i < found->count; i++)
        if (!beats(&c->forecast, &found->best[i].forecast))
            found->best[left++] = found->best[i];
    found->count = left;
    size_t count = (size_t)left;
    RP_TRY(rpi_grow_array(count, count + 1, sizeof *found->best, "layouts", &found->best));
    insert(found, c);
    return RP_OK;
}

/* ---- which are kept ---- */

static rp_status keep(search *s, const rpi_candidate *c) {
    if (s->most == FRONTIER) return keep_unbeaten(s->out, c);
    insert(s->out, c);
    if (s->out->count > s->most) s->out->count = s->most;
    return RP_OK;
}

/* Would it be kept even if its pipeline took the bound? */
static bool may_be_kept(const search *s, const rpi_forecast *bound) {
    if (s->most == FRONTIER) return !is_beaten(s->out, bound);
    return s->out->count < s->most || bound->step_s < s->out->best[s->most - 1].forecast.step_s;
}

static void try_layout(search *s, const rpi_training_layout *l) {
    rpi_candidate c = {.layout = *l};
    rp_status status = rpi_layout_check(l);
    if (status == RP_OK) status = rpi_forecast_bound(l, s->machine, &c.forecast);
    if (status != RP_OK) {
        refuse(s, status);
        return;
    }
    if (!s->out->tried++ || c.forecast.memory.all < s->out->least.forecast.memory.all)
        s->out->least = c;
    if (!c.forecast.fits) return;
    s->out->fitting++;
    if (!may_be_kept(s, &c.forecast)) return;
    if (l->pipeline > 1) status = rpi_forecast_step(l, s->machine, &c.forecast);
    if (status == RP_OK) status = keep(s, &c);
    if (status != RP_OK) refuse(s, status);
}

static void try_recomputations(search *s, rpi_training_layout l) {
    if (!s->open->recompute) {
        try_layout(s, &l);
        return;
    }
    for (int i = 0; i < RPI_RECOMPUTES; i++) {
        l.recompute = (rpi_recompute)i;
        if (l.fused_attention && l.recompute == RPI_RECOMPUTE_SELECTIVE) continue;
        try_layout(s, &l);
    }
}

/* ZeRO 1 and more need several ranks with the same parameters; ZeRO 2 and 3, which send after
 * each micro-batch, do not go with a pipeline. */
static void try_zeros(search *s, rpi_training_layout l) {
    int most = rpi_layout_sharers(&l) == 1 ? 0 : l.pipeline > 1 ? 1 : RPI_ZERO_MOST;
    for (int zero = 0; zero <= most; zero++) {
        if (!s->open->zero && zero != l.zero) continue;
        rpi_training_layout at = l;
        at.zero = zero;
        try_recomputations(s, at);
    }
    if (!s->open->zero && l.zero > most) try_recomputations(s, l);
}

static void try_micro_batches(search *s, rpi_training_layout l) {
    if (!s->open->micro_batch || l.global_batch % l.data) {
        try_zeros(s, l);
        return;
    }
    int64_t samples = l.global_batch / l.data;
    for (l.micro_batch = 1; l.micro_batch <= samples && l.micro_batch <= MOST_MICRO_BATCH;
         l.micro_batch *= 2)
        if (samples % l.micro_batch == 0) try_zeros(s, l);
}

static void try_pipelines(search *s, rpi_training_layout l) {
    int64_t left = s->ranks / (l.tensor * l.context), asked = l.pipeline, data = l.data;
    /* One stage has nothing to interleave. */
    int64_t fewest = l.interleave > 1 && left > 1 ? 2 : 1;
    for (int64_t p = s->open->pipeline ? fewest : 1; p <= left && p <= l.model.layers; p++) {
        if (left % p || (!s->open->pipeline && p != asked)) continue;
        if (!s->open->data && left / p != data) continue;
        l.pipeline = p;
        l.data = left / p;
        try_micro_batches(s, l);
    }
}

/* Tries the number of ranks that share sequences that the request gives, or all from `first`
 * on. */
static void try_contexts(search *s, rpi_training_layout l, int64_t first, int64_t most) {
    int64_t left = s->ranks / l.tensor, asked = l.context;
    for (int64_t c = s->open->context ? first : asked; c <= left && c <= most; c++) {
        l.context = c;
        bool wanted = !s->open->context || rpi_context_length_divides(c, l.sequence);
        if (left % c == 0 && wanted) try_pipelines(s, l);
        if (!s->open->context) return;
    }
}

static void try_tensors(search *s, const rpi_training_layout *request, int64_t first,
                        int64_t most) {
    for (int64_t t = 1; t <= s->ranks; t++) {
        rpi_training_layout l = *request;
        bool wanted = s->open->tensor ? t <= s->machine->ranks_per_host : t == request->tensor;
        if (s->ranks % t || !wanted) continue;
        l.tensor = t;
        if (s->open->tensor && t == 1) l.sequence_parallel = false;
        try_contexts(s, l, first, most);
    }
}

/* Ranks share sequences if these are long, or if nothing fits otherwise. */
static void try_layouts(search *s, const rpi_training_layout *request) {
    bool is_short = s->open->context && request->sequence < RPI_LONG_SEQUENCE;
    try_tensors(s, request, 1, is_short ? 1 : s->ranks);
    if (is_short && s->out->tried && !s->out->fitting) try_tensors(s, request, 2, s->ranks);
}

/* No layout was even tried: what was given does not divide the ranks, or is too much. */
static rp_status refuse_all(const rpi_training_layout *l, const rpi_open_choices *open,
                            int64_t ranks) {
    const struct {
        const char *name;
        bool is_open;
        int64_t value;
    } said[] = {{"--tp", open->tensor, l->tensor},
                {"--cp", open->context || l->context == 1, l->context},
                {"--pp", open->pipeline, l->pipeline},
                {"--dp", open->data, l->data}};
    char words[96] = "";
    double all = 1;
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        if (said[i].is_open) continue;
        rpi_append(words, sizeof words, "%s%s %lld", words[0] ? " times " : "", said[i].name,
                   (long long)said[i].value);
        all *= (double)said[i].value;
    }
    if (words[0] && (all > (double)ranks || ranks % (int64_t)all))
        return RP_FAIL(INVALID, "no layout of %lld ranks is legal: %s does not divide them",
                       (long long)ranks, words);
    return RP_FAIL(
        INVALID,
        "no layout of %lld ranks is legal: --tp, --cp, --pp and --dp have to multiply "
        "to them, with no more stages than layers and --tp within a host",
        (long long)ranks);
}

static rp_status try_all(const rpi_training_layout *request, const rpi_open_choices *open,
                         const rpi_machine *machine, int64_t ranks, int most,
                         rpi_found_layouts *out) {
    *out = (rpi_found_layouts){0};
    search s = {.open = open, .machine = machine, .ranks = ranks, .most = most, .out = out};
    rpi_fact peak;
    RP_TRY(rpi_plan_device_peak(&machine->device, request->precision->dtype, &peak));
    RP_TRY(rpi_alloc_array((size_t)most + 1, sizeof *out->best, "layouts", &out->best));
    try_layouts(&s, request);
    if (out->tried && s.refusal != RP_NOMEM) return RP_OK;
    rpi_free(out->best);
    *out = (rpi_found_layouts){0};
    if (s.refusal != RP_OK) rpi_error_put_back(&s.reason);
    if (s.refusal == RP_NOMEM) return s.refusal;
    if (s.refusal != RP_OK)
        return rpi_fail_context(s.refusal,
                                "no layout of %lld ranks is legal: ", (long long)ranks);
    return refuse_all(request, open, ranks);
}

rp_status rpi_layouts_search(const rpi_training_layout *request, const rpi_open_choices *open,
                             const rpi_machine *machine, int64_t ranks, int most,
                             rpi_found_layouts *out) {
    return try_all(request, open, machine, ranks, most, out);
}

rp_status rpi_layouts_frontier(const rpi_training_layout *request, const rpi_open_choices *open,
                               const rpi_machine *machine, int64_t ranks,
                               rpi_found_layouts *out) {
    return try_all(request, open, machine, ranks, FRONTIER, out);
}
