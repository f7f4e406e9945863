#include "train/strategies/bit_chooser.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { ROW = RP_BITS_MOST + 1 };

rp_status rpi_bit_chooser_open(const rp_codec *like, rp_segment *segments, int count,
                               uint8_t *bits, rpi_bit_chooser *out) {
    rpi_bit_chooser chooser = {
        .like = *like, .segments = segments, .count = count, .bits = bits};
    size_t rows = (size_t)count;
    rp_status status =
        rpi_alloc_array(rows, sizeof *chooser.choices, "bits of tensors", &chooser.choices);
    if (status == RP_OK)
        status =
            rpi_alloc_array(rows * ROW, sizeof *chooser.lost, "bits of tensors", &chooser.lost);
    if (status == RP_OK)
        *out = chooser;
    else
        rpi_bit_chooser_close(&chooser);
    return status;
}

void rpi_bit_chooser_close(rpi_bit_chooser *chooser) {
    rpi_free(chooser->choices);
    rpi_free(chooser->lost);
    *chooser = (rpi_bit_chooser){0};
}

static bool chooses(const rpi_bit_chooser *chooser, int segment) {
    return chooser->segments[segment].codec.kind == chooser->like.kind;
}

void rpi_bit_chooser_apply(rpi_bit_chooser *chooser) {
    for (int i = 0; i < chooser->count; i++) {
        rp_segment *segment = &chooser->segments[i];
        if (chooses(chooser, i) && chooser->bits[segment->tensor])
            segment->codec.bits = chooser->bits[segment->tensor];
    }
}

void rpi_bit_chooser_clear(rpi_bit_chooser *chooser) {
    memset(chooser->lost, 0, (size_t)chooser->count * ROW * sizeof *chooser->lost);
}

rp_status rpi_bit_chooser_measure(rpi_bit_chooser *chooser, int segment) {
    const rp_segment *s = &chooser->segments[segment];
    if (!chooses(chooser, segment)) return RP_OK;
    return rp_bits_measure(&chooser->like, s->data, s->residual, s->count,
                           chooser->lost + (size_t)segment * ROW);
}

/* The choosing segments' rows, one behind the other. */
static size_t list_choices(rpi_bit_chooser *chooser) {
    size_t count = 0;
    for (int i = 0; i < chooser->count; i++) {
        if (!chooses(chooser, i)) continue;
        rp_bits_choice *choice = &chooser->choices[count++];
        choice->count = chooser->segments[i].count;
        memcpy(choice->lost, chooser->lost + (size_t)i * ROW, sizeof choice->lost);
    }
    return count;
}

static bool keep_choices(rpi_bit_chooser *chooser) {
    bool changed = false;
    const rp_bits_choice *choice = chooser->choices;
    for (int i = 0; i < chooser->count; i++) {
        if (!chooses(chooser, i)) continue;
        uint8_t *bits = &chooser->bits[chooser->segments[i].tensor];
        changed |= *bits != choice->bits;
        *bits = choice++->bits;
    }
    return changed;
}

/* With error feedback one bit would not settle. */
static int least_bits(const rpi_bit_chooser *chooser) {
    for (int i = 0; i < chooser->count; i++)
        if (chooser->segments[i].residual) return 2;
    return 1;
}

static size_t bytes_of(const rp_codec *like, const rp_bits_choice *choice, int bits) {
    rp_codec codec = *like;
    codec.bits = (uint8_t)bits;
    return rp_codec_encoded_bytes(&codec, RP_F32, choice->count);
}

/* "1.31 times fewer bytes than q4:bucket=512; tensors with 1 to 8 bits: 0 4 11 9 2 0 0 0" */
static void describe(const rpi_bit_chooser *chooser, size_t count,
                     char text[RPI_BIT_CHOICE_TEXT]) {
    char like[64];
    double all = 0, chosen = 0;
    int tensors[ROW] = {0};
    for (size_t i = 0; i < count; i++) {
        const rp_bits_choice *choice = &chooser->choices[i];
        all += (double)bytes_of(&chooser->like, choice, chooser->like.bits);
        chosen += (double)bytes_of(&chooser->like, choice, choice->bits);
        tensors[choice->bits]++;
    }
    int used = snprintf(
        text, RPI_BIT_CHOICE_TEXT, "%.2f times fewer bytes than %s; tensors with 1 to 8 bits:",
        chosen > 0 ? all / chosen : 1.0, rp_codec_text(&chooser->like, like, sizeof like));
    for (int bits = 1; bits <= RP_BITS_MOST && used < RPI_BIT_CHOICE_TEXT; bits++)
        used +=
            snprintf(text + used, (size_t)(RPI_BIT_CHOICE_TEXT - used), " %d", tensors[bits]);
}

rp_status rpi_bit_chooser_choose(rpi_bit_chooser *chooser, rp_comm *comm,
                                 char text[RPI_BIT_CHOICE_TEXT]) {
    rp_segment sums = {
        .data = chooser->lost, .count = (size_t)chooser->count * ROW, .dtype = RP_F64};
    text[0] = '\0';
    RP_TRY(rp_all_reduce(comm, &sums, 1, NULL));
    size_t count = list_choices(chooser);
    RP_TRY(rp_bits_choose(&chooser->like, least_bits(chooser), chooser->choices, count));
    if (keep_choices(chooser)) describe(chooser, count, text);
    return RP_OK;
}
