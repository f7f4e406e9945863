/* What `redpoll plan scaling` says: a table, JSON, a picture. */
#include "base/status.h"
#include "cli/command.h"
#include "cli/numbers.h"
#include "cli/plan_scaling.h"
#include "cli/report/figure.h"
#include "cli/report/output_file.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>

/* ---- for people ---- */

static void print_head(const rpi_scaling_plan *p) {
    char times[3][RPI_TIME_BYTES];
    printf("%s%s%.4g parameters as %s; %lld rank%s a host, link %s\n", p->model ? p->model : "",
           p->model ? ", " : "", p->parameters, p->codec, (long long)p->ranks_per_host,
           p->ranks_per_host == 1 ? "" : "s", p->link);
    printf("a rank alone: %s a step (%s), of which %s hide sums",
           rpi_time_text(p->work.compute_s, times[0]), p->source,
           rpi_time_text(p->work.backward_s, times[1]));
    if (p->work.jitter_s > 0)
        printf("; deviation %s", rpi_time_text(p->work.jitter_s, times[2]));
    printf("\n\n");
}

static void print_series(const rpi_scaling_plan *p, const rpi_scaling_series *s) {
    char times[3][RPI_TIME_BYTES];
    bool rates = p->samples > 0;
    double alone = rates ? p->samples / p->work.compute_s : 1;
    printf("%s\n  %6s  %10s  %10s  %10s  %12s  %12s  %10s\n", s->text, "ranks", "exchange",
           "exposed", "step", rates ? "samples/s" : "as fast", "ideal", "efficiency");
    for (int i = 0; i < p->rank_count; i++) {
        const rpi_scaling_point *at = &s->points[i];
        if (isnan(at->step_s)) {
            printf("  %6d  %s\n", at->ranks, at->why);
            continue;
        }
        printf("  %6d  %10s  %10s  %10s  %12.5g  %12.5g  %8.1f %%\n", at->ranks,
               rpi_time_text(at->exchange.time_s, times[0]),
               rpi_time_text(at->exposed_s, times[1]), rpi_time_text(at->step_s, times[2]),
               alone * at->speedup, alone * at->ranks, 100 * at->efficiency);
    }
}

void rpi_scaling_print(const rpi_scaling_plan *p) {
    print_head(p);
    for (int i = 0; i < p->series_count; i++) {
        if (i) putchar('\n');
        print_series(p, &p->series[i]);
    }
}

/* ---- for programs ---- */

static cJSON *point_json(const rpi_scaling_plan *p, const rpi_scaling_point *at) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "ranks", at->ranks);
    if (isnan(at->step_s)) {
        cJSON_AddStringToObject(object, "why_not", at->why);
        return object;
    }
    cJSON_AddNumberToObject(object, "workers", at->exchange.workers);
    cJSON_AddNumberToObject(object, "exchange_s", at->exchange.time_s);
    cJSON_AddNumberToObject(object, "exchange_every_steps", at->exchange.every);
    cJSON_AddNumberToObject(object, "exposed_s", at->exposed_s);
    cJSON_AddNumberToObject(object, "step_s", at->step_s);
    cJSON_AddNumberToObject(object, "speedup", at->speedup);
    cJSON_AddNumberToObject(object, "efficiency", at->efficiency);
    if (p->samples > 0)
        cJSON_AddNumberToObject(object, "samples_s",
                                p->samples / p->work.compute_s * at->speedup);
    return object;
}

void rpi_scaling_print_json(const rpi_scaling_plan *p) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", "scaling");
    if (p->model) cJSON_AddStringToObject(object, "model", p->model);
    cJSON_AddNumberToObject(object, "parameters", p->parameters);
    cJSON_AddStringToObject(object, "codec", p->codec);
    cJSON_AddNumberToObject(object, "ranks_per_host", (double)p->ranks_per_host);
    cJSON_AddStringToObject(object, "link", p->link);
    cJSON_AddStringToObject(object, "local", p->local);
    cJSON_AddNumberToObject(object, "compute_s", p->work.compute_s);
    cJSON_AddStringToObject(object, "compute_kind", p->source);
    cJSON_AddNumberToObject(object, "backward_s", p->work.backward_s);
    cJSON_AddNumberToObject(object, "jitter_s", p->work.jitter_s);
    if (p->samples > 0) cJSON_AddNumberToObject(object, "samples", p->samples);
    cJSON *list = cJSON_AddArrayToObject(object, "strategies");
    for (int i = 0; i < p->series_count; i++) {
        cJSON *series = cJSON_CreateObject();
        cJSON_AddStringToObject(series, "strategy", p->series[i].text);
        cJSON *points = cJSON_AddArrayToObject(series, "points");
        for (int k = 0; k < p->rank_count; k++)
            cJSON_AddItemToArray(points, point_json(p, &p->series[i].points[k]));
        cJSON_AddItemToArray(list, series);
    }
    rpi_command_print_json(object);
}

/* ---- as a picture ---- */

typedef struct picture {
    rpi_figure figure;
    rpi_series series[RPI_SCALING_STRATEGIES + 1];
    rpi_point points[RPI_SCALING_STRATEGIES + 1][RPI_SCALING_RANKS];
} picture;

static void fill(const rpi_scaling_plan *p, picture *out) {
    for (int i = 0; i <= p->series_count; i++) {
        bool is_ideal = i == p->series_count;
        rpi_series *s = &out->series[i];
        *s = (rpi_series){.label = is_ideal ? "ideal" : p->series[i].text,
                          .style = is_ideal ? -1 : i,
                          .marked = !is_ideal,
                          .points = out->points[i]};
        for (int k = 0; k < p->rank_count; k++) {
            double share = is_ideal ? 1 : p->series[i].points[k].efficiency;
            if (isnan(share)) continue;
            s->points[s->count++] = (rpi_point){p->ranks[k], 100 * share, NAN, NAN};
        }
    }
    out->figure = (rpi_figure){.name = "scaling",
                               .title = "Scaling",
                               .caption = "Predicted: the work that gets done, over that of as "
                                          "many ranks that need nobody.",
                               .x = {"ranks", RPI_WHOLE, p->rank_count > 1, false},
                               .y = {"efficiency (%)", RPI_NUMBER, false, true},
                               .series = out->series,
                               .series_count = p->series_count + 1};
}

rp_status rpi_scaling_draw(const rpi_scaling_plan *p, const char *path) {
    rpi_output_file file;
    rpi_arena *arena = NULL;
    picture *it = NULL;
    RP_TRY(rpi_arena_create(1 << 14, &arena));
    rp_status status = rpi_alloc(sizeof *it, "a picture", &it);
    if (status == RP_OK) {
        fill(p, it);
        status = rpi_series_summary(arena, &it->figure);
    }
    if (status == RP_OK) status = rpi_output_open(path, &file);
    if (status == RP_OK) {
        rpi_figure_write_file(file.stream, &it->figure, p->model);
        status = rpi_output_commit(&file);
    }
    rpi_free(it);
    rpi_arena_destroy(arena);
    return status;
}
