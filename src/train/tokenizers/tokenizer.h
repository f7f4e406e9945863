/* Text to token ids and back.
 *
 * A tokenizer is constant once open: threads share one, each with an encoder of its own. What
 * it does is said by a tokenizer.json, as Hugging Face's tokenizers read and write them; files
 * of GPT-2 (vocab.json with merges.txt) and BERT (vocab.txt) are read into the same form. What
 * such a file asks for and this cannot do is refused by name when it is opened. */
#ifndef RPI_TRAIN_TOKENIZER_H
#define RPI_TRAIN_TOKENIZER_H

#include "train/tokenizers/text_buffer.h"

typedef struct rpi_tokenizer rpi_tokenizer;
typedef struct rpi_encoder rpi_encoder;

enum { RPI_DOCUMENT_MOST = 1 << 28 }; /* bytes that one call encodes */

/* `spec` is a kind (tokenizers.c lists them: byte, gpt2, llama, bert), KIND:FOLDER, a
 * tokenizer.json, or a folder that holds one. A kind alone is looked for in the folders of
 * REDPOLL_TOKENIZERS (separated by ':'), each as FOLDER/KIND. RP_NOT_FOUND says where to put
 * which file. */
rp_status rpi_tokenizer_open(const char *spec, rpi_tokenizer **out_tokenizer);
/* Of the text of a tokenizer.json; `name` is for messages and rpi_tokenizer_name(). */
rp_status rpi_tokenizer_parse(const char *name, const char *json, size_t bytes,
                              rpi_tokenizer **out_tokenizer);
void rpi_tokenizer_close(rpi_tokenizer *tokenizer); /* NULL is fine */

const char *rpi_tokenizer_name(const rpi_tokenizer *tokenizer);
/* "BPE", "WordPiece", "Unigram", "WordLevel", "byte" */
const char *rpi_tokenizer_type(const rpi_tokenizer *tokenizer);
/* Its tokenizer.json; NULL: it is bytes, which need none. */
const char *rpi_tokenizer_json(const rpi_tokenizer *tokenizer, size_t *out_bytes);
/* Every id is below. Some may have no token. */
uint32_t rpi_tokenizer_size(const rpi_tokenizer *tokenizer);
/* Its text as the vocabulary has it; NULL: there is none with this id. */
const char *rpi_tokenizer_token(const rpi_tokenizer *tokenizer, uint32_t id);
bool rpi_tokenizer_is_special(const rpi_tokenizer *tokenizer, uint32_t id);
bool rpi_tokenizer_find(const rpi_tokenizer *tokenizer, const char *token, uint32_t *out_id);

/* What stands in the text or around it; false: this tokenizer has no such token. */
typedef enum rpi_special {
    RPI_SPECIAL_BEGIN,
    RPI_SPECIAL_END, /* behind a document */
    RPI_SPECIAL_UNKNOWN,
    RPI_SPECIAL_PAD,
    RPI_SPECIAL_CLS,
    RPI_SPECIAL_SEP,
    RPI_SPECIAL_MASK,
    RPI_SPECIALS,
} rpi_special;
const char *rpi_special_name(rpi_special special); /* "end" */
bool rpi_tokenizer_special(const rpi_tokenizer *tokenizer, rpi_special special,
                           uint32_t *out_id);

/* Which token ends a text is known of files beside a tokenizer.json (tokenizer_config.json,
 * special_tokens_map.json: eos_token), else by its usual names; or is this one, an id of the
 * tokenizer's, from now on. */
void rpi_tokenizer_set_end(rpi_tokenizer *tokenizer, uint32_t id);

/* A thread's room for encoding and decoding; the tokenizer outlives it. */
rp_status rpi_encoder_create(const rpi_tokenizer *tokenizer, rpi_encoder **out_encoder);
void rpi_encoder_destroy(rpi_encoder *encoder); /* NULL is fine */

enum {
    RPI_ENCODE_ADD_SPECIAL = 1,   /* what the tokenizer puts around a text ([CLS] ... [SEP]) */
    RPI_ENCODE_PLAIN_SPECIAL = 2, /* "<|endoftext|>" in the text is text, not that token */
};

/* Append the ids of a text. What is not UTF-8 becomes U+FFFD, but for the kind `byte`, which
 * takes bytes as they are; *out_replaced (NULL: not wanted) counts. RP_INVALID: more than
 * RPI_DOCUMENT_MOST bytes. After a failure what was appended is undone. */
rp_status rpi_encode(rpi_encoder *encoder, const char *text, size_t bytes, unsigned flags,
                     rpi_ids *ids, size_t *out_replaced);

enum { RPI_DECODE_SKIP_SPECIAL = 1 };

/* Append the text of ids. RP_INVALID: an id that the tokenizer does not have. */
rp_status rpi_decode(rpi_encoder *encoder, const uint32_t *ids, size_t count, unsigned flags,
                     rpi_text *out);

#endif
