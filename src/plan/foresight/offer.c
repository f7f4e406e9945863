#include "plan/foresight/offer.h"

#include "base/status.h"
#include "base/suggest.h"
#include "base/units.h"
#include "plan/foresight/node_rate.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The keys of a text: those of an offer hold for all its phases, those of a phase for that one.
 */
typedef struct words {
    double nodes, price, goodput, watts, pue;
    struct phase {
        double hours, cost, tokens, tokens_per_s;
        double steps, iterations_per_s, batch, measured_batch, sequence;
    } phase;
} words;

#define WORD(name, field, help)                                                                \
    { {name, help}, offsetof(words, field) }
static const struct {
    rpi_offer_key key;
    size_t offset;
} keys[] = {
    WORD("price", price, "10.4/node-hour, in any currency"),
    WORD("nodes", nodes, "that are paid for"),
    WORD("hours", phase.hours, "that it takes"),
    WORD("cost", phase.cost, "that it comes to, from which the hours follow"),
    WORD("tokens", phase.tokens, "of the training: 2e12"),
    WORD("tokens-per-s", phase.tokens_per_s, "of all nodes"),
    WORD("steps", phase.steps, "of the training"),
    WORD("iterations-per-s", phase.iterations_per_s, "as measured"),
    WORD("batch", phase.batch, "samples of a step"),
    WORD("measured-batch", phase.measured_batch,
         "samples of a measured iteration; batch when absent"),
    WORD("sequence", phase.sequence, "tokens of a sample"),
    WORD("goodput", goodput, "share of the time that is kept work, as plan failures says it"),
    WORD("watts", watts, "of a node"),
    WORD("pue", pue, "watts of the building for each of a node's; 1 when absent"),
};
enum { KEYS = sizeof keys / sizeof keys[0] };

const rpi_offer_key *rpi_offer_key_at(int index) {
    return index >= 0 && index < KEYS ? &keys[index].key : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < KEYS ? keys[index].key.name : NULL;
}

/* ---- reading ---- */

/* The text between two places without surrounding spaces; false: too long for `out`. */
static bool trim(const char *begin, const char *end, char *out, size_t bytes) {
    while (begin < end && isspace((unsigned char)*begin)) begin++;
    while (end > begin && isspace((unsigned char)end[-1])) end--;
    if ((size_t)(end - begin) >= bytes) return false;
    memcpy(out, begin, (size_t)(end - begin));
    out[end - begin] = '\0';
    return true;
}

static rp_status set_word(const char *key, const char *value, words *w) {
    double number;
    char hint[64];
    int i = 0;
    while (i < KEYS && strcmp(keys[i].key.name, key) != 0) i++;
    if (i == KEYS)
        return RP_FAIL(INVALID, "an offer has no '%s'%s", key,
                       rpi_suggest_text(key, name_at, NULL, hint, sizeof hint));
    bool is_price = keys[i].offset == offsetof(words, price);
    rp_status status =
        is_price ? rpi_price_parse(value, &number) : rpi_parse_real(value, &number);
    if (status != RP_OK) return rpi_fail_context(status, "%s: ", key);
    if (number < 0 || (number == 0 && !is_price))
        return RP_FAIL(INVALID, "%s: '%s' is not above 0", key, value);
    if (keys[i].offset == offsetof(words, goodput) && number > 1)
        return RP_FAIL(INVALID, "goodput: '%s' is above 1", value);
    memcpy((char *)w + keys[i].offset, &number, sizeof number);
    return RP_OK;
}

/* "key=value" between two places. */
static rp_status read_word(const char *begin, const char *end, words *w) {
    char key[64], value[64];
    const char *equals = memchr(begin, '=', (size_t)(end - begin));
    if (!equals || !trim(begin, equals, key, sizeof key) ||
        !trim(equals + 1, end, value, sizeof value))
        return RP_FAIL(INVALID, "'%.*s' is not KEY=VALUE, as in hours=5.9", (int)(end - begin),
                       begin);
    return set_word(key, value, w);
}

/* ---- what follows ---- */

/* A phase must give its time in exactly one way, and completely. */
static rp_status take_phase(const words *w, rpi_cost_offer *o) {
    const struct phase *p = &w->phase;
    double measured = p->measured_batch > 0 ? p->measured_batch : p->batch;
    double stretch = measured > 0 ? p->batch / measured : 1, hours = p->hours;
    int ways =
        (p->hours > 0) + (p->cost > 0) + (p->tokens_per_s > 0) + (p->iterations_per_s > 0);
    if (ways != 1)
        return RP_FAIL(INVALID, "say %s of hours, cost, tokens-per-s and iterations-per-s",
                       ways ? "only one" : "one");
    if (p->cost > 0 && !(w->price > 0))
        return RP_FAIL(INVALID, "hours follow from a cost where there is a price");
    if (p->tokens_per_s > 0 && p->tokens == 0)
        return RP_FAIL(INVALID, "tokens-per-s of how many tokens? tokens=2e12");
    if (p->iterations_per_s > 0 && p->steps == 0)
        return RP_FAIL(INVALID, "iterations-per-s of how many steps? steps=100000");
    if (p->measured_batch > 0 && p->batch == 0)
        return RP_FAIL(INVALID, "measured-batch goes with batch, which the steps have");
    if (p->cost > 0) hours = p->cost / w->price / w->nodes * w->goodput;
    if (p->tokens_per_s > 0) hours = p->tokens / p->tokens_per_s / 3600;
    if (p->iterations_per_s > 0) hours = p->steps * stretch / p->iterations_per_s / 3600;
    o->hours += hours / w->goodput;
    o->tokens += p->tokens > 0 ? p->tokens : p->steps * p->batch * p->sequence;
    return RP_OK;
}

static rp_status read_phases(const char *text, words *w, rpi_cost_offer *o) {
    for (const char *at = text;;) {
        const char *end = at + strcspn(at, ",;");
        RP_TRY(read_word(at, end, w));
        if (*end != ',') {
            RP_TRY(take_phase(w, o));
            w->phase = (struct phase){0};
        }
        if (!*end) return RP_OK;
        at = end + 1;
    }
}

rp_status rpi_offer_parse(const char *text, double nodes, double price,
                          rpi_cost_offer *out_offer) {
    words w = {.nodes = nodes, .price = price, .goodput = 1, .pue = 1};
    rpi_cost_offer o = {.cost = -1};
    const char *colon = strchr(text, ':');
    if (colon && !trim(text, colon, o.name, sizeof o.name))
        return RP_FAIL(INVALID, "a name of at most %d letters goes in front of ':'",
                       RPI_OFFER_NAME - 1);
    rp_status status = read_phases(colon ? colon + 1 : text, &w, &o);
    if (status != RP_OK) return rpi_fail_context(status, "'%s': ", text);
    o.nodes = w.nodes;
    o.node_hours = w.nodes * o.hours;
    o.price = w.price;
    if (w.price >= 0) o.cost = o.node_hours * w.price;
    o.watts = w.watts;
    o.kwh = o.node_hours * w.watts * w.pue / 1000;
    if (!isfinite(o.node_hours) || !isfinite(o.cost) || !isfinite(o.kwh))
        return RP_FAIL(INVALID, "'%s': the numbers are too large", text);
    *out_offer = o;
    return RP_OK;
}

double rpi_offer_break_even(const rpi_cost_offer *offers, int count, int at) {
    double least = INFINITY;
    for (int i = 0; i < count; i++)
        if (i != at && offers[i].cost < least) least = offers[i].cost;
    return isfinite(least) && least >= 0 ? least / offers[at].node_hours : -1;
}
