/* The steps through which a text becomes tokens and back, in the order of tokenizer.json:
 *
 *     text -> normalizers -> pre-tokenizers (pieces) -> model (ids) -> decoders -> text
 *
 * Each step is a kind of one of these families with a state read from its JSON object. A new
 * kind is a row in the family's catalogue (normalizers.c, pre_tokenizers.c, decoders.c,
 * text_models.c). States and kinds are constant once loaded; threads share them. */
#ifndef RPI_TRAIN_PIPELINE_H
#define RPI_TRAIN_PIPELINE_H

#include "train/tokenizers/json_read.h"
#include "train/tokenizers/pattern.h"
#include "train/tokenizers/text_buffer.h"
#include "train/tokenizers/vocabulary.h"

enum { RPI_STEPS_MOST = 24, RPI_PATTERNS_MOST = 32 };

/* What states are made of; it lives as long as they do. */
typedef struct rpi_pipeline_memory {
    rpi_arena *arena;
    rpi_pattern *patterns[RPI_PATTERNS_MOST];
    int pattern_count;
} rpi_pipeline_memory;

rp_status rpi_pipeline_state(rpi_pipeline_memory *memory, size_t bytes, void *out_state);
rp_status rpi_pipeline_text(rpi_pipeline_memory *memory, const char *text, const char **out);
/* Of a member {"Regex": text} or {"String": text}. */
rp_status rpi_pipeline_pattern(rpi_pipeline_memory *memory, const cJSON *object,
                               const char *key, rpi_pattern **out_pattern);
rp_status rpi_pipeline_regex(rpi_pipeline_memory *memory, const char *text,
                             rpi_pattern **out_pattern);
void rpi_pipeline_memory_free(rpi_pipeline_memory *memory);

/* What the kinds of all three families begin with. */
typedef struct rpi_text_step_kind {
    const char *type; /* in tokenizer.json */
    /* NULL: it has no state. */
    rp_status (*load)(rpi_pipeline_memory *memory, const cJSON *json, void **out_state);
} rpi_text_step_kind;

/* ---- normalizers ---- */

typedef struct rpi_normalizer_kind {
    rpi_text_step_kind base;
    /* Append the normalised text, which is valid UTF-8 as `text` is. */
    rp_status (*apply)(const void *state, rpi_matcher *matcher, const char *text, size_t bytes,
                       rpi_text *out);
} rpi_normalizer_kind;

/* ---- pre-tokenizers ---- */

typedef struct rpi_pre_tokenizing {
    const rpi_pieces *in;
    rpi_pieces *out; /* empty; its text is that of `in` */
    rpi_text *room;  /* empty; for a step that writes a new text: out->text = room->at */
    rpi_matcher *matcher;
    bool first; /* the text begins where the whole input does */
} rpi_pre_tokenizing;

typedef struct rpi_pre_tokenizer_kind {
    rpi_text_step_kind base;
    rp_status (*apply)(const void *state, rpi_pre_tokenizing *p);
} rpi_pre_tokenizer_kind;

/* ---- decoders: tokens in, tokens out, joined at the end ---- */

typedef struct rpi_decoding {
    const rpi_pieces *in;
    rpi_pieces *out; /* empty; its text becomes that of `room` when all is written */
    rpi_text *room;
    rpi_matcher *matcher;
} rpi_decoding;

/* The token that `out` ends with: what was written to the room from `start` on. */
rp_status rpi_decoding_end(rpi_decoding *d, size_t start);

typedef struct rpi_decoder_kind {
    rpi_text_step_kind base;
    rp_status (*apply)(const void *state, rpi_decoding *d);
} rpi_decoder_kind;

/* ---- lists of steps ---- */

typedef struct rpi_text_step {
    const void *kind; /* of the family */
    const void *state;
} rpi_text_step;

typedef struct rpi_steps {
    rpi_text_step at[RPI_STEPS_MOST];
    int count;
} rpi_steps;

rp_status rpi_normalizers_load(rpi_pipeline_memory *memory, const cJSON *json,
                               rpi_steps *steps);
rp_status rpi_pre_tokenizers_load(rpi_pipeline_memory *memory, const cJSON *json,
                                  rpi_steps *steps);
rp_status rpi_decoders_load(rpi_pipeline_memory *memory, const cJSON *json, rpi_steps *steps);

/* Shared by the three. A Sequence opens into its members; a type that the family does not have
 * is refused with the names of all. */
typedef struct rpi_step_family {
    const char *name;                                /* "normalizer" */
    const char *members;                             /* of a Sequence: "normalizers" */
    const rpi_text_step_kind *(*kind_at)(int index); /* NULL past the end */
} rpi_step_family;
rp_status rpi_steps_load(rpi_pipeline_memory *memory, const cJSON *json,
                         const rpi_step_family *family, rpi_steps *steps);

/* Is it the last pre-tokenizer that needs not write the characters of bytes: the model's piece
 * is then raw bytes, which rpi_byte_level_write() turns into what the model knows. */
bool rpi_pre_tokenizers_end_in_bytes(rpi_steps *steps);

/* ---- models ---- */

typedef struct rpi_text_model_kind {
    const char *type;
    /* Tokens go to the vocabulary, what else there is into *out_state. */
    rp_status (*load)(const cJSON *json, rpi_vocabulary *vocabulary, void **out_state);
    void (*destroy)(void *state); /* NULL is fine */
    /* A thread's room: this many bytes of zeros, and what it holds. */
    size_t space_bytes;
    void (*space_free)(void *space); /* NULL: it holds nothing */
    rp_status (*encode)(const void *state, const rpi_vocabulary *vocabulary, void *space,
                        const char *piece, size_t bytes, rpi_ids *out);
} rpi_text_model_kind;

rp_status rpi_text_model_find(const cJSON *json, const rpi_text_model_kind **out_kind);

/* Reading "vocab": {token: id} and a token that a member names. */
rp_status rpi_vocabulary_load(const cJSON *json, rpi_vocabulary *vocabulary);
rp_status rpi_vocabulary_named(const cJSON *json, const char *key,
                               const rpi_vocabulary *vocabulary, bool *out_has,
                               uint32_t *out_id);
/* The ids of <0x00> to <0xFF>; UINT32_MAX where there is none. */
void rpi_vocabulary_bytes(const rpi_vocabulary *vocabulary, uint32_t ids[256]);
/* Append those of a character when all are there. */
rp_status rpi_byte_ids_add(const uint32_t ids[256], const char *text, size_t bytes,
                           bool *out_all, rpi_ids *out);

#endif
