#include "cli/commands.h"
#include "cli/numbers.h"
#include "cli/plan_failures.h"

#include <cjson/cJSON.h>
#include <math.h>

static double hours(double seconds) {
    return seconds / 3600;
}

static double stops_per_s(const rpi_failure_plan *p) {
    return p->failures.failures_per_s + p->failures.noticed_per_s;
}

/* In the currency of the price. */
static double cost_of(const rpi_failure_plan *p, double seconds, double price) {
    return (double)p->nodes * seconds / 3600 * price;
}

/* The price of a spot node and hour below which spot nodes are the cheaper ones. */
static double spot_pays_below(const rpi_failure_plan *p) {
    return p->demand_price * p->demand.expected_s / p->rows[p->chosen].account.expected_s;
}

/* ---- for people ---- */

static void print_what(const rpi_failure_plan *p) {
    char save[RPI_TIME_BYTES], restart[RPI_TIME_BYTES], durable[RPI_TIME_BYTES];
    double mean_s = 1 / stops_per_s(p);
    printf("%lld node%s, %s to save", (long long)p->nodes, p->nodes == 1 ? "" : "s",
           rpi_time_text(p->failures.save_s, save));
    if (p->failures.durable_s > 0)
        printf(" and %s until that is safe", rpi_time_text(p->failures.durable_s, durable));
    printf(", %s to restart\n", rpi_time_text(p->failures.restart_s, restart));
    printf("the job stops every %.4g h (%.1f s), a node of it every %.4g days\n", hours(mean_s),
           mean_s, mean_s * (double)p->nodes / 86400);
    if (p->notice_fits)
        printf("of that %.3g %% with a notice of %s, enough for a save: no work is lost\n",
               100 * p->failures.noticed_per_s * mean_s, rpi_time_text(p->notice_s, save));
    else if (p->is_spot)
        printf("preemptions lose work as failures do: a notice of %s is too short for a save\n",
               rpi_time_text(p->notice_s, save));
}

static void print_rows(const rpi_failure_plan *p) {
    printf("\n%.1f h of work:\n", hours(p->work_s));
    printf("  %-12s  %12s  %8s  %10s  %8s  %8s  %8s%s\n", "interval", "work between", "goodput",
           "expected", "saving", "lost", "restarts", p->step_s > 0 ? "     steps" : "");
    for (int i = 0; i < p->row_count; i++) {
        const rpi_failure_account *a = &p->rows[i].account;
        printf("%c %-12s  %10.1f s  %6.3f %%  %8.2f h  %6.2f h  %6.2f h  %6.2f h",
               i == p->chosen ? '*' : ' ', p->rows[i].name, a->interval_s, 100 * a->goodput,
               hours(a->expected_s), hours(a->saving_s), hours(a->lost_s),
               hours(a->restarting_s));
        if (p->step_s > 0) printf("  %8.0f", a->interval_s / p->step_s);
        putchar('\n');
    }
    printf("* in the lines below; %.4g stops are expected in it\n",
           p->rows[p->chosen].account.stops);
}

static void print_spread(const rpi_failure_plan *p) {
    const rpi_failure_spread *s = &p->spread;
    printf(
        "\nsimulated %lld times: 10 %% are done after %.2f h, 50 %% after %.2f h, 90 %% after "
        "%.2f h\n",
        (long long)p->runs, hours(s->p10_s), hours(s->p50_s), hours(s->p90_s));
    printf("  on average %.3f h", hours(s->mean_s));
    if (p->runs > 1) printf(" +- %.3f h", hours(s->error_s));
    printf("; by the formula %.3f h\n", hours(p->rows[p->chosen].account.expected_s));
}

static void print_elastic(const rpi_failure_plan *p) {
    printf("\nelastic, going on while one of %lld replicas is away:\n", (long long)p->replicas);
    printf("  %.3g away on average, %.3f %% of the work is kept: %.2f h\n", p->elastic.away,
           100 * p->elastic.kept, hours(p->work_s / p->elastic.kept));
}

static const char *money_text(double money, char text[RPI_NUMBER_BYTES]) {
    snprintf(text, RPI_NUMBER_BYTES, "%.*f", money < 1000 ? 2 : 0, money);
    return text;
}

static void print_demand(const rpi_failure_plan *p) {
    char cost[RPI_NUMBER_BYTES];
    double money = cost_of(p, p->demand.expected_s, p->demand_price);
    printf("  on nodes that are not taken back, at %.4g: %s in %.2f h\n", p->demand_price,
           money_text(money, cost), hours(p->demand.expected_s));
    printf("  spot nodes are cheaper below %.4g a node and hour\n", spot_pays_below(p));
}

static void print_money(const rpi_failure_plan *p) {
    char all[RPI_NUMBER_BYTES], more[RPI_NUMBER_BYTES];
    double expected_s = p->rows[p->chosen].account.expected_s;
    printf("\ncosts %s at %.4g a node and hour, %s of it for failures and saves\n",
           money_text(cost_of(p, expected_s, p->price), all), p->price,
           money_text(cost_of(p, expected_s - p->work_s, p->price), more));
    if (p->runs)
        printf("  %s in 90 %% of what was simulated, or less\n",
               money_text(cost_of(p, p->spread.p90_s, p->price), all));
    if (p->replicas)
        printf("  elastic %s\n",
               money_text(cost_of(p, p->work_s / p->elastic.kept, p->price), all));
    if (p->demand_price >= 0) print_demand(p);
}

void rpi_failure_plan_print(const rpi_failure_plan *p) {
    print_what(p);
    print_rows(p);
    if (p->runs) print_spread(p);
    if (p->replicas) print_elastic(p);
    if (p->price >= 0) print_money(p);
}

/* ---- for programs ---- */

static cJSON *row_json(const rpi_failure_plan *p, const rpi_interval_row *row) {
    const rpi_failure_account *a = &row->account;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "interval", row->name);
    cJSON_AddNumberToObject(object, "interval_s", a->interval_s);
    if (p->step_s > 0)
        cJSON_AddNumberToObject(object, "interval_steps", round(a->interval_s / p->step_s));
    cJSON_AddNumberToObject(object, "goodput", a->goodput);
    cJSON_AddNumberToObject(object, "expected_s", a->expected_s);
    cJSON_AddNumberToObject(object, "saving_s", a->saving_s);
    cJSON_AddNumberToObject(object, "lost_s", a->lost_s);
    cJSON_AddNumberToObject(object, "restarting_s", a->restarting_s);
    cJSON_AddNumberToObject(object, "stops", a->stops);
    if (p->price >= 0)
        cJSON_AddNumberToObject(object, "cost", cost_of(p, a->expected_s, p->price));
    return object;
}

static void add_given(const rpi_failure_plan *p, cJSON *object) {
    const rpi_failures *f = &p->failures;
    cJSON_AddStringToObject(object, "op", "failures");
    cJSON_AddNumberToObject(object, "nodes", (double)p->nodes);
    cJSON_AddNumberToObject(object, "stop_every_s", 1 / stops_per_s(p));
    cJSON_AddNumberToObject(object, "failures_per_s", f->failures_per_s);
    cJSON_AddNumberToObject(object, "noticed_per_s", f->noticed_per_s);
    cJSON_AddNumberToObject(object, "save_s", f->save_s);
    cJSON_AddNumberToObject(object, "durable_s", f->durable_s);
    cJSON_AddNumberToObject(object, "restart_s", f->restart_s);
    cJSON_AddNumberToObject(object, "work_s", p->work_s);
    if (p->step_s > 0) cJSON_AddNumberToObject(object, "step_s", p->step_s);
    if (p->price >= 0) cJSON_AddNumberToObject(object, "price_per_node_hour", p->price);
}

static void add_spread(const rpi_failure_plan *p, cJSON *object) {
    cJSON *all = cJSON_AddObjectToObject(object, "simulated");
    cJSON_AddNumberToObject(all, "runs", (double)p->runs);
    cJSON_AddNumberToObject(all, "mean_s", p->spread.mean_s);
    cJSON_AddNumberToObject(all, "error_s", p->spread.error_s);
    cJSON_AddNumberToObject(all, "p10_s", p->spread.p10_s);
    cJSON_AddNumberToObject(all, "p50_s", p->spread.p50_s);
    cJSON_AddNumberToObject(all, "p90_s", p->spread.p90_s);
    cJSON_AddNumberToObject(all, "stops", p->spread.stops);
}

static void add_elastic(const rpi_failure_plan *p, cJSON *object) {
    double expected_s = p->work_s / p->elastic.kept;
    cJSON *all = cJSON_AddObjectToObject(object, "elastic");
    cJSON_AddNumberToObject(all, "replicas", (double)p->replicas);
    cJSON_AddNumberToObject(all, "away", p->elastic.away);
    cJSON_AddNumberToObject(all, "goodput", p->elastic.kept);
    cJSON_AddNumberToObject(all, "expected_s", expected_s);
    if (p->price >= 0) cJSON_AddNumberToObject(all, "cost", cost_of(p, expected_s, p->price));
}

static void add_demand(const rpi_failure_plan *p, cJSON *object) {
    cJSON *all = cJSON_AddObjectToObject(object, "on_demand");
    cJSON_AddNumberToObject(all, "price_per_node_hour", p->demand_price);
    cJSON_AddNumberToObject(all, "expected_s", p->demand.expected_s);
    cJSON_AddNumberToObject(all, "cost", cost_of(p, p->demand.expected_s, p->demand_price));
    cJSON_AddNumberToObject(all, "spot_pays_below_per_node_hour", spot_pays_below(p));
}

void rpi_failure_plan_print_json(const rpi_failure_plan *p) {
    cJSON *object = cJSON_CreateObject();
    add_given(p, object);
    cJSON *rows = cJSON_AddArrayToObject(object, "intervals");
    for (int i = 0; i < p->row_count; i++) cJSON_AddItemToArray(rows, row_json(p, &p->rows[i]));
    cJSON_AddStringToObject(object, "chosen", p->rows[p->chosen].name);
    if (p->runs) add_spread(p, object);
    if (p->replicas) add_elastic(p, object);
    if (p->demand_price >= 0) add_demand(p, object);
    rpi_command_print_json(object);
}
