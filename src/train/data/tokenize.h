/* From documents to tokens on disk, by several threads; the order stays. */
#ifndef RPI_TRAIN_TOKENIZE_H
#define RPI_TRAIN_TOKENIZE_H

#include "train/data/text_source.h"
#include "train/data/token_writer.h"

enum { RPI_TOKENIZE_THREADS_MOST = 256 };

typedef struct rpi_tokenize_options {
    int threads;    /* that encode; at least 1 */
    unsigned flags; /* of rpi_encode() */
    bool has_end;   /* put `end` behind each document */
    uint32_t end;
    bool strict; /* what is not UTF-8 is an error, not U+FFFD */
    /* Called now and then by the calling thread; true: stop, which is RP_CANCELLED. NULL: do
     * not. */
    bool (*progress)(void *context, int64_t done_bytes, int64_t total_bytes);
    void *context;
} rpi_tokenize_options;

typedef struct rpi_tokenize_totals {
    int64_t documents, bytes, tokens; /* bytes of text, unpacked */
    int64_t repaired, replaced;       /* documents that were not UTF-8; U+FFFD put into them */
    int64_t broken;                   /* rows of JSON that were left out */
} rpi_tokenize_totals;

/* Every document of the source goes to the writer, which the caller closes with the status.
 * Blocking; memory is bounded by a few megabytes a thread and the longest documents. A failure
 * names file and line of the document. */
rp_status rpi_tokenize(const rpi_tokenizer *tokenizer, rpi_text_source *source,
                       rpi_token_writer *writer, const rpi_tokenize_options *options,
                       rpi_tokenize_totals *out_totals);

#endif
