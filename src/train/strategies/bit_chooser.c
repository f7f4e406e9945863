#include "train/strategies/bit_chooser.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

rp_status rpi_bit_chooser_open(const rp_codec *like, rp_segment *segments, int count,
                               uint8_t *levels, rpi_bit_chooser *out) {
    rpi_bit_chooser chooser = {
        .like = *like, .segments = segments, .count = count, .levels = levels};
    size_t rows = (size_t)count;
    rp_status status =
        rpi_alloc_array(rows, sizeof *chooser.choices, "bits of tensors", &chooser.choices);
    if (status == RP_OK)
        status = rpi_alloc_array(rows * RP_MEASURED, sizeof *chooser.measured,
                                 "bits of tensors", &chooser.measured);
    if (status == RP_OK)
        status =
            rpi_alloc_array(rows, sizeof *chooser.chooses, "bits of tensors", &chooser.chooses);
    if (status != RP_OK) {
        rpi_bit_chooser_close(&chooser);
        return status;
    }
    for (int i = 0; i < count; i++) chooser.chooses[i] = segments[i].codec.kind == like->kind;
    *out = chooser;
    return RP_OK;
}

void rpi_bit_chooser_close(rpi_bit_chooser *chooser) {
    rpi_free(chooser->choices);
    rpi_free(chooser->measured);
    rpi_free(chooser->chooses);
    *chooser = (rpi_bit_chooser){0};
}

static int64_t lossy_elements(const rpi_bit_chooser *chooser, const rpi_bucket *bucket) {
    int64_t elements = 0;
    for (int i = bucket->segment; i < bucket->segment + bucket->segment_count; i++)
        if (chooser->chooses[i]) elements += (int64_t)chooser->segments[i].count;
    return elements;
}

rp_status rpi_bit_chooser_compare(const rpi_bit_chooser *chooser, const rpi_buckets *buckets,
                                  rp_comm *comm, const char *algorithm, int64_t *out_lossy_from,
                                  char text[RP_COMPARISON_TEXT]) {
    int64_t most = 0;
    bool feedback = false;
    rp_codec codec;
    rp_codec_comparison comparison;
    for (int b = 0; b < buckets->count; b++) {
        int64_t elements = lossy_elements(chooser, &buckets->buckets[b]);
        if (elements > most) most = elements;
    }
    for (int i = 0; i < chooser->count; i++)
        feedback |= chooser->chooses[i] && chooser->segments[i].residual;
    *out_lossy_from = RPI_LOSSY_NEVER;
    text[0] = '\0';
    if (!most) return RP_OK;
    RP_TRY(rp_level_like(&chooser->like, &codec));
    RP_TRY(rp_codec_compare(comm, &codec, (size_t)most, feedback, algorithm, &comparison));
    if (comparison.lossy_from != RP_LOSSY_NEVER)
        *out_lossy_from = (int64_t)comparison.lossy_from;
    rp_codec_comparison_text(&comparison, &codec, text);
    return RP_OK;
}

void rpi_bit_chooser_limit(rpi_bit_chooser *chooser, const rpi_buckets *buckets,
                           int64_t lossy_from) {
    for (int b = 0; b < buckets->count; b++) {
        const rpi_bucket *bucket = &buckets->buckets[b];
        if (lossy_elements(chooser, bucket) >= lossy_from) continue;
        for (int i = bucket->segment; i < bucket->segment + bucket->segment_count; i++) {
            if (chooser->chooses[i]) chooser->segments[i].codec = (rp_codec){0};
            chooser->chooses[i] = false;
        }
    }
}

bool rpi_bit_chooser_is_needed(const rpi_bit_chooser *chooser) {
    for (int i = 0; i < chooser->count; i++)
        if (chooser->chooses[i]) return true;
    return false;
}

/* The levels were chosen here, or checked when a checkpoint was read. */
void rpi_bit_chooser_apply(rpi_bit_chooser *chooser) {
    for (int i = 0; i < chooser->count; i++) {
        rp_segment *segment = &chooser->segments[i];
        if (chooser->chooses[i])
            (void)rp_level_codec(&chooser->like, chooser->levels[segment->tensor],
                                 &segment->codec);
    }
}

void rpi_bit_chooser_clear(rpi_bit_chooser *chooser) {
    memset(chooser->measured, 0,
           (size_t)chooser->count * RP_MEASURED * sizeof *chooser->measured);
}

rp_status rpi_bit_chooser_measure(rpi_bit_chooser *chooser, int segment) {
    const rp_segment *s = &chooser->segments[segment];
    if (!chooser->chooses[segment]) return RP_OK;
    return rp_levels_measure(&chooser->like, s->data, s->residual, s->count,
                             chooser->measured + (size_t)segment * RP_MEASURED);
}

/* The rows of the segments whose bits are chosen, one after the other. */
static size_t list_choices(rpi_bit_chooser *chooser) {
    size_t count = 0;
    for (int i = 0; i < chooser->count; i++) {
        if (!chooser->chooses[i]) continue;
        rp_level_choice *choice = &chooser->choices[count++];
        memcpy(choice->measured, chooser->measured + (size_t)i * RP_MEASURED,
               sizeof choice->measured);
    }
    return count;
}

static bool keep_choices(rpi_bit_chooser *chooser) {
    bool changed = false;
    const rp_level_choice *choice = chooser->choices;
    for (int i = 0; i < chooser->count; i++) {
        if (!chooser->chooses[i]) continue;
        uint8_t *level = &chooser->levels[chooser->segments[i].tensor];
        changed |= *level != choice->level;
        *level = (uint8_t)(choice++)->level;
    }
    return changed;
}

/* "1.31 times fewer bytes than q4:bucket=512; tensors at v1 to v8: 0 4 11 9 2 0 0 0", and how
 * many tensors stay as they were, if any. */
static void describe(const rpi_bit_chooser *chooser, size_t count,
                     char text[RPI_BIT_CHOICE_TEXT]) {
    enum { BITS_MOST = 8, LEVELS_A_BIT = (RP_LEVELS - 1) / BITS_MOST };
    char like[64];
    double all = 0, chosen = 0;
    int tensors[BITS_MOST + 1] = {0};
    for (size_t i = 0; i < count; i++) {
        const rp_level_choice *choice = &chooser->choices[i];
        all += choice->measured[RP_LEVELS];
        chosen += choice->measured[RP_LEVELS + choice->level];
        tensors[(choice->level + LEVELS_A_BIT - 1) / LEVELS_A_BIT]++;
    }
    int used = snprintf(
        text, RPI_BIT_CHOICE_TEXT,
        "%.2f times fewer bytes than %s; tensors at v1 to v8:", chosen > 0 ? all / chosen : 1.0,
        rp_codec_text(&chooser->like, like, sizeof like));
    for (int bits = 1; bits <= BITS_MOST && used < RPI_BIT_CHOICE_TEXT; bits++)
        used +=
            snprintf(text + used, (size_t)(RPI_BIT_CHOICE_TEXT - used), " %d", tensors[bits]);
    if (tensors[0] && used < RPI_BIT_CHOICE_TEXT)
        snprintf(text + used, (size_t)(RPI_BIT_CHOICE_TEXT - used), "; %d as it is",
                 tensors[0]);
}

rp_status rpi_bit_chooser_choose(rpi_bit_chooser *chooser, rp_comm *comm,
                                 char text[RPI_BIT_CHOICE_TEXT]) {
    rp_segment sums = {.data = chooser->measured,
                       .count = (size_t)chooser->count * RP_MEASURED,
                       .dtype = RP_F64};
    text[0] = '\0';
    RP_TRY(rp_all_reduce(comm, &sums, 1, NULL));
    size_t count = list_choices(chooser);
    RP_TRY(rp_levels_choose(&chooser->like, chooser->choices, count));
    if (keep_choices(chooser)) describe(chooser, count, text);
    return RP_OK;
}
