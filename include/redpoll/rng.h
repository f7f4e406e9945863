/** Philox 4x32-10: counter-based random bits, the same on every machine.
 *
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11.
 * The map (key, counter) -> bits is normative for everything random in Redpoll.
 */
#ifndef REDPOLL_RNG_H
#define REDPOLL_RNG_H

#include "redpoll/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** out[0..3] = Philox4x32-10 of counter[0..3] under key[0..1]. Pure; any thread. */
RP_API void rp_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#ifdef __cplusplus
}
#endif
#endif
