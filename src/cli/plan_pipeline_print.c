/* What `redpoll plan pipeline` says, for people. */
#include "base/append.h"
#include "base/status.h"
#include "cli/numbers.h"
#include "cli/plan_pipeline.h"
#include "cli/report/quantity.h"
#include "plan/pipelines/pipeline_picture.h"

#include <string.h>

static const rpi_pipeline_row *chosen_of(const rpi_pipeline_plan *p) {
    return &p->rows[p->chosen];
}

/* "10.00 ms", or the least and the most of all stages. */
enum { RANGE_BYTES = 2 * RPI_TIME_BYTES + 8 };
static const char *range_text(const double *values, int count, char text[RANGE_BYTES]) {
    double least = values[0], most = values[0];
    char low[RPI_TIME_BYTES], high[RPI_TIME_BYTES];
    for (int i = 1; i < count; i++) {
        if (values[i] < least) least = values[i];
        if (values[i] > most) most = values[i];
    }
    if (least < most)
        snprintf(text, RANGE_BYTES, "%s to %s", rpi_time_text(least, low),
                 rpi_time_text(most, high));
    else
        snprintf(text, RANGE_BYTES, "%s", rpi_time_text(most, high));
    return text;
}

static void print_times(const rpi_pipeline_plan *p) {
    const rpi_pipeline_model *m = &p->shown.model;
    char forward[RANGE_BYTES], inputs[RANGE_BYTES], weights[RANGE_BYTES];
    printf("a micro-batch on a %s: forward %s, backward %s for inputs and %s for weights\n",
           m->entries > p->request.stages ? "part" : "stage",
           range_text(m->forward_s, m->entries, forward),
           range_text(m->inputs_s, m->entries, inputs),
           range_text(m->weights_s, m->entries, weights));
}

static void print_link(const rpi_pipeline_plan *p) {
    const rpi_pipeline_model *m = &p->shown.model;
    char bytes[RPI_QUANTITY_TEXT], time[RPI_TIME_BYTES];
    if (!p->link) {
        printf("links take no time; --link 1Gbit,5ms shows what they cost\n");
        return;
    }
    double hop_s = m->latency_s + (m->bytes_per_s > 0 ? m->border_bytes / m->bytes_per_s : 0);
    printf("link %s: a message of %s from stage to stage takes %s", p->link,
           rpi_quantity_text(RPI_BYTES, m->border_bytes, bytes), rpi_time_text(hop_s, time));
    if (p->hosts)
        printf("; %lld host%s, inside %s", (long long)p->hosts, p->hosts == 1 ? "" : "s",
               p->local);
    putchar('\n');
}

static void print_picture(const rpi_pipeline_plan *p, int most) {
    char time[RPI_TIME_BYTES];
    rpi_picture_frame frame = rpi_pipeline_frame(&p->shown.orders, &p->shown.price, most);
    putchar('\n');
    rpi_pipeline_picture(stdout, &p->shown.orders, &p->shown.price, &frame);
    printf("  a column is %s%s\n", rpi_time_text(p->shown.price.time_s / frame.columns, time),
           frame.last ? "; the beginning and the end of the step" : "");
}

/* "embedding, 6 block". */
enum { PART_BYTES = 64 };
static const char *part_text(const rpi_pipeline_plan *p, int part, char text[PART_BYTES]) {
    const int *first = p->shown.cut.first;
    text[0] = '\0';
    for (int i = first[part], next; i < first[part + 1]; i = next) {
        const char *name = p->request.layers[i].name;
        for (next = i + 1; next < first[part + 1]; next++)
            if (strcmp(p->request.layers[next].name, name) != 0) break;
        rpi_append(text, PART_BYTES, "%s", i > first[part] ? ", " : "");
        if (next - i > 1) rpi_append(text, PART_BYTES, "%d ", next - i);
        rpi_append(text, PART_BYTES, "%s", name);
    }
    return text;
}

static void print_cut(const rpi_pipeline_plan *p) {
    const rpi_pipeline_trial *t = &p->shown;
    char text[PART_BYTES], time[RPI_TIME_BYTES];
    if (!p->request.layers) return;
    printf("\n  %-6s  %-6s  %-36s  %14s\n", "part", "stage", "layers", "both passes");
    for (int part = 0; part < t->cut.parts; part++) {
        double takes_s =
            t->model.forward_s[part] + t->model.inputs_s[part] + t->model.weights_s[part];
        printf("  %-6d  %-6d  %-36s  %14s\n", part,
               rpi_pipeline_stage(t->orders.kind, t->orders.shape.stages, part),
               part_text(p, part, text), rpi_time_text(takes_s, time));
    }
}

static rp_status print_ties(const rpi_pipeline_plan *p) {
    const rpi_pipeline_trial *t = &p->shown;
    rpi_pipeline_tie ties[RPI_PIPELINE_TIES];
    int count = 0;
    if (!p->request.layers) return RP_OK;
    RP_TRY(rpi_pipeline_ties(p->request.layers, p->request.layer_count, &t->cut, &t->orders,
                             ties, RPI_PIPELINE_TIES, &count));
    for (int i = 0; i < count && i < RPI_PIPELINE_TIES; i++)
        printf("  '%s' is on stages %d and %d, whose gradients are added up\n", ties[i].tie,
               ties[i].first_stage, ties[i].last_stage);
    return RP_OK;
}

/* Where the number of micro-batches is no multiple of the stages, messages wait for their
 * turn. */
static void print_room(const rpi_pipeline_plan *p) {
    const rpi_pipeline_row *row = chosen_of(p);
    int room = rpi_pipeline_room(row->kind, &row->shape);
    if (room > 1)
        printf("  up to %d messages of a link are under way at once; with %d micro-batches "
               "only one "
               "would be\n",
               room, (row->shape.micro_batches / row->shape.stages + 1) * row->shape.stages);
}

static void print_stages(const rpi_pipeline_plan *p) {
    char busy[RPI_TIME_BYTES], idle[RPI_TIME_BYTES], link[RPI_TIME_BYTES];
    char bytes[RPI_QUANTITY_TEXT];
    printf("\n  %-6s  %10s  %10s  %8s  %10s  %5s", "stage", "busy", "idle", "bubble",
           "for links", "kept");
    if (p->has_kept) printf("  %10s", "memory");
    putchar('\n');
    for (int i = 0; i < p->shown.price.stages; i++) {
        const rpi_stage_price *s = &p->shown.price.stage[i];
        double share = p->shown.price.time_s > 0 ? s->idle_s / p->shown.price.time_s : 0;
        printf("  %-6d  %10s  %10s  %6.2f %%  %10s  %5d", i, rpi_time_text(s->busy_s, busy),
               rpi_time_text(s->idle_s, idle), 100 * share, rpi_time_text(s->link_s, link),
               s->kept);
        if (p->has_kept) printf("  %10s", rpi_quantity_text(RPI_BYTES, s->kept_bytes, bytes));
        putchar('\n');
    }
}

static const char *verdict_text(rpi_pipeline_verdict verdict) {
    static const char *const texts[] = {"", "  too much memory", "  too few layers",
                                        "  other parts"};
    return texts[verdict];
}

static void print_row(const rpi_pipeline_plan *p, int i) {
    const rpi_pipeline_row *r = &p->rows[i];
    char time[RPI_TIME_BYTES], exposed[RPI_TIME_BYTES], bytes[RPI_QUANTITY_TEXT];
    printf("%c %-12s  %6d", i == p->chosen ? '*' : ' ', r->kind->name, r->shape.chunks);
    if (r->verdict == RPI_PIPELINE_LAYERS) {
        printf("%s\n", verdict_text(r->verdict));
        return;
    }
    printf("  %10s  %6.2f %%  %10s  %5d", rpi_time_text(r->time_s, time), 100 * r->bubble,
           rpi_time_text(r->exposed_s, exposed), r->kept);
    if (p->has_kept) printf("  %10s", rpi_quantity_text(RPI_BYTES, r->kept_bytes, bytes));
    printf("  %8lld%s\n", (long long)r->messages, verdict_text(r->verdict));
}

static void print_rows(const rpi_pipeline_plan *p) {
    printf("\n  %-12s  %6s  %10s  %8s  %10s  %5s", "schedule", "chunks", "step", "bubble",
           "by links", "kept");
    if (p->has_kept) printf("  %10s", "memory");
    printf("  %8s\n", "messages");
    for (int i = 0; i < p->row_count; i++) print_row(p, i);
    printf("* shown above; by links: time that links add to the step;\n"
           "  kept: micro-batches, counted for each chunk, on the stage that keeps most\n");
}

static void print_best(const rpi_pipeline_plan *p) {
    char time[RPI_TIME_BYTES];
    if (p->best < 0) {
        printf("no schedule fits into the memory\n");
        return;
    }
    const rpi_pipeline_row *best = &p->rows[p->best], *shown = chosen_of(p);
    printf("best %s: %s, a step of %s", p->link ? "for this link" : "without a link",
           best->kind->name, rpi_time_text(best->time_s, time));
    if (best->time_s > 0 && shown->time_s > 1.005 * best->time_s)
        printf(", %.2f times as fast as %s", shown->time_s / best->time_s, shown->kind->name);
    putchar('\n');
}

rp_status rpi_pipeline_plan_print(const rpi_pipeline_plan *p, int columns) {
    const rpi_pipeline_row *row = chosen_of(p);
    char time[RPI_TIME_BYTES];
    printf("%s over %lld stage%s, %lld micro-batch%s: a step takes %s, and stages are idle for "
           "%.2f %% of it\n",
           row->kind->name, (long long)p->request.stages, p->request.stages == 1 ? "" : "s",
           (long long)p->request.micro_batches, p->request.micro_batches == 1 ? "" : "es",
           rpi_time_text(row->time_s, time), 100 * row->bubble);
    print_times(p);
    print_link(p);
    print_picture(p, columns);
    print_room(p);
    print_cut(p);
    RP_TRY(print_ties(p));
    print_stages(p);
    print_rows(p);
    print_best(p);
    return RP_OK;
}
