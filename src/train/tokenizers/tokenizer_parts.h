/* What a tokenizer holds, for the files that make and run it. */
#ifndef RPI_TRAIN_TOKENIZER_PARTS_H
#define RPI_TRAIN_TOKENIZER_PARTS_H

#include "train/tokenizers/added_tokens.h"
#include "train/tokenizers/tokenizer.h"

struct rpi_tokenizer {
    char *name;
    char *json; /* NULL: bytes */
    size_t json_bytes;
    rpi_pipeline_memory memory;
    rpi_steps normalizers, pre_tokenizers, decoders;
    bool raw_bytes; /* pieces are bytes that the model wants as GPT-2's characters */
    bool has_decoder;
    const rpi_text_model_kind *model;
    void *model_state;
    rpi_vocabulary vocabulary;
    rpi_vocabulary added_ids; /* id -> added token */
    rpi_added_tokens added;
    bool *is_special; /* by id */
    uint32_t size;
    rpi_ids before, after;           /* what surrounds a text */
    uint32_t specials[RPI_SPECIALS]; /* UINT32_MAX: none */
};

/* Fill in before and after. */
rp_status rpi_post_processor_load(const cJSON *json, rpi_tokenizer *tokenizer);
/* Run the normalizers over a text; *out_text is borrowed from one of the rooms, or is `text`.
 */
rp_status rpi_normalize(const rpi_tokenizer *tokenizer, rpi_matcher *matcher, rpi_text rooms[2],
                        const char *text, size_t bytes, const char **out_text,
                        size_t *out_bytes);

/* The steps of rpi_encode() one by one, in the encoder's rooms, for who needs to know what came
 * of what: a text as the normalizers make it, its pieces, and a piece's ids. Texts and pieces
 * are borrowed until the same step's next call. */
rp_status rpi_encoder_normalize(rpi_encoder *encoder, const char *text, size_t bytes,
                                const char **out_text, size_t *out_bytes);
rp_status rpi_encoder_pieces(rpi_encoder *encoder, const char *text, size_t bytes,
                             rpi_pieces **out_pieces);
rp_status rpi_encoder_piece_ids(rpi_encoder *encoder, const char *piece, size_t bytes,
                                rpi_ids *ids);
const rpi_tokenizer *rpi_encoder_tokenizer(const rpi_encoder *encoder);

#endif
