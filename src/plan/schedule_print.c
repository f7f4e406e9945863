#include "plan/plan.h"

/* "in", "out", "sum", "token", "wire 3" */
static const char *slot_text(int slot, char *text, size_t bytes) {
    static const char *const names[] = {"in", "out", "sum", "token"};
    if (slot < RPI_SLOT_ENCODED) return names[slot];
    snprintf(text, bytes, "wire %d", slot - RPI_SLOT_ENCODED);
    return text;
}

/* What is read, times its weight: "1/4 sum". */
static const char *weighed_text(const rpi_step *step, const char *from, char *text,
                                size_t bytes) {
    if (!step->weight.over) return from;
    if (step->weight.over == 1)
        snprintf(text, bytes, "%d %s", step->weight.times, from);
    else
        snprintf(text, bytes, "%d/%d %s", step->weight.times, step->weight.over, from);
    return text;
}

/* "wire 3 -> rank 2", "rank 2 -> wire 3", "in -> wire 0", "sum += wire 1" */
static void print_places(FILE *stream, const rpi_step *step) {
    char from_text[24], into_text[24], weighed[48];
    const char *from = weighed_text(step, slot_text(step->from, from_text, sizeof from_text),
                                    weighed, sizeof weighed);
    const char *into = slot_text(step->into, into_text, sizeof into_text);
    switch (step->kind) {
    case RPI_STEP_SEND: fprintf(stream, "%s -> rank %d", from, step->peer); break;
    case RPI_STEP_RECV: fprintf(stream, "rank %d -> %s", step->peer, into); break;
    case RPI_STEP_ADD: fprintf(stream, "%s += %s", into, from); break;
    case RPI_STEP_FENCE: fprintf(stream, "all above before all below"); break;
    default: fprintf(stream, "%s -> %s", from, into);
    }
}

static bool has_part(const rpi_step *step) {
    return step->kind != RPI_STEP_FENCE && step->from != RPI_SLOT_RTR &&
           step->into != RPI_SLOT_RTR;
}

void rpi_schedule_print(FILE *stream, const rpi_schedule *schedule) {
    const rpi_algorithm *algorithm = schedule->algorithm;
    fprintf(stream, "%s by '%s', rank %d of %d", rpi_collective_name(algorithm->collective),
            algorithm->name, schedule->rank, schedule->world);
    if (rpi_collective_has_root(algorithm->collective))
        fprintf(stream, ", root %d", schedule->root);
    fprintf(stream, ": %d part%s, %d step%s in %d round%s\n", schedule->parts,
            schedule->parts == 1 ? "" : "s", schedule->count, schedule->count == 1 ? "" : "s",
            schedule->rounds, schedule->rounds == 1 ? "" : "s");
    if (schedule->count == 0) return;
    fprintf(stream, "%5s  %-6s  %4s  %s\n", "round", "step", "part", "what");
    for (int i = 0, round = -1; i < schedule->count; i++) {
        const rpi_step *step = &schedule->steps[i];
        if (step->round == round)
            fprintf(stream, "%5s  ", "");
        else
            fprintf(stream, "%5d  ", step->round);
        round = step->round;
        fprintf(stream, "%-6s  ", rpi_step_name(step->kind));
        if (has_part(step))
            fprintf(stream, "%4d  ", step->part);
        else
            fprintf(stream, "%4s  ", "");
        print_places(stream, step);
        fputc('\n', stream);
    }
}
