/* A layout whose run has ended because ranks with copies of the same parameters no longer agree
 * is no training of one rank: the ranks have said so in their logs. */
#include "base/append.h"
#include "base/memory.h"
#include "base/regular_file.h"
#include "base/status.h"
#include "cli/verify_command.h"
#include "train/replicas.h"

#include <stdio.h>
#include <string.h>

/* "copies are not equal after step 1: rank 1 differs from rank 0 in wpe.weight", out of a line
 * that says more. */
static bool take_sentence(const char *text, char *out, size_t bytes) {
    const char *words = strstr(text, RPI_REPLICAS_UNEQUAL), *begin = words;
    if (!words) return false;
    while (begin > text && begin[-1] != ' ' && begin[-1] != '\n') begin--;
    out[0] = '\0';
    rpi_append(out, bytes, "%.*s", (int)strcspn(begin, ";\n"), begin);
    return true;
}

bool rpi_verify_find_unequal(const char *logs, int64_t ranks, char *out, size_t bytes) {
    enum { MOST = 1 << 26 };
    bool found = false;
    for (int64_t rank = 0; rank < ranks && !found; rank++) {
        char path[RPI_PATH_BYTES], *text = NULL;
        size_t length = 0;
        snprintf(path, sizeof path, "%s/rank-%lld.log", logs, (long long)rank);
        if (rpi_regular_file_read(path, MOST, &text, &length) != RP_OK) continue;
        found = take_sentence(text, out, bytes);
        rpi_free(text);
    }
    return found;
}
