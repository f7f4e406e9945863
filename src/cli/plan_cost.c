/* `redpoll plan cost`: node hours, money and energy of trainings, beside each other. */
#include "base/status.h"
#include "cli/commands.h"
#include "cli/option_rows.h"
#include "cli/plan_words.h"
#include "plan/foresight/node_rate.h"
#include "plan/foresight/offer.h"

#include <cjson/cJSON.h>

typedef struct settings {
    rpi_option_list offers;
    const char *price;
    int64_t nodes;
    bool json;
    rpi_cost_offer list[RPI_OPTION_LIST_MAX];
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    {"offer", NULL, NULL, RPI_OPTION_LIST, FIELD(offers), NULL, 0, 0, "NAME:KEY=VALUE,...",
     "a training on some machines; each time one more, to compare them", NULL},
    {"nodes", NULL, NULL, RPI_OPTION_COUNT, FIELD(nodes), "1", 1, 1e7, "N",
     "of offers that do not say it", NULL},
    {"price", NULL, NULL, RPI_OPTION_TEXT, FIELD(price), NULL, 0, 0, "PRICE",
     "of offers that do not say it: 10.4/node-hour, in any currency", rpi_check_price},
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

static int count_of(const settings *s) {
    return s->offers.count;
}

/* The cheapest, where all have prices; -1: not all have. */
static int cheapest(const settings *s) {
    int best = 0;
    for (int i = 0; i < count_of(s); i++) {
        if (s->list[i].cost < 0) return -1;
        if (s->list[i].cost < s->list[best].cost) best = i;
    }
    return best;
}

static double slowest_hours(const settings *s) {
    double most = 0;
    for (int i = 0; i < count_of(s); i++)
        if (s->list[i].hours > most) most = s->list[i].hours;
    return most;
}

/* ---- for people ---- */

static void print_number(const char *format, double value, bool known) {
    char text[32] = "-";
    if (known) snprintf(text, sizeof text, format, value);
    printf("  %12s", text);
}

static void print_row(const settings *s, int i) {
    const rpi_cost_offer *o = &s->list[i];
    int best = cheapest(s);
    double least = best >= 0 ? s->list[best].cost : 0;
    double even = rpi_offer_break_even(s->list, count_of(s), i);
    printf("%c %-16s", count_of(s) > 1 && i == best ? '*' : ' ',
           o->name[0] ? o->name : "offer");
    print_number("%.2f", o->hours, true);
    print_number("%.1f", o->node_hours, true);
    print_number("%.2f", o->cost, o->cost >= 0);
    if (count_of(s) == 1) {
        putchar('\n');
        return;
    }
    print_number("%.2f x", slowest_hours(s) / o->hours, true);
    print_number("%.2f x", o->cost / least, least > 0);
    print_number("%.4g", even, even >= 0);
    putchar('\n');
}

static void print_extras(const rpi_cost_offer *o) {
    const char *name = o->name[0] ? o->name : "offer";
    if (o->tokens > 0 && o->cost >= 0)
        printf("%s: %.4g a 1e9 tokens, of %.4g\n", name, o->cost / o->tokens * 1e9, o->tokens);
    if (o->watts > 0) printf("%s: %.4g MWh\n", name, o->kwh / 1000);
}

static void print_table(const settings *s) {
    printf("  %-16s  %12s  %12s  %12s", "offer", "hours", "node hours", "cost");
    if (count_of(s) > 1) printf("  %12s  %12s  %12s", "as fast", "as dear", "break-even");
    putchar('\n');
    for (int i = 0; i < count_of(s); i++) print_row(s, i);
    if (count_of(s) > 1)
        printf(
            "beside the slowest and the cheapest (*); break-even: the price of a node and hour "
            "at which\nan offer costs what the cheapest of the others does\n");
    for (int i = 0; i < count_of(s); i++) print_extras(&s->list[i]);
}

/* ---- for programs ---- */

static cJSON *offer_json(const settings *s, int i) {
    const rpi_cost_offer *o = &s->list[i];
    double even = rpi_offer_break_even(s->list, count_of(s), i);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", o->name);
    cJSON_AddNumberToObject(object, "nodes", o->nodes);
    cJSON_AddNumberToObject(object, "hours", o->hours);
    cJSON_AddNumberToObject(object, "node_hours", o->node_hours);
    if (o->price >= 0) cJSON_AddNumberToObject(object, "price_per_node_hour", o->price);
    if (o->cost >= 0) cJSON_AddNumberToObject(object, "cost", o->cost);
    if (o->tokens > 0) cJSON_AddNumberToObject(object, "tokens", o->tokens);
    if (o->tokens > 0 && o->cost >= 0)
        cJSON_AddNumberToObject(object, "cost_per_token", o->cost / o->tokens);
    if (o->watts > 0) cJSON_AddNumberToObject(object, "energy_kwh", o->kwh);
    if (even >= 0) cJSON_AddNumberToObject(object, "break_even_price_per_node_hour", even);
    return object;
}

static void print_json(const settings *s) {
    int best = cheapest(s);
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", "cost");
    cJSON *list = cJSON_AddArrayToObject(object, "offers");
    for (int i = 0; i < count_of(s); i++) cJSON_AddItemToArray(list, offer_json(s, i));
    if (best >= 0) cJSON_AddNumberToObject(object, "cheapest", best);
    rpi_command_print_json(object);
}

/* ---- the command ---- */

static rp_status work(void *context) {
    settings *s = context;
    double price = -1;
    if (s->price) RP_TRY(rpi_price_parse(s->price, &price));
    if (count_of(s) == 0)
        return RP_FAIL(INVALID, "what is offered? --offer price=10.4/node-hour,hours=5.9");
    for (int i = 0; i < count_of(s); i++)
        RP_TRY(rpi_offer_parse(s->offers.items[i], (double)s->nodes, price, &s->list[i]));
    if (s->json)
        print_json(s);
    else
        print_table(s);
    return RP_OK;
}

static int run(int argc, char **argv) {
    settings s = {0};
    return rpi_command_work(&rpi_command_plan_cost, argc, argv, &s, NULL, work);
}

const rpi_command rpi_command_plan_cost = {
    .name = "plan cost",
    .summary = "node hours, money and energy of trainings, and which is the cheapest",
    .about =
        "Works out what a training comes to on some machines, from a rate that was measured or "
        "a time that is known, and compares offers: how many times as fast, how many times as "
        "dear, and the price of a node and hour at which an offer would cost what the cheapest "
        "of the others does. Prices are yours, in any currency. docs/planning.md has more.",
    .notes =
        "How long a phase of an offer takes is said by hours=; or cost=, where there is a "
        "price; or tokens= and tokens-per-s=; or steps= and iterations-per-s=, with batch= and "
        "measured-batch= where the rate was measured at another batch. sequence= is tokens of "
        "a sample. ';' is between phases. Beside that: nodes=, price=, goodput= (of 'redpoll "
        "plan failures'), watts= of a node and pue=.",
    .examples = "  redpoll plan cost --nodes 2 --price 10.4/node-hour --offer \\\n"
                "      steps=100000,batch=4096,measured-batch=1024,iterations-per-s=1.18\n"
                "  redpoll plan cost --offer 'slow: price=10.4/node-hour,hours=1.79' \\\n"
                "      --offer 'fast: price=24.5/node-hour,hours=2'\n",
    .options = options,
    .run = run,
};
