#include "train/tokenizers/text_split.h"

#include "train/tokenizers/utf8_text.h"

#include <string.h>

static const char *const names[] = {
    [RPI_SPLIT_REMOVED] = "Removed",
    [RPI_SPLIT_ISOLATED] = "Isolated",
    [RPI_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
    [RPI_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
    [RPI_SPLIT_CONTIGUOUS] = "Contiguous",
};

rp_status rpi_split_behavior_find(const char *name, rpi_split_behavior *out_behavior) {
    for (size_t i = 0; name && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *out_behavior = (rpi_split_behavior)i;
        return RP_OK;
    }
    return RP_FAIL(UNSUPPORTED,
                   "behavior '%s'; there are Removed, Isolated, MergedWithPrevious, "
                   "MergedWithNext, Contiguous",
                   name ? name : "");
}

rp_status rpi_split_end(rpi_text_split *split) {
    bool waiting = split->waiting;
    split->waiting = false;
    return waiting ? rpi_pieces_add(split->out, split->start, split->end - split->start)
                   : RP_OK;
}

/* Does the next part belong to the piece that waits? */
static bool joins(const rpi_text_split *s, bool is_match) {
    if (!s->waiting) return false;
    switch (s->behavior) {
    case RPI_SPLIT_CONTIGUOUS: return is_match == s->previous_was_match;
    case RPI_SPLIT_MERGED_WITH_PREVIOUS: return is_match && !s->previous_was_match;
    case RPI_SPLIT_MERGED_WITH_NEXT: return !is_match && s->previous_was_match;
    default: return false;
    }
}

rp_status rpi_split_part(rpi_text_split *s, size_t start, size_t end, bool is_match) {
    if (start == end) return RP_OK;
    if (s->invert) is_match = !is_match;
    if (s->behavior == RPI_SPLIT_REMOVED && is_match) return RP_OK;
    if (joins(s, is_match)) {
        s->end = end;
    } else {
        RP_TRY(rpi_split_end(s));
        s->waiting = true;
        s->start = start;
        s->end = end;
    }
    s->previous_was_match = is_match;
    return RP_OK;
}

static rp_status split_piece(rpi_text_split *s, rpi_text_piece piece,
                             bool (*wanted)(int32_t code, int32_t argument), int32_t argument) {
    const char *text = s->out->text;
    size_t between = piece.start, end = (size_t)piece.start + piece.bytes, length;
    for (size_t i = piece.start; i < end; i += length) {
        if (!wanted(rpi_utf8_read(text + i, &length), argument)) continue;
        RP_TRY(rpi_split_part(s, between, i, false));
        RP_TRY(rpi_split_part(s, i, i + length, true));
        between = i + length;
    }
    RP_TRY(rpi_split_part(s, between, end, false));
    return rpi_split_end(s);
}

rp_status rpi_split_at(rpi_pre_tokenizing *p, bool (*wanted)(int32_t code, int32_t argument),
                       int32_t argument, rpi_split_behavior behavior) {
    for (size_t i = 0; i < p->in->count; i++) {
        rpi_text_split split = {.out = p->out, .behavior = behavior};
        RP_TRY(split_piece(&split, p->in->at[i], wanted, argument));
    }
    return RP_OK;
}

static bool has_class(int32_t code, int32_t classes) {
    return rpi_utf8_class(code) & (unsigned)classes;
}

rp_status rpi_split_at_classes(rpi_pre_tokenizing *p, unsigned classes,
                               rpi_split_behavior behavior) {
    return rpi_split_at(p, has_class, (int32_t)classes, behavior);
}

static rp_status split_by_pattern(rpi_text_split *s, rpi_text_piece piece,
                                  const rpi_pattern *pattern, rpi_matcher *matcher) {
    const char *text = s->out->text + piece.start;
    size_t at = 0, start, end;
    for (;;) {
        bool found;
        RP_TRY(rpi_pattern_next(pattern, matcher, text, piece.bytes, at, &found, &start, &end));
        if (!found) break;
        RP_TRY(rpi_split_part(s, piece.start + at, piece.start + start, false));
        RP_TRY(rpi_split_part(s, piece.start + start, piece.start + end, true));
        at = end;
    }
    RP_TRY(rpi_split_part(s, piece.start + at, (size_t)piece.start + piece.bytes, false));
    return rpi_split_end(s);
}

rp_status rpi_split_at_pattern(rpi_pre_tokenizing *p, const rpi_pattern *pattern, bool invert,
                               rpi_split_behavior behavior) {
    for (size_t i = 0; i < p->in->count; i++) {
        rpi_text_split split = {.out = p->out, .behavior = behavior, .invert = invert};
        RP_TRY(split_by_pattern(&split, p->in->at[i], pattern, p->matcher));
    }
    return RP_OK;
}
