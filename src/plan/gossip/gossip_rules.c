/* The algorithms, with the equations that their papers have. W is what the topology's round
 * does to what is sent; g the gradient at x; a the learning rate. */
#include "base/status.h"
#include "base/suggest.h"
#include "plan/gossip/gossip_rule.h"

#define PLUS(slot)                                                                             \
    { RPI_GOSSIP_##slot, 2, RPI_GOSSIP_ONE }
#define MINUS(slot)                                                                            \
    { RPI_GOSSIP_##slot, -2, RPI_GOSSIP_ONE }
#define TWICE(slot)                                                                            \
    { RPI_GOSSIP_##slot, 4, RPI_GOSSIP_ONE }
#define HALF(slot)                                                                             \
    { RPI_GOSSIP_##slot, 1, RPI_GOSSIP_ONE }
#define DOWN(slot)                                                                             \
    { RPI_GOSSIP_##slot, -2, RPI_GOSSIP_RATE } /* minus a times it */
#define NEARER(slot)                                                                           \
    { RPI_GOSSIP_##slot, 2, RPI_GOSSIP_GAMMA } /* gamma times it */
#define AWAY(slot)                                                                             \
    { RPI_GOSSIP_##slot, -2, RPI_GOSSIP_GAMMA }
/* clang-format off */
#define LINE(slot, ...) {RPI_GOSSIP_##slot, false, {__VA_ARGS__}}
#define PUSHED(slot, ...) {RPI_GOSSIP_##slot, true, {__VA_ARGS__}}
/* clang-format on */
#define IN(slot) (RPI_GOSSIP_##slot + 1)

static const rpi_gossip_rule catalogue[] = {
    {
        .name = "awc",
        .summary = "adapt while combining: x becomes W x - a g",
        .topology = "base",
        .sends = 1,
        .lies_in = {IN(X)},
        .before = {LINE(SENT, PLUS(X))},
        .after = {LINE(X, PLUS(MIXED), DOWN(GRADIENT))},
    },
    {
        .name = "atc",
        .summary = "adapt, then combine: x becomes W (x - a g)",
        .topology = "base",
        .sends = 1,
        .lies_in = {IN(X), 0, IN(GRADIENT)},
        .before = {LINE(SENT, PLUS(X), DOWN(GRADIENT))},
        .after = {LINE(X, PLUS(MIXED))},
    },
    {
        /* Yuan et al., arXiv 1702.05122. STATE is psi; W is used as (W + 1) / 2, without which
         * it may diverge. */
        .name = "exact-diffusion",
        .summary = "atc corrected by the step before: reaches the optimum of all, not near it",
        .topology = "torus",
        .needs = "; it needs one that is symmetric and stays the same",
        .sends = 1,
        .lies_in = {0, 0, IN(GRADIENT)},
        .states = 1,
        .begin = {LINE(STATE, PLUS(X))},
        .before = {LINE(SENT, TWICE(X), DOWN(GRADIENT), MINUS(STATE)),
                   LINE(STATE, PLUS(X), DOWN(GRADIENT))},
        .after = {LINE(X, HALF(SENT), HALF(MIXED))},
    },
    {
        /* Koloskova et al., arXiv 1902.00340. STATE is the copy of x that neighbours keep,
         * STATE_2 the weighted sum of theirs and this one; zeros at first. Where all rounds
         * have the same edges, the copies of all neighbours need no more than that sum. */
        .name = "choco",
        .summary = "atc whose neighbours keep copies; a codec loses nothing in the end",
        .topology = "torus",
        .sends = 1,
        .lies_in = {0, 0, IN(GRADIENT)},
        .states = 2,
        .copies = true,
        .before = {LINE(X, PLUS(X), DOWN(GRADIENT)), LINE(SENT, PLUS(X), MINUS(STATE))},
        .after = {LINE(STATE, PLUS(STATE), PLUS(SENT)),
                  LINE(STATE_2, PLUS(STATE_2), PLUS(MIXED)),
                  LINE(X, PLUS(X), NEARER(STATE_2), AWAY(STATE))},
    },
    {
        /* DIGing: Nedic et al., arXiv 1607.03218. STATE is q, the tracked gradient of all,
         * STATE_2 the own one of the step before: x becomes W x - a q, q becomes W q + g(new) -
         * g. */
        .name = "gradient-tracking",
        .summary = "steps along a running average of all gradients, which is exchanged too",
        .topology = "base",
        .sends = 2,
        .lies_in = {IN(X), IN(STATE), IN(GRADIENT)},
        .states = 2,
        .begin = {LINE(STATE, PLUS(GRADIENT)), LINE(STATE_2, PLUS(GRADIENT))},
        .before = {LINE(STATE, PLUS(STATE), PLUS(GRADIENT), MINUS(STATE_2)),
                   LINE(STATE_2, PLUS(GRADIENT)), LINE(SENT, PLUS(X)),
                   LINE(SENT_2, PLUS(STATE))},
        .after = {LINE(X, PLUS(MIXED), DOWN(STATE)), LINE(STATE, PLUS(MIXED_2))},
    },
    {
        /* Kempe et al. 2003; STATE is what is pushed, x that over p. */
        .name = "push-sum",
        .summary = "atc over graphs that go one way: a sender's weights, and p to divide by",
        .topology = "base",
        .sends = 1,
        .lies_in = {IN(STATE), 0, IN(GRADIENT)},
        .states = 1,
        .pushes = true,
        .begin = {LINE(STATE, PLUS(X))},
        .before = {LINE(SENT, PLUS(STATE), DOWN(GRADIENT))},
        .after = {LINE(STATE, PLUS(MIXED)), PUSHED(X, PLUS(MIXED))},
    },
    {
        /* arXiv 1607.03218: u becomes W (u - a y), y becomes W y + g(new) - g, x = u / p. STATE
         * is u, STATE_2 y, STATE_3 the gradient of the step before. */
        .name = "push-diging",
        .summary = "gradient tracking over graphs that go one way",
        .topology = "base",
        .sends = 2,
        .lies_in = {IN(STATE), IN(STATE_2), IN(GRADIENT)},
        .states = 3,
        .pushes = true,
        .begin = {LINE(STATE, PLUS(X)), LINE(STATE_2, PLUS(GRADIENT)),
                  LINE(STATE_3, PLUS(GRADIENT))},
        .before = {LINE(STATE_2, PLUS(STATE_2), PLUS(GRADIENT), MINUS(STATE_3)),
                   LINE(STATE_3, PLUS(GRADIENT)), LINE(SENT, PLUS(STATE), DOWN(STATE_2)),
                   LINE(SENT_2, PLUS(STATE_2))},
        .after = {LINE(STATE, PLUS(MIXED)), LINE(STATE_2, PLUS(MIXED_2)),
                  PUSHED(X, PLUS(MIXED))},
    },
};
enum { RULES = sizeof catalogue / sizeof catalogue[0] };

const rpi_gossip_rule *rpi_gossip_rule_at(int index) {
    return index >= 0 && index < RULES ? &catalogue[index] : NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < RULES ? catalogue[index].name : NULL;
}

rp_status rpi_gossip_rule_find(const char *name, const rpi_gossip_rule **out_rule) {
    int index = 0;
    RP_TRY(rpi_name_find("gossip algorithm", name, name_at, NULL, &index));
    *out_rule = &catalogue[index];
    return RP_OK;
}
