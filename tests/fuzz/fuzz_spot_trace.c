/* A trace of spot nodes: what is read is played through, and nothing of it is lost. */
#include "fuzz_input.h"

#include "base/memory.h"
#include "plan/foresight/spot_replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void replay(const rpi_spot_trace *t) {
    for (int elastic = 0; elastic < 2; elastic++) {
        rpi_spot_rules r = {3, 2, 60, 10, false, 30, elastic == 1, 5, 60, NULL};
        rpi_spot_account a = rpi_spot_replay(t, &r);
        double sum = a.useful + a.lost + a.saving + a.standing + a.waiting + a.spare;
        if (!(fabs(sum - a.all) <= 1e-6 * fmax(a.all, 1))) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = NULL;
    rpi_spot_trace t;
    if (bytes > 1 << 16 || rpi_alloc(bytes + 1, "a trace", &text) != RP_OK) return 0;
    memcpy(text, data, bytes);
    if (rpi_spot_trace_parse(text, &t) == RP_OK) {
        replay(&t);
        rpi_free(t.changes);
    }
    rpi_free(text);
    return 0;
}
