/* Blocks of uneven lengths between ranks, each with contents of its own. */
#ifndef COMM_BLOCK_WORLD_H
#define COMM_BLOCK_WORLD_H

#include "comm/thread_world.h"

#include <stdbool.h>

enum { MOST_BLOCKS = 7 };

/* How long the block from one rank for another is. */
typedef size_t (*block_count)(int from, int to);

size_t blocks_uneven(int from, int to); /* 0, 1, some hundreds, thousands */
size_t blocks_empty(int from, int to);
size_t blocks_long(int from, int to); /* of one pair several MB, of others nothing or little */

/* Byte i of what `from` has for `to`. */
unsigned char block_byte(int from, int to, size_t i);
/* Allocated and filled; NULL for 0 elements. */
void *block_make(int from, int to, size_t count, rp_dtype dtype);
/* Allocated, filled with something else. */
void *block_room(size_t count, rp_dtype dtype);
bool block_is(const void *data, int from, int to, size_t count, rp_dtype dtype);

#endif
