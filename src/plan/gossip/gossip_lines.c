/* The lines of gossip rules over elements of one type; a line may read what it writes, element
 * by element. */
#include "plan/gossip/gossip_rule.h"

#define RUN_LINES(function, type)                                                              \
    static void function##_line(const rpi_gossip_line *line, type rate, type p, size_t count,  \
                                type *const *slots) {                                          \
        for (size_t i = 0; i < count; i++) {                                                   \
            type sum = 0;                                                                      \
            for (int t = 0; t < RPI_GOSSIP_TERMS && line->terms[t].halves; t++) {              \
                const rpi_gossip_term *term = &line->terms[t];                                 \
                type factor = (type)term->halves / 2 * (term->rated ? rate : 1);               \
                sum += factor * slots[term->slot][i];                                          \
            }                                                                                  \
            slots[line->into][i] = line->pushes ? sum / p : sum;                               \
        }                                                                                      \
    }                                                                                          \
    void function(const rpi_gossip_line lines[RPI_GOSSIP_LINES], type rate, type p,            \
                  size_t count, type *const slots[RPI_GOSSIP_SLOTS]) {                         \
        for (int i = 0; i < RPI_GOSSIP_LINES && lines[i].terms[0].halves; i++)                 \
            function##_line(&lines[i], rate, p, count, slots);                                 \
    }

RUN_LINES(rpi_gossip_lines_f64, double)
RUN_LINES(rpi_gossip_lines_f32, float)

bool rpi_gossip_lines_use(const rpi_gossip_line lines[RPI_GOSSIP_LINES], int slot) {
    for (int i = 0; i < RPI_GOSSIP_LINES; i++)
        for (int t = 0; t < RPI_GOSSIP_TERMS && lines[i].terms[t].halves; t++)
            if (lines[i].terms[t].slot == slot) return true;
    return false;
}
