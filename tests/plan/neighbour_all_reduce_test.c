/* A round of gossip as a schedule: proved for topologies and worlds of all kinds, and what the
 * check must notice. */
#include "base/memory.h"
#include "harness/check.h"
#include "plan/algorithms.h"
#include "plan/cost.h"
#include "plan/plan_check.h"
#include "plan/topologies/topology.h"

static const char *const forms[] = {
    "ring",
    "ring:direction=left",
    "star",
    "star:weights=sender",
    "mesh",
    "full",
    "exponential",
    "exponential:base=3,weights=sender",
    "one-peer-exponential",
    "base",
    "base:k=3",
    "equi",
    "equi:degree=2",
    "hierarchical:local=3,machines=ring",
    "inner-outer-ring:local=4",
};
enum { FORMS = sizeof forms / sizeof forms[0], ROUNDS = 8 };

static const rpi_algorithm *const algorithm = &rpi_algorithm_neighbour_all_reduce;

static void every_round_is_proved(void) {
    for (int f = 0; f < FORMS; f++)
        for (int world = 1; world <= 25; world++) {
            rpi_topology *topology = NULL;
            rpi_mixing mixing = {0};
            if (rpi_topology_open(forms[f], world, &topology) != RP_OK) continue;
            for (int step = 0; step < ROUNDS && (step == 0 || step < topology->period);
                 step++) {
                CHECK_OK(rpi_topology_mix(topology, step, &mixing));
                rpi_plan_request request = {.world = world, .mixing = &mixing};
                rp_status status = rpi_plan_check(algorithm, &request);
                CHECK_MSG(status == RP_OK, "%s of %d ranks, step %d: %s", forms[f], world, step,
                          rp_last_error()->message);
            }
            rpi_mixing_free(&mixing);
            rpi_topology_close(topology);
        }
}

/* A mixing without what ranks keep: they swap, and their own is in no sum. */
static void swaps_are_proved(void) {
    rpi_mixing mixing = {0};
    rpi_mixing_start(&mixing, 3, 1);
    for (int rank = 0; rank < 3; rank++)
        rpi_mixing_weigh(&mixing, rank, (rank + 1) % 3, (rpi_fraction){1, 1});
    REQUIRE_OK(rpi_mixing_finish(&mixing, RPI_WEIGHTS_GIVEN));
    CHECK_OK(rpi_plan_check(algorithm, &(rpi_plan_request){.world = 3, .mixing = &mixing}));
    rpi_mixing_free(&mixing);
}

typedef void (*damage)(rpi_schedule *schedule);

/* The last step that has a weight. */
static rpi_step *weighed_step(rpi_schedule *schedule) {
    for (int i = schedule->count - 1; i >= 0; i--)
        if (schedule->steps[i].weight.over) return &schedule->steps[i];
    return NULL;
}

static void change_weight(rpi_schedule *schedule) {
    weighed_step(schedule)->weight.over++;
}

static void drop_weight(rpi_schedule *schedule) {
    weighed_step(schedule)->weight = (rpi_fraction){0};
}

static void check_noticed(const char *text, damage harm, const char *part) {
    enum { WORLD = 5 };
    rpi_topology *topology = NULL;
    rpi_mixing mixing = {0};
    rpi_schedule schedules[WORLD] = {{0}};
    REQUIRE_OK(rpi_topology_open(text, WORLD, &topology));
    CHECK_OK(rpi_topology_mix(topology, 0, &mixing));
    rpi_plan_request request = {.world = WORLD, .mixing = &mixing};
    for (request.rank = 0; request.rank < WORLD; request.rank++)
        REQUIRE_OK(rpi_schedule_build(algorithm, &request, &schedules[request.rank]));
    CHECK_OK(rpi_plan_check_schedules(schedules, &request));
    request.mixing = NULL;
    CHECK_FAILS(rpi_plan_check_schedules(schedules, &request), INTERNAL,
                "another mixing, or none");
    request.mixing = &mixing;
    harm(&schedules[3]);
    CHECK_FAILS(rpi_plan_check_schedules(schedules, &request), INTERNAL, part);
    for (int rank = 0; rank < WORLD; rank++) rpi_schedule_destroy(&schedules[rank]);
    rpi_mixing_free(&mixing);
    rpi_topology_close(topology);
}

static void wrong_weights_are_noticed(void) {
    check_noticed("star", change_weight, "rank 3");
    check_noticed("star", drop_weight, "takes an unfinished sum");
    check_noticed("ring", change_weight, "takes an unfinished sum");
    check_noticed("ring", drop_weight, "takes an unfinished sum");
}

/* As the weights say it: added first and divided once where they are all the same. */
static void equal_weights_divide_once(void) {
    rpi_topology *topology = NULL;
    rpi_mixing mixing = {0};
    rpi_schedule schedule = {0};
    int weighed = 0;
    REQUIRE_OK(rpi_topology_open("ring", 5, &topology));
    CHECK_OK(rpi_topology_mix(topology, 0, &mixing));
    rpi_plan_request request = {.world = 5, .rank = 2, .mixing = &mixing};
    REQUIRE_OK(rpi_schedule_build(algorithm, &request, &schedule));
    for (int i = 0; i < schedule.count; i++) weighed += schedule.steps[i].weight.over != 0;
    const rpi_step *last = &schedule.steps[schedule.count - 1];
    CHECK_EQ(weighed, 1);
    CHECK(last->into == RPI_SLOT_OUT && last->weight.times == 1 && last->weight.over == 3);
    rpi_schedule_destroy(&schedule);
    rpi_mixing_free(&mixing);
    rpi_topology_close(topology);
}

static void other_worlds_do_not_fit(void) {
    rpi_topology *topology = NULL;
    rpi_mixing mixing = {0};
    rpi_schedule schedule;
    REQUIRE_OK(rpi_topology_open("ceca", 5, &topology));
    CHECK_OK(rpi_topology_mix(topology, 0, &mixing));
    CHECK_FAILS(rpi_schedule_build(
                    algorithm, &(rpi_plan_request){.world = 5, .mixing = &mixing}, &schedule),
                UNSUPPORTED, "neighbor-all-reduce by 'direct' does not work in a world of 5");
    CHECK_FAILS(rpi_schedule_build(algorithm, &(rpi_plan_request){.world = 5}, &schedule),
                UNSUPPORTED, "does not work");
    rpi_mixing_free(&mixing);
    rpi_topology_close(topology);
}

/* One vector a round at the rate of the link, where a ring's all-reduce sends nearly two. */
static void one_peer_costs_one_vector(void) {
    enum { BYTES = 100 * 1000 * 1000 };
    rpi_topology *topology = NULL;
    rpi_mixing mixing = {0};
    rpi_cost cost;
    rpi_cost_model model = {.bytes_per_s = 125e6, .latency_s = 50e-6, .frame_bytes = 64};
    REQUIRE_OK(rpi_topology_open("one-peer-exponential", 8, &topology));
    CHECK_OK(rpi_topology_mix(topology, 1, &mixing));
    REQUIRE_OK(rpi_plan_cost(algorithm, &(rpi_plan_request){.world = 8, .mixing = &mixing},
                             BYTES, BYTES, &model, &cost));
    CHECK_NEAR(cost.wire_bytes, BYTES, .001 * BYTES);
    CHECK_NEAR(cost.time_s, .8, .01);
    rpi_mixing_free(&mixing);
    rpi_topology_close(topology);
}

CASES({"every_round_is_proved", every_round_is_proved}, {"swaps_are_proved", swaps_are_proved},
      {"wrong_weights_are_noticed", wrong_weights_are_noticed},
      {"equal_weights_divide_once", equal_weights_divide_once},
      {"other_worlds_do_not_fit", other_worlds_do_not_fit},
      {"one_peer_costs_one_vector", one_peer_costs_one_vector})
