/* A backend for tests of the compiler: the reference's numbers behind random choices of what a
 * backend may choose. Layouts are row-major or mirrored (elements in reverse behind padding),
 * nodes are fused or not, gradients passed on, shared or written, everything claims to work in
 * place. Whatever it chooses, programs must give the reference's results. */
#ifndef SHUFFLED_BACKEND_H
#define SHUFFLED_BACKEND_H

#include "engine/backend.h"

extern const rpi_backend shuffled_backend;

/* What the next session chooses by; how many units it has fused since. */
void shuffled_backend_seed(uint64_t seed);
int shuffled_backend_fusions(void);

#endif
