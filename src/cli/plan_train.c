#include "cli/plan_train.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/option_rows.h"
#include "cli/plan_words.h"

#include <string.h>

enum { MOST_WORDS = 64, COMPARE_BYTES = 1024 };

typedef struct settings {
    rpi_plan_training training; /* first: options of --compare are read into a copy */
    rpi_train_whole whole;
    const char *within;
    double budget;
    rpi_option_list compare;
    int64_t top;
    bool explain, frontier, json;
} settings;

static rp_status check_tokens(const char *text) {
    double tokens;
    return rpi_train_tokens(text, &tokens);
}

#define FIELD(name) offsetof(settings, name)
#define SAID(name)  offsetof(settings, training.name)
#define SPOT(name)  offsetof(settings, whole.spot_said.name)
static const rpi_option options[] = {
    RPI_ROWS_PLAN_TRAINING(SAID),
    {"top", NULL, NULL, RPI_OPTION_COUNT, FIELD(top), "8", 1, 1000, "N", "layouts to show",
     NULL},
    {"explain", NULL, NULL, RPI_OPTION_FLAG, FIELD(explain), NULL, 0, 0, NULL,
     "every term of the best layout, with its formula and its source", NULL},
    {"frontier", NULL, NULL, RPI_OPTION_FLAG, FIELD(frontier), NULL, 0, 0, NULL,
     "layouts that no other beats in time, memory and, with --price, money, on up to --hosts",
     NULL},
    {"tokens", NULL, NULL, RPI_OPTION_TEXT, FIELD(whole.tokens), NULL, 0, 0, "N",
     "of the whole training: 300B, 2T", check_tokens},
    {"price", NULL, NULL, RPI_OPTION_TEXT, FIELD(whole.price), NULL, 0, 0, "PRICE",
     "of a host: 10.4/node-hour, in any currency", rpi_check_price},
    {"failures", NULL, NULL, RPI_OPTION_TEXT, FIELD(whole.failures), NULL, 0, 0, "RATE",
     "6.5/1000-node-days, or of the whole job 1/3h", rpi_check_node_rate},
    {"save", NULL, NULL, RPI_OPTION_TEXT, FIELD(whole.save), NULL, 0, 0, "TIME",
     "for which the work stands still while it is saved: 30s", rpi_check_span},
    {"restart", NULL, NULL, RPI_OPTION_TEXT, FIELD(whole.restart), "5min", 0, 0, "TIME",
     "from a failure until the work goes on", rpi_check_span},
    {"spot", NULL, NULL, RPI_OPTION_TEXT, FIELD(whole.spot), NULL, 0, 0, "TRACE",
     "on spot nodes, which come and are taken back as in this file (docs/planning.md)", NULL},
    {"elastic", NULL, NULL, RPI_OPTION_FLAG, FIELD(whole.elastic), NULL, 0, 0, NULL,
     "with the spot nodes that are left it goes on, and does not restart", NULL},
    {"pay-spares", NULL, NULL, RPI_OPTION_FLAG, FIELD(whole.pay_spares), "on", 0, 0, NULL,
     "spot nodes beyond --hosts are paid for, too, and stand by", NULL},
    RPI_ROWS_SPOT(SPOT),
    {"within", NULL, NULL, RPI_OPTION_TEXT, FIELD(within), NULL, 0, 0, "TIME",
     "the cheapest hosts that are done in it, up to --hosts: 48h", rpi_check_span},
    {"budget", NULL, NULL, RPI_OPTION_REAL, FIELD(budget), NULL, 0, 1e15, "MONEY",
     "the fastest hosts that it pays for, up to --hosts; in the currency of --price", NULL},
    {"compare", NULL, NULL, RPI_OPTION_LIST, FIELD(compare), NULL, 0, 0, "NAME: OPTIONS",
     "the same training with other words: \"slow: --link 10Gbit,30us --codec q4\"; each time "
     "one more",
     NULL},
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

/* ---- a training, and those that it is compared with ---- */

static rp_status plan_offer(const settings *s, rpi_train_offer *o) {
    o->said = s->training;
    RP_TRY(rpi_plan_training_read(&o->said, true, &o->planned));
    rpi_planned_training *p = &o->planned;
    RP_TRY(rpi_layouts_search(&p->layout, &p->open, &p->machine, p->ranks, (int)s->top,
                              &o->found));
    if (!o->found.count) return rpi_train_refuse_unfit(o);
    return rpi_train_bill_make(&s->whole, o);
}

static void close_offer(rpi_train_offer *o) {
    rpi_free(o->found.best);
    rpi_planned_training_close(&o->planned);
}

/* "NAME: WORDS" as words of a command line, in `text`, the command's own name first. */
static rp_status split_words(char *text, char name[RPI_TRAIN_NAME], char **words, int *count) {
    char *colon = strstr(text, ": "), *rest = text;
    if (!colon || colon - text >= RPI_TRAIN_NAME)
        return RP_FAIL(INVALID,
                       "'%.60s' has no name of at most %d letters in front: --compare \"slow: "
                       "--link 10Gbit,30us\"",
                       text, RPI_TRAIN_NAME - 1);
    *colon = '\0';
    memcpy(name, text, (size_t)(colon - text) + 1);
    rest = colon + 1;
    words[0] = "compare";
    *count = 1;
    for (char *word; (word = strtok_r(rest, " \t", &rest)) != NULL;) {
        if (*count == MOST_WORDS - 1) return RP_FAIL(INVALID, "--compare has too many words");
        words[(*count)++] = word;
    }
    words[*count] = NULL;
    return RP_OK;
}

static rp_status read_other(const settings *s, const char *compare, char *text,
                            char name[RPI_TRAIN_NAME], settings *other) {
    char *words[MOST_WORDS];
    int count;
    bool wants_help = false;
    rpi_positional none = {0};
    *other = *s;
    if (strlen(compare) >= COMPARE_BYTES)
        return RP_FAIL(INVALID, "--compare is longer than %d bytes", COMPARE_BYTES - 1);
    memcpy(text, compare, strlen(compare) + 1);
    RP_TRY(split_words(text, name, words, &count));
    RP_TRY(rpi_options_parse(options, count, words, other, &none, &wants_help));
    if (wants_help || other->compare.count != s->compare.count)
        return RP_FAIL(INVALID, "--compare takes options of one training");
    return RP_OK;
}

/* A training and those beside it. */
typedef struct comparison {
    settings sides[RPI_TRAIN_OFFERS];
    rpi_train_offer offers[RPI_TRAIN_OFFERS];
    char texts[RPI_TRAIN_OFFERS][COMPARE_BYTES];
    int count;
    rpi_train_goal goal;
    rpi_train_frontier frontier;
} comparison;

static rp_status plan_one(const settings *s, rpi_train_offer *o) {
    RP_TRY(plan_offer(s, o));
    return rpi_train_codec_pays_below(o, &o->codec_pays_below);
}

static rp_status plan_all(const settings *s, comparison *c) {
    c->count = 1;
    c->sides[0] = *s;
    RP_TRY(plan_one(s, &c->offers[0]));
    if (s->compare.count >= RPI_TRAIN_OFFERS)
        return RP_FAIL(INVALID, "%d trainings to compare with are the most",
                       RPI_TRAIN_OFFERS - 1);
    for (int i = 0; i < s->compare.count; i++) {
        rpi_train_offer *o = &c->offers[c->count];
        settings *side = &c->sides[c->count++];
        rp_status status = read_other(s, s->compare.items[i], c->texts[i], o->name, side);
        if (status == RP_OK) status = plan_one(side, o);
        if (status != RP_OK)
            return rpi_fail_context(status, "--compare %.40s: ", s->compare.items[i]);
    }
    return RP_OK;
}

static rp_status plan_on(void *context, int index, int64_t hosts, rpi_train_offer *out) {
    const comparison *c = context;
    settings side = c->sides[index];
    side.training.hosts = hosts;
    side.top = 1;
    return plan_offer(&side, out);
}

/* Finds not only the fastest, but all layouts that no other beats. */
static rp_status plan_frontier_on(void *context, int index, int64_t hosts,
                                  rpi_train_offer *out) {
    const comparison *c = context;
    rpi_planned_training *p = &out->planned;
    out->said = c->sides[index].training;
    out->said.hosts = hosts;
    RP_TRY(rpi_plan_training_read(&out->said, true, p));
    return rpi_layouts_frontier(&p->layout, &p->open, &p->machine, p->ranks, &out->found);
}

static rp_status find_frontier(const settings *s, comparison *c) {
    const rpi_train_whole *wholes[RPI_TRAIN_OFFERS];
    if (!s->frontier) return RP_OK;
    for (int i = 0; i < c->count; i++) wholes[i] = &c->sides[i].whole;
    c->frontier.is_asked = true;
    return rpi_train_frontier_find(plan_frontier_on, close_offer, c, wholes, c->offers,
                                   c->count, &c->frontier);
}

static rp_status find_goal(const settings *s, comparison *c) {
    double seconds = 0;
    if (!s->within && !(s->budget > 0)) return RP_OK;
    c->goal.is_asked = true;
    c->goal.is_budget = !s->within;
    if (s->within) RP_TRY(rpi_parse_span(s->within, &seconds));
    c->goal.limit = s->within ? seconds / 3600 : s->budget;
    return rpi_train_goal_find(plan_on, close_offer, c, c->offers, c->count, &c->goal);
}

static void print(const settings *s, const comparison *c) {
    if (s->json) {
        rpi_train_offers_print_json(c->offers, c->count, &c->goal, &c->frontier);
        return;
    }
    rpi_train_offers_print(c->offers, c->count, s->explain);
    if (c->frontier.is_asked) rpi_train_frontier_print(c->offers, &c->frontier);
    if (c->goal.is_asked) rpi_train_goal_print(c->offers, &c->goal);
}

static rp_status check_said(const settings *s) {
    const char *goal = s->within ? "within" : s->budget > 0 ? "budget" : NULL;
    RP_TRY(rpi_train_whole_check(&s->whole, goal, s->training.hosts));
    if (s->within && s->budget > 0)
        return RP_FAIL(INVALID, "--within and --budget: one of them is to be met, with the "
                                "least of the other");
    if (goal && !s->whole.price && !s->whole.spot_said.spot_price)
        return RP_FAIL(INVALID, "--%s: what does a host cost? --price 10.4/node-hour", goal);
    if ((s->whole.failures || s->whole.spot) && !s->whole.save && !s->training.machine)
        return RP_FAIL(INVALID, "how long does a save take? --save 30s");
    return RP_OK;
}

static rp_status work(void *context) {
    const settings *s = context;
    comparison *c = NULL;
    RP_TRY(check_said(s));
    RP_TRY(rpi_alloc(sizeof *c, "trainings", &c));
    rp_status status = plan_all(s, c);
    if (status == RP_OK) status = find_frontier(s, c);
    if (status == RP_OK) status = find_goal(s, c);
    if (status == RP_OK) print(s, c);
    for (int i = 0; i < c->count; i++) close_offer(&c->offers[i]);
    rpi_free(c->frontier.choices);
    rpi_free(c);
    return rpi_plan_mistake(status);
}

static int run(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_plan_train, argc, argv, &s, NULL, work);
}

const rpi_command rpi_command_plan_train = {
    .name = "plan train",
    .summary = "does a training fit, how long does it take, by which layout, what does it cost",
    .about =
        "Predicts what a step of a training takes on some hosts of accelerators: does it fit "
        "into a rank's memory, tokens a second with an interval, where the time goes, and the "
        "share of the peak. What is not said of --tp, --pp, --zero, --micro-batch-size and "
        "--recompute is searched for, and the fastest layouts that fit are listed. What "
        "devices "
        "do is a table of facts with sources, which --explain prints; --devices adds yours. "
        "docs/planning.md has the formulas, and how far they are from what was measured.",
    .examples =
        "  redpoll plan train --model llama:7b --hosts 8 --device a100-80g \\\n"
        "      --link 200Gbit,5us --seq-length 4096 --global-batch-size 1024\n"
        "  redpoll plan train --model llama:7b --hosts 8 --device a100-80g \\\n"
        "      --link 200Gbit,5us --global-batch-size 1024 \\\n"
        "      --tp 2 --pp 4 --zero 1 --explain\n"
        "  redpoll plan train --model llama:7b --hosts 4 --device a100-80g \\\n"
        "      --link 100Gbit,10us --global-batch-size 512 --tokens 300B \\\n"
        "      --price 24.5/node-hour --failures 6.5/1000-node-days --save 30s \\\n"
        "      --compare \"slow: --link 10Gbit,30us --price 10.4/node-hour --codec q4\"\n"
        "  redpoll plan train --model llama:7b --hosts 32 --device a100-80g \\\n"
        "      --link 100Gbit,10us --global-batch-size 1024 --tokens 100B \\\n"
        "      --price 24.5/node-hour --within 60d\n"
        "  redpoll plan train --model llama:7b --hosts 16 --device a100-80g \\\n"
        "      --link 200Gbit,5us --global-batch-size 1024 --tokens 30B --save 30s \\\n"
        "      --spot trace.csv --elastic --spot-price 7/node-hour\n",
    .options = options,
    .run = run,
};
