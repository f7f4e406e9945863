/* Which outer momentum goes with how many local steps? With few of them successive
 * pseudo-gradients point the same way, and momentum m makes an outer step of rate a go
 * a / (1 - m) times as far as the ranks went. docs/decentralised.md has what was measured. */
#ifndef RPI_PLAN_OUTER_MOMENTUM_H
#define RPI_PLAN_OUTER_MOMENTUM_H

#include <stdbool.h>
#include <stdint.h>

enum { RPI_FEW_STEPS = 50, RPI_VERY_FEW_STEPS = 20, RPI_FEWEST_STEPS = 9 };

/* The momentum of a paper (`usual`), with so many local steps at most what is known to work:
 * up to 20 of them 0.3, up to 50 0.6. waits: ranks exchange together; who brings what he has
 * learnt in his own time has 0.3 up to 50. */
double rpi_outer_momentum(double usual, uint64_t every, bool waits);

/* What the user should know before the first step of a momentum that was asked for; empty:
 * nothing. waits: as above. */
enum { RPI_OUTER_ADVICE = 320 };
void rpi_outer_momentum_advise(double rate, double momentum, uint64_t every, bool waits,
                               char out_text[RPI_OUTER_ADVICE]);

#endif
