/* Pipelines of a step: known times, and long ones as if all of them had been simulated. */
#include "plan/foresight/pipeline_steps.h"

#include "harness/check.h"
#include "plan/pipelines/pipeline_kind.h"

#include <math.h>

enum { STAGES = 4 };
static const double ones[STAGES] = {1, 1, 1, 1}, twos[STAGES] = {2, 2, 2, 2};

static rpi_pipeline_steps even(int64_t micro_batches) {
    return (rpi_pipeline_steps){.stages = STAGES,
                                .micro_batches = micro_batches,
                                .chunks = 1,
                                .forward_s = ones,
                                .backward_s = twos,
                                .border_bytes = 1,
                                .bytes_per_s = 1e9,
                                .inside_bytes_per_s = 1e9};
}

static rpi_pipeline_time time_of(const rpi_pipeline_steps *s) {
    rpi_pipeline_time t = {0};
    CHECK_OK(rpi_pipeline_steps_time(s, &t));
    CHECK(t.time_s >= t.ideal_s - 1e-9);
    CHECK(t.ideal_s >= rpi_pipeline_steps_bound(s) - 1e-9);
    return t;
}

/* m + p - 1 slots of 3 s, also of more micro-batches than are simulated; with chunks the
 * others' part of it is shared. */
static void even_stages(void) {
    for (int64_t m = 1; m <= 1000; m = 3 * m + 1) {
        rpi_pipeline_steps s = even(m);
        double wanted = 3. * (double)(m + STAGES - 1);
        CHECK_NEAR(time_of(&s).ideal_s, wanted, 1e-6);
        CHECK_NEAR(rpi_pipeline_steps_bound(&s), wanted, 1e-9);
    }
    rpi_pipeline_steps s = even(64);
    s.chunks = 2;
    CHECK_NEAR(time_of(&s).ideal_s, 3 * (64 + 3. / 2), 1e-6);
}

/* Every kind takes what it promises where all passes of a chunk take as long. */
static void every_schedule(void) {
    const rpi_pipeline_kind *kind;
    for (int i = 0; (kind = rpi_pipeline_kind_at(i)) != NULL; i++) {
        rpi_pipeline_steps s = even(2 * STAGES);
        rpi_pipeline_shape shape;
        s.chunks = kind->chunks ? 1 : 2;
        CHECK_OK(rpi_pipeline_shape_make(kind, STAGES, 2 * STAGES, 0, &shape));
        double forward[STAGES], backward[STAGES];
        for (int k = 0; k < STAGES; k++) forward[k] = shape.chunks;
        for (int k = 0; k < STAGES; k++) backward[k] = 2 * shape.chunks;
        s.forward_s = forward;
        s.backward_s = backward;
        s.weights_share = .5;
        s.schedule = kind->name;
        rpi_pipeline_time t = {0};
        CHECK_OK(rpi_pipeline_steps_time(&s, &t));
        CHECK_MSG(fabs(t.ideal_s - (double)kind->unit_time(&shape)) < 1e-6, "%s: %g, not %lld",
                  kind->name, t.ideal_s, (long long)kind->unit_time(&shape));
    }
    rpi_pipeline_steps s = even(8);
    rpi_pipeline_time t;
    s.schedule = "2f2b";
    CHECK_FAILS(rpi_pipeline_steps_time(&s, &t), INVALID, "2f2b");
}

/* A slow stage decides, and those before it are waited for. */
static void uneven_stages(void) {
    static const double forward[STAGES] = {1, 1, 3, 1};
    rpi_pipeline_steps s = even(32);
    s.forward_s = forward;
    CHECK_NEAR(rpi_pipeline_steps_bound(&s), 32 * 5 + 6, 1e-9);
    double ideal_s = time_of(&s).ideal_s;
    CHECK(ideal_s >= 32 * 5 + 6 && ideal_s <= 32 * 5 + 12);
}

/* The first micro-batch crosses each border once each way, and a link that stages wait for is a
 * part of their passes. */
static void links(void) {
    rpi_pipeline_steps s = even(32);
    s.latency_s = .01;
    rpi_pipeline_time t = time_of(&s);
    CHECK(t.time_s - t.ideal_s >= 2 * 3 * .01 - 1e-6);
    CHECK(t.time_s - t.ideal_s <= 32 * 3 * .01);
    s.latency_s = 0;
    s.bytes_per_s = 10;
    double beside_s = time_of(&s).time_s;
    s.blocks = 1;
    double blocked_s = time_of(&s).time_s;
    CHECK(blocked_s > beside_s);
    /* Inner stages send two messages of 0.1 s for each micro-batch. */
    CHECK(blocked_s - t.ideal_s >= 32 * .2);
    s.stages_per_host = STAGES; /* one host, whose memory is quick */
    CHECK_NEAR(time_of(&s).time_s, t.ideal_s, 1e-3);
}

/* Three micro-batches a stage are simulated; more of them go on at that pace. */
static void long_steps_go_on(void) {
    static const double forward[STAGES] = {1, 1.1, 1.2, 1.4};
    rpi_pipeline_steps s = even(12);
    s.forward_s = forward;
    s.latency_s = .05;
    s.bytes_per_s = 20;
    s.blocks = 1;
    double short_s = time_of(&s).time_s;
    s.micro_batches = 24;
    double long_s = time_of(&s).time_s;
    s.micro_batches = 36;
    CHECK_NEAR(time_of(&s).time_s - long_s, long_s - short_s, 1e-6);
}

/* As long as it must at least, where there are too many passes to look at. */
static void one_stage_and_too_many(void) {
    rpi_pipeline_steps s = even(7);
    s.stages = 1;
    CHECK_NEAR(time_of(&s).time_s, 21, 1e-9);
    static double many[1024];
    for (int i = 0; i < 1024; i++) many[i] = 1;
    s = even(4096);
    s.stages = 1024;
    s.forward_s = s.backward_s = many;
    CHECK_NEAR(time_of(&s).time_s, 2 * (4096 + 1023), 1e-6);
}

CASES({"even stages", even_stages}, {"every schedule", every_schedule},
      {"uneven stages", uneven_stages}, {"links", links},
      {"long steps go on", long_steps_go_on},
      {"one stage, and too many", one_stage_and_too_many})
