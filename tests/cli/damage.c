#include "damage.h"

#include <ctype.h>
#include <string.h>

/* Somewhere in the file; the first bytes, where lengths stand, come up often. */
static size_t somewhere(const damage_bytes *b, rpi_rng *rng) {
    if (b->count == 0) return 0;
    uint32_t count = (uint32_t)b->count;
    if (rpi_rng_below(rng, 4) == 0) count = count < 24 ? count : 24;
    return rpi_rng_below(rng, count);
}

static size_t piece(const damage_bytes *b, size_t at, rpi_rng *rng) {
    size_t left = b->count - at, most = rpi_rng_below(rng, 3) ? 16 : 600;
    if (most > left) most = left;
    return most ? 1 + rpi_rng_below(rng, (uint32_t)most) : 0;
}

/* Make a hole of `length` bytes at `at`; false: there is no room. */
static int open_hole(damage_bytes *b, size_t at, size_t length) {
    if (b->count + length > b->room) return 0;
    memmove(b->data + at + length, b->data + at, b->count - at);
    b->count += length;
    return 1;
}

static void remove_piece(damage_bytes *b, size_t at, size_t length) {
    memmove(b->data + at, b->data + at + length, b->count - at - length);
    b->count -= length;
}

static void cut(damage_bytes *b, rpi_rng *rng) {
    b->count = somewhere(b, rng);
}

static void flip(damage_bytes *b, rpi_rng *rng) {
    for (uint32_t n = 1 + rpi_rng_below(rng, 8); n > 0 && b->count; n--)
        b->data[somewhere(b, rng)] ^= (uint8_t)(1u << rpi_rng_below(rng, 8));
}

static void fill(uint8_t *at, size_t length, rpi_rng *rng) {
    static const uint8_t usual[] = {0, 0xff, ' ', '\n', '[', '{', '"', '0', '-'};
    uint32_t which = rpi_rng_below(rng, 2 * sizeof usual);
    for (size_t i = 0; i < length; i++)
        at[i] = which < sizeof usual ? usual[which] : (uint8_t)rpi_rng_u32(rng);
}

static void overwrite(damage_bytes *b, rpi_rng *rng) {
    size_t at = somewhere(b, rng);
    fill(b->data + at, piece(b, at, rng), rng);
}

static void insert(damage_bytes *b, rpi_rng *rng) {
    size_t at = somewhere(b, rng), length = 1 + rpi_rng_below(rng, 64);
    if (open_hole(b, at, length)) fill(b->data + at, length, rng);
}

static void leave_out(damage_bytes *b, rpi_rng *rng) {
    size_t at = somewhere(b, rng);
    remove_piece(b, at, piece(b, at, rng));
}

/* A piece of the file again, over or in front of another place. */
static void splice(damage_bytes *b, rpi_rng *rng) {
    uint8_t copy[600];
    size_t from = somewhere(b, rng), to = somewhere(b, rng), length = piece(b, from, rng);
    memcpy(copy, b->data + from, length);
    if (rpi_rng_below(rng, 2)) {
        if (!open_hole(b, to, length)) return;
    } else if (to + length > b->count) {
        return;
    }
    memcpy(b->data + to, copy, length);
}

static void blow_up_binary(damage_bytes *b, rpi_rng *rng) {
    size_t at = somewhere(b, rng), length = (size_t)1 << rpi_rng_below(rng, 4);
    if (at + length > b->count) return;
    uint8_t top = rpi_rng_below(rng, 2) ? 0xff : 0x7f;
    memset(b->data + at, rpi_rng_below(rng, 2) ? 0xff : 0, length);
    b->data[rpi_rng_below(rng, 2) ? at : at + length - 1] = top;
}

/* The first number behind a random place becomes another. */
static void blow_up_decimal(damage_bytes *b, rpi_rng *rng) {
    static const char *const numbers[] = {"0",
                                          "-1",
                                          "2147483648",
                                          "4294967295",
                                          "9007199254740993",
                                          "9223372036854775807",
                                          "18446744073709551615",
                                          "1e308",
                                          "1e999",
                                          "0.5",
                                          "99999999999999999999999999999999999999",
                                          "null",
                                          "\"1\""};
    const char *number = numbers[rpi_rng_below(rng, sizeof numbers / sizeof numbers[0])];
    size_t at = somewhere(b, rng), length = 0;
    while (at < b->count && !isdigit(b->data[at])) at++;
    while (at + length < b->count && isdigit(b->data[at + length])) length++;
    if (!length) return;
    remove_piece(b, at, length);
    if (open_hole(b, at, strlen(number))) memcpy(b->data + at, number, strlen(number));
}

void damage(damage_bytes *bytes, rpi_rng *rng) {
    static void (*const kinds[])(damage_bytes * b, rpi_rng * rng) = {
        cut,       flip,   flip,   overwrite,      insert,
        leave_out, splice, splice, blow_up_binary, blow_up_decimal};
    for (uint32_t n = 1 + rpi_rng_below(rng, 4); n > 0; n--)
        kinds[rpi_rng_below(rng, sizeof kinds / sizeof kinds[0])](bytes, rng);
}
