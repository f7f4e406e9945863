/* Any bytes as an encoding of any codec, decoded and added. The first four bytes choose. */
#include "fuzz_input.h"

#include "redpoll/codec.h"

#include <stdlib.h>

static const char *const codecs[] = {"fp32",
                                     "fp16",
                                     "bf16",
                                     "q1",
                                     "q2:bucket=64",
                                     "q3",
                                     "q4",
                                     "q5:bucket=7",
                                     "q8",
                                     "topk:k=3,bucket=64",
                                     "topk:k=32,bucket=4096,values=bf16",
                                     "randk",
                                     "sign",
                                     "sign:bucket=100",
                                     "v1",
                                     "v4:bucket=1000",
                                     "v8"};
enum { CODECS = sizeof codecs / sizeof codecs[0], COUNT_MAX = 20000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static rp_codec parsed[CODECS];
    static int status[CODECS], ready;
    for (; ready < CODECS; ready++)
        status[ready] = rp_codec_parse(codecs[ready], &parsed[ready]);
    if (bytes < 4) return 0;
    int chosen = data[0] % CODECS;
    rp_dtype dtype = (rp_dtype)(1 + data[1] % 4);
    size_t count = (size_t)(data[2] | data[3] << 8) % COUNT_MAX;
    if (status[chosen] != RP_OK) abort(); /* the list above is wrong */
    size_t element = dtype == RP_F64 ? 8 : dtype == RP_F32 ? 4 : 2;
    void *y = malloc(count * element + 1), *sum = calloc(count * 8 + 1, 1);
    if (y && sum) {
        (void)rp_codec_decode(&parsed[chosen], dtype, data + 4, bytes - 4, count, NULL, y);
        (void)rp_codec_decode_add(&parsed[chosen], dtype, data + 4, bytes - 4, count, NULL,
                                  sum);
    }
    free(y);
    free(sum);
    return 0;
}
