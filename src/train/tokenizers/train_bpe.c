/* Byte-level BPE of GPT-2's kind: 0 is <|endoftext|>, then come the 256 bytes, then what was
 * merged. */
#include "train/tokenizers/byte_level.h"
#include "train/tokenizers/pair_merger.h"
#include "train/tokenizers/tokenizer_files.h"
#include "train/tokenizers/utf8_text.h"

extern const rpi_tokenizer_training rpi_training_bpe;

static const char END[] = "<|endoftext|>";
enum { BYTES = 256 };

/* The bytes in the order of their characters. */
static rp_status add_alphabet(rpi_vocabulary *tokens) {
    uint32_t next = 0;
    char text[4];
    RP_TRY(rpi_vocabulary_add(tokens, END, sizeof END - 1, next++));
    for (int32_t code = 0; code < 0x180; code++)
        if (rpi_byte_level_byte(code) >= 0)
            RP_TRY(rpi_vocabulary_add(tokens, text, rpi_utf8_write(code, text), next++));
    return RP_OK;
}

static rp_status spell(rpi_pair_merger *merger, const rpi_token *word, uint32_t *symbols,
                       uint32_t *out_count) {
    for (uint32_t i = 0; i < word->bytes; i++) {
        char text[4];
        size_t bytes = rpi_utf8_write(rpi_byte_level_code((uint8_t)word->text[i]), text);
        (void)rpi_vocabulary_find(&merger->tokens, text, bytes, &symbols[i]);
    }
    *out_count = word->bytes;
    return RP_OK;
}

static rp_status train_with(rpi_pair_merger *merger, uint32_t size, rpi_training_stop stop,
                            char **out_json) {
    merger->merges = cJSON_CreateArray();
    if (!merger->merges) return RP_FAIL(NOMEM, "no memory for merges");
    RP_TRY(add_alphabet(&merger->tokens));
    RP_TRY(rpi_pair_merger_spell(merger, spell));
    RP_TRY(rpi_pair_merger_run(merger, size, stop));
    cJSON *merges = merger->merges;
    merger->merges = NULL;
    return rpi_byte_level_json(rpi_vocabulary_json(&merger->tokens), merges, END, out_json);
}

static rp_status train(const rpi_word_counts *words, uint32_t size, rpi_training_stop stop,
                       char **out_json) {
    rpi_pair_merger merger = {.counted = words, .prefix = ""};
    rp_status status = train_with(&merger, size, stop, out_json);
    rpi_pair_merger_close(&merger);
    return status;
}

const rpi_tokenizer_training rpi_training_bpe = {
    .name = "bpe",
    .help = "byte-level BPE, as GPT-2's; 0 ends a document",
    .least = 1 + BYTES,
    .train = train,
};
