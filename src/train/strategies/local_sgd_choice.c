#include "train/strategies/local_sgd_choice.h"

#include "base/status.h"
#include "base/units.h"

#include <ctype.h>
#include <string.h>

/* As options write them. Rates are texts, because the outer optimizer decides their defaults.
 */
typedef struct choice {
    const char *outer, *outer_rate, *outer_momentum, *consensus_rate, *residual_decay,
        *inner_state, *on_loss;
    int64_t every, fragments, delay;
    double mixing;
    bool nesterov;
    rpi_strategy_words words;
} choice;

static rp_status check_real(const char *text) {
    double value;
    return rpi_parse_real(text, &value);
}

#define COUNT(name, fallback, help)                                                            \
    RPI_STRATEGY_OPTION(#name, RPI_OPTION_COUNT, offsetof(choice, name), fallback, 0, 1e9,     \
                        "N", help)
#define RATE(text, name, help)                                                                 \
    {                                                                                          \
        text, NULL, text, RPI_OPTION_TEXT, offsetof(choice, name), NULL, 0, 0, "NUMBER", help, \
            check_real                                                                         \
    }

/* clang-format off */
const rpi_option rpi_local_sgd_option_rows[] = {
    RPI_STRATEGY_OPTION("outer", RPI_OPTION_TEXT, offsetof(choice, outer), "average", 0, 0,
                        "NAME",
                        "what becomes of how far ranks went: average, slowmo, diloco, noloco or "
                        "sparseloco (docs/decentralised.md)"),
    COUNT(every, "100", "steps from one exchange of a parameter to the next"),
    COUNT(fragments, "1", "parts of the model, by layers, exchanged in turn; divides every"),
    COUNT(delay, "0", "steps under which an exchange travels; less than every / fragments"),
    RPI_STRATEGY_OPTION("mixing", RPI_OPTION_REAL, offsetof(choice, mixing), "0", 0, 0, "SHARE",
                        "of a rank's own parameters in what it goes on with, 0 to 1"),
    RATE("outer-lr", outer_rate,
         "of the outer optimizer; when absent diloco and noloco 0.7, others 1"),
    RATE("outer-momentum", outer_momentum,
         "of the outer optimizer; when absent up to 20 steps 0.3, up to 50 diloco 0.6, beyond "
         "that 0.9; slowmo and noloco 0.5 from 21 on"),
    RPI_STRATEGY_OPTION("nesterov", RPI_OPTION_FLAG, offsetof(choice, nesterov), "on", 0, 0,
                        "on|off", "diloco: Nesterov's momentum"),
    RATE("consensus-rate", consensus_rate, "noloco: towards the partner; 0.7 when absent"),
    RATE("residual-decay", residual_decay,
         "of error feedback, at each exchange; when absent sparseloco 0.95, others 1"),
    RPI_STRATEGY_OPTION("inner-state", RPI_OPTION_TEXT, offsetof(choice, inner_state), "keep",
                        0, 0, "WHAT",
                        "keep, average or reset the optimizer's state at an exchange"),
    RPI_STRATEGY_ON_LOSS(offsetof(choice, on_loss),
                         "stop, or continue without ranks that die, from the mean of those that "
                         "are left"),
    {0},
};
/* clang-format on */

static void set_rate(const char *text, double *in_out_rate) {
    if (text) (void)rpi_parse_real(text, in_out_rate); /* it was checked before */
}

static rp_status find_inner_state(const char *name, rpi_inner_state *out_state) {
    static const char *const names[] = {"keep", "average", "reset"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *out_state = (rpi_inner_state)i;
        return RP_OK;
    }
    return RP_FAIL(INVALID, "local-sgd: inner-state is keep, average or reset, not '%s'", name);
}

/* Refuses what would run but not train. */
static rp_status check_learning(const rp_local_sgd_options *o) {
    uint64_t window = o->every / o->fragments;
    if (o->mixing == 1)
        return RP_FAIL(INVALID,
                       "local-sgd: mixing=1 keeps each rank's own parameters, and ranks would "
                       "never agree; take 0.5 or less, or 0");
    if (o->mixing == 0 && 10 * o->delay >= 9 * window)
        return RP_FAIL(INVALID,
                       "local-sgd: with a delay of %llu what ranks learn in %llu of each %llu "
                       "steps is thrown away; take a shorter one, or a mixing of 0.5, which "
                       "keeps half of it",
                       (unsigned long long)o->delay, (unsigned long long)o->delay,
                       (unsigned long long)window);
    return RP_OK;
}

rp_status rpi_local_sgd_choose(const rpi_strategy *strategy, const char *text,
                               rpi_local_sgd_choice *out_choice) {
    choice c = {0};
    rpi_local_sgd_choice chosen = {.options = RP_LOCAL_SGD_OPTIONS()};
    rp_local_sgd_options *o = &chosen.options;
    RP_TRY(rpi_strategy_read(strategy, text, &c.words, &c));
    if (strncmp(c.outer, "async", strlen("async")) == 0)
        return RP_FAIL(INVALID,
                       "local-sgd: local steps that wait for nobody are a strategy of "
                       "their own: --strategy async-local-sgd:every=%lld",
                       (long long)c.every);
    RP_TRY(rp_local_sgd_defaults(c.outer, o));
    RP_TRY(find_inner_state(c.inner_state, &chosen.inner_state));
    RP_TRY(rpi_strategy_on_loss("local-sgd", c.on_loss, &chosen.goes_on));
    o->every = (uint64_t)c.every;
    o->fragments = (uint64_t)c.fragments;
    o->delay = (uint64_t)c.delay;
    o->mixing = c.mixing;
    o->nesterov = c.nesterov;
    o->outer_momentum = rp_outer_momentum(o->outer, o->every);
    set_rate(c.outer_rate, &o->outer_rate);
    set_rate(c.outer_momentum, &o->outer_momentum);
    set_rate(c.consensus_rate, &o->consensus_rate);
    set_rate(c.residual_decay, &o->residual_decay);
    RP_TRY(rp_local_sgd_check(o, 0));
    RP_TRY(check_learning(o));
    *out_choice = chosen;
    return RP_OK;
}

/* ---- layers ---- */

/* The length of the first part of a name, which identifies the layer. */
static size_t layer_length(const char *name) {
    const char *last = strrchr(name, '.');
    for (const char *part = name; part; part = strchr(part, '.')) {
        if (*part == '.') part++;
        const char *end = part;
        while (isdigit((unsigned char)*end)) end++;
        if (end > part && (*end == '.' || !*end)) return (size_t)(end - name);
    }
    return last ? (size_t)(last - name) : strlen(name);
}

static bool same_layer(const char *a, const char *b) {
    size_t length = layer_length(a);
    return length == layer_length(b) && memcmp(a, b, length) == 0;
}

int rpi_local_sgd_layers(const rpi_weights *weights, uint32_t *out_layers) {
    int layers = 0;
    for (int i = 0; i < rpi_weights_parameter_count(weights); i++) {
        int j = 0;
        while (j < i && !same_layer(rpi_weights_parameter(weights, i)->name,
                                    rpi_weights_parameter(weights, j)->name))
            j++;
        out_layers[i] = j < i ? out_layers[j] : (uint32_t)layers++;
    }
    return layers;
}
