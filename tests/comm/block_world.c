#include "comm/block_world.h"

#include <stdlib.h>

size_t blocks_uneven(int from, int to) {
    static const size_t counts[] = {100, 0, 1, 5003, 64, 17, 0, 40000, 333};
    return counts[(5 * from + 3 * to) % 9];
}

size_t blocks_empty(int from, int to) {
    (void)from, (void)to;
    return 0;
}

size_t blocks_long(int from, int to) {
    if (from == 1 && to == 0) return 700001;
    return from == 0 && to == 2 ? 400000 : (size_t)(from + to) % 3;
}

unsigned char block_byte(int from, int to, size_t i) {
    return (unsigned char)(31 * from + 7 * to + 13 * i + i / 251);
}

void *block_make(int from, int to, size_t count, rp_dtype dtype) {
    size_t bytes = count * rp_dtype_bytes(dtype);
    unsigned char *data = bytes ? malloc(bytes) : NULL;
    for (size_t i = 0; i < bytes; i++) data[i] = block_byte(from, to, i);
    return data;
}

void *block_room(size_t count, rp_dtype dtype) {
    size_t bytes = count * rp_dtype_bytes(dtype);
    unsigned char *data = bytes ? malloc(bytes) : NULL;
    if (bytes) memset(data, 0xee, bytes);
    return data;
}

bool block_is(const void *data, int from, int to, size_t count, rp_dtype dtype) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < count * rp_dtype_bytes(dtype); i++)
        if (bytes[i] != block_byte(from, to, i)) return false;
    return true;
}
