/* The lines of gossip rules over elements of one type; a line may read what it writes, element
 * by element. */
#include "plan/gossip/gossip_rule.h"

/* Of the sums that lie on the stack: many elements of one term after the other are vectors. */
enum { BLOCK = 256 };

/* One vector becomes another, which is nothing to do where both lie in the same memory. */
static bool is_itself(const rpi_gossip_line *line) {
    const rpi_gossip_term *one = &line->terms[0];
    return !line->pushes && !line->terms[1].halves && one->halves == 2 &&
           one->factor == RPI_GOSSIP_ONE;
}

#define RUN_LINES(function, type)                                                              \
    static type function##_factor(const rpi_gossip_term *term, const rpi_gossip_numbers *n) {  \
        const type factors[] = {                                                               \
            [RPI_GOSSIP_ONE] = 1,                                                              \
            [RPI_GOSSIP_RATE] = (type)n->rate,                                                 \
            [RPI_GOSSIP_GAMMA] = (type)n->gamma,                                               \
        };                                                                                     \
        return (type)term->halves / 2 * factors[term->factor];                                 \
    }                                                                                          \
    static void function##_block(const rpi_gossip_line *line, const type *factors, type p,     \
                                 size_t first, size_t count, type *const *slots) {             \
        type sum[BLOCK] = {0}, *into = slots[line->into] + first;                              \
        for (int t = 0; t < RPI_GOSSIP_TERMS && line->terms[t].halves; t++) {                  \
            const type *from = slots[line->terms[t].slot] + first;                             \
            for (size_t i = 0; i < count; i++) sum[i] += factors[t] * from[i];                 \
        }                                                                                      \
        for (size_t i = 0; i < count; i++) into[i] = line->pushes ? sum[i] / p : sum[i];       \
    }                                                                                          \
    static void function##_line(const rpi_gossip_line *line, const rpi_gossip_numbers *n,      \
                                size_t count, type *const *slots) {                            \
        type factors[RPI_GOSSIP_TERMS] = {0}, p = (type)n->p;                                  \
        const rpi_gossip_term *terms = line->terms;                                            \
        if (is_itself(line) && slots[line->into] == slots[terms[0].slot]) return;              \
        for (int t = 0; t < RPI_GOSSIP_TERMS && terms[t].halves; t++)                          \
            factors[t] = function##_factor(&terms[t], n);                                      \
        for (size_t first = 0; first < count; first += BLOCK)                                  \
            function##_block(line, factors, p, first,                                          \
                             count - first < BLOCK ? count - first : BLOCK, slots);            \
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

bool rpi_gossip_rule_is_early(const rpi_gossip_rule *rule) {
    return !rpi_gossip_lines_use(rule->begin, RPI_GOSSIP_GRADIENT) &&
           !rpi_gossip_lines_use(rule->before, RPI_GOSSIP_GRADIENT);
}

/* The slot in whose memory this one lies. */
static int memory_of(const rpi_gossip_rule *rule, int slot) {
    int at = slot - RPI_GOSSIP_SENT;
    return at >= 0 && at < 4 && rule->lies_in[at] ? rule->lies_in[at] - 1 : slot;
}

static int passes_of(const rpi_gossip_rule *rule,
                     const rpi_gossip_line lines[RPI_GOSSIP_LINES]) {
    int passes = 0;
    for (int i = 0; i < RPI_GOSSIP_LINES && lines[i].terms[0].halves; i++) {
        int from = memory_of(rule, lines[i].terms[0].slot);
        if (is_itself(&lines[i]) && memory_of(rule, lines[i].into) == from) continue;
        for (int t = 0; t < RPI_GOSSIP_TERMS && lines[i].terms[t].halves; t++) passes++;
        passes++; /* written */
    }
    return passes;
}

int rpi_gossip_rule_passes(const rpi_gossip_rule *rule) {
    return passes_of(rule, rule->before) + passes_of(rule, rule->after);
}
