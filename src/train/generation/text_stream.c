#include "train/generation/text_stream.h"

#include "base/status.h"
#include "train/tokenizers/utf8_text.h"

#include <string.h>

enum { CONTEXT = 6, MOST_HELD = 64 };

static rp_status decode(rpi_text_stream *s) {
    s->text.count = 0;
    return rpi_decode(s->encoder, s->ids.at + s->before, s->ids.count - s->before,
                      RPI_DECODE_SKIP_SPECIAL, &s->text);
}

rp_status rpi_text_stream_begin(rpi_text_stream *s, const uint32_t *ids, size_t count) {
    s->ids.count = 0;
    s->closed = count;
    s->before = count > CONTEXT ? count - CONTEXT : 0;
    RP_TRY(rpi_ids_append(&s->ids, ids, count));
    RP_TRY(decode(s));
    s->given = s->text.count;
    return RP_OK;
}

/* Bytes at the end that begin a character and do not end it. */
static size_t open_bytes(const rpi_text *text) {
    for (size_t back = 1; back < 4 && back <= text->count; back++) {
        unsigned char byte = (unsigned char)text->at[text->count - back];
        if ((byte & 0xc0) == 0x80) continue;
        size_t wanted = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
        return wanted > back ? back : 0;
    }
    return 0;
}

/* What further tokens can no more change. Where a decoder has put U+FFFD for bytes, they may
 * yet become characters. */
static size_t closed_bytes(const rpi_text *text) {
    static const char replacement[] = "\xef\xbf\xbd";
    size_t end = text->count - open_bytes(text);
    if (end < text->count) return end;
    while (end >= 3 && memcmp(text->at + end - 3, replacement, 3) == 0) end -= 3;
    return end;
}

/* Begin to decode later, now that all is given out. */
static rp_status move_on(rpi_text_stream *s) {
    s->before = s->closed;
    s->closed = s->ids.count;
    RP_TRY(decode(s));
    s->given = s->text.count;
    return RP_OK;
}

static rp_status give(rpi_text_stream *s, bool is_last) {
    size_t replaced;
    RP_TRY(decode(s));
    bool is_all = is_last || s->ids.count - s->closed >= MOST_HELD;
    size_t end = is_all ? s->text.count : closed_bytes(&s->text);
    if (end <= s->given) return RP_OK;
    s->repaired.count = 0;
    RP_TRY(rpi_utf8_repair(s->text.at + s->given, end - s->given, &s->repaired, &replaced));
    RP_TRY(s->take(s->context, s->repaired.at, s->repaired.count));
    s->given = end;
    return end == s->text.count ? move_on(s) : RP_OK;
}

rp_status rpi_text_stream_add(rpi_text_stream *s, uint32_t id) {
    RP_TRY(rpi_ids_add(&s->ids, id));
    return give(s, false);
}

rp_status rpi_text_stream_end(rpi_text_stream *s) {
    return s->closed < s->ids.count ? give(s, true) : RP_OK;
}

void rpi_text_stream_free(rpi_text_stream *s) {
    rpi_ids_free(&s->ids);
    rpi_text_free(&s->text);
    rpi_text_free(&s->repaired);
}
