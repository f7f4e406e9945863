/* One strategy among so many ranks, by the row of the catalogue that it has. */
#include "base/status.h"
#include "base/suggest.h"
#include "cli/plan_model.h"
#include "cli/plan_scaling.h"
#include "train/strategies/strategy.h"

#include <stdalign.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* A strategy's own struct of options, of which only its table is known. */
enum { STRATEGY_BYTES = 2048 };

static const char *kind_at(const void *context, int index) {
    (void)context;
    const rpi_scaling_kind *kind = rpi_scaling_kind_at(index);
    return kind ? kind->name : NULL;
}

rp_status rpi_scaling_kind_find(const char *strategy, const rpi_scaling_kind **out) {
    char name[RPI_SCALING_TEXT];
    int kind = 0;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(strategy, ":"), strategy);
    RP_TRY(rpi_name_find("strategy", name, kind_at, NULL, &kind));
    *out = rpi_scaling_kind_at(kind);
    return RP_OK;
}

static rp_status world_of(const rpi_scaling_job *job, rpi_scaling_world *out) {
    int64_t hosts = (job->ranks + job->ranks_per_host - 1) / job->ranks_per_host;
    *out = (rpi_scaling_world){.ranks = job->ranks,
                               .request = {.world = job->ranks,
                                           .mean = true,
                                           .host_of = rpi_plan_layout(job->ranks, hosts)},
                               .model = job->model,
                               .count = (size_t)job->count,
                               .bucket_bytes = (size_t)job->bucket_bytes,
                               .algorithm = job->algorithm,
                               .ranks_per_host = job->ranks_per_host,
                               .work = job->work};
    return rp_codec_parse(job->codec, &out->codec);
}

rp_status rpi_scaling_price(const rpi_scaling_job *job, rpi_scaling_exchange *x) {
    alignas(max_align_t) unsigned char options[STRATEGY_BYTES] = {0};
    const rpi_scaling_kind *kind;
    const rpi_strategy *strategy;
    rpi_strategy_words words;
    rpi_scaling_world world;
    RP_TRY(rpi_scaling_kind_find(job->strategy, &kind));
    RP_TRY(rpi_strategy_find(job->strategy, &strategy));
    RP_TRY(world_of(job, &world));
    *x = (rpi_scaling_exchange){.every = 1, .waits_for = job->ranks, .workers = job->ranks};
    if (job->ranks == 1) return RP_OK;
    if (strategy->options)
        RP_TRY(
            rpi_strategy_read(strategy, rpi_strategy_options(job->strategy), &words, options));
    RP_TRY(kind->price(&world, strategy, options, x));
    if (job->work.sum_bytes_s > 0) x->core_s += x->wire_bytes / job->work.sum_bytes_s;
    return RP_OK;
}
