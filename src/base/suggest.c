#include "base/suggest.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 63 };

static int min3(int a, int b, int c) {
    int least = a < b ? a : b;
    return least < c ? least : c;
}

/* Three rows of the table are enough; the oldest serves transpositions. */
static int edit_distance(const char *a, const char *b) {
    int rows[3][LONGEST + 1];
    int m = (int)strlen(a), n = (int)strlen(b);
    if (m > LONGEST || n > LONGEST) return LONGEST;
    for (int j = 0; j <= n; j++) rows[0][j] = j;
    for (int i = 1; i <= m; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int cost = a[i - 1] != b[j - 1];
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                above2[j - 2] + 1 < row[j])
                row[j] = above2[j - 2] + 1;
        }
    }
    return rows[m % 3][n];
}

const char *rpi_suggest(const char *word, rpi_name_at name_at, const void *context) {
    const char *best = NULL;
    int best_distance = (int)strlen(word) / 3 + 1;
    const char *name;
    for (int i = 0; (name = name_at(context, i)) != NULL; i++) {
        int distance = edit_distance(word, name);
        if (distance < best_distance || (distance == best_distance && !best)) {
            best = name;
            best_distance = distance;
        }
    }
    return best;
}

const char *rpi_suggest_text(const char *word, rpi_name_at name_at, const void *context,
                             char *text, size_t bytes) {
    const char *name = rpi_suggest(word, name_at, context);
    if (name)
        snprintf(text, bytes, "; did you mean '%s'?", name);
    else if (bytes)
        text[0] = '\0';
    return text;
}

static void list_names(rpi_name_at name_at, const void *context, char *text, size_t bytes) {
    const char *name;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; (name = name_at(context, i)) != NULL && used < bytes; i++) {
        int length = snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", name);
        used += length > 0 ? (size_t)length : 0;
    }
}

rp_status rpi_name_find(const char *what, const char *name, rpi_name_at name_at,
                        const void *context, int *out_index) {
    const char *known;
    for (int i = 0; (known = name_at(context, i)) != NULL; i++) {
        if (strcmp(known, name) != 0) continue;
        *out_index = i;
        return RP_OK;
    }
    char all[400], nearest[96];
    list_names(name_at, context, all, sizeof all);
    return RP_FAIL(INVALID, "unknown %s '%s'; there are %s%s", what, name, all,
                   rpi_suggest_text(name, name_at, context, nearest, sizeof nearest));
}
