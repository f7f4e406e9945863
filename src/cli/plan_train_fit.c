/* A training that does not fit: its largest item, and what would make it fit. */
#include "base/memory.h"
#include "base/status.h"
#include "cli/plan_train.h"

#include <stdio.h>

enum { FIT_TEXT = 160, WORD_TEXT = 32, MOST_HOSTS = 16384 };

/* Of ranks that share sequences, where there are any. */
static const char *context_text(const rpi_training_layout *l, char text[WORD_TEXT]) {
    text[0] = '\0';
    if (l->context > 1) snprintf(text, WORD_TEXT, "cp %lld, ", (long long)l->context);
    return text;
}

/* The first of twice, four times, .. as many hosts on which it fits, as text; "": there is
 * none. Links do not matter for that. */
static void find_fitting(const rpi_train_offer *o, char text[FIT_TEXT]) {
    text[0] = '\0';
    for (int64_t hosts = 2 * o->said.hosts; hosts <= MOST_HOSTS && !text[0]; hosts *= 2) {
        rpi_train_offer more = {.said = o->said};
        more.said.hosts = hosts;
        if (!more.said.link) more.said.link = "100Gbit,5us";
        rpi_planned_training *p = &more.planned;
        rp_status status = rpi_plan_training_read(&more.said, true, p);
        if (status == RP_OK)
            status =
                rpi_layouts_search(&p->layout, &p->open, &p->machine, p->ranks, 1, &more.found);
        if (status == RP_OK && more.found.count) {
            const rpi_training_layout *l = &more.found.best[0].layout;
            char word[WORD_TEXT];
            snprintf(
                text, FIT_TEXT,
                "; it fits on %lld hosts (tp %lld, %spp %lld, dp %lld, zero %d, recompute %s)",
                (long long)hosts, (long long)l->tensor, context_text(l, word),
                (long long)l->pipeline, (long long)l->data, l->zero,
                rpi_recompute_names[l->recompute]);
        }
        rpi_free(more.found.best);
        rpi_planned_training_close(p);
    }
}

rp_status rpi_train_refuse_unfit(const rpi_train_offer *o) {
    const rpi_candidate *c = &o->found.least;
    rpi_memory_item item = rpi_rank_memory_largest(&c->forecast.memory);
    char fitting[FIT_TEXT], word[WORD_TEXT];
    find_fitting(o, fitting);
    return RP_FAIL(
        INVALID,
        "it does not fit: of %lld layouts the smallest (tp %lld, %spp %lld, dp %lld, zero "
        "%d) needs %.1f GB of a rank's %.1f GB, of which %s are %.1f GB; what helps: %s%s",
        (long long)o->found.tried, (long long)c->layout.tensor, context_text(&c->layout, word),
        (long long)c->layout.pipeline, (long long)c->layout.data, c->layout.zero,
        c->forecast.memory.all * 1e-9,
        rpi_plan_device_value(&o->planned.machine.device, RPI_FACT_MEMORY_BYTES) * 1e-9,
        rpi_memory_names[item], c->forecast.memory.bytes[item] * 1e-9, rpi_memory_advice[item],
        fitting);
}
