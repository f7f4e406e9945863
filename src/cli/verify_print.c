/* What `redpoll verify` says, to people and to programs. */
#include "base/append.h"
#include "base/wrap.h"
#include "cli/command.h"
#include "cli/verify_command.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *plural(int64_t count) {
    return count == 1 ? "" : "s";
}

/* ---- what was compared ---- */

static void print_layout(const rpi_verify_job *job) {
    const rpi_train_options *o = &job->train.train;
    const rpi_verify_layout *l = &job->layout;
    long long samples = job->global_batch / l->replicas / l->micro_batches;
    long long runs = l->replicas * l->micro_batches;
    char line[1024] = "";
    rpi_append(line, sizeof line, "layout: %lld rank%s: %d replica%s",
               (long long)job->train.world.ranks, plural(job->train.world.ranks), l->replicas,
               plural(l->replicas));
    if (l->stages > 1)
        rpi_append(line, sizeof line, " of %d stages (%s)", l->stages,
                   o->schedule ? o->schedule : "1f1b");
    if (l->tensor_ranks > 1)
        rpi_append(line, sizeof line, "%s of %d ranks that share each layer%s",
                   l->stages > 1 ? ", each" : "", l->tensor_ranks,
                   o->sequence_parallel ? " and the tokens between them" : "");
    if (l->context_ranks > 1)
        rpi_append(line, sizeof line, "%s of %d ranks that share each sequence",
                   l->stages > 1 || l->tensor_ranks > 1 ? ", times" : "", l->context_ranks);
    if (o->zero && l->replicas > 1) rpi_append(line, sizeof line, ", zero %d", (int)o->zero);
    rpi_append(line, sizeof line, ", %s, %lld micro-batch%s of %lld sample%s each%s", o->codec,
               (long long)l->micro_batches, l->micro_batches == 1 ? "" : "es", samples,
               plural(samples), o->recompute ? ", recomputed" : "");
    rpi_print_wrapped(stdout, line, 0, 2);
    snprintf(line, sizeof line, "one rank: the same %lld samples a step, %lld micro-batch%s",
             (long long)job->global_batch, runs, runs == 1 ? "" : "es");
    for (int i = 0; i < job->asked->against.count; i++)
        rpi_append(line, sizeof line, "%s %s", i ? "" : ", with", job->asked->against.items[i]);
    rpi_print_wrapped(stdout, line, 0, 2);
}

/* ---- the table ---- */

static const char *bound_text(double bound, char text[16]) {
    if (isinf(bound))
        snprintf(text, 16, "none");
    else
        snprintf(text, 16, bound > 0 ? "%.2e" : "0", bound);
    return text;
}

static const char *verdict(const rpi_verify_row *row) {
    if (!row->differing) return "bit-equal";
    if (row->is_beyond) return "DIFFERS";
    return isinf(row->bound) ? "differs" : "within";
}

static void print_table(const rpi_verify_result *r) {
    char bound[16];
    printf("\n  %-18s %8s %7s %9s %9s %9s\n", "", "compared", "differ", "largest", "relative",
           "bound");
    for (rpi_verify_kind k = 0; k < RPI_VERIFY_KINDS; k++) {
        const rpi_verify_row *row = &r->rows[k];
        if (!row->compared) continue;
        printf("  %-18s %8lld %7lld %9.2e %9.2e %9s  %s\n", rpi_verify_kind_name(k),
               (long long)row->compared, (long long)row->differing, row->largest, row->relative,
               bound_text(row->bound, bound), verdict(row));
    }
    printf("  compared: numbers and tensors of %lld step%s; relative: to the largest of them\n",
           (long long)r->steps, plural(r->steps));
}

/* Does it apply to something that was there? */
static bool shows(const rpi_verify_reason *reason, const rpi_verify_result *r) {
    if (!reason->applies(&r->layout)) return false;
    for (rpi_verify_kind k = 0; k < RPI_VERIFY_KINDS; k++)
        if (r->rows[k].compared && reason->bounds.of[k] > 0) return true;
    return false;
}

static void print_reasons(const rpi_verify_job *job, const rpi_verify_result *r) {
    const rpi_verify_reason *reason;
    if (job->asked->tolerance >= 0) return;
    for (int i = 0; (reason = rpi_verify_reason_at(i)) != NULL; i++) {
        if (!shows(reason, r)) continue;
        printf("  ");
        rpi_print_wrapped(stdout, reason->why, 2, 4);
    }
}

/* ---- where ---- */

static void append_tensor(char *line, size_t bytes, const rpi_verify_job *job,
                          const rpi_verify_finding *f) {
    const rpi_verify_tensor *t = &f->tensor;
    char place[RPI_GRID_TEXT];
    if (f->kind < RPI_VERIFY_PARAMETERS) {
        rpi_append(line, bytes, "the %s of step %lld: %.12g, and %.12g on one rank",
                   rpi_verify_kind_name(f->kind), (long long)f->step, t->other, t->one);
        return;
    }
    rpi_append(line, bytes, "%s after step %lld: element %lld is %.9g, and %.9g on one rank",
               t->name, (long long)f->step, (long long)t->element, t->other, t->one);
    rpi_append(line, bytes, "; %lld of %lld elements differ", (long long)t->differing,
               (long long)t->count);
    if (t->rank >= 0)
        rpi_append(line, bytes, " (on %s)", rpi_train_place_text(&job->place, t->rank, place));
}

/* Where a number differs, the tensors that differ say more: they are printed, too. */
static void print_finding(const rpi_verify_job *job, const char *head,
                          const rpi_verify_finding *f) {
    char line[1024];
    snprintf(line, sizeof line, "%s: ", head);
    append_tensor(line, sizeof line, job, f);
    rpi_print_wrapped(stdout, line, 0, 2);
}

static bool is_same(const rpi_verify_finding *a, const rpi_verify_finding *b) {
    return a->step == b->step && a->kind == b->kind &&
           strcmp(a->tensor.name, b->tensor.name) == 0;
}

static bool promises_nothing(const rpi_verify_result *r) {
    return isinf(r->rows[RPI_VERIFY_PARAMETERS].bound);
}

static void print_verdict(const rpi_verify_result *r) {
    const rpi_verify_finding *f = &r->beyond;
    char bound[16], line[512];
    if (f->step)
        snprintf(line, sizeof line,
                 "this layout is NOT the training of one rank: the %s of step %lld differs by "
                 "%.2e of the largest%s%s, and %s is allowed",
                 rpi_verify_kind_name(f->kind), (long long)f->step, f->relative,
                 f->is_of_tensor ? " of " : "", f->is_of_tensor ? f->tensor.name : "",
                 bound_text(f->bound, bound));
    else if (r->first.step && promises_nothing(r))
        snprintf(line, sizeof line,
                 "this layout differs from the training of one rank as the table shows; it "
                 "promises no bound, and --tolerance X sets one");
    else
        snprintf(line, sizeof line, "this layout is the training of one rank, %s",
                 r->first.step ? "within its bounds" : "bit for bit");
    rpi_print_wrapped(stdout, line, 0, 2);
}

static void print_unequal(const rpi_verify_result *r) {
    char line[RPI_VERIFY_UNEQUAL + 64];
    snprintf(line, sizeof line, "this layout is NOT the training of one rank: %s", r->unequal);
    putchar('\n');
    rpi_print_wrapped(stdout, line, 0, 2);
}

/* Not a verdict of its own: the step itself cannot be compared. */
static void print_divergence(const rpi_verify_result *r) {
    char line[RPI_VERIFY_UNEQUAL + 128];
    snprintf(line, sizeof line,
             "%sboth runs end at the same step: %s; choose options with which one rank trains",
             r->steps ? "" : "nothing was compared: ", r->divergence);
    rpi_print_wrapped(stdout, line, 0, 2);
}

void rpi_verify_print(const rpi_verify_job *job, const rpi_verify_result *r) {
    print_layout(job);
    if (r->unequal[0]) {
        print_unequal(r);
        return;
    }
    if (!r->steps) {
        putchar('\n');
        print_divergence(r);
        return;
    }
    print_table(r);
    if (r->first.step) print_reasons(job, r);
    putchar('\n');
    if (r->first.step && r->first.kind < RPI_VERIFY_PARAMETERS)
        print_finding(job, "the first number that differs", &r->first);
    if (r->first_tensor.step)
        print_finding(job, "the first tensor that differs", &r->first_tensor);
    if (r->beyond.step && !is_same(&r->beyond, &r->first) &&
        !is_same(&r->beyond, &r->first_tensor))
        print_finding(job, "the first value that exceeds its bound", &r->beyond);
    print_verdict(r);
    if (r->divergence[0]) print_divergence(r);
}

/* ---- for programs ---- */

static void add_number(cJSON *object, const char *key, double value) {
    if (isfinite(value))
        cJSON_AddNumberToObject(object, key, value);
    else
        cJSON_AddNullToObject(object, key);
}

static void add_finding(cJSON *object, const char *key, const rpi_verify_finding *f) {
    if (!f->step) return;
    cJSON *found = cJSON_AddObjectToObject(object, key);
    cJSON_AddStringToObject(found, "what", rpi_verify_kind_name(f->kind));
    cJSON_AddNumberToObject(found, "step", (double)f->step);
    cJSON_AddStringToObject(found, "name", f->tensor.name);
    cJSON_AddNumberToObject(found, "element", (double)f->tensor.element);
    cJSON_AddNumberToObject(found, "elements", (double)f->tensor.count);
    cJSON_AddNumberToObject(found, "differ", (double)f->tensor.differing);
    add_number(found, "one", f->tensor.one);
    add_number(found, "layout", f->tensor.other);
    if (f->tensor.rank >= 0) cJSON_AddNumberToObject(found, "rank", f->tensor.rank);
}

static void add_rows(cJSON *object, const rpi_verify_result *r) {
    cJSON *rows = cJSON_AddArrayToObject(object, "compared");
    for (rpi_verify_kind k = 0; k < RPI_VERIFY_KINDS; k++) {
        const rpi_verify_row *row = &r->rows[k];
        if (!row->compared) continue;
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "what", rpi_verify_kind_name(k));
        cJSON_AddNumberToObject(item, "count", (double)row->compared);
        cJSON_AddNumberToObject(item, "differ", (double)row->differing);
        add_number(item, "largest", row->largest);
        add_number(item, "relative", row->relative);
        add_number(item, "bound", row->bound);
        cJSON_AddBoolToObject(item, "within", !row->is_beyond);
        cJSON_AddItemToArray(rows, item);
    }
}

void rpi_verify_print_json(const rpi_verify_job *job, const rpi_verify_result *r) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", "verify");
    cJSON_AddNumberToObject(object, "ranks", (double)job->train.world.ranks);
    cJSON_AddNumberToObject(object, "replicas", job->layout.replicas);
    cJSON_AddNumberToObject(object, "stages", job->layout.stages);
    cJSON_AddNumberToObject(object, "tensor_ranks", job->layout.tensor_ranks);
    cJSON_AddNumberToObject(object, "context_ranks", job->layout.context_ranks);
    cJSON_AddNumberToObject(object, "steps", (double)r->steps);
    cJSON_AddBoolToObject(object, "bit_equal", r->steps && !r->first.step && !r->unequal[0]);
    cJSON_AddBoolToObject(object, "within", r->steps && !r->beyond.step && !r->unequal[0]);
    if (r->unequal[0]) cJSON_AddStringToObject(object, "unequal", r->unequal);
    if (r->divergence[0]) cJSON_AddStringToObject(object, "divergence", r->divergence);
    add_rows(object, r);
    cJSON *reasons = cJSON_AddArrayToObject(object, "reasons");
    const rpi_verify_reason *reason;
    for (int i = 0; (reason = rpi_verify_reason_at(i)) != NULL; i++)
        if (shows(reason, r)) cJSON_AddItemToArray(reasons, cJSON_CreateString(reason->name));
    add_finding(object, "first", &r->first);
    add_finding(object, "first_tensor", &r->first_tensor);
    add_finding(object, "beyond", &r->beyond);
    rpi_command_print_json(object);
}
