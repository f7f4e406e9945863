/* What `redpoll plan train --json` says to programs (docs/json.md). */
#include "cli/command.h"
#include "cli/plan_train.h"

#include <cjson/cJSON.h>
#include <math.h>

static void add(cJSON *object, const char *name, double value) {
    cJSON_AddNumberToObject(object, name, value);
}

static void add_items(cJSON *object, const char *name, const char *const *names,
                      const double *values, int count) {
    cJSON *items = cJSON_AddObjectToObject(object, name);
    for (int i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s", names[i]);
        for (char *at = key; *at; at++)
            if (*at == ' ') *at = '_';
        add(items, key, values[i]);
    }
}

static cJSON *layout_json(const rpi_candidate *c) {
    const rpi_training_layout *l = &c->layout;
    const rpi_forecast *f = &c->forecast;
    cJSON *object = cJSON_CreateObject();
    add(object, "tp", (double)l->tensor);
    add(object, "cp", (double)l->context);
    add(object, "pp", (double)l->pipeline);
    add(object, "dp", (double)l->data);
    add(object, "zero", l->zero);
    add(object, "micro_batch_size", (double)l->micro_batch);
    cJSON_AddStringToObject(object, "recompute", rpi_recompute_names[l->recompute]);
    add(object, "step_s", f->step_s);
    add(object, "step_low_s", f->low_s);
    add(object, "step_high_s", f->high_s);
    add(object, "tokens_s", f->tokens_per_s);
    add(object, "mfu", f->mfu);
    cJSON_AddBoolToObject(object, "far", f->is_far);
    add_items(object, "time_s", rpi_time_names, f->seconds, RPI_TIME_ITEMS);
    add_items(object, "memory_bytes", rpi_memory_names, f->memory.bytes, RPI_MEMORY_ITEMS);
    add(object, "rank_memory_bytes", f->memory.all);
    add(object, "rank_memory_stage", (double)f->memory.stage);
    return object;
}

static cJSON *spot_way_json(const rpi_train_spot_way *w) {
    const rpi_spot_account *a = &w->finish.account;
    cJSON *object = cJSON_CreateObject();
    bool is_done = w->hours > 0;
    cJSON_AddStringToObject(object, "way", w->name);
    cJSON_AddBoolToObject(object, "done", is_done);
    if (!is_done) return object;
    add(object, "interval_s", w->interval_s);
    add(object, "hours", w->hours);
    add(object, "hours_low", w->low_hours);
    add(object, "hours_high", w->high_hours);
    add(object, "turns", w->finish.turns);
    add(object, "goodput", w->goodput);
    add(object, "node_hours", w->node_hours);
    add(object, "useful_share", a->useful / a->all);
    add(object, "lost_share", a->lost / a->all);
    add(object, "saving_share", a->saving / a->all);
    add(object, "standing_share", a->standing / a->all);
    add(object, "waiting_share", a->waiting / a->all);
    add(object, "spare_share", a->spare / a->all);
    add(object, "changes", (double)a->changes);
    if (w->cost >= 0) add(object, "cost", w->cost);
    if (w->pays_below >= 0) add(object, "spot_pays_below_per_node_hour", w->pays_below);
    return object;
}

static void add_spot(cJSON *object, const rpi_train_spot *s) {
    cJSON *spot = cJSON_AddObjectToObject(object, "spot");
    cJSON_AddStringToObject(spot, "chosen", s->ways[s->chosen].name);
    add(spot, "trace_hours", s->trace_hours);
    add(spot, "work_hours", s->work_hours);
    cJSON_AddBoolToObject(spot, "notice_fits", s->notice_fits);
    cJSON *ways = cJSON_AddArrayToObject(spot, "ways");
    for (int i = 0; i < RPI_TRAIN_SPOT_WAYS; i++)
        cJSON_AddItemToArray(ways, spot_way_json(&s->ways[i]));
}

static void add_bill(cJSON *object, const rpi_train_bill *b) {
    if (b->tokens == 0) return;
    add(object, "tokens", b->tokens);
    add(object, "hours", b->hours);
    add(object, "hours_low", b->low_hours);
    add(object, "hours_high", b->high_hours);
    add(object, "node_hours", b->node_hours);
    if (b->cost >= 0) add(object, "price_per_node_hour", b->price);
    if (b->cost >= 0) add(object, "cost", b->cost);
    if (b->kwh > 0) add(object, "device_energy_kwh", b->kwh);
    if (b->has_spot) add_spot(object, &b->spot);
    if (!b->has_failures) return;
    add(object, "stop_every_s", b->stop_every_s);
    add(object, "save_every_s", b->failures.interval_s);
    add(object, "goodput", b->failures.goodput);
}

static void add_fact(cJSON *facts, const char *name, double value, rpi_fact_kind kind,
                     const char *source) {
    cJSON *fact = cJSON_AddObjectToObject(facts, name);
    add(fact, "value", value);
    cJSON_AddStringToObject(fact, "kind", rpi_fact_kinds[kind]);
    cJSON_AddStringToObject(fact, "source", source);
}

/* Adds the facts of the device, and those of links that replace its own. */
static void add_facts(cJSON *object, const rpi_planned_training *p) {
    const rpi_machine *m = &p->machine;
    cJSON *facts = cJSON_AddObjectToObject(object, "facts");
    for (int i = 0; i < RPI_FACTS; i++) {
        const rpi_plan_device_fact *f = &m->device.facts[i];
        bool is_local = i == RPI_FACT_LOCAL_RATE || i == RPI_FACT_LOCAL_LATENCY;
        if (f->source && !(is_local && p->local_given))
            add_fact(facts, rpi_fact_at(i)->name, f->value, f->kind, f->source);
    }
    if (p->local_given) {
        add_fact(facts, "local_bytes_s", m->local_bytes_s, RPI_KNOWN_GIVEN, "--local");
        add_fact(facts, "local_latency_s", m->local_latency_s, RPI_KNOWN_GIVEN, "--local");
    }
    if (!p->link_given) return;
    add_fact(facts, "link_bytes_s", m->link_bytes_s, RPI_KNOWN_GIVEN, "--link");
    add_fact(facts, "link_latency_s", m->link_latency_s, RPI_KNOWN_GIVEN, "--link");
}

static cJSON *offer_json(const rpi_train_offer *o) {
    cJSON *object = cJSON_CreateObject();
    const rpi_training_layout *l = &o->found.best[0].layout;
    cJSON_AddStringToObject(object, "name", o->name);
    cJSON_AddStringToObject(object, "model", o->said.model);
    add(object, "parameters", rpi_transformer_count(&l->model).all);
    cJSON_AddStringToObject(object, "device", o->planned.machine.device.name);
    add(object, "hosts", (double)o->said.hosts);
    add(object, "ranks", (double)o->planned.ranks);
    add(object, "global_batch_size", (double)l->global_batch);
    add(object, "sequence", (double)l->sequence);
    cJSON_AddStringToObject(object, "precision", l->precision->name);
    cJSON_AddStringToObject(object, "codec", o->said.codec);
    if (o->said.activations_codec)
        cJSON_AddStringToObject(object, "activations_codec", o->said.activations_codec);
    add(object, "layouts", (double)o->found.tried);
    add(object, "fitting", (double)o->found.fitting);
    cJSON *best = cJSON_AddArrayToObject(object, "best");
    for (int i = 0; i < o->found.count; i++)
        cJSON_AddItemToArray(best, layout_json(&o->found.best[i]));
    if (o->codec_pays_below >= 0) {
        cJSON *codec = cJSON_AddObjectToObject(object, "codec_pays_below");
        cJSON_AddStringToObject(codec, "codec", rpi_train_codec_of(o));
        if (isfinite(o->codec_pays_below))
            add(codec, "link_bytes_s", o->codec_pays_below);
        else
            cJSON_AddNullToObject(codec, "link_bytes_s");
    }
    add_bill(object, &o->bill);
    if (o->planned.account) {
        cJSON *machine = cJSON_AddObjectToObject(object, "machine");
        cJSON_AddStringToObject(machine, "cpu", o->planned.account->cpu);
        add(machine, "ranks", o->planned.account->ranks);
        add(machine, "threads", o->planned.account->threads);
        add(machine, "items", o->planned.account->count);
    }
    add_facts(object, &o->planned);
    return object;
}

static cJSON *row_json(const rpi_train_offer *offers, const rpi_train_row *r) {
    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "name", offers[r->offer].name);
    add(row, "hosts", (double)r->hosts);
    add(row, "tp", (double)r->layout.tensor);
    add(row, "cp", (double)r->layout.context);
    add(row, "pp", (double)r->layout.pipeline);
    add(row, "dp", (double)r->layout.data);
    add(row, "tokens_s", r->tokens_per_s);
    add(row, "hours", r->hours);
    add(row, "hours_high", r->high_hours);
    add(row, "cost", r->cost);
    cJSON_AddBoolToObject(row, "meets", r->meets);
    return row;
}

static void add_frontier(cJSON *object, const rpi_train_offer *offers,
                         const rpi_train_frontier *f) {
    cJSON *list = cJSON_AddArrayToObject(object, "frontier");
    for (int i = 0; i < f->count; i++) {
        const rpi_train_choice *c = &f->choices[i];
        cJSON *choice = layout_json(&c->candidate);
        cJSON_AddStringToObject(choice, "name", offers[c->offer].name);
        add(choice, "hosts", (double)c->hosts);
        if (c->hours > 0) add(choice, "hours", c->hours);
        if (c->hours > 0) add(choice, "hours_high", c->high_hours);
        if (c->cost >= 0) add(choice, "cost", c->cost);
        cJSON_AddItemToArray(list, choice);
    }
}

static void add_goal(cJSON *object, const rpi_train_offer *offers, const rpi_train_goal *g) {
    cJSON *goal = cJSON_AddObjectToObject(object, "goal");
    add(goal, g->is_budget ? "budget" : "within_hours", g->limit);
    cJSON *rows = cJSON_AddArrayToObject(goal, "rows");
    for (int i = 0; i < g->count; i++)
        cJSON_AddItemToArray(rows, row_json(offers, &g->rows[i]));
    if (g->best >= 0)
        add(goal, "best", g->best);
    else
        cJSON_AddNullToObject(goal, "best");
}

void rpi_train_offers_print_json(const rpi_train_offer *offers, int count,
                                 const rpi_train_goal *goal,
                                 const rpi_train_frontier *frontier) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", "train");
    cJSON *list = cJSON_AddArrayToObject(object, "trainings");
    for (int i = 0; i < count; i++) cJSON_AddItemToArray(list, offer_json(&offers[i]));
    if (frontier->is_asked) add_frontier(object, offers, frontier);
    if (goal->is_asked) add_goal(object, offers, goal);
    rpi_command_print_json(object);
}
