#include "train/data/stages.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char name[] = "stages:";
enum { NAME = sizeof name - 1 };

bool rpi_stages_are(const char *data) {
    return strncmp(data, name, NAME) == 0;
}

static rp_status refuse(const char *part, size_t length) {
    return RP_FAIL(INVALID,
                   "--data stages: '%.*s' is no stage; write "
                   "stages:tokens:PATH;STEP=tokens:PATH, with steps that grow, from 2",
                   (int)(length < 200 ? length : 200), part);
}

/* "10=tokens:B", but for the first, which begins the run. */
static rp_status read_part(const char *part, size_t length, bool is_first, rpi_stage *out) {
    char *end = NULL;
    const char *text = part;
    errno = 0;
    out->first = 0;
    if (!is_first) {
        if (*part < '1' || *part > '9') return refuse(part, length);
        long long step = strtoll(part, &end, 10);
        if (*end != '=' || errno || step < 2 || step > 1000000000000)
            return refuse(part, length);
        out->first = step - 1;
        text = end + 1;
    }
    size_t bytes = length - (size_t)(text - part);
    if (bytes == 0 || bytes >= sizeof out->data || strncmp(text, "tokens:", 7) != 0)
        return refuse(part, length);
    memcpy(out->data, text, bytes);
    out->data[bytes] = '\0';
    return RP_OK;
}

rp_status rpi_stages_at(const char *data, int index, rpi_stage *out_stage, bool *out_more) {
    const char *part = data + NAME;
    int64_t before = -1;
    for (int i = 0; i <= index; i++) {
        size_t length = strcspn(part, ";");
        RP_TRY(read_part(part, length, i == 0, out_stage));
        if (out_stage->first <= before) return refuse(part, length);
        before = out_stage->first;
        *out_more = part[length] == ';';
        part += length + 1;
        if (i < index && !*out_more) return RP_FAIL(INTERNAL, "--data has no stage %d", index);
    }
    return RP_OK;
}
