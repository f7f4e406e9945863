#include "methods/local_sgd/local_sgd_object.h"

#include "base/append.h"
#include "base/sized_options.h"
#include "base/status.h"
#include "plan/local_sgd/outer_momentum.h"
#include "plan/local_sgd/outer_rule.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static const rpi_sized sized = {.name = "rp_local_sgd_options",
                                .initializer = "RP_LOCAL_SGD_OPTIONS",
                                .least = RPI_SIZE_UP_TO(rp_local_sgd_options, partner_context),
                                .known = sizeof(rp_local_sgd_options)};

rp_status rp_local_sgd_defaults(const char *outer, rp_local_sgd_options *options) {
    const rpi_outer_rule *rule = NULL;
    if (!options) return RP_FAIL(INVALID, "rp_local_sgd_defaults needs options to fill");
    RP_TRY(rpi_outer_rule_find(outer ? outer : "average", &rule));
    rp_local_sgd_options own = {.outer = rule->name,
                                .every = 100,
                                .fragments = 1,
                                .outer_rate = rule->defaults.outer,
                                .outer_momentum = rule->defaults.momentum,
                                .consensus_rate = rule->defaults.consensus,
                                .residual_decay = rule->residual_decay,
                                .nesterov = rule->defaults.nesterov};
    return rpi_sized_write(&sized, &own, options);
}

static rp_status check_counts(const rp_local_sgd_options *o, size_t tensors) {
    unsigned long long every = o->every, fragments = o->fragments, delay = o->delay;
    if (every < 1 || every > INT_MAX)
        return RP_FAIL(INVALID, "local SGD: every is %llu; ranks exchange every 1 to %d steps",
                       every, INT_MAX);
    if (fragments < 1 || fragments > every || every % fragments != 0)
        return RP_FAIL(INVALID,
                       "local SGD: %llu fragments cannot share %llu steps; take a number that "
                       "divides every",
                       fragments, every);
    if (tensors && fragments > tensors)
        return RP_FAIL(INVALID,
                       "local SGD: %llu fragments of %zu tensors; there are at most as many "
                       "fragments as tensors",
                       fragments, tensors);
    if (delay >= every / fragments)
        return RP_FAIL(
            INVALID,
            "local SGD: an exchange that ends %llu steps after its begin, in windows "
            "of %llu; the delay is less than every / fragments",
            delay, every / fragments);
    return RP_OK;
}

static rp_status check_rates(const rp_local_sgd_options *o, const rpi_outer_rule *rule) {
    double m = o->outer_momentum;
    if (!(o->mixing >= 0 && o->mixing <= 1))
        return RP_FAIL(INVALID, "local SGD: mixing is %g; 0 to 1", o->mixing);
    if (!(o->outer_rate > 0) || !isfinite(o->outer_rate))
        return RP_FAIL(INVALID, "local SGD: an outer rate of %g; above 0", o->outer_rate);
    if (rule->averages && o->outer_rate != 1)
        return RP_FAIL(INVALID,
                       "local SGD: %s has an outer rate of 1, not %g; take diloco with an "
                       "outer momentum of 0",
                       rule->name, o->outer_rate);
    if (!(m >= 0 && m < 1))
        return RP_FAIL(INVALID, "local SGD: an outer momentum of %g; 0 to below 1", m);
    if (m > 0 && !rule->has_momentum)
        return RP_FAIL(INVALID, "local SGD: %s has no outer momentum, and %g is one; take 0",
                       rule->name, m);
    if (!(o->residual_decay >= 0 && o->residual_decay <= 1))
        return RP_FAIL(INVALID, "local SGD: a residual decay of %g; 0 to 1", o->residual_decay);
    double most = 2 * (1 - m * m), c = o->consensus_rate;
    if (rule->exchange == RPI_OUTER_PAIR && !(c > 0 && c < most))
        return RP_FAIL(INVALID,
                       "local SGD: %s with momentum %g and a consensus rate of %g lets ranks "
                       "drift apart; above 0 and below 2 (1 - momentum^2) = %g",
                       rule->name, m, c, most);
    return RP_OK;
}

static rp_status check_fragments(const rp_local_sgd_options *o, size_t tensors) {
    if (!o->fragment_of || !tensors) return RP_OK;
    for (size_t i = 0; i < tensors; i++)
        if (o->fragment_of[i] >= o->fragments)
            return RP_FAIL(INVALID, "local SGD: tensor %zu is in fragment %u; 0 to %llu", i,
                           (unsigned)o->fragment_of[i], (unsigned long long)o->fragments - 1);
    for (uint64_t f = 0; f < o->fragments; f++) {
        size_t i = 0;
        while (i < tensors && o->fragment_of[i] != f) i++;
        if (i == tensors)
            return RP_FAIL(INVALID, "local SGD: no tensor is in fragment %llu; take fewer",
                           (unsigned long long)f);
    }
    return RP_OK;
}

rp_status rpi_local_options_read(const rp_local_sgd_options *given, size_t tensors,
                                 rp_local_sgd_options *out_own) {
    const rpi_outer_rule *rule = NULL;
    if (!given)
        return RP_FAIL(INVALID, "local SGD needs options; rp_local_sgd_defaults() fills them");
    RP_TRY(rpi_sized_read(&sized, given, out_own));
    RP_TRY(rpi_outer_rule_find(out_own->outer ? out_own->outer : "average", &rule));
    RP_TRY(check_counts(out_own, tensors));
    RP_TRY(check_rates(out_own, rule));
    return check_fragments(out_own, tensors);
}

rp_status rp_local_sgd_check(const rp_local_sgd_options *options, size_t tensors) {
    rp_local_sgd_options own;
    return rpi_local_options_read(options, tensors, &own);
}

/* ---- what is known to work ---- */

double rp_outer_momentum(const char *outer, uint64_t every) {
    const rpi_outer_rule *rule;
    if (!outer) return 0;
    if (strcmp(outer, "delayed-nesterov") == 0) return rpi_outer_momentum(.9, every, false);
    for (int i = 0; (rule = rpi_outer_rule_at(i)) != NULL; i++)
        if (strcmp(rule->name, outer) == 0)
            return rpi_outer_momentum(rule->defaults.momentum, every, true);
    return 0;
}

/* While an exchange travels ranks go on. Of these steps the share `mixing` is kept. */
static void advise_windows(const rp_local_sgd_options *o, char *text, size_t bytes) {
    unsigned long long window = o->every / o->fragments, delay = o->delay;
    double lost = (double)delay / (double)window * (1 - o->mixing);
    const char *behind = text[0] ? "; " : "";
    if (o->mixing == 1)
        rpi_append(text, bytes,
                   "%smixing 1 keeps each rank's own parameters: what is agreed on is never "
                   "taken, and ranks drift apart; take 0.5 or less",
                   behind);
    else if (o->mixing > .9)
        rpi_append(text, bytes,
                   "%smixing %g takes %.2g %% of what is agreed on at an exchange, and ranks "
                   "drift apart; take 0.5 or less",
                   behind, o->mixing, 100 * (1 - o->mixing));
    else if (lost >= .5)
        rpi_append(
            text, bytes,
            "%sof each %llu steps %llu go on under an exchange, and %.0f %% of what they "
            "learn is thrown away; take a shorter delay, or a mixing of 0.5",
            behind, window, delay, 100 * (1 - o->mixing));
}

rp_status rp_local_sgd_advise(const rp_local_sgd_options *options, char *text, size_t bytes) {
    char advice[RPI_OUTER_ADVICE];
    rp_local_sgd_options own;
    if (!text || !bytes) return RP_FAIL(INVALID, "local SGD: no room for a text");
    RP_TRY(rpi_local_options_read(options, 0, &own));
    rpi_outer_momentum_advise(own.outer_rate, own.outer_momentum, own.every, true, advice);
    text[0] = '\0';
    rpi_append(text, bytes, "%s", advice);
    advise_windows(&own, text, bytes);
    return RP_OK;
}
