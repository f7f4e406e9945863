/* Why a run of `redpoll verify` has ended early, as its ranks have said in their logs: copies
 * of the same parameters no longer agree, which is no training of one rank, or a number is not
 * finite, which one rank may have come to as well. */
#include "base/append.h"
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "cli/verify_command.h"
#include "train/divergence.h"
#include "train/replicas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The sentence around `words`, out of a line that says more: "copies are not equal after step
 * 1: rank 1 differs from rank 0 in wpe.weight". It begins with the word that `words` begins in.
 */
static bool take_sentence(const char *text, const char *words, char *out, size_t bytes) {
    const char *at = strstr(text, words), *begin = at;
    if (!at) return false;
    while (begin > text && begin[-1] != ' ' && begin[-1] != '\n') begin--;
    out[0] = '\0';
    rpi_append(out, bytes, "%.*s", (int)strcspn(begin, ";\n"), begin);
    return true;
}

/* The first rank's that has said it. */
static bool find(const char *logs, int64_t ranks, const char *words, char *out, size_t bytes) {
    enum { MOST = 1 << 26 };
    bool found = false;
    for (int64_t rank = 0; rank < ranks && !found; rank++) {
        char path[RPI_PATH_BYTES], *text = NULL;
        size_t length = 0;
        snprintf(path, sizeof path, "%s/rank-%lld.log", logs, (long long)rank);
        if (rpi_regular_file_read(path, MOST, &text, &length) != RP_OK) continue;
        found = take_sentence(text, words, out, bytes);
        rpi_free(text);
    }
    return found;
}

bool rpi_verify_find_unequal(const char *logs, int64_t ranks, char *out, size_t bytes) {
    return find(logs, ranks, RPI_REPLICAS_UNEQUAL, out, bytes);
}

int64_t rpi_verify_find_divergence(const char *logs, int64_t ranks, char *out, size_t bytes) {
    char sentence[RPI_VERIFY_UNEQUAL];
    if (!find(logs, ranks, RPI_DIVERGED, sentence, sizeof sentence)) return 0;
    out[0] = '\0';
    rpi_append(out, bytes, "%s", sentence);
    return strtoll(sentence + strlen(RPI_DIVERGED), NULL, 10);
}
