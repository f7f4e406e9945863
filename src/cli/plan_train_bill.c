/* What a whole training comes to: hours, node hours, money, energy. */
#include "base/status.h"
#include "base/units.h"
#include "cli/plan_train.h"
#include "plan/foresight/interval_rule.h"
#include "plan/foresight/node_rate.h"

#include <math.h>
#include <string.h>

/* "2T", "300B", "5e11": how people count tokens. */
rp_status rpi_train_tokens(const char *text, double *out) {
    char number[32];
    size_t length = strlen(text);
    double unit = 1;
    if (length && length < sizeof number && strchr("KMBT", text[length - 1])) {
        unit = text[length - 1] == 'K'   ? 1e3
               : text[length - 1] == 'M' ? 1e6
               : text[length - 1] == 'B' ? 1e9
                                         : 1e12;
        memcpy(number, text, length);
        number[length - 1] = '\0';
        text = number;
    }
    RP_TRY(rpi_parse_real(text, out));
    *out *= unit;
    if (!(*out > 0) || !isfinite(*out)) return RP_FAIL(INVALID, "tokens are above 0: 300B, 2T");
    return RP_OK;
}

rp_status rpi_train_whole_check(const rpi_train_whole *s, const char *goal, int64_t hosts) {
    const char *said = s->price ? "price" : s->failures ? "failures" : s->spot ? "spot" : goal;
    if (!s->tokens && said)
        return RP_FAIL(INVALID, "--%s is of a whole training: how many tokens? --tokens 300B",
                       said);
    const char *of_spot = s->elastic                ? "elastic"
                          : s->spot_said.spot_price ? "spot-price"
                          : s->spot_said.interval   ? "interval"
                                                    : NULL;
    if (!s->spot && of_spot)
        return RP_FAIL(INVALID,
                       "--%s is of spot nodes: when do they come and go? --spot "
                       "TRACE.csv",
                       of_spot);
    if (s->spot && s->failures)
        return RP_FAIL(INVALID, "--spot and --failures: the trace has all nodes that are lost, "
                                "whatever took them");
    return s->spot ? rpi_spot_said_check(&s->spot_said, "hosts", hosts) : RP_OK;
}

/* How long a save takes: as the user says, or as long as the disk of --machine takes for
 * parameters and optimizer. */
static rp_status save_time(const rpi_train_whole *s, const rpi_train_offer *o, double *out) {
    const rpi_training_layout *l = &o->found.best[0].layout;
    double each = l->precision->weight + l->precision->optimizer;
    if (s->save) return rpi_parse_span(s->save, out);
    *out = -1;
    if (o->planned.account)
        *out = rpi_machine_account_save_s(o->planned.account,
                                          rpi_transformer_count(&l->model).all * each);
    return *out > 0 ? RP_OK : RP_FAIL(INVALID, "how long does a save take? --save 30s");
}

static rp_status fail_often(const rpi_train_whole *s, const rpi_train_offer *o, double work_s,
                            rpi_train_bill *b) {
    rpi_node_rate rate;
    rpi_failures f = {0};
    RP_TRY(rpi_node_rate_parse(s->failures, &rate));
    RP_TRY(save_time(s, o, &f.save_s));
    RP_TRY(rpi_parse_span(s->restart, &f.restart_s));
    if (f.save_s == 0)
        return RP_FAIL(INVALID, "a save of 0 s costs nothing: save after every step");
    f.failures_per_s = rpi_node_rate_of(&rate, (double)o->said.hosts);
    double best_s = rpi_interval_rule_at(0)->interval_s(&f);
    double step_s = o->found.best[0].forecast.step_s;
    b->has_failures = true;
    b->stop_every_s = 1 / f.failures_per_s;
    return rpi_failures_account(&f, rpi_interval_fit(&f, best_s, step_s), work_s, &b->failures);
}

/* Spot nodes in the place of others: hours, node hours and money are theirs. */
static rp_status make_spot_bill(const rpi_train_whole *s, const rpi_train_offer *o,
                                double work_s, rpi_train_bill *b) {
    rpi_train_spot_said said = {.trace = s->spot,
                                .is_elastic = s->elastic,
                                .pays_spares = s->pay_spares,
                                .words = s->spot_said,
                                .work_s = work_s,
                                .price = rpi_spot_price(s->price),
                                .spot_price = rpi_spot_price(s->spot_said.spot_price)};
    RP_TRY(save_time(s, o, &said.save_s));
    RP_TRY(rpi_parse_span(s->restart, &said.restart_s));
    RP_TRY(rpi_train_spot_plan(o, &said, &b->spot));
    const rpi_train_spot_way *w = &b->spot.ways[b->spot.chosen];
    const rpi_spot_account *a = &w->finish.account;
    b->has_spot = true;
    b->hours = w->hours;
    b->low_hours = w->low_hours;
    b->high_hours = w->high_hours;
    b->node_hours = w->node_hours;
    b->price = said.spot_price >= 0 ? said.spot_price : said.price;
    b->cost = w->cost;
    b->device_hours = (a->all - a->waiting - a->spare) / 3600;
    return RP_OK;
}

static rp_status make_usual_bill(const rpi_train_whole *s, const rpi_train_offer *o,
                                 double work_s, rpi_train_bill *b) {
    const rpi_forecast *f = &o->found.best[0].forecast;
    double wall_s = work_s;
    if (s->failures) {
        RP_TRY(fail_often(s, o, work_s, b));
        wall_s = b->failures.expected_s;
    }
    b->hours = wall_s / 3600;
    b->low_hours = b->hours * f->low_s / f->step_s;
    b->high_hours = b->hours * f->high_s / f->step_s;
    b->device_hours = b->node_hours = b->hours * (double)o->said.hosts;
    if (s->price) RP_TRY(rpi_price_parse(s->price, &b->price));
    if (s->price) b->cost = b->node_hours * b->price;
    return RP_OK;
}

rp_status rpi_train_bill_make(const rpi_train_whole *s, rpi_train_offer *o) {
    rpi_train_bill *b = &o->bill;
    *b = (rpi_train_bill){.price = -1, .cost = -1};
    if (!s->tokens) return RP_OK;
    RP_TRY(rpi_train_tokens(s->tokens, &b->tokens));
    double work_s = b->tokens / o->found.best[0].forecast.tokens_per_s;
    RP_TRY(s->spot ? make_spot_bill(s, o, work_s, b) : make_usual_bill(s, o, work_s, b));
    const rpi_plan_device_fact *watts = &o->planned.machine.device.facts[RPI_FACT_WATTS];
    double ranks = (double)o->planned.machine.ranks_per_host;
    if (watts->source) b->kwh = b->device_hours * ranks * watts->value / 1000;
    return RP_OK;
}
