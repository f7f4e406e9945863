#include "cli/plan_failures.h"

#include "base/status.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/option_rows.h"
#include "cli/plan_words.h"
#include "plan/foresight/interval_rule.h"
#include "plan/foresight/node_rate.h"

#include <math.h>

typedef struct settings {
    const char *failures, *preemptions, *notice, *price, *spot_price;
    const char *save, *durable, *detect, *restart, *work, *interval, *step;
    int64_t nodes, replicas, runs, seed;
    bool json;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"nodes", NULL, NULL, RPI_OPTION_COUNT, FIELD(nodes), "1", 1, 1e7, "N",
     "of which the job needs all", NULL},
    {"failures", NULL, NULL, RPI_OPTION_TEXT, FIELD(failures), NULL, 0, 0, "RATE",
     "6.5/1000-node-days, or of the whole job 1/3h", rpi_check_node_rate},
    RPI_ROW_SPAN("save", FIELD(save), NULL,
                 "for which the work stands still while it is saved: 30s"),
    RPI_ROW_SPAN("durable", FIELD(durable), "0",
                 "behind that until the save is safe, where it goes on beside the work"),
    RPI_ROW_SPAN("restart", FIELD(restart), NULL,
                 "from when a failure is found until the work goes on: 5min"),
    RPI_ROW_SPAN("detect", FIELD(detect), "0",
                 "until a failure is found, such as the time-out of a hang"),
    RPI_ROW_SPAN("work", FIELD(work), "30d", "of the training, without saves and failures"),
    RPI_ROW_SPAN("interval", FIELD(interval), NULL,
                 "of work between two saves, beside the best one"),
    RPI_ROW_SPAN("step", FIELD(step), NULL,
                 "of a training step, of which an interval has a whole number"),
    {"replicas", NULL, NULL, RPI_OPTION_COUNT, FIELD(replicas), NULL, 1, 1e7, "N",
     "that an elastic job has, which goes on while one is away", NULL},
    {"price", NULL, NULL, RPI_OPTION_TEXT, FIELD(price), NULL, 0, 0, "PRICE",
     "10.4/node-hour, in any currency", rpi_check_price},
    {"preemptions", NULL, NULL, RPI_OPTION_TEXT, FIELD(preemptions), NULL, 0, 0, "RATE",
     "of spot nodes, which are taken back, besides --failures: 5/100-node-hours",
     rpi_check_node_rate},
    RPI_ROW_SPAN("notice", FIELD(notice), "0", "that a node gets before it is taken back"),
    {"spot-price", NULL, NULL, RPI_OPTION_TEXT, FIELD(spot_price), NULL, 0, 0, "PRICE",
     "of a spot node; --price is then of one that is not taken back", rpi_check_price},
    {"simulate", NULL, NULL, RPI_OPTION_COUNT, FIELD(runs), "0", 0, RPI_FAILURE_RUNS, "N",
     "trainings, played through with failures at random", NULL},
    RPI_ROW_SEED(FIELD(seed), "of what is simulated"),
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

/* ---- what was said ---- */

static double span_of(const char *text) {
    double seconds = 0;
    if (text) (void)rpi_parse_span(text, &seconds); /* was checked */
    return seconds;
}

static double price_of(const char *text) {
    double price = -1;
    if (text) (void)rpi_price_parse(text, &price);
    return price;
}

static double rate_of(const settings *s, const char *text) {
    rpi_node_rate rate = {0};
    if (text) (void)rpi_node_rate_parse(text, &rate);
    return rpi_node_rate_of(&rate, (double)s->nodes);
}

static rp_status check_said(const settings *s) {
    if (!s->failures && !s->preemptions)
        return RP_FAIL(INVALID, "how often does it fail? --failures 6.5/1000-node-days, or of "
                                "the whole job 1/3h");
    if (!s->save) return RP_FAIL(INVALID, "how long does a save take? --save 30s");
    if (!s->restart) return RP_FAIL(INVALID, "how long does a restart take? --restart 5min");
    if (span_of(s->save) == 0)
        return RP_FAIL(INVALID, "a save of 0 s costs nothing: save after every step");
    if (span_of(s->work) == 0) return RP_FAIL(INVALID, "--work 0 is nothing to plan");
    if (s->step && span_of(s->step) == 0) return RP_FAIL(INVALID, "--step 0 is no step");
    if (!s->preemptions && (s->spot_price || span_of(s->notice) > 0))
        return RP_FAIL(INVALID,
                       "--%s is of spot nodes: how often are they taken back? "
                       "--preemptions 5/100-node-hours",
                       s->spot_price ? "spot-price" : "notice");
    if (s->replicas > s->nodes)
        return RP_FAIL(INVALID, "--replicas %lld is more than the %lld nodes; say --nodes, too",
                       (long long)s->replicas, (long long)s->nodes);
    return RP_OK;
}

static rp_status check_interval(const settings *s) {
    char time[RPI_TIME_BYTES];
    double interval_s = span_of(s->interval), save_s = span_of(s->save);
    double durable_s = span_of(s->durable);
    if (!s->interval) return RP_OK;
    if (interval_s < save_s)
        return RP_FAIL(INVALID, "--interval %s is shorter than the save of %s behind it",
                       s->interval, rpi_time_text(save_s, time));
    if (interval_s < durable_s)
        return RP_FAIL(INVALID, "--interval %s is over before the last save is safe, after %s",
                       s->interval, rpi_time_text(durable_s, time));
    return RP_OK;
}

/* Preemptions lose work where a save does not fit into their notice. */
static rpi_failures failures_of(const settings *s, rpi_failure_plan *p) {
    rpi_failures f = {.failures_per_s = rate_of(s, s->failures),
                      .save_s = span_of(s->save),
                      .durable_s = span_of(s->durable),
                      .restart_s = span_of(s->detect) + span_of(s->restart)};
    p->notice_s = span_of(s->notice);
    p->is_spot = s->preemptions != NULL;
    p->notice_fits = p->is_spot && p->notice_s >= f.save_s + f.durable_s;
    if (p->notice_fits)
        f.noticed_per_s = rate_of(s, s->preemptions);
    else if (p->is_spot)
        f.failures_per_s += rate_of(s, s->preemptions);
    return f;
}

/* ---- what follows ---- */

static rp_status add_row(rpi_failure_plan *p, const char *name, double interval_s) {
    rpi_interval_row row = {.name = name};
    interval_s = rpi_interval_fit(&p->failures, interval_s, p->step_s);
    RP_TRY(rpi_failures_account(&p->failures, interval_s, p->work_s, &row.account));
    p->rows[p->row_count++] = row;
    return RP_OK;
}

/* The first rule must lead to an interval; the others need not, where failures are many. */
static rp_status add_rows(const settings *s, rpi_failure_plan *p) {
    const rpi_interval_rule *rule;
    if (p->failures.failures_per_s == 0) RP_TRY(add_row(p, "on-notice", p->work_s));
    for (int i = 0; p->failures.failures_per_s > 0 && (rule = rpi_interval_rule_at(i)); i++) {
        rp_status status = add_row(p, rule->name, rule->interval_s(&p->failures));
        if (i == 0) RP_TRY(status);
    }
    if (!s->interval) return RP_OK;
    p->chosen = p->row_count;
    rp_status status = add_row(p, "yours", span_of(s->interval));
    return status == RP_OK ? RP_OK : rpi_fail_context(status, "--interval %s: ", s->interval);
}

/* The same work on nodes that are not taken back, at its best interval. */
static rp_status plan_demand(const settings *s, rpi_failure_plan *p) {
    rpi_failures f = p->failures;
    f.noticed_per_s = 0;
    f.failures_per_s = rate_of(s, s->failures);
    double best_s = f.failures_per_s > 0 ? rpi_interval_rule_at(0)->interval_s(&f) : p->work_s;
    return rpi_failures_account(&f, rpi_interval_fit(&f, best_s, p->step_s), p->work_s,
                                &p->demand);
}

static rp_status plan_elastic(rpi_failure_plan *p) {
    p->elastic = rpi_failures_elastic(&p->failures, (double)p->replicas, p->step_s);
    if (p->elastic.kept >= RPI_LEAST_GOODPUT) return RP_OK;
    return RP_FAIL(INVALID,
                   "failures come so often that nothing is ever done: of %lld replicas %.3g "
                   "would be away",
                   (long long)p->replicas, p->elastic.away);
}

static rp_status make_plan(const settings *s, rpi_failure_plan *p) {
    *p = (rpi_failure_plan){.nodes = s->nodes,
                            .replicas = s->replicas,
                            .work_s = span_of(s->work),
                            .step_s = span_of(s->step),
                            .runs = s->runs,
                            .price = price_of(s->spot_price ? s->spot_price : s->price),
                            .demand_price = s->spot_price ? price_of(s->price) : -1};
    p->failures = failures_of(s, p);
    RP_TRY(add_rows(s, p));
    if (p->demand_price >= 0) RP_TRY(plan_demand(s, p));
    if (p->replicas) RP_TRY(plan_elastic(p));
    double interval_s = p->rows[p->chosen].account.interval_s;
    return p->runs ? rpi_failure_runs(&p->failures, interval_s, p->work_s, p->runs,
                                      (uint64_t)s->seed, &p->spread)
                   : RP_OK;
}

static rp_status work(void *context) {
    settings *s = context;
    rpi_failure_plan p;
    RP_TRY(check_said(s));
    RP_TRY(check_interval(s));
    RP_TRY(make_plan(s, &p));
    if (s->json)
        rpi_failure_plan_print_json(&p);
    else
        rpi_failure_plan_print(&p);
    return RP_OK;
}

static int run(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_plan_failures, argc, argv, &s, NULL, work);
}

const rpi_command rpi_command_plan_failures = {
    .name = "plan failures",
    .summary = "what failures take of a training, how often to save, and what it costs",
    .about =
        "Prints how often a job of so many nodes fails, how much work to do between two saves "
        "(the exact optimum beside the rules of Young and Daly), which share of the time is "
        "then work that is kept, and how long the whole training takes, by parts: saving, work "
        "that is done again, restarts. With a price it is money; --simulate plays the training "
        "through and says how far runs differ. docs/planning.md has the formulas.",
    .notes = "RATE is a number by nodes and time (6.5/1000-node-days, 5/100-node-hours, "
             "1/node-year), or by time alone, of the whole job (1/3h, 419/54d). TIME needs its "
             "unit: 30s, 10min, 1h, 30d.",
    .examples =
        "  redpoll plan failures --nodes 128 --failures 6.5/1000-node-days --save 30s \\\n"
        "      --restart 5min\n"
        "  redpoll plan failures --nodes 8 --failures 1/node-year --save 20s \\\n"
        "      --restart 3min --preemptions 2/100-node-hours --notice 2min \\\n"
        "      --spot-price 3.1/node-hour --price 10.4/node-hour\n",
    .options = options,
    .run = run,
};
