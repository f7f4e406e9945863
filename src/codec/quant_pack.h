/* The table that the vector kernels of the quantiser share. */
#ifndef RPI_CODEC_QUANT_PACK_H
#define RPI_CODEC_QUANT_PACK_H

#include <stdint.h>

/* rpi_compact[bits][k]: where byte k of 8 packed groups of `bits` bytes lies when each group
 * starts a qword. Rows serve vpermb whole and pshufb by their first 16 bytes. */
#define RPI_GROUP_1(q) 8 * q
#define RPI_GROUP_2(q) RPI_GROUP_1(q), 8 * q + 1
#define RPI_GROUP_3(q) RPI_GROUP_2(q), 8 * q + 2
#define RPI_GROUP_4(q) RPI_GROUP_3(q), 8 * q + 3
#define RPI_GROUP_5(q) RPI_GROUP_4(q), 8 * q + 4
#define RPI_GROUP_6(q) RPI_GROUP_5(q), 8 * q + 5
#define RPI_GROUP_7(q) RPI_GROUP_6(q), 8 * q + 6
#define RPI_GROUPS(group)                                                                      \
    { group(0), group(1), group(2), group(3), group(4), group(5), group(6), group(7) }

static const uint8_t rpi_compact[8][64] = {
    {0},
    RPI_GROUPS(RPI_GROUP_1),
    RPI_GROUPS(RPI_GROUP_2),
    RPI_GROUPS(RPI_GROUP_3),
    RPI_GROUPS(RPI_GROUP_4),
    RPI_GROUPS(RPI_GROUP_5),
    RPI_GROUPS(RPI_GROUP_6),
    RPI_GROUPS(RPI_GROUP_7),
};

#endif
