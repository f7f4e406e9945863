/* Weights in the executor: a schedule of this test alone, which sums everybody's input with a
 * weight for each rank, and weighs the sum once more. */
#include "comm/core/communicator.h"

#include "codec/codec.h"
#include "comm/thread_world.h"
#include "plan/plan_check.h"
#include "plan/schedule_writer.h"

#include <stdlib.h>

enum { COUNT = 5003, MOST_RANKS = 5 };

static rpi_fraction weight_of(int rank) {
    return (rpi_fraction){rank % 3 + 1, rank + 2};
}

/* As in a round of gossip: from everybody, times its weight; then times 3/7. */
static rp_status build(const rpi_plan_request *request, rpi_schedule *out_schedule) {
    rpi_writer writer = rpi_writer_start(request, 1, out_schedule);
    int world = request->world, rank = request->rank;
    int encoded_slot = rpi_write_encode(&writer, 0, RPI_SLOT_IN, RPI_ROLE_SENDER);
    for (int d = 1; d < world; d++)
        rpi_write_send(&writer, 0, encoded_slot, rpi_wrap(rank, d, world));
    rpi_write_weighed_copy(&writer, 0, RPI_SLOT_IN, RPI_SLOT_SUM, weight_of(rank));
    rpi_write_weighed_add(&writer, 0, encoded_slot, (rpi_fraction){-1, 1});
    rpi_write_weighed_add(&writer, 0, RPI_SLOT_IN, (rpi_fraction){1, 1});
    for (int d = 1; d < world; d++) {
        int source = rpi_wrap(rank, d, world);
        rpi_write_weighed_add(&writer, 0, rpi_write_recv(&writer, 0, source),
                              weight_of(source));
    }
    rpi_write_weighed_copy(&writer, 0, RPI_SLOT_SUM, RPI_SLOT_OUT, (rpi_fraction){3, 7});
    return rpi_writer_finish(&writer);
}

static const rpi_algorithm weighed = {
    .name = "weighed",
    .summary = "a weight for each rank",
    .collective = RPI_ALL_REDUCE,
    .fits = rpi_fits_all,
    .build = build,
};

static void use_it(rp_comm *comm) {
    for (int lossy = 0; lossy < 2; lossy++)
        for (int size = 0; size < 65; size++)
            comm->choices.by_size[RPI_ALL_REDUCE][lossy][size] = &weighed;
}

static float times(float x, rpi_fraction weight) {
    float product = (float)((double)x * weight.times);
    return weight.times == 1 ? x / (float)weight.over : product / (float)weight.over;
}

/* What rank `rank` must end with, operation by operation. */
static float expect(int rank, int world, float (*inputs)[COUNT], size_t i) {
    float sum = times(inputs[rank][i], weight_of(rank));
    sum += -inputs[rank][i];
    sum += inputs[rank][i];
    for (int d = 1; d < world; d++) {
        int source = (rank + d) % world;
        sum += times(inputs[source][i], weight_of(source));
    }
    return times(sum, (rpi_fraction){3, 7});
}

static float inputs[MOST_RANKS][COUNT];

static void check_f32(rp_comm *comm, int rank, int world) {
    float *data = malloc(sizeof inputs[0]);
    memcpy(data, inputs[rank], sizeof inputs[0]);
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_F32};
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    for (size_t i = 0; i < COUNT; i++) {
        float wanted = expect(rank, world, inputs, i);
        CHECK_MSG(memcmp(&data[i], &wanted, sizeof wanted) == 0, "element %zu: %a, not %a", i,
                  (double)data[i], (double)wanted);
    }
    free(data);
}

/* 16-bit data is weighed and summed in f32, and rounded once. */
static void check_bf16(rp_comm *comm, int rank, int world) {
    static float rounded[MOST_RANKS][COUNT];
    uint16_t *data = malloc(COUNT * sizeof *data);
    for (int r = 0; rank == 0 && r < world; r++)
        for (size_t i = 0; i < COUNT; i++)
            rounded[r][i] = rp_bf16_to_f32(rp_f32_to_bf16(inputs[r][i]));
    world_meet();
    for (size_t i = 0; i < COUNT; i++) data[i] = rp_f32_to_bf16(inputs[rank][i]);
    rp_segment segment = {.data = data, .count = COUNT, .dtype = RP_BF16};
    CHECK_OK(rp_all_reduce(comm, &segment, 1, NULL));
    for (size_t i = 0; i < COUNT; i++)
        CHECK_EQ(data[i], rp_f32_to_bf16(expect(rank, world, rounded, i)));
    free(data);
}

static void weighed_world(rp_comm *comm, int rank, int world, void *context) {
    (void)context;
    use_it(comm);
    if (rank == 0)
        for (int r = 0; r < world; r++) world_fill(77, r, inputs[r], COUNT);
    world_meet();
    check_f32(comm, rank, world);
    check_bf16(comm, rank, world);
}

static void weights_are_multiplied_and_divided(void) {
    rp_comm_options options = RP_COMM_OPTIONS(.transport = "inproc", .chunk_bytes = 4096);
    for (int world = 1; world <= MOST_RANKS; world++)
        world_run(world, &options, weighed_world, NULL);
}

/* It is no sum, and the proof counts: rank 0's contribution is 3/14 of what it was. */
static void the_proof_counts_the_weights(void) {
    rpi_plan_request request = {.world = 2};
    CHECK_FAILS(rpi_plan_check(&weighed, &request), INTERNAL, "unfinished sum");
}

CASES({"weights are multiplied and divided", weights_are_multiplied_and_divided},
      {"the proof counts the weights", the_proof_counts_the_weights})
