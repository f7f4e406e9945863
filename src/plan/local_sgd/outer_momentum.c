#include "plan/local_sgd/outer_momentum.h"

#include "base/c_locale.h"

#include <math.h>

static double least(double a, double b) {
    return a < b ? a : b;
}

double rpi_outer_momentum(double usual, uint64_t every, bool waits) {
    uint64_t very_few = waits ? RPI_VERY_FEW_STEPS : RPI_FEW_STEPS;
    if (every <= very_few) return least(usual, .3);
    return every <= RPI_FEW_STEPS ? least(usual, .6) : usual;
}

/* As far as the watch over a run lets it be without a word, and with very few steps as far as
 * what it advises. */
void rpi_outer_momentum_advise(double rate, double momentum, uint64_t every, bool waits,
                               char out_text[RPI_OUTER_ADVICE]) {
    double way = rate / (1 - momentum), most = every <= RPI_FEWEST_STEPS ? 1.5 : 2;
    out_text[0] = '\0';
    if (every > RPI_FEW_STEPS || momentum == 0 || !(way > most)) return;
    double fits = floor((1 - rate / 1.5) * 20) / 20;
    rpi_print(
        out_text, RPI_OUTER_ADVICE,
        "outer momentum %g is high for %llu local steps: where pseudo-gradients point the "
        "same way, an outer step goes %.1f times as far as the ranks went; take %g or less "
        "(where none is given it is %g, and up to %d local steps 0.6 is the most that is "
        "known to work)",
        momentum, (unsigned long long)every, way, fits > 0 ? fits : 0,
        rpi_outer_momentum(.9, every, waits), RPI_FEW_STEPS);
}
