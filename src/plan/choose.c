#include "plan/choose.h"

#include "plan/collective.h"

#include <limits.h>

/* Prices are models: a smaller difference than this one decides nothing. */
#define CLEAR_GAIN 0.05

/* Hosts among which all may send to all at once, and bytes below which more of them may. */
enum { FLAT_WORLD_MAX = 16, FLOOD_BYTES = 1024 * 1024, SIZE_CLASSES = 65 };

const rpi_cost_model rpi_nominal_links = {.bytes_per_s = 1.25e9,
                                          .latency_s = 20e-6,
                                          .encode_bytes_s = 8e9,
                                          .decode_add_bytes_s = 8e9,
                                          .frame_bytes = 64,
                                          .frame_s = 10e-6,
                                          .inside_bytes_per_s = 5e9,
                                          .inside_latency_s = 2e-6,
                                          .inside_frame_s = 1e-6,
                                          .turn_s = 10e-6};

/* What is asked, the same for all algorithms. */
typedef struct question {
    rpi_collective collective;
    const rpi_plan_request *request;
    const rpi_world_shape *shape;
    const rpi_cost_model *model;
    size_t bytes;
    bool lossy;
} question;

/* -1 stands for a number that grows with the world. */
static int encodings(const question *q, const rpi_algorithm *algorithm) {
    if (!q->lossy) return 0;
    return algorithm->quantisations < 0 ? INT_MAX : algorithm->quantisations;
}

static bool works(const question *q, const rpi_algorithm *algorithm) {
    return algorithm->collective == q->collective && !(q->lossy && algorithm->exact) &&
           algorithm->fits(q->request);
}

/* Several ranks on some of several hosts: only then is there more to win than rounds. */
static bool has_levels(const rpi_world_shape *shape) {
    return shape->hosts > 1 && shape->widest > 1;
}

static bool keeps_rank_order(const question *q) {
    const rpi_collective_kind *kind = rpi_collective_kind_of(q->collective);
    if (q->lossy || !kind->reduces) return false;
    return kind->rank_order || (q->shape->world <= FLAT_WORLD_MAX && !has_levels(q->shape));
}

/* All ranks send to all at once: of the algorithms those that visit everybody in one round. */
static bool floods(const question *q, const rpi_algorithm *algorithm) {
    const rpi_collective_kind *kind = rpi_collective_kind_of(q->collective);
    if (q->lossy || kind->has_root || kind->has_blocks || !algorithm->outline) return false;
    rpi_outline outline = algorithm->outline(q->shape);
    return q->shape->hosts > FLAT_WORLD_MAX && q->bytes >= FLOOD_BYTES &&
           outline.frames_between >= q->shape->hosts && outline.rounds_between <= 2 &&
           !algorithm->knows_hosts;
}

static bool waits_for_crowds(const question *q, const rpi_algorithm *algorithm) {
    return algorithm->for_crowds && !rpi_is_oversubscribed(q->shape->widest, q->model->cores);
}

static bool is_candidate(const question *q, const rpi_algorithm *algorithm) {
    if (!works(q, algorithm) || floods(q, algorithm)) return false;
    if (waits_for_crowds(q, algorithm)) return false;
    return !keeps_rank_order(q) || algorithm->rank_order;
}

static double price(const question *q, const rpi_algorithm *algorithm) {
    if (!algorithm->outline) return 0;
    rpi_outline outline = algorithm->outline(q->shape);
    return rpi_outline_price(&outline, q->shape, q->bytes, q->bytes, q->model);
}

static int fewest_encodings(const question *q) {
    const rpi_algorithm *it;
    int fewest = INT_MAX;
    for (int i = 0; (it = rpi_algorithm_at(i)) != NULL; i++)
        if (is_candidate(q, it) && encodings(q, it) < fewest) fewest = encodings(q, it);
    return fewest;
}

/* NULL: none. */
static const rpi_algorithm *choose(const question *q) {
    const rpi_algorithm *best = NULL, *it;
    int fewest = fewest_encodings(q);
    double best_s = 0;
    for (int i = 0; (it = rpi_algorithm_at(i)) != NULL; i++) {
        if (!is_candidate(q, it) || encodings(q, it) != fewest) continue;
        double time_s = price(q, it);
        if (best && time_s >= best_s * (1 - CLEAR_GAIN)) continue;
        best = it;
        best_s = time_s;
    }
    return best;
}

static int size_class(size_t bytes) {
    return bytes ? 64 - __builtin_clzll((unsigned long long)bytes) : 0;
}

static size_t least_of(int class) {
    return class ? (size_t)1 << (class - 1) : 0;
}

static rp_status fail_none(rpi_collective collective, int world) {
    return RP_FAIL(UNSUPPORTED, "no %s algorithm works in a world of %d",
                   rpi_collective_name(collective), world);
}

static rp_status ask(rpi_collective collective, const rpi_plan_request *request, bool lossy,
                     size_t bytes, const rpi_cost_model *model, rpi_world_shape *shape,
                     question *out_question) {
    RP_TRY(rpi_world_shape_make(request, shape));
    *out_question = (question){.collective = collective,
                               .request = request,
                               .shape = shape,
                               .model = model,
                               .bytes = least_of(size_class(bytes)),
                               .lossy = lossy};
    return RP_OK;
}

rp_status rpi_algorithm_choose(rpi_collective collective, const rpi_plan_request *request,
                               bool lossy, size_t bytes, const rpi_cost_model *model,
                               const rpi_algorithm **out_algorithm) {
    rpi_world_shape shape;
    question q;
    RP_TRY(ask(collective, request, lossy, bytes, model, &shape, &q));
    const rpi_algorithm *chosen = choose(&q);
    if (!chosen) return fail_none(collective, request->world);
    *out_algorithm = chosen;
    return RP_OK;
}

static const char *verdict(const question *q, const rpi_algorithm *algorithm,
                           const rpi_algorithm *chosen) {
    if (algorithm == chosen) return "chosen";
    if (!algorithm->fits(q->request)) return "does not work in this world";
    if (q->lossy && algorithm->exact) return "exact codecs only";
    if (waits_for_crowds(q, algorithm)) return "for many ranks a core";
    if (floods(q, algorithm)) return "all send to all at once: floods a switch";
    if (keeps_rank_order(q) && !algorithm->rank_order) return "not in rank order";
    if (encodings(q, algorithm) > encodings(q, chosen)) return "loses more: encodes more often";
    if (price(q, algorithm) >= price(q, chosen)) return "dearer by these links";
    return "not clearly cheaper by these links";
}

rp_status rpi_algorithm_verdict(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                                bool lossy, size_t bytes, const rpi_cost_model *model,
                                const char **out_words) {
    rpi_world_shape shape;
    question q;
    RP_TRY(ask(algorithm->collective, request, lossy, bytes, model, &shape, &q));
    const rpi_algorithm *chosen = choose(&q);
    if (!chosen) return fail_none(algorithm->collective, request->world);
    *out_words = verdict(&q, algorithm, chosen);
    return RP_OK;
}

void rpi_choices_make(const rpi_plan_request *request, const rpi_world_shape *shape,
                      const rpi_cost_model *model, rpi_choices *out_choices) {
    static const rpi_plan_request pair = {.world = 2}; /* whatever the world */
    static const rpi_world_shape of_pair = {
        .world = 2, .hosts = 2, .widest = 1, .leaving = 1, .turns = 1};
    question q = {.model = model};
    for (int collective = 0; collective < RPI_COLLECTIVES; collective++)
        for (int lossy = 0; lossy < 2; lossy++)
            for (int class = 0; class < SIZE_CLASSES; class ++) {
                q.collective = (rpi_collective)collective;
                bool paired = rpi_collective_kind_of(q.collective)->token_first;
                q.request = paired ? &pair : request;
                q.shape = paired ? &of_pair : shape;
                q.lossy = lossy;
                q.bytes = least_of(class);
                out_choices->by_size[collective][lossy][class] = choose(&q);
            }
}

rp_status rpi_choices_find(const rpi_choices *choices, rpi_collective collective, int world,
                           bool lossy, size_t bytes, const rpi_algorithm **out_algorithm) {
    const rpi_algorithm *chosen = choices->by_size[collective][lossy][size_class(bytes)];
    if (!chosen) return fail_none(collective, world);
    *out_algorithm = chosen;
    return RP_OK;
}
