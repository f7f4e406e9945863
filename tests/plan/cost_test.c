/* The simulated price agrees with the formulas of the field where those hold. */
#include "plan/cost.h"

#include "base/memory.h"
#include "harness/check.h"
#include "plan/algorithms.h"
#include "plan/split.h"

enum { VECTOR = 25557032 * 4 };

static double q4_bytes(double bytes) {
    return bytes / 4 * (0.5 + 8.0 / 512);
}

static rpi_cost price(const rpi_algorithm *algorithm, int world, double bytes, double encoded,
                      rpi_cost_model model) {
    rpi_cost cost = {0};
    rpi_plan_request request = {.world = world};
    CHECK_OK(rpi_plan_cost(algorithm, &request, (size_t)bytes, (size_t)encoded, &model, &cost));
    return cost;
}

static const rpi_cost_model gigabit = {.bytes_per_s = 125e6};

/* Bytes that the busiest rank sends, in vectors. */
static void bytes_are_those_of_the_formulas(void) {
    const double bytes = 1e7;
    for (int world = 2; world <= 33; world++) {
        double share = (world - 1.0) / world;
        const struct {
            const rpi_algorithm *algorithm;
            double vectors;
        } formulas[] = {
            {&rpi_algorithm_sra, 2 * share},
            {&rpi_algorithm_ring, 2 * share},
            {&rpi_algorithm_direct_scatter, share},
            {&rpi_algorithm_ring_scatter, share},
            {&rpi_algorithm_direct_gather, share},
            {&rpi_algorithm_ring_gather, share},
            {&rpi_algorithm_tree_broadcast, ceil(log2(world))},
            {&rpi_algorithm_scatter_broadcast, 1},
            {&rpi_algorithm_direct_reduce, 1},
            {&rpi_algorithm_scatter_reduce, 1},
            {&rpi_algorithm_root_gather, 1.0 / world},
            {&rpi_algorithm_root_scatter, share},
            {&rpi_algorithm_pairwise, share},
            {&rpi_algorithm_two_level, 2 * share},
            {&rpi_algorithm_two_level_scatter, share},
            {&rpi_algorithm_two_level_gather, share},
            {&rpi_algorithm_two_level_broadcast, 1},
            {&rpi_algorithm_oneshot, world - 1},
            {&rpi_algorithm_star, world - 1},
            {&rpi_algorithm_tree_reduce, 1},
        };
        for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
            rpi_cost cost = price(formulas[i].algorithm, world, bytes, bytes, gigabit);
            CHECK_NEAR(cost.wire_bytes / bytes, formulas[i].vectors, 1e-9);
            CHECK_NEAR(cost.wire_s, cost.wire_bytes / gigabit.bytes_per_s, 1e-9);
        }
    }
}

static void one_chunk_takes_the_textbook_time(void) {
    const double bytes = 1e6, alpha = 1e-3, beta = 1e-8;
    rpi_cost_model model = {
        .bytes_per_s = 1 / beta, .latency_s = alpha, .chunk_bytes = SIZE_MAX};
    for (int world = 2; world <= 16; world++) {
        double piece_s = bytes / world * beta, hops = 2.0 * (world - 1);
        rpi_cost cost = price(&rpi_algorithm_ring, world, bytes, bytes, model);
        CHECK_NEAR(cost.time_s, hops * (alpha + piece_s), 1e-9);
        cost = price(&rpi_algorithm_sra, world, bytes, bytes, model);
        CHECK_NEAR(cost.time_s, 2 * alpha + hops * piece_s, 1e-9);
        cost = price(&rpi_algorithm_dissemination, world, 0, 0, model);
        CHECK_NEAR(cost.time_s, ceil(log2(world)) * alpha, 1e-9);
        cost = price(&rpi_algorithm_direct_gather, world, bytes, bytes, model);
        CHECK_NEAR(cost.time_s, alpha + hops / 2 * piece_s, 1e-9);
        cost = price(&rpi_algorithm_direct_reduce, world, bytes, bytes, model);
        CHECK_NEAR(cost.time_s, alpha + (world - 1) * bytes * beta, 1e-9);
        cost = price(&rpi_algorithm_scatter_reduce, world, bytes, bytes, model);
        CHECK_NEAR(cost.time_s, 2 * (alpha + bytes * beta), 1e-9);
        const rpi_algorithm *of_blocks[] = {
            &rpi_algorithm_root_gather, &rpi_algorithm_root_scatter, &rpi_algorithm_pairwise};
        for (int i = 0; i < 3; i++) {
            cost = price(of_blocks[i], world, bytes, bytes, model);
            CHECK_NEAR(cost.time_s, alpha + hops / 2 * piece_s, 1e-9);
        }
    }
    rpi_cost cost = price(&rpi_algorithm_tree_broadcast, 8, bytes, bytes, model);
    CHECK_NEAR(cost.time_s, 3 * (alpha + bytes * beta), 1e-9);
    cost = price(&rpi_algorithm_rendezvous, 2, bytes, bytes, model);
    CHECK_NEAR(cost.time_s, 2 * alpha + bytes * beta, 1e-9);
}

/* ResNet-50's gradient among four hosts on 1 Gbit/s: 1.227 s of fp32, 0.158 s of 4 bits. */
static void published_numbers(void) {
    double encoded = q4_bytes(VECTOR);
    rpi_cost_model model = gigabit;
    model.latency_s = 50e-6;
    rpi_cost exact = price(&rpi_algorithm_sra, 4, VECTOR, VECTOR, model);
    CHECK_NEAR(exact.wire_s, 1.2267, 5e-4);
    CHECK_NEAR(exact.time_s, 1.227, 0.02 * 1.227);
    CHECK_NEAR(price(&rpi_algorithm_ring, 4, VECTOR, VECTOR, model).time_s, 1.227,
               0.02 * 1.227);
    rpi_cost packed = price(&rpi_algorithm_sra, 4, VECTOR, encoded, model);
    CHECK_NEAR(packed.wire_s, 0.158, 5e-4);
    CHECK_NEAR(packed.time_s, 0.158, 0.03 * 0.158);
}

/* Many chunks of a reduce keep every link busy one way: the vector goes out of the root and its
 * sum comes back at once. */
static void a_long_reduce_takes_one_vector(void) {
    rpi_cost_model model = gigabit;
    for (int world = 3; world <= 12; world += 3) {
        double one_s = VECTOR / gigabit.bytes_per_s;
        CHECK_NEAR(price(&rpi_algorithm_scatter_reduce, world, VECTOR, VECTOR, model).time_s,
                   one_s, 0.15 * one_s);
        CHECK_NEAR(price(&rpi_algorithm_direct_reduce, world, VECTOR, VECTOR, model).time_s,
                   (world - 1) * one_s, 0.02 * (world - 1) * one_s);
    }
}

static void encoding_overlaps_the_wire(void) {
    rpi_cost_model model = gigabit;
    model.encode_bytes_s = 2e9;
    model.decode_add_bytes_s = 2e9;
    rpi_cost cost = price(&rpi_algorithm_sra, 4, VECTOR, q4_bytes(VECTOR), model);
    /* Three parts are encoded, then the sum; three are added and the own one, four decoded. */
    CHECK_NEAR(cost.encode_s, VECTOR / 2e9, 1e-6);
    CHECK_NEAR(cost.decode_s, 2 * VECTOR / 2e9, 1e-6);
    double busy_s = cost.encode_s + cost.decode_s, longest_s = fmax(busy_s, cost.wire_s);
    CHECK(cost.time_s >= longest_s &&
          cost.time_s < longest_s + 0.25 * fmin(busy_s, cost.wire_s));
}

/* The price of many chunks drawn from the first ones is the price of all of them simulated. */
static void the_pace_is_drawn_on_well(void) {
    rpi_cost_model model = {.bytes_per_s = 1e9,
                            .latency_s = 20e-6,
                            .encode_bytes_s = 3e9,
                            .decode_add_bytes_s = 5e9,
                            .chunk_bytes = 1 << 18};
    const rpi_algorithm *algorithms[] = {&rpi_algorithm_sra,
                                         &rpi_algorithm_ring,
                                         &rpi_algorithm_tree_broadcast,
                                         &rpi_algorithm_scatter_broadcast,
                                         &rpi_algorithm_direct_reduce,
                                         &rpi_algorithm_scatter_reduce,
                                         &rpi_algorithm_root_gather,
                                         &rpi_algorithm_root_scatter,
                                         &rpi_algorithm_pairwise};
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        double sixteen = price(algorithms[i], 4, 16 << 18, 16 << 18, model).time_s;
        double thirty_two = price(algorithms[i], 4, 32 << 18, 32 << 18, model).time_s;
        double many = price(algorithms[i], 4, 1600 << 18, 1600 << 18, model).time_s;
        double drawn = sixteen + (thirty_two - sixteen) * (1600 - 16) / 16;
        CHECK_NEAR(many / drawn, 1, 0.02);
    }
}

static void more_is_dearer(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        int world = rpi_algorithm_fits(algorithm, 6) ? 6 : 2;
        rpi_cost_model model = {.bytes_per_s = 1e9,
                                .latency_s = 1e-5,
                                .encode_bytes_s = 2e9,
                                .decode_add_bytes_s = 4e9,
                                .frame_bytes = 64,
                                .frame_s = 1e-6};
        double before_s = 0;
        for (int64_t bytes = 0; bytes < 1000000000; bytes = 3 * bytes + 1000) {
            double time_s = price(algorithm, world, (double)bytes, (double)bytes, model).time_s;
            CHECK_MSG(time_s >= before_s * 0.999, "%s %s: %lld bytes in %g s, less in %g s",
                      rpi_collective_name(algorithm->collective), algorithm->name,
                      (long long)bytes, time_s, before_s);
            before_s = time_s;
        }
        model.latency_s *= 10;
        CHECK(price(algorithm, world, 1e5, 1e5, model).time_s > 0);
    }
}

static void free_links_cost_nothing(void) {
    rpi_cost_model model = {0};
    CHECK_NEAR(price(&rpi_algorithm_sra, 4, 1e6, 1e6, model).time_s, 0, 0);
    CHECK_NEAR(price(&rpi_algorithm_sra, 1, 1e6, 1e6, gigabit).wire_bytes, 0, 0);
    CHECK_NEAR(price(&rpi_algorithm_dissemination, 1, 0, 0, gigabit).time_s, 0, 0);
    CHECK_EQ(price(&rpi_algorithm_sra, 4, 0, 0, gigabit).frames, 6);
}

/* Ranks of one host, free links: all work is done by its cores, and what waits takes turns. */
static void cores_are_shared(void) {
    rpi_plan_request request = {.world = 4, .host_of = (const int[4]){0}};
    rpi_cost_model model = {
        .encode_bytes_s = 1e9, .decode_add_bytes_s = 1e9, .chunk_bytes = SIZE_MAX};
    rpi_cost own = {0}, cost = {0};
    CHECK_OK(rpi_plan_cost(&rpi_algorithm_oneshot, &request, 1000000, 1000000, &model, &own));
    const double work_s = own.encode_s + own.decode_s; /* of each rank */
    CHECK_NEAR(own.time_s, work_s, 1e-9);
    static const struct {
        int cores;
        double times;
    } cases[] = {{1, 4}, {2, 2}, {4, 1}, {64, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        model.cores = cases[i].cores;
        CHECK_OK(
            rpi_plan_cost(&rpi_algorithm_oneshot, &request, 1000000, 1000000, &model, &cost));
        CHECK_NEAR(cost.time_s, cases[i].times * work_s, 1e-9);
    }
    model.cores = 1;
    model.turn_s = 1;
    CHECK_OK(rpi_plan_cost(&rpi_algorithm_dissemination, &request, 0, 0, &model, &cost));
    CHECK(cost.time_s >= 3); /* each has a turn */
    const int apart[4] = {0, 1, 2, 3};
    request.host_of = apart;
    CHECK_OK(rpi_plan_cost(&rpi_algorithm_dissemination, &request, 0, 0, &model, &cost));
    CHECK_NEAR(cost.time_s, 0, 1e-9);
}

/* The pace of many chunks is that of the cores, too. */
static void few_cores_set_the_pace(void) {
    rpi_plan_request request = {.world = 4, .host_of = (const int[4]){0}};
    rpi_cost_model model = {.encode_bytes_s = 1e9, .decode_add_bytes_s = 1e9, .cores = 2};
    rpi_cost cost = {0};
    CHECK_OK(rpi_plan_cost(&rpi_algorithm_sra, &request, VECTOR, VECTOR, &model, &cost));
    double work_s = 2 * (cost.encode_s + cost.decode_s);
    CHECK_MSG(cost.time_s >= work_s * 0.99 && cost.time_s < work_s * 1.05, "%g, work %g",
              cost.time_s, work_s);
}

static void hundreds_of_ranks(void) {
    rpi_cost_model model = gigabit;
    double bound_s = 2 * VECTOR * (255.0 / 256) / gigabit.bytes_per_s;
    CHECK_NEAR(price(&rpi_algorithm_sra, 256, VECTOR, VECTOR, model).time_s, bound_s, 0.01);
    model.chunk_bytes = 1 << 20; /* so many chunks that only a few of them are simulated */
    CHECK_NEAR(price(&rpi_algorithm_ring, 256, VECTOR, VECTOR, model).time_s, bound_s, 0.03);
}

static void what_is_too_large_is_refused(void) {
    rpi_cost cost;
    CHECK_FAILS(rpi_plan_cost(&rpi_algorithm_sra, &(rpi_plan_request){.world = 4000}, 1, 1,
                              &gigabit, &cost),
                UNSUPPORTED, "among 4000 ranks");
    CHECK_FAILS(rpi_plan_cost(&rpi_algorithm_dissemination, &(rpi_plan_request){.world = 16384},
                              1, 1, &gigabit, &cost),
                UNSUPPORTED, "among 16384 ranks");
    CHECK_OK(rpi_plan_cost(&rpi_algorithm_dissemination, &(rpi_plan_request){.world = 1000}, 1,
                           1, &gigabit, &cost));
}

static void bad_models_are_refused(void) {
    const rpi_cost_model bad[] = {{.bytes_per_s = -1},
                                  {.latency_s = NAN},
                                  {.encode_bytes_s = INFINITY},
                                  {.decode_add_bytes_s = -1},
                                  {.frame_bytes = -1},
                                  {.chunks_in_flight = -1},
                                  {.turn_s = -1},
                                  {.cores = -1}};
    rpi_cost cost;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_FAILS(rpi_plan_cost(&rpi_algorithm_sra, &(rpi_plan_request){.world = 4}, 1, 1,
                                  &bad[i], &cost),
                    INVALID, "model");
    CHECK_FAILS(rpi_plan_cost(&rpi_algorithm_sra, &(rpi_plan_request){.world = 0}, 1, 1,
                              &gigabit, &cost),
                INVALID, "world");
    CHECK_FAILS(rpi_plan_cost(&rpi_algorithm_rendezvous, &(rpi_plan_request){.world = 3}, 1, 1,
                              &gigabit, &cost),
                UNSUPPORTED, "world of 3");
}

static void memory_failing_anywhere_is_reported(void) {
    rpi_cost_model model = gigabit;
    rp_status status = RP_NOMEM;
    for (long n = 1; status != RP_OK && n < 10000; n++) {
        rpi_cost cost;
        rpi_memory_fail_after(n);
        status = rpi_plan_cost(&rpi_algorithm_ring, &(rpi_plan_request){.world = 5}, VECTOR,
                               VECTOR, &model, &cost);
        rpi_memory_fail_after(0);
        CHECK(status == RP_OK || status == RP_NOMEM);
    }
    CHECK_EQ(status, RP_OK);
}

CASES({"bytes are those of the formulas", bytes_are_those_of_the_formulas},
      {"one chunk takes the textbook time", one_chunk_takes_the_textbook_time},
      {"published numbers", published_numbers},
      {"a long reduce takes one vector", a_long_reduce_takes_one_vector},
      {"encoding overlaps the wire", encoding_overlaps_the_wire},
      {"the pace is drawn on well", the_pace_is_drawn_on_well},
      {"more is dearer", more_is_dearer}, {"free links cost nothing", free_links_cost_nothing},
      {"cores are shared", cores_are_shared},
      {"few cores set the pace", few_cores_set_the_pace},
      {"hundreds of ranks", hundreds_of_ranks},
      {"what is too large is refused", what_is_too_large_is_refused},
      {"bad models are refused", bad_models_are_refused},
      {"memory failing anywhere is reported", memory_failing_anywhere_is_reported})
