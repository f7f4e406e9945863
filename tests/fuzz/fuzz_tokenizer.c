/* A tokenizer.json, and with what it makes some text there and back. */
#include "fuzz_input.h"

#include "train/tokenizers/tokenizer.h"

#include <string.h>

static void use(const rpi_tokenizer *tokenizer) {
    static const char text[] = "In the beginning, caf\xc3\xa9 <s> 42!\n";
    rpi_encoder *encoder = NULL;
    rpi_ids ids = {0};
    rpi_text back = {0};
    size_t replaced;
    if (rpi_encoder_create(tokenizer, &encoder) != RP_OK) return;
    if (rpi_encode(encoder, text, strlen(text), 0, &ids, &replaced) == RP_OK)
        (void)rpi_decode(encoder, ids.at, ids.count, 0, &back);
    rpi_ids_free(&ids);
    rpi_text_free(&back);
    rpi_encoder_destroy(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    rpi_tokenizer *tokenizer = NULL;
    if (rpi_tokenizer_parse("fuzz", (const char *)data, bytes, &tokenizer) != RP_OK) return 0;
    use(tokenizer);
    rpi_tokenizer_close(tokenizer);
    return 0;
}
