/* `redpoll plan spot`: a training on spot nodes, simulated over a trace of them. */
#include "base/memory.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/plan_spot_said.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>

enum { ROWS = 4 };

typedef struct settings {
    const char *file, *save, *restart, *price;
    rpi_spot_said spot;
    int64_t nodes;
    bool json;
} settings;

#define FIELD(name) offsetof(settings, name)
#define SAID(name)  offsetof(settings, spot.name)
static const rpi_option options[] = {
    {"nodes", NULL, NULL, RPI_OPTION_COUNT, FIELD(nodes), NULL, 1, 1e7, "N",
     "of the world at most, others are spares; all that there ever are when absent", NULL},
    RPI_ROW_SPAN("save", FIELD(save), NULL,
                 "for which the work stands still while it is saved: 30s"),
    RPI_ROW_SPAN("restart", FIELD(restart), NULL,
                 "from a change of the world until the work goes on: 5min"),
    RPI_ROWS_SPOT(SAID),
    {"price", NULL, NULL, RPI_OPTION_TEXT, FIELD(price), NULL, 0, 0, "PRICE",
     "of a node that is not taken back", rpi_check_price},
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

/* A way to train: how it saves, and its result. */
typedef struct row {
    const char *name;
    rpi_spot_rules rules;
    rpi_spot_account account;
} row;

typedef struct plan {
    const settings *s;
    rpi_spot_trace trace;
    rpi_spot_facts facts;
    row rows[ROWS];
    int row_count;
    double spot_price, price; /* negative: not said */
} plan;

/* ---- what was said ---- */

static rp_status check_said(const settings *s) {
    if (!s->file)
        return RP_FAIL(INVALID, "which trace of nodes that came and went? docs/planning.md has "
                                "its columns");
    if (!s->save) return RP_FAIL(INVALID, "how long does a save take? --save 30s");
    if (!s->restart) return RP_FAIL(INVALID, "how long does a restart take? --restart 5min");
    return rpi_spot_said_check(&s->spot, "nodes", s->nodes);
}

/* ---- ways to train ---- */

static rpi_spot_rules rules_of(const plan *p) {
    const settings *s = p->s;
    return rpi_spot_rules_of(&s->spot, s->nodes ? s->nodes : p->facts.most_nodes,
                             rpi_spot_span(s->save), rpi_spot_span(s->restart));
}

static void add_row(plan *p, const char *name, rpi_spot_rules rules) {
    p->rows[p->row_count++] = (row){name, rules, rpi_spot_replay(&p->trace, &rules)};
}

static void add_rows(plan *p) {
    rpi_spot_rules rules = rules_of(p);
    rules.interval_s = rpi_spot_exact_interval(&p->trace, rules);
    add_row(p, "restarts, exact", rules);
    rpi_spot_rules best = rules;
    best.interval_s = rpi_spot_best_interval(&p->trace, &rules);
    add_row(p, "restarts, best", best);
    if (p->s->spot.interval) rules.interval_s = rpi_spot_span(p->s->spot.interval);
    if (p->s->spot.interval) add_row(p, "restarts, yours", rules);
    rules.is_elastic = true;
    add_row(p, "elastic", rules);
}

/* ---- for people ---- */

static double share(const row *r, double node_seconds) {
    return node_seconds / r->account.all;
}

/* The price of a node and hour of work that is kept; infinite: no work is kept. */
static double useful_price(const plan *p, const row *r) {
    return p->spot_price / share(r, r->account.useful);
}

static void print_facts(const plan *p) {
    const rpi_spot_facts *f = &p->facts;
    char time[RPI_TIME_BYTES];
    printf("%s: %.2f h, %.1f nodes on average, %lld at most, %.1f node hours\n", p->s->file,
           f->seconds / 3600, f->node_seconds / f->seconds, (long long)f->most_nodes,
           f->node_seconds / 3600);
    printf("%lld nodes were lost, %.3f a node and hour, at %lld times, %lld at once at most\n",
           (long long)f->lost, (double)f->lost / f->node_seconds * 3600, (long long)f->bursts,
           (long long)f->largest_burst);
    if (p->rows[0].rules.notice_fits)
        printf("a notice of %s is enough for a save: no work is lost\n",
               rpi_time_text(rpi_spot_span(p->s->spot.notice), time));
    else if (rpi_spot_span(p->s->spot.notice) > 0)
        printf("a notice of %s is too short for a save\n",
               rpi_time_text(rpi_spot_span(p->s->spot.notice), time));
}

static void print_rows(const plan *p) {
    printf("\n  %-15s  %12s  %8s  %8s  %8s  %8s  %8s  %8s%s\n", "", "work between", "useful",
           "lost", "saving", "standing", "waiting", "spare",
           p->spot_price >= 0 ? "   useful hour" : "");
    for (int i = 0; i < p->row_count; i++) {
        const row *r = &p->rows[i];
        const rpi_spot_account *a = &r->account;
        printf("  %-15s  %10.1f s", r->name, r->rules.interval_s);
        const double parts[] = {a->useful,   a->lost,    a->saving,
                                a->standing, a->waiting, a->spare};
        for (int k = 0; k < 6; k++) printf("  %6.2f %%", 100 * share(r, parts[k]));
        if (p->spot_price >= 0) printf("  %12.4g", useful_price(p, r));
        putchar('\n');
    }
    printf("shares of all node hours; a world of %lld nodes that are never taken back does as "
           "much in",
           (long long)p->rows[0].rules.most);
    for (int i = 0; i < p->row_count; i++)
        printf("%s %.2f h", i ? "," : "", p->rows[i].account.useful_s / 3600);
    putchar('\n');
}

static void print_plan(const plan *p) {
    print_facts(p);
    print_rows(p);
    if (p->price < 0) return;
    printf("at %.4g a node and hour that is not taken back, spot nodes are cheaper below",
           p->price);
    for (int i = 0; i < p->row_count; i++)
        printf("%s %.4g (%s)", i ? "," : "",
               p->price * share(&p->rows[i], p->rows[i].account.useful), p->rows[i].name);
    putchar('\n');
}

/* ---- for programs ---- */

static void add(cJSON *object, const char *name, double value) {
    if (isfinite(value))
        cJSON_AddNumberToObject(object, name, value);
    else
        cJSON_AddNullToObject(object, name);
}

static cJSON *row_json(const plan *p, const row *r) {
    const rpi_spot_account *a = &r->account;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "way", r->name);
    add(object, "interval_s", r->rules.interval_s);
    add(object, "useful_share", share(r, a->useful));
    add(object, "useful_node_s", a->useful);
    add(object, "lost_node_s", a->lost);
    add(object, "saving_node_s", a->saving);
    add(object, "standing_node_s", a->standing);
    add(object, "waiting_node_s", a->waiting);
    add(object, "spare_node_s", a->spare);
    add(object, "full_world_s", a->useful_s);
    add(object, "changes", (double)a->changes);
    if (p->spot_price >= 0) add(object, "price_per_useful_node_hour", useful_price(p, r));
    if (p->price >= 0)
        add(object, "spot_pays_below_per_node_hour", p->price * share(r, a->useful));
    return object;
}

static void print_json(const plan *p) {
    const rpi_spot_facts *f = &p->facts;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", "spot");
    cJSON_AddStringToObject(object, "trace", p->s->file);
    add(object, "seconds", f->seconds);
    add(object, "node_seconds", f->node_seconds);
    add(object, "nodes_most", (double)f->most_nodes);
    add(object, "lost", (double)f->lost);
    add(object, "lost_per_node_hour", (double)f->lost / f->node_seconds * 3600);
    add(object, "bursts", (double)f->bursts);
    add(object, "largest_burst", (double)f->largest_burst);
    add(object, "nodes", (double)p->rows[0].rules.most);
    cJSON_AddBoolToObject(object, "notice_fits", p->rows[0].rules.notice_fits);
    cJSON *ways = cJSON_AddArrayToObject(object, "ways");
    for (int i = 0; i < p->row_count; i++) cJSON_AddItemToArray(ways, row_json(p, &p->rows[i]));
    rpi_command_print_json(object);
}

static rp_status work(void *context) {
    const settings *s = context;
    plan p = {.s = s,
              .spot_price = rpi_spot_price(s->spot.spot_price),
              .price = rpi_spot_price(s->price)};
    RP_TRY(check_said(s));
    rp_status status = rpi_spot_trace_read(s->file, s->spot.least, &p.trace, &p.facts);
    if (status == RP_OK) {
        add_rows(&p);
        if (s->json)
            print_json(&p);
        else
            print_plan(&p);
    }
    if (status == RP_OK) rpi_free(p.trace.changes);
    return rpi_plan_mistake(status);
}

static int run(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_plan_spot, argc, argv, &s, &s.file, work);
}

const rpi_command rpi_command_plan_spot = {
    .name = "plan spot",
    .summary = "what a training makes of spot nodes, played through over a trace of them",
    .words = "TRACE [OPTIONS]",
    .about =
        "Plays a training through over a trace of nodes that came and were taken back "
        "(comma-separated values; docs/planning.md has its columns): one that restarts at each "
        "change of its world, by the interval between saves that is exact for as many failures "
        "at random, by the one that would have been best, and by yours; and an elastic one, "
        "which goes on with the nodes that are left. Prints which share of the node hours is "
        "work that is kept, and with prices what such an hour costs.",
    .examples = "  redpoll plan spot trace.csv --save 20s --restart 2min --notice 30s \\\n"
                "      --spot-price 0.91/node-hour --price 3.06/node-hour\n"
                "  redpoll plan spot trace.csv --nodes 16 --least 8 --save 10s \\\n"
                "      --restart 5min --interval 10min --json\n",
    .options = options,
    .run = run,
};
