/* Running a tokenizer: one thread's room, and the ways from text to ids and back. */
#include "train/tokenizers/tokenizer_parts.h"

#include "train/tokenizers/byte_level.h"
#include "train/tokenizers/utf8_text.h"

#include <string.h>

/* Ids of short pieces that were met before. A slot holds the latest of those that fall into it,
 * and is a cache line. */
enum { KEY_BYTES = 27, CACHED_IDS = 8, CACHE_SLOTS = 1 << 15 };

typedef struct cached_piece {
    uint32_t ids[CACHED_IDS];
    uint32_t hash;
    uint8_t count;       /* 0: free */
    char key[KEY_BYTES]; /* ends in how many bytes it has */
} cached_piece;

struct rpi_encoder {
    const rpi_tokenizer *tokenizer;
    rpi_matcher *matcher;
    rpi_text repaired, written, rooms[2], split_rooms[2];
    rpi_pieces pieces[2];
    void *model_space;
    cached_piece *cache;
};

static rp_status create(const rpi_tokenizer *t, rpi_encoder *e) {
    e->tokenizer = t;
    if (!t->model) return RP_OK;
    RP_TRY(rpi_matcher_create(&e->matcher));
    RP_TRY(rpi_alloc(t->model->space_bytes, "room for a tokenizer", &e->model_space));
    /* Never NULL, though all pieces of a text may be empty. */
    for (int i = 0; i < 2; i++) RP_TRY(rpi_text_reserve(&e->split_rooms[i], 1));
    return rpi_alloc_array(CACHE_SLOTS, sizeof *e->cache, "a cache of words", &e->cache);
}

rp_status rpi_encoder_create(const rpi_tokenizer *t, rpi_encoder **out_encoder) {
    rpi_encoder *e = NULL;
    RP_TRY(rpi_alloc(sizeof *e, "an encoder", &e));
    rp_status status = create(t, e);
    if (status == RP_OK)
        *out_encoder = e;
    else
        rpi_encoder_destroy(e);
    return status;
}

void rpi_encoder_destroy(rpi_encoder *e) {
    if (!e) return;
    const rpi_text_model_kind *model = e->tokenizer->model;
    if (e->model_space && model->space_free) model->space_free(e->model_space);
    rpi_free(e->model_space);
    rpi_free(e->cache);
    rpi_matcher_free(e->matcher);
    rpi_text *texts[] = {&e->repaired, &e->written,        &e->rooms[0],
                         &e->rooms[1], &e->split_rooms[0], &e->split_rooms[1]};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) rpi_text_free(texts[i]);
    rpi_pieces_free(&e->pieces[0]);
    rpi_pieces_free(&e->pieces[1]);
    rpi_free(e);
}

/* ---- pieces to ids ---- */

static rp_status encode_new(rpi_encoder *e, const char *piece, size_t bytes, rpi_ids *ids) {
    const rpi_tokenizer *t = e->tokenizer;
    if (t->raw_bytes) {
        e->written.count = 0;
        RP_TRY(rpi_byte_level_write(piece, bytes, &e->written));
        piece = e->written.at;
        bytes = e->written.count;
    }
    return t->model->encode(t->model_state, &t->vocabulary, e->model_space, piece, bytes, ids);
}

static bool is_cached(const cached_piece *slot, uint32_t hash, const char *piece,
                      size_t bytes) {
    return slot->count && slot->hash == hash && (size_t)slot->key[KEY_BYTES - 1] == bytes &&
           memcmp(slot->key, piece, bytes) == 0;
}

static rp_status encode_piece(rpi_encoder *e, const char *piece, size_t bytes, rpi_ids *ids) {
    if (bytes >= KEY_BYTES) return encode_new(e, piece, bytes, ids);
    uint32_t hash = rpi_text_hash(piece, bytes);
    cached_piece *slot = &e->cache[hash % CACHE_SLOTS];
    if (is_cached(slot, hash, piece, bytes)) {
        if (slot->count == 1) return rpi_ids_add(ids, slot->ids[0]);
        return rpi_ids_append(ids, slot->ids, slot->count);
    }
    size_t before = ids->count;
    RP_TRY(encode_new(e, piece, bytes, ids));
    size_t count = ids->count - before;
    if (count == 0 || count > CACHED_IDS) return RP_OK;
    memcpy(slot->ids, ids->at + before, count * sizeof *slot->ids);
    memcpy(slot->key, piece, bytes);
    slot->key[KEY_BYTES - 1] = (char)bytes;
    slot->hash = hash;
    slot->count = (uint8_t)count;
    return RP_OK;
}

static rp_status pre_tokenize(rpi_encoder *e, const char *text, size_t bytes, bool first,
                              rpi_pieces **out_pieces) {
    const rpi_steps *steps = &e->tokenizer->pre_tokenizers;
    rpi_pieces *in = &e->pieces[0], *out = &e->pieces[1];
    in->count = 0;
    in->text = text;
    RP_TRY(rpi_pieces_add(in, 0, bytes));
    for (int i = 0; i < steps->count; i++) {
        rpi_text *room = &e->split_rooms[in->text == e->split_rooms[0].at];
        const rpi_pre_tokenizer_kind *kind = steps->at[i].kind;
        room->count = out->count = 0;
        out->text = in->text;
        rpi_pre_tokenizing p = {in, out, room, e->matcher, first};
        RP_TRY(kind->apply(steps->at[i].state, &p));
        rpi_pieces *next = in;
        in = out;
        out = next;
    }
    *out_pieces = in;
    return RP_OK;
}

/* A part without added tokens. */
static rp_status encode_part(rpi_encoder *e, const char *text, size_t bytes, bool first,
                             rpi_ids *ids) {
    rpi_pieces *pieces = NULL;
    RP_TRY(pre_tokenize(e, text, bytes, first, &pieces));
    for (size_t i = 0; i < pieces->count; i++)
        RP_TRY(encode_piece(e, pieces->text + pieces->at[i].start, pieces->at[i].bytes, ids));
    return RP_OK;
}

/* ---- added tokens, and what lies between ---- */

typedef rp_status (*part_encoder)(rpi_encoder *e, const char *text, size_t bytes, bool first,
                                  unsigned flags, rpi_ids *ids);

static rp_status encode_between(rpi_encoder *e, const rpi_added_finder *finder,
                                const char *text, size_t bytes, bool first, unsigned flags,
                                part_encoder encode, rpi_ids *ids) {
    size_t at = 0, taken = 0, start, end;
    bool plain = flags & RPI_ENCODE_PLAIN_SPECIAL;
    for (;;) {
        const rpi_added_token *token = rpi_added_tokens_next(
            &e->tokenizer->added, finder, text, bytes, taken, plain, &at, &start, &end);
        size_t stop = token ? start : bytes;
        if (stop > taken)
            RP_TRY(encode(e, text + taken, stop - taken, first && taken == 0, flags, ids));
        if (!token) return RP_OK;
        RP_TRY(rpi_ids_add(ids, token->id));
        taken = end;
    }
}

static rp_status encode_normalized(rpi_encoder *e, const char *text, size_t bytes, bool first,
                                   unsigned flags, rpi_ids *ids) {
    (void)flags;
    return encode_part(e, text, bytes, first, ids);
}

static rp_status encode_raw(rpi_encoder *e, const char *text, size_t bytes, bool first,
                            unsigned flags, rpi_ids *ids) {
    const rpi_tokenizer *t = e->tokenizer;
    RP_TRY(rpi_normalize(t, e->matcher, e->rooms, text, bytes, &text, &bytes));
    return encode_between(e, &t->added.normalized, text, bytes, first, flags, encode_normalized,
                          ids);
}

static rp_status encode_text(rpi_encoder *e, const char *text, size_t bytes, unsigned flags,
                             rpi_ids *ids) {
    const rpi_tokenizer *t = e->tokenizer;
    bool around = flags & RPI_ENCODE_ADD_SPECIAL;
    if (around) RP_TRY(rpi_ids_append(ids, t->before.at, t->before.count));
    RP_TRY(encode_between(e, &t->added.raw, text, bytes, true, flags, encode_raw, ids));
    return around ? rpi_ids_append(ids, t->after.at, t->after.count) : RP_OK;
}

static rp_status encode_bytes(const char *text, size_t bytes, rpi_ids *ids) {
    for (size_t i = 0; i < bytes; i++) RP_TRY(rpi_ids_add(ids, (uint8_t)text[i]));
    return RP_OK;
}

rp_status rpi_encode(rpi_encoder *e, const char *text, size_t bytes, unsigned flags,
                     rpi_ids *ids, size_t *out_replaced) {
    size_t before = ids->count, replaced = 0;
    if (bytes > RPI_DOCUMENT_MOST)
        return RP_FAIL(INVALID, "a text of %zu bytes; %d are the most at once", bytes,
                       RPI_DOCUMENT_MOST);
    rp_status status = RP_OK;
    if (!e->tokenizer->model) {
        status = encode_bytes(text, bytes, ids);
    } else {
        if (rpi_utf8_valid(text, bytes) < bytes) {
            e->repaired.count = 0;
            status = rpi_utf8_repair(text, bytes, &e->repaired, &replaced);
            text = e->repaired.at;
            bytes = e->repaired.count;
        }
        if (status == RP_OK) status = encode_text(e, text, bytes, flags, ids);
    }
    if (status != RP_OK) ids->count = before;
    if (status == RP_OK && out_replaced) *out_replaced = replaced;
    return status;
}

/* ---- step by step ---- */

const rpi_tokenizer *rpi_encoder_tokenizer(const rpi_encoder *e) {
    return e->tokenizer;
}

rp_status rpi_encoder_normalize(rpi_encoder *e, const char *text, size_t bytes,
                                const char **out_text, size_t *out_bytes) {
    return rpi_normalize(e->tokenizer, e->matcher, e->rooms, text, bytes, out_text, out_bytes);
}

rp_status rpi_encoder_pieces(rpi_encoder *e, const char *text, size_t bytes,
                             rpi_pieces **out_pieces) {
    return pre_tokenize(e, text, bytes, true, out_pieces);
}

rp_status rpi_encoder_piece_ids(rpi_encoder *e, const char *piece, size_t bytes, rpi_ids *ids) {
    return encode_piece(e, piece, bytes, ids);
}

/* ---- ids to text ---- */

static rp_status decode_bytes(const uint32_t *ids, size_t count, unsigned flags,
                              rpi_text *out) {
    for (size_t i = 0; i < count; i++) {
        char byte = (char)ids[i];
        if (ids[i] < 256)
            RP_TRY(rpi_text_append(out, &byte, 1));
        else if (!(flags & RPI_DECODE_SKIP_SPECIAL))
            RP_TRY(rpi_text_append(out, "<|endoftext|>", 13));
    }
    return RP_OK;
}

/* The tokens' texts as pieces of a room; without a decoder there is a space between two. */
static rp_status list_tokens(rpi_encoder *e, const uint32_t *ids, size_t count, unsigned flags,
                             rpi_pieces *tokens, rpi_text *room) {
    const rpi_tokenizer *t = e->tokenizer;
    rpi_decoding d = {.out = tokens, .room = room};
    for (size_t i = 0; i < count; i++) {
        const char *text = rpi_tokenizer_token(t, ids[i]);
        size_t start = room->count;
        if (!text || (flags & RPI_DECODE_SKIP_SPECIAL && t->is_special[ids[i]])) continue;
        if (!t->has_decoder && tokens->count) RP_TRY(rpi_text_append(room, " ", 1));
        RP_TRY(rpi_text_append(room, text, strlen(text)));
        RP_TRY(rpi_decoding_end(&d, start));
    }
    return RP_OK;
}

static rp_status decode_tokens(rpi_encoder *e, rpi_pieces *tokens, rpi_text *out) {
    const rpi_steps *steps = &e->tokenizer->decoders;
    rpi_pieces *in = tokens, *next = &e->pieces[1];
    for (int i = 0; i < steps->count; i++) {
        const rpi_decoder_kind *kind = steps->at[i].kind;
        rpi_text *room = &e->split_rooms[(i + 1) % 2];
        room->count = next->count = 0;
        rpi_decoding d = {in, next, room, e->matcher};
        RP_TRY(kind->apply(steps->at[i].state, &d));
        next->text = room->at;
        rpi_pieces *free_ones = in;
        in = next;
        next = free_ones;
    }
    for (size_t i = 0; i < in->count; i++)
        RP_TRY(rpi_text_append(out, in->text + in->at[i].start, in->at[i].bytes));
    return RP_OK;
}

rp_status rpi_decode(rpi_encoder *e, const uint32_t *ids, size_t count, unsigned flags,
                     rpi_text *out) {
    const rpi_tokenizer *t = e->tokenizer;
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= t->size)
            return RP_FAIL(INVALID, "token %u at position %zu; %s has %u tokens", ids[i], i,
                           t->name, t->size);
    if (!t->model) return decode_bytes(ids, count, flags, out);
    rpi_pieces *tokens = &e->pieces[0];
    rpi_text *room = &e->split_rooms[0];
    tokens->count = room->count = 0;
    RP_TRY(list_tokens(e, ids, count, flags, tokens, room));
    tokens->text = room->at;
    return decode_tokens(e, tokens, out);
}
