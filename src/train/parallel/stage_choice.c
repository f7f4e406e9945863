#include "train/parallel/stage_choice.h"

#include "base/append.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"

#include <stdio.h>
#include <string.h>

static bool is_auto(const char *schedule) {
    return schedule && strcmp(schedule, "auto") == 0;
}

static bool is_word(const char *cut, const char *word) {
    return cut && strcmp(cut, word) == 0;
}

static bool is_named(const char *cut) {
    return cut && !is_word(cut, "counted") && !is_word(cut, "measured");
}

bool rpi_stage_choice_is_open(const char *schedule, const char *cut) {
    return is_auto(schedule) || is_word(cut, "measured");
}

/* The names of the kinds, and after them "auto". */
static const char *schedule_at(const void *context, int index) {
    const rpi_pipeline_kind *kind = rpi_pipeline_kind_at(index);
    (void)context;
    if (kind) return kind->name;
    return index && rpi_pipeline_kind_at(index - 1) ? "auto" : NULL;
}

rp_status rpi_stage_schedule_check(const char *schedule) {
    int index = 0;
    return rpi_name_find("schedule", schedule, schedule_at, NULL, &index);
}

static rp_status kind_of(const rpi_stage_request *r, const rpi_pipeline_kind **out) {
    return rpi_pipeline_kind_find(r->schedule ? r->schedule : "1f1b", out);
}

/* ---- parts by the names of the layers that they begin with ---- */

static int layer_named(const rpi_model_layers *layers, const char *name, size_t length) {
    for (int i = 1; i < layers->count; i++)
        if (strncmp(layers->names[i], name, length) == 0 && !layers->names[i][length]) return i;
    return -1;
}

/* Reads into first[0 ... *out_parts]; *out_bad: a name that is unknown or comes too early. */
static bool read_names(const rpi_model_layers *layers, const char *text, char between,
                       int *first, int *out_parts, const char **out_bad) {
    int parts = 1, layer;
    first[0] = 0;
    for (const char *at = text; *at; parts++) {
        const char *end = strchr(at, between);
        size_t length = end ? (size_t)(end - at) : strlen(at);
        *out_bad = at;
        layer = layer_named(layers, at, length);
        if (layer < 0 || layer <= first[parts - 1]) return false;
        first[parts] = layer;
        at += length + (end != NULL);
        *out_bad = at;
        if (end && !*at) return false; /* false: a comma is the last character */
    }
    first[parts] = layers->count;
    *out_parts = parts;
    return true;
}

static rp_status refuse_name(const rpi_stage_request *r, const char *bad) {
    char there[160] = "";
    const rpi_model_layers *l = r->layers;
    enum { SHOWN = 6 };
    for (int i = 1; i < l->count && i < SHOWN; i++)
        rpi_append(there, sizeof there, "%s%s", i > 1 ? ", " : "", l->names[i]);
    if (l->count > SHOWN) rpi_append(there, sizeof there, " ... %s", l->names[l->count - 1]);
    return RP_FAIL(INVALID,
                   "--stage-cut %s: no stage can begin with '%.*s' there; in this order can %s",
                   r->cut, (int)strcspn(bad, ","), bad, there);
}

static rp_status read_cut(const rpi_stage_request *r, int **out_first, int *out_parts) {
    int *first = NULL;
    const char *bad = r->cut;
    RP_TRY(rpi_alloc_array((size_t)r->layers->count + 1, sizeof *first, "parts", &first));
    if (!read_names(r->layers, r->cut, ',', first, out_parts, &bad)) {
        rpi_free(first);
        return refuse_name(r, bad);
    }
    *out_first = first;
    return RP_OK;
}

/* ---- what a run before has taken ---- */

/* A resumed run keeps what was priced; what was asked for is asked for again. */
#define PRICED "priced"
#define ASKED  "asked"

/* Reads the kind and the rest of the record; false: the record is of another pipeline. */
static bool read_record(const rpi_stage_request *r, const rpi_pipeline_kind **out_kind,
                        const char **out_names) {
    char kind[32];
    int stages = 0, micro_batches = 0, used = 0;
    if (!r->record ||
        sscanf(r->record, PRICED " %31s %d %d %n", kind, &stages, &micro_batches, &used) != 3)
        return false;
    *out_names = r->record + used;
    return stages == r->stages && micro_batches == r->micro_batches &&
           rpi_pipeline_kind_find(kind, out_kind) == RP_OK &&
           (!r->whole || rpi_pipeline_is_whole(*out_kind));
}

static bool has_parts(const rpi_pipeline_kind *kind, int stages, int parts) {
    rpi_pipeline_shape shape;
    return rpi_pipeline_shape_make(kind, stages, 1, 0, &shape) == RP_OK &&
           shape.stages * shape.chunks == parts;
}

static rp_status take_record(const rpi_stage_request *r, rpi_stage_choice *choice,
                             bool *out_taken) {
    const rpi_pipeline_kind *kind = NULL, *asked = NULL;
    const char *names = NULL, *bad;
    int *first = NULL, parts = 0;
    *out_taken = false;
    if (!rpi_stage_choice_is_open(r->schedule, r->cut) || !read_record(r, &kind, &names))
        return RP_OK;
    if (!is_auto(r->schedule)) {
        RP_TRY(kind_of(r, &asked));
        if (kind != asked) return RP_OK;
    }
    RP_TRY(rpi_alloc_array((size_t)r->layers->count + 1, sizeof *first, "parts", &first));
    if (read_names(r->layers, names, ' ', first, &parts, &bad) &&
        has_parts(kind, r->stages, parts)) {
        choice->schedule = kind;
        choice->first = first;
        *out_taken = true;
        return RP_OK;
    }
    rpi_free(first);
    return RP_OK;
}

bool rpi_stage_choice_measures(const rpi_stage_request *r) {
    rpi_stage_choice before = {0};
    bool taken = false;
    if (!rpi_stage_choice_is_open(r->schedule, r->cut)) return false;
    bool measures = take_record(r, &before, &taken) != RP_OK || !taken;
    rpi_free(before.first);
    return measures;
}

void rpi_stage_record(const rpi_stage_request *r, const rpi_stage_choice *c,
                      char text[RPI_STAGE_RECORD]) {
    text[0] = '\0';
    rpi_append(text, RPI_STAGE_RECORD, "%s %s %d %d",
               rpi_stage_choice_is_open(r->schedule, r->cut) ? PRICED : ASKED,
               c->schedule->name, r->stages, r->micro_batches);
    for (int part = 1; c->first[part] < r->layers->count; part++)
        rpi_append(text, RPI_STAGE_RECORD, " %s", r->layers->names[c->first[part]]);
    if (strlen(text) + 1 >= RPI_STAGE_RECORD) text[0] = '\0';
}

/* ---- by price ---- */

/* What is priced: layers by their times; or, with named parts, those parts; or layers whose
 * total time is divided in proportion to their operations. */
typedef struct priced {
    rpi_pipeline_layer *layers;
    int count;
    int *named; /* owned: the named parts; NULL: none are named */
} priced;

static void close_priced(priced *p) {
    rpi_free(p->layers);
    rpi_free(p->named);
}

static void add(const rpi_pipeline_layer *from, double share, rpi_pipeline_layer *to) {
    to->forward_s += share * from->forward_s;
    to->inputs_s += share * from->inputs_s;
    to->weights_s += share * from->weights_s;
    to->whole_s += share * from->whole_s;
}

static void add_bytes(const rpi_pipeline_layer *from, rpi_pipeline_layer *to) {
    to->kept_bytes += from->kept_bytes;
    to->weights_bytes += from->weights_bytes;
}

static void share_out(const rpi_stage_request *r, priced *p) {
    rpi_pipeline_layer all = {0};
    double operations = 0;
    for (int i = 0; i < p->count; i++) {
        add(&r->times[i], 1, &all);
        operations += r->costs[i];
    }
    for (int i = 0; i < p->count; i++) {
        p->layers[i] = (rpi_pipeline_layer){.name = r->layers->names[i]};
        add(&all, operations > 0 ? r->costs[i] / operations : 1.0 / p->count, &p->layers[i]);
        add_bytes(&r->times[i], &p->layers[i]);
    }
}

static void merge(const rpi_stage_request *r, priced *p) {
    for (int part = 0; part < p->count; part++) {
        p->layers[part] = (rpi_pipeline_layer){.name = r->layers->names[p->named[part]]};
        for (int i = p->named[part]; i < p->named[part + 1]; i++) {
            add(&r->times[i], 1, &p->layers[part]);
            add_bytes(&r->times[i], &p->layers[part]);
        }
    }
}

static rp_status make_priced(const rpi_stage_request *r, priced *p) {
    p->count = r->layers->count;
    if (is_named(r->cut)) RP_TRY(read_cut(r, &p->named, &p->count));
    RP_TRY(rpi_alloc_array((size_t)p->count, sizeof *p->layers, "layers", &p->layers));
    if (p->named)
        merge(r, p);
    else if (is_word(r->cut, "counted"))
        share_out(r, p);
    else
        memcpy(p->layers, r->times, (size_t)p->count * sizeof *p->layers);
    return RP_OK;
}

/* Do the first and the last part read one table? On one stage its gradients would be added up
 * in another order. */
static bool ends_are_tied(const rpi_stage_request *r) {
    const int *first = r->layers->first_node;
    const rpi_network_part head = {.first_node = 0, .end_node = first[1]};
    const rpi_network_part tail = {.first_node = first[r->layers->count - 1],
                                   .end_node = first[r->layers->count]};
    for (int i = 0; i < r->network->parameter_count; i++)
        if (rpi_network_part_reads(r->network, &head, i) &&
            rpi_network_part_reads(r->network, &tail, i))
            return true;
    return false;
}

/* Times of steps that differ by less are measured as equal. */
#define NEAR 0.02

static rpi_pipeline_request request_of(const rpi_stage_request *r, const priced *p) {
    return (rpi_pipeline_request){.stages = r->stages,
                                  .micro_batches = r->micro_batches,
                                  .model = *r->links,
                                  .layers = p->layers,
                                  .layer_count = p->count,
                                  .memory_bytes = r->memory_bytes,
                                  .parts = p->named ? p->count : 0,
                                  .ends_apart = ends_are_tied(r),
                                  .whole = r->whole,
                                  .near = NEAR};
}

static const rpi_pipeline_row *row_named(const rpi_pipeline_row *rows, int count,
                                         const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(rows[i].kind->name, name) == 0) return &rows[i];
    return NULL;
}

static double border_s(const rpi_pipeline_model *m) {
    double far_s = m->latency_s + (m->bytes_per_s > 0 ? m->border_bytes / m->bytes_per_s : 0);
    double near_s = m->inside_latency_s +
                    (m->inside_bytes_per_s > 0 ? m->border_bytes / m->inside_bytes_per_s : 0);
    return far_s > near_s ? far_s : near_s;
}

static void tell(const rpi_stage_request *r, const rpi_pipeline_row *rows, int count,
                 const rpi_pipeline_row *best, rpi_stage_choice *c) {
    const rpi_pipeline_row *usual = row_named(rows, count, "1f1b");
    rpi_pipeline_layer all = {0};
    for (int i = 0; i < r->layers->count; i++) add(&r->times[i], 1, &all);
    rpi_append(c->note, sizeof c->note,
               "--schedule auto takes %s: a step of %.2f ms by its price", best->kind->name,
               1e3 * best->time_s);
    if (usual && usual != best && usual->verdict == RPI_PIPELINE_FITS)
        rpi_append(c->note, sizeof c->note, ", 1f1b %.2f ms", 1e3 * usual->time_s);
    rpi_append(c->note, sizeof c->note,
               "; measured: a micro-batch forward %.2f, backward %.2f for inputs and %.2f for "
               "weights, %.2f in one, a border %.2f ms",
               1e3 * all.forward_s, 1e3 * all.inputs_s, 1e3 * all.weights_s, 1e3 * all.whole_s,
               1e3 * border_s(r->links));
}

static rp_status find_best(const rpi_stage_request *r, const rpi_pipeline_request *request,
                           rpi_stage_choice *c) {
    rpi_pipeline_row rows[RPI_PIPELINE_ROWS];
    int count = 0, best = -1;
    RP_TRY(rpi_pipeline_choose(request, rows, &count, &best));
    if (best >= 0) {
        tell(r, rows, count, &rows[best], c);
        c->schedule = rows[best].kind;
        return RP_OK;
    }
    if (request->parts)
        return RP_FAIL(
            INVALID,
            "--stage-cut %s makes %d parts, and no schedule over %d stages has them; "
            "name %d layer%s, or %d, or say --stage-cut counted",
            r->cut, request->parts, r->stages, r->stages - 1, r->stages == 2 ? "" : "s",
            2 * r->stages - 1);
    if (r->layers->count < r->stages)
        return RP_FAIL(INVALID,
                       "--pp %d: the model %s can be cut into %d parts; --pp %d would fit",
                       r->stages, r->network->text, r->layers->count, r->layers->count);
    return RP_FAIL(NOMEM,
                   "--schedule auto: no schedule fits into the %.0f MB that a stage has for "
                   "activations; take a smaller --micro-batch-size, --recompute, or a larger "
                   "--pp",
                   1e-6 * r->memory_bytes);
}

static rp_status take_cut(const rpi_pipeline_cut *cut, const priced *p, int **out_first) {
    RP_TRY(rpi_alloc_array((size_t)cut->parts + 1, sizeof **out_first, "parts", out_first));
    for (int part = 0; part <= cut->parts; part++)
        (*out_first)[part] = p->named ? p->named[cut->first[part]] : cut->first[part];
    return RP_OK;
}

/* A kind that makes more parts than there are layers gives the same message as without times.
 */
static rp_status check_kind(const rpi_stage_request *r, const rpi_pipeline_kind *kind) {
    int *first = NULL;
    RP_TRY(rpi_stage_cut_counted(r->network, r->layers, r->costs, kind, r->stages, &first));
    rpi_free(first);
    return RP_OK;
}

static rp_status choose_by_price(const rpi_stage_request *r, const priced *p,
                                 rpi_stage_choice *c) {
    rpi_pipeline_request request = request_of(r, p);
    rpi_pipeline_trial trial;
    if (is_auto(r->schedule))
        RP_TRY(find_best(r, &request, c));
    else
        RP_TRY(kind_of(r, &c->schedule));
    RP_TRY(check_kind(r, c->schedule));
    RP_TRY(rpi_pipeline_trial_make(&request, c->schedule, 0, &trial));
    rp_status status = take_cut(&trial.cut, p, &c->first);
    rpi_pipeline_trial_free(&trial);
    return status;
}

static rp_status price(const rpi_stage_request *r, rpi_stage_choice *c) {
    priced p = {0};
    rp_status status = make_priced(r, &p);
    if (status == RP_OK) status = choose_by_price(r, &p, c);
    close_priced(&p);
    return status;
}

/* ---- as was asked for ---- */

static rp_status take_names(const rpi_stage_request *r, rpi_stage_choice *c) {
    int parts = 0, has = r->stages * (c->schedule->chunks ? c->schedule->chunks : 2);
    RP_TRY(read_cut(r, &c->first, &parts));
    if (has_parts(c->schedule, r->stages, parts)) return RP_OK;
    return RP_FAIL(INVALID,
                   "--stage-cut %s makes %d parts, and %s over %d stages has %d: name %d "
                   "layer%s, or say --stage-cut counted",
                   r->cut, parts, c->schedule->name, r->stages, has, has - 1,
                   has == 2 ? "" : "s");
}

static rp_status take_asked(const rpi_stage_request *r, rpi_stage_choice *c) {
    RP_TRY(kind_of(r, &c->schedule));
    if (is_named(r->cut)) return take_names(r, c);
    return rpi_stage_cut_counted(r->network, r->layers, r->costs, c->schedule, r->stages,
                                 &c->first);
}

/* ---- the whole ---- */

static rp_status take_costs(const rpi_stage_request *r, rpi_stage_choice *c) {
    bool by_time = r->times && !is_word(r->cut, "counted");
    c->measure = by_time ? "time" : "operations";
    RP_TRY(rpi_alloc_array((size_t)r->layers->count, sizeof *c->costs, "layers", &c->costs));
    for (int i = 0; i < r->layers->count; i++)
        c->costs[i] = by_time
                          ? r->times[i].forward_s + r->times[i].inputs_s + r->times[i].weights_s
                          : r->costs[i];
    return RP_OK;
}

static rp_status choose(const rpi_stage_request *r, rpi_stage_choice *c) {
    bool taken = false;
    RP_TRY(take_costs(r, c));
    RP_TRY(take_record(r, c, &taken));
    if (taken && is_auto(r->schedule))
        rpi_append(c->note, sizeof c->note,
                   "--schedule auto goes on with %s, which this run took before",
                   c->schedule->name);
    if (taken) return RP_OK;
    return rpi_stage_choice_is_open(r->schedule, r->cut) ? price(r, c) : take_asked(r, c);
}

rp_status rpi_stage_choose(const rpi_stage_request *request, rpi_stage_choice *out_choice) {
    rpi_stage_choice choice = {0};
    rp_status status = choose(request, &choice);
    if (status == RP_OK)
        *out_choice = choice;
    else
        rpi_stage_choice_free(&choice);
    return status;
}

void rpi_stage_choice_free(rpi_stage_choice *choice) {
    rpi_free(choice->first);
    rpi_free(choice->costs);
    *choice = (rpi_stage_choice){0};
}
