/* Damage to a file's bytes, made from a seed: what disks, networks, editors and adversaries do.
 */
#ifndef TESTS_CLI_DAMAGE_H
#define TESTS_CLI_DAMAGE_H

#include "base/rng.h"

#include <stddef.h>
#include <stdint.h>

typedef struct damage_bytes {
    uint8_t *data; /* of `room` bytes */
    size_t count, room;
} damage_bytes;

/* One to four changes: cut off, bits flipped, bytes overwritten, a piece moved, removed,
 * doubled or inserted, a number blown up (binary, little and big-endian, or of decimal digits).
 * The result has at most `room` bytes. */
void damage(damage_bytes *bytes, rpi_rng *rng);

#endif
