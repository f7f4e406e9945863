/* Tokens on disk, mapped into memory and checked: documents one behind the other.
 *
 * Kinds of layout are in token_layouts.c: nanoset's (which `redpoll data tokenize` writes),
 * Megatron's, llm.c's and ids without a header. A new one is a file with one rpi_token_layout
 * and a row there. */
#ifndef RPI_TRAIN_TOKEN_FILE_H
#define RPI_TRAIN_TOKEN_FILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole file in memory, to be read only. */
typedef struct rpi_mapped_file {
    char *path;
    const uint8_t *bytes; /* NULL where the file is empty */
    size_t count;
} rpi_mapped_file;

rp_status rpi_mapped_file_open(const char *path, rpi_mapped_file *out_file);
void rpi_mapped_file_close(rpi_mapped_file *file); /* zeros are fine */

/* A run of tokens in one file. */
typedef struct rpi_token_part {
    rpi_mapped_file file;
    size_t offset;        /* bytes before the first token */
    int64_t first, count; /* of all tokens */
} rpi_token_part;

typedef enum rpi_token_type {
    RPI_TOKEN_U8,
    RPI_TOKEN_I8,
    RPI_TOKEN_U16,
    RPI_TOKEN_I16,
    RPI_TOKEN_U32,
    RPI_TOKEN_I32,
    RPI_TOKEN_I64,
} rpi_token_type;

typedef struct rpi_token_file {
    const struct rpi_token_layout *layout;
    char *tokenizer;      /* its name, as the file has it; NULL: it does not say */
    char *tokenizer_json; /* the path of a tokenizer.json beside the data; NULL: none */
    uint32_t vocabulary;  /* ids are below; 0: not known */
    rpi_token_type type;
    int token_bytes;
    int64_t count; /* tokens */
    rpi_token_part *parts;
    int part_count;
    int64_t documents;
    /* Where they end, in tokens, 8 bytes each, little-endian: mapped, or made (own_ends). */
    const uint8_t *ends;
    uint8_t *own_ends;
    rpi_mapped_file index;
} rpi_token_file;

typedef struct rpi_token_layout {
    const char *name, *summary;
    /* Does a path, as a user writes it, name files of this layout? Looks at names, and at the
     * first bytes where names do not tell. */
    bool (*recognises)(const char *path);
    /* Fill in *file, which is all zeros; what was opened is closed by the caller. */
    rp_status (*open)(const char *path, rpi_token_file *file);
} rpi_token_layout;

const rpi_token_layout *rpi_token_layout_at(int index); /* NULL past the end */

/* RP_NOT_FOUND says what was looked for; RP_CORRUPT names file and offset. */
rp_status rpi_token_file_open(const char *path, rpi_token_file **out_file);
void rpi_token_file_close(rpi_token_file *file); /* NULL is fine */

/* `count` tokens from `first` on, all of which are there. RP_CORRUPT: a token that is not below
 * the vocabulary, with its file and offset. Any thread. */
rp_status rpi_token_file_read(const rpi_token_file *file, int64_t first, int64_t count,
                              uint32_t *out_ids);

/* Where document `index` ends; -1 gives 0. */
static inline int64_t rpi_token_file_end(const rpi_token_file *file, int64_t index) {
    uint64_t end = 0;
    for (int b = 7; index >= 0 && b >= 0; b--) end = end << 8 | file->ends[8 * index + b];
    return (int64_t)end;
}
/* The document that holds a token. */
int64_t rpi_token_file_document(const rpi_token_file *file, int64_t token);

/* For layouts. */
rp_status rpi_token_file_add_part(rpi_token_file *file, const char *path, size_t offset);
void rpi_token_file_set_type(rpi_token_file *file, rpi_token_type type);
/* Files that a pattern names, in the order of their names, each one document. */
rp_status rpi_token_file_add_shards(rpi_token_file *file, const char *pattern,
                                    rp_status (*add)(const char *path, rpi_token_file *file));
/* How long "uint16:" in front of a path is, where ids have no header; 0: there is none. */
size_t rpi_token_raw_prefix(const char *path);
/* Do the ends rise to the count of tokens? */
rp_status rpi_token_file_check_ends(const rpi_token_file *file, const char *path);

#endif
