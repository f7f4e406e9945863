#include "train/strategies/bucket.h"

#include "base/memory.h"
#include "harness/check.h"

static rpi_network network;
static rpi_weights *weights;

static bool open_network(void) {
    rpi_data_shape shape = {.channels = 1, .height = 28, .width = 28, .classes = 10};
    network = (rpi_network){0};
    weights = NULL;
    CHECK_OK(rpi_network_build("resnet20", &shape, &network));
    if (network.graph) CHECK_OK(rpi_weights_create(network.graph, network.loss, &weights));
    return weights != NULL;
}

static void close_network(void) {
    rpi_weights_destroy(weights);
    rpi_network_close(&network);
}

/* Whatever the size, buckets and their segments cover the arena once, in order. */
static void buckets_cover_the_arena(void) {
    static const int64_t sizes[] = {1, 4096, 65536, 1 << 20, 1 << 30};
    REQUIRE(open_network());
    rp_codec codec;
    REQUIRE_OK(rp_codec_parse("q4", &codec));
    int count_before = 1 << 20;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        rpi_buckets buckets = {0};
        REQUIRE_OK(rpi_buckets_create(&network, weights, sizes[s], &codec, NULL, &buckets));
        int64_t next = 0;
        int segment = 0;
        for (int b = 0; b < buckets.count; b++) {
            CHECK_EQ(buckets.buckets[b].first, next);
            CHECK_EQ(buckets.buckets[b].segment, segment);
            int64_t inside = 0;
            for (int i = 0; i < buckets.buckets[b].segment_count; i++)
                inside += (int64_t)buckets.segments[segment + i].count;
            CHECK_EQ(inside, buckets.buckets[b].count);
            CHECK(b == buckets.count - 1 || inside * 4 >= sizes[s]);
            next += inside;
            segment += buckets.buckets[b].segment_count;
        }
        CHECK_EQ(next, rpi_weights_count(weights));
        CHECK_EQ(segment, buckets.segment_count);
        CHECK(buckets.count <= count_before);
        count_before = buckets.count;
        rpi_buckets_destroy(&buckets);
    }
    CHECK_EQ(count_before, 1);
    close_network();
}

static void only_large_matrices_are_compressed(void) {
    REQUIRE(open_network());
    rp_codec codec;
    rpi_buckets buckets = {0};
    float *residual = NULL;
    REQUIRE_OK(rp_codec_parse("q4", &codec));
    REQUIRE_OK(rpi_alloc_array((size_t)rpi_weights_count(weights), sizeof(float), "residual",
                               &residual));
    REQUIRE_OK(rpi_buckets_create(&network, weights, 4096, &codec, residual, &buckets));
    int compressed = 0;
    for (int i = 0; i < buckets.segment_count; i++) {
        const rp_segment *segment = &buckets.segments[i];
        const rpi_weight *weight = rpi_weights_parameter(weights, i);
        bool lossy = !rp_codec_is_exact(&segment->codec, segment->dtype);
        CHECK_EQ(lossy, weight->shape.dims > 1 && weight->count >= 10000);
        CHECK(segment->residual == (lossy ? residual + weight->first : NULL));
        CHECK(strcmp(network.parameters[segment->tensor].name, weight->name) == 0);
        compressed += lossy;
    }
    CHECK(compressed >= 5);
    rpi_buckets_destroy(&buckets);
    rpi_free(residual);
    close_network();
}

static void memory_that_runs_out_is_reported(void) {
    REQUIRE(open_network());
    static const rp_codec exact;
    for (long n = 1; n <= 2; n++) {
        rpi_buckets buckets = {0};
        rpi_memory_fail_after(n);
        CHECK_FAILS(rpi_buckets_create(&network, weights, 4096, &exact, NULL, &buckets), NOMEM,
                    "");
        rpi_memory_fail_after(0);
    }
    close_network();
}

CASES({"buckets cover the arena", buckets_cover_the_arena},
      {"only large matrices are compressed", only_large_matrices_are_compressed},
      {"memory that runs out is reported", memory_that_runs_out_is_reported})
