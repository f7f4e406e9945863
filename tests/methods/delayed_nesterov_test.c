/* Asynchronous local SGD with delayed Nesterov, serially: iterates as the paper's equations
 * have them. f_i(x) = a_i (x - b_i)^2 / 2, inner rate .1, four local steps. */
#include "redpoll/parameter_server.h"

#include "harness/check.h"

#include <math.h>
#include <string.h>

enum { WORKERS = 4, COUNT = 3 };

static const double a[WORKERS] = {1, 2, 3, 4}, b[WORKERS] = {1, -1, 2, .5};

typedef struct server {
    rp_delayed_nesterov outer;
    float values[COUNT], momentum[COUNT], buffer[COUNT];
} server;

static void open_server(server *s) {
    memset(s, 0, sizeof *s);
    s->outer = (rp_delayed_nesterov){.outer_rate = .7,
                                     .outer_momentum = .9,
                                     .delay = WORKERS,
                                     .momentum = s->momentum,
                                     .buffer = s->buffer};
}

/* base - x behind four local steps. */
static float went(int worker, float base) {
    double c = pow(1 - .1 * a[worker], 4);
    return (float)((1 - c) * ((double)base - b[worker]));
}

static void merge(server *s, int push_count, float gradient) {
    float g[COUNT];
    for (int i = 0; i < COUNT; i++) g[i] = gradient;
    /* A shard of the last two elements, and one of the first. */
    uint64_t pushes = s->outer.pushes;
    rp_parameter_merge m = {.first = 1,
                            .count = 2,
                            .values = s->values + 1,
                            .gradient = g,
                            .push_count = push_count};
    CHECK_OK(rp_delayed_nesterov_merge(&s->outer, &m));
    s->outer.pushes = pushes;
    m.first = 0;
    m.count = 1;
    m.values = s->values;
    CHECK_OK(rp_delayed_nesterov_merge(&s->outer, &m));
}

static void check_values(const server *s, double wanted) {
    for (int i = 0; i < COUNT; i++) CHECK_NEAR((double)s->values[i], wanted, 1e-5);
}

static void in_turn(void) {
    static const struct {
        int pushes;
        double value;
    } wanted[] = {{1, .0601825},    {2, -.0431375},    {3, .2228275},      {4, .56807625},
                  {8, 1.159212026}, {12, 1.391332547}, {1200, .6880202520}};
    server s;
    open_server(&s);
    float base[WORKERS] = {0};
    int next = 0;
    for (int push = 1; push <= 1200; push++) {
        int worker = (push - 1) % WORKERS;
        merge(&s, 1, went(worker, base[worker]));
        base[worker] = s.values[0];
        if (push != wanted[next].pushes) continue;
        check_values(&s, wanted[next++].value);
    }
    CHECK_EQ(next, 7);
}

/* As many pushes from the same values as `delay` are steps of DiLoCo, one by one or at once. */
static void together(void) {
    static const double wanted[] = {.56807625, .8939169984, .9533516921};
    for (int at_once = 0; at_once < 2; at_once++) {
        server s;
        open_server(&s);
        for (int round = 0; round < 3; round++) {
            float base = s.values[0], sum = 0;
            for (int worker = 0; worker < WORKERS; worker++) {
                sum += went(worker, base);
                if (!at_once) merge(&s, 1, went(worker, base));
            }
            if (at_once) merge(&s, WORKERS, sum);
            check_values(&s, wanted[round]);
        }
    }
}

static void refused(void) {
    float some[COUNT];
    const rp_delayed_nesterov fine = {
        .outer_rate = .7, .outer_momentum = .9, .delay = 4, .momentum = some, .buffer = some};
    CHECK_OK(rp_delayed_nesterov_check(&fine));
    CHECK_FAILS(rp_delayed_nesterov_check(NULL), INVALID, "is NULL");
    rp_delayed_nesterov one = fine;
    one.outer_rate = 0;
    CHECK_FAILS(rp_delayed_nesterov_check(&one), INVALID, "an outer rate of 0");
    one = fine;
    one.outer_momentum = 1;
    CHECK_FAILS(rp_delayed_nesterov_check(&one), INVALID, "below 1");
    one = fine;
    one.delay = 0;
    CHECK_FAILS(rp_delayed_nesterov_check(&one), INVALID, "every 0 pushes");
    one = fine;
    one.buffer = NULL;
    CHECK_FAILS(rp_delayed_nesterov_check(&one), INVALID, "buffer is NULL");
}

CASES({"pushes in turn", in_turn}, {"pushes from the same values are DiLoCo's step", together},
      {"what cannot be is refused", refused})
