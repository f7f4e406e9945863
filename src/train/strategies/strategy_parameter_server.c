/* Servers keep the parameters and update them with the run's optimizer. Workers push gradients
 * and get parameters back (redpoll/parameter_server.h).
 *
 * A worker's gradient is that of its own samples, scaled by 1 / (samples of the global batch).
 * If servers merge a push of every worker, the sum is the gradient of the global batch, and the
 * step is that of all-reduce, bit for bit. A merge of fewer pushes is divided by its share of
 * the batch, so that it is a mean again, and multiplied by the same share of the learning rate:
 * a round of single pushes goes as far as one step of all workers. */
#include "train/strategies/served.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>

extern const rpi_strategy rpi_strategy_parameter_server;

/* ---- options ---- */

static const rpi_option options[] = {
    RPI_SERVED_SERVERS,
    RPI_SERVED_STALENESS("0", "steps that a gradient may be late; 0: synchronous, inf: nobody "
                              "waits for another"),
    RPI_SERVED_QUORUM("a step takes so many workers' gradients, weighed by their samples, and "
                      "what comes within the grace; 0: none. With a staleness"),
    RPI_SERVED_GRACE,
    RPI_SERVED_ON_LOSS,
    {0},
};

static rp_status read_options(const char *text, rp_parameter_server_options *out) {
    const rpi_strategy *strategy = &rpi_strategy_parameter_server;
    rpi_served_choice choice;
    RP_TRY(rpi_strategy_read(strategy, text, &choice.words, &choice));
    return rpi_served_read(strategy->name, &choice, out);
}

static rp_status check(const rpi_strategy_request *request) {
    rp_parameter_server_options o;
    RP_TRY(read_options(request->options, &o));
    if (request->whole_tensors)
        return RP_FAIL(INVALID,
                       "%s: servers step parts of tensors, and this optimizer steps "
                       "whole ones; say --optimizer adamw, or another --strategy",
                       rpi_strategy_parameter_server.name);
    return rpi_served_check(rpi_strategy_parameter_server.name, &o, request);
}

static int servers(const char *text) {
    rp_parameter_server_options o = RP_PARAMETER_SERVER_OPTIONS();
    return read_options(text, &o) == RP_OK ? o.servers : 0;
}

static bool survives(const char *text) {
    rp_parameter_server_options o = RP_PARAMETER_SERVER_OPTIONS();
    return read_options(text, &o) == RP_OK && o.goes_on;
}

/* ---- servers ---- */

static rp_status merge(void *context, const rp_parameter_merge *m) {
    rpi_served *self = context;
    bool is_synchronous = self->options.staleness == 0;
    rpi_strategy_update update = {.first = (int64_t)m->first,
                                  .count = (int64_t)m->count,
                                  .step = (int64_t)m->step,
                                  .updates = m->version,
                                  .values = m->values,
                                  .gradient = m->gradient,
                                  .rate_scale = is_synchronous ? 1 : m->weight};
    if (!m->is_complete) update.gradient_scale = (float)(1 / m->weight);
    /* A worker without samples in a short last batch has no gradient, either. */
    if (m->weight > 0) self->span->update(self->span->context, &update);
    return rpi_served_account(self, m);
}

static void close_server(void *context) {
    rpi_served *self = context;
    rpi_served_close(self);
    rpi_free(self);
}

static rp_status open_server(const rpi_strategy_setup *setup, void **out_self) {
    rp_parameter_server_options o;
    rpi_served *self = NULL;
    RP_TRY(read_options(setup->options, &o));
    RP_TRY(rpi_alloc(sizeof *self, "a strategy", &self));
    o.merge = merge;
    o.context = self;
    rp_status status = rpi_served_open(setup, &o, self);
    if (status == RP_OK)
        *out_self = self;
    else
        close_server(self);
    return status;
}

/* ---- workers ---- */

/* A server's part is sent when it is complete, during the rest of the backward pass. With
 * clipping no part is sent before the norm is known. */
static rp_status gradient_final(void *context, int64_t first, int64_t count) {
    rpi_served *self = context;
    if (self->setup.clip > 0) return RP_OK;
    return rp_parameter_server_final(self->server, (size_t)(first + count));
}

static rp_status push(void *context) {
    rpi_served *self = context;
    rpi_strategy_part part = {0};
    RP_TRY(rpi_served_learn(self, &part));
    rpi_served_clip(self, part.share);
    return rpi_served_push(self, part.share, &part, NAN);
}

/* ---- a span ---- */

static rp_status confirm(void *context, rp_status status, bool *out_again, rp_comm **out_comm) {
    return rpi_served_confirm(context, status, out_again, out_comm);
}

static const char *lost(void *context, int rank) {
    const rpi_served *self = context;
    return rp_parameter_server_lost(self->server, rank);
}

static rp_status grow(void *context, rp_comm *comm) {
    return rpi_served_grow(context, comm);
}

static void settle(void *context, bool grows) {
    rpi_served_settle(context, grows);
}

static rp_status gather_slots(rpi_served *self) {
    const rpi_strategy_setup *s = &self->setup;
    for (int i = 0; i < s->optimizer->kind->slot_count; i++)
        RP_TRY(rp_parameter_server_gather(self->server,
                                          rpi_optimizer_state_slot(s->optimizer, i, 0)));
    return RP_OK;
}

static rp_status run(void *context, const rpi_strategy_span *span, rp_comm **out_comm) {
    rpi_served *self = context;
    bool again = true;
    RP_TRY(rpi_served_begin(self, span, span->last_step - span->first_step));
    RP_TRY(rpi_served_work(self, push, self));
    RP_TRY(rpi_served_end(self));
    while (again) RP_TRY(rpi_served_confirm(self, gather_slots(self), &again, out_comm));
    return RP_OK;
}

const rpi_strategy rpi_strategy_parameter_server = {
    .name = "parameter-server",
    .summary = "servers keep and step the parameters, workers push gradients: synchronous, "
               "stale by so many steps, or asynchronous",
    .options = options,
    .check = check,
    .open = open_server,
    .close = close_server,
    .gradient_final = gradient_final,
    .servers = servers,
    .survives = survives,
    .run = run,
    .confirm = confirm,
    .lost = lost,
    .grow = grow,
    .settle = settle,
};
