/* What kernels for a GPU do, by loops of the CPU over their lanes: no GPU is needed for the
 * logic. */
#include "cuda/convert_lanes.h"
#include "cuda/randk_lanes.h"
#include "cuda/sign_lanes.h"

#include "codec/sign_kernels.h"
#include "cuda/device_cases.h"
#include "harness/check.h"

static int lanes; /* of a bucket of the quantiser */

static size_t element_bytes(int type) {
    return type == RPI_DEVICE_F32 ? 4 : 2;
}

static void convert_encode(const rpi_device_call *call) {
    if (rpi_convert_is_copy(call, 0)) {
        memcpy(call->encoded, call->x, call->count * element_bytes(call->type));
        return;
    }
    for (uint64_t i = 0; i < call->count; i++)
        rpi_convert_encode_element(call, call->type, call->wire_type, call->residual != NULL,
                                   i);
}

static void convert_decode(const rpi_device_call *call, int adds) {
    if (rpi_convert_is_copy(call, adds)) {
        memcpy(call->y, call->encoded, call->count * element_bytes(call->type));
        return;
    }
    for (uint64_t i = 0; i < call->count; i++)
        rpi_convert_decode_element(call, call->type, call->wire_type, adds, i);
}

static void quant_encode(const rpi_device_call *call, uint64_t bucket) {
    int feedback = call->residual != NULL;
    rpi_quant_range range = rpi_quant_no_range();
    for (int lane = 0; lane < lanes; lane++)
        range = rpi_quant_join(
            range, rpi_quant_lane_range(call, call->type, feedback, bucket, lane, lanes));
    for (int lane = 0; lane < lanes; lane++)
        rpi_quant_lane_encode(call, call->type, feedback, call->stochastic, bucket, range, lane,
                              lanes);
}

static void sign_encode(const rpi_device_call *call, uint64_t bucket) {
    int feedback = call->residual != NULL;
    uint64_t count = rpi_device_bucket_count(call, bucket);
    double sum = 0;
    for (uint64_t begin = 0; begin < count; begin += RPI_SIGN_TILE) {
        float lane[RPI_SIGN_GROUP];
        for (int k = 0; k < RPI_SIGN_GROUP; k++)
            lane[k] = rpi_sign_lane_sum(call, call->type, feedback, bucket, begin, k);
        sum += (double)rpi_sign_fold(lane);
    }
    for (int k = 0; k < RPI_SIGN_GROUP; k++)
        rpi_sign_lane_encode(call, call->type, feedback, bucket, rpi_sign_mean(sum, count), k);
}

static void randk_encode(const rpi_device_call *call, uint64_t bucket) {
    int feedback = call->residual != NULL;
    rpi_quant_range range = rpi_quant_no_range();
    for (int lane = 0; lane < lanes; lane++)
        range = rpi_quant_join(
            range, rpi_randk_lane_look(call, call->type, feedback, bucket, lane, lanes));
    for (int lane = 0; lane < lanes; lane++)
        rpi_randk_lane_values(call, call->type, feedback, bucket, &range, lane, lanes);
    for (int lane = 0; feedback && lane < lanes; lane++)
        rpi_randk_lane_settle(call, call->type, bucket, &range, lane, lanes);
}

static void randk_decode(const rpi_device_call *call, int adds, uint64_t bucket) {
    int damaged = 0;
    for (int lane = 0; lane < lanes; lane++)
        damaged |= rpi_randk_lane_damage(call, bucket, lane, lanes);
    for (int lane = 0; lane < lanes; lane++)
        rpi_randk_lane_decode(call, call->type, adds, bucket, damaged, lane, lanes);
}

static void encode(const rpi_device_call *call, size_t bytes) {
    (void)bytes;
    if (call->kind == RPI_DEVICE_CONVERT) {
        convert_encode(call);
        return;
    }
    for (uint64_t i = 0; i < rpi_device_buckets(call); i++)
        if (call->kind == RPI_DEVICE_QUANT)
            quant_encode(call, i);
        else if (call->kind == RPI_DEVICE_RANDK)
            randk_encode(call, i);
        else
            sign_encode(call, i);
}

static void sign_decode(const rpi_device_call *call, int adds, uint64_t bucket) {
    for (int lane = 0; lane < RPI_SIGN_GROUP; lane++)
        rpi_sign_lane_decode(call, call->type, adds, bucket, lane);
}

static void quant_decode(const rpi_device_call *call, int adds, uint64_t bucket) {
    for (int lane = 0; lane < lanes; lane++)
        rpi_quant_lane_decode(call, call->type, adds, bucket, lane, lanes);
}

static void decode(const rpi_device_call *call, size_t bytes, int adds) {
    (void)bytes;
    if (call->kind == RPI_DEVICE_CONVERT) {
        convert_decode(call, adds);
        return;
    }
    for (uint64_t i = 0; i < rpi_device_buckets(call); i++)
        if (call->kind == RPI_DEVICE_QUANT)
            quant_decode(call, adds, i);
        else if (call->kind == RPI_DEVICE_RANDK)
            randk_decode(call, adds, i);
        else
            sign_decode(call, adds, i);
}

static const device_runner loops = {encode, decode};

static void by_a_warp(void) {
    lanes = 32;
    device_cases_run(&loops, check_long() ? 1000 : 60);
}

static void by_a_block(void) {
    lanes = 256;
    device_cases_run(&loops, 30);
}

static void what_has_no_kernels(void) {
    rpi_device_call call;
    rp_codec codec;
    REQUIRE_OK(rp_codec_parse("topk", &codec));
    CHECK_FAILS(rpi_device_call_of(&codec, RP_F32, 8, NULL, &call), UNSUPPORTED,
                "no kernels for a GPU");
    REQUIRE_OK(rp_codec_parse("fp32", &codec));
    CHECK_FAILS(rpi_device_call_of(&codec, RP_I32, 8, NULL, &call), UNSUPPORTED,
                "elements of i32");
    REQUIRE_OK(rp_codec_parse("q1:rounding=stochastic", &codec));
    float residual[8] = {0};
    rp_encode_context context = {.residual = residual};
    CHECK_FAILS(rpi_device_call_of(&codec, RP_F32, 8, &context, &call), INVALID, "1 bit");
}

CASES({"by_a_warp", by_a_warp}, {"by_a_block", by_a_block},
      {"what_has_no_kernels", what_has_no_kernels})
