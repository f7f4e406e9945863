/* The lines of gossip rules over elements of one type; a line may read what it writes, element
 * by element. */
#include "plan/gossip/gossip_rule.h"

#define RUN_LINES(function, type)                                                              \
    static type function##_factor(const rpi_gossip_term *term, const rpi_gossip_numbers *n) {  \
        const type factors[] = {                                                               \
            [RPI_GOSSIP_ONE] = 1,                                                              \
            [RPI_GOSSIP_RATE] = (type)n->rate,                                                 \
            [RPI_GOSSIP_GAMMA] = (type)n->gamma,                                               \
        };                                                                                     \
        return (type)term->halves / 2 * factors[term->factor];                                 \
    }                                                                                          \
    static void function##_line(const rpi_gossip_line *line, const rpi_gossip_numbers *n,      \
                                size_t count, type *const *slots) {                            \
        type factors[RPI_GOSSIP_TERMS], p = (type)n->p;                                        \
        int terms = 0;                                                                         \
        for (; terms < RPI_GOSSIP_TERMS && line->terms[terms].halves; terms++)                 \
            factors[terms] = function##_factor(&line->terms[terms], n);                        \
        for (size_t i = 0; i < count; i++) {                                                   \
            type sum = 0;                                                                      \
            for (int t = 0; t < terms; t++) sum += factors[t] * slots[line->terms[t].slot][i]; \
            slots[line->into][i] = line->pushes ? sum / p : sum;                               \
        }                                                                                      \
    }                                                                                          \
    void function(const rpi_gossip_line lines[RPI_GOSSIP_LINES],                               \
                  const rpi_gossip_numbers *numbers, size_t count,                             \
                  type *const slots[RPI_GOSSIP_SLOTS]) {                                       \
        for (int i = 0; i < RPI_GOSSIP_LINES && lines[i].terms[0].halves; i++)                 \
            function##_line(&lines[i], numbers, count, slots);                                 \
    }

RUN_LINES(rpi_gossip_lines_f64, double)
RUN_LINES(rpi_gossip_lines_f32, float)

bool rpi_gossip_lines_use(const rpi_gossip_line lines[RPI_GOSSIP_LINES], int slot) {
    for (int i = 0; i < RPI_GOSSIP_LINES; i++)
        for (int t = 0; t < RPI_GOSSIP_TERMS && lines[i].terms[t].halves; t++)
            if (lines[i].terms[t].slot == slot) return true;
    return false;
}
