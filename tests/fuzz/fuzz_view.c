/* What a store has of a world of views, set by whoever: the newest view, a line behind it for
 * each process. What is read is within limits, and is what a next view can be made of. */
#include "fuzz_input.h"

#include "net/world/view_rules.h"

#include <stdlib.h>
#include <string.h>

enum { CANDIDATES = 64 };

static rpi_view_record before, next, again;
static rpi_view_candidate candidates[CANDIDATES];

/* The lines behind the first empty one. */
static int read_candidates(const char *text) {
    int count = 0;
    const char *line = strstr(text, "\n\n");
    for (line = line ? line + 2 : NULL; line && *line && count < CANDIDATES;) {
        char one[RPI_STATEMENT_BYTES];
        size_t length = strcspn(line, "\n");
        snprintf(one, sizeof one, "%.*s", (int)(length < 200 ? length : 200), line);
        candidates[count] = (rpi_view_candidate){.id = (uint32_t)count + 1};
        count += rpi_statement_read(one, &candidates[count].says) == RP_OK;
        line += length + (line[length] == '\n');
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static char written[RPI_VIEW_RECORD_BYTES];
    int awaited = 0;
    char *text = calloc(1, bytes + 1);
    if (!text) return 0;
    if (bytes) memcpy(text, data, bytes);
    int count = read_candidates(text);
    char *end = strstr(text, "\n\n");
    if (end) end[1] = '\0';
    if (rpi_view_record_read(text, &before) == RP_OK) {
        rpi_view_change change = {.before = &before,
                                  .candidates = candidates,
                                  .count = count,
                                  .least = 1,
                                  .most = RP_WORLD_MOST,
                                  .silence_ns = 1,
                                  .late_are_left = bytes % 2};
        (void)rpi_view_change_decide(&change, &next, &awaited);
        if (next.count > 0 && next.number > 0) {
            (void)rpi_view_record_write(&next, written);
            if (rpi_view_record_read(written, &again) != RP_OK) abort();
        }
    }
    free(text);
    return 0;
}
