#include "train/profile.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "engine/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

void rpi_profile_begin(rpi_profile *p) {
    if (!p || p->is_warm || p->steps == 0) return;
    *p = (rpi_profile){.is_warm = true};
}

void rpi_profile_end(rpi_profile *p, int64_t ns) {
    if (!p) return;
    p->steps++;
    p->step_ns += ns;
}

static bool is_of(const rpi_profile_row *row, const char *phase, const char *what) {
    return strcmp(row->phase, phase) == 0 &&
           strncmp(row->what, what, RPI_PROFILE_TEXT - 1) == 0;
}

void rpi_profile_add(rpi_profile *p, const char *phase, const char *what, int64_t ns) {
    if (!p) return;
    int i = 0;
    while (i < p->count && !is_of(&p->rows[i], phase, what)) i++;
    if (i == RPI_PROFILE_ROWS) return;
    rpi_profile_row *row = &p->rows[i];
    if (i == p->count) {
        p->count++;
        row->phase = phase;
        snprintf(row->what, sizeof row->what, "%s", what);
    }
    row->calls++;
    row->ns += ns;
}

void rpi_profile_kernel(rpi_profile *p, const rpi_step_report *report) {
    rpi_profile_add(p, report->pass == RPI_FORWARD ? "forward" : "backward", report->what,
                    report->end_ns - report->start_ns);
}

static int place_of(const char *phase) {
    static const char *const order[] = {"forward", "backward", "update", "wait"};
    int place = 0;
    while (place < 4 && strcmp(order[place], phase) != 0) place++;
    return place;
}

static int by_phase_and_time(const void *a, const void *b) {
    const rpi_profile_row *x = a, *y = b;
    int places = place_of(x->phase) - place_of(y->phase);
    return places ? places : (x->ns < y->ns) - (x->ns > y->ns);
}

void rpi_profile_sort(rpi_profile *p) {
    qsort(p->rows, (size_t)p->count, sizeof p->rows[0], by_phase_and_time);
}

int64_t rpi_profile_rest_ns(const rpi_profile *p) {
    int64_t rest = p->step_ns;
    for (int i = 0; i < p->count; i++) rest -= p->rows[i].ns;
    return rest > 0 ? rest : 0;
}

/* ---- the rate of a matrix product ---- */

enum { SMALLEST = 128, LARGEST = 1024, RUNS = 6 };
/* The side is doubled as long as the product takes less time than this: a backend of plain
 * loops, or one under a sanitizer, would take seconds for the largest. */
#define SHORT_NS (RPI_SECOND_NS / 100)

typedef struct product {
    rpi_graph *graph;
    rpi_value_id result;
    rpi_weights *weights;
    rpi_session *session;
    rpi_program *program;
    rpi_instance *instance;
    float *input;
} product;

static rp_status open_product(product *p, const rpi_backend *backend, int threads,
                              int64_t side) {
    RP_TRY(rpi_graph_create(&p->graph));
    rpi_shape square = {2, {side, side}};
    rpi_value_id in = rpi_graph_input(p->graph, "in", RP_F32, square);
    rpi_value_id weight = rpi_graph_parameter(p->graph, "weight", square);
    p->result = rpi_linear(p->graph, "product", in, weight, RPI_NO_VALUE);
    RP_TRY(rpi_weights_create(p->graph, RPI_NO_VALUE, &p->weights));
    rpi_backend_options options = {.threads = threads};
    RP_TRY(rpi_session_create(p->weights, backend, &options, &p->session));
    rpi_program_options wanted = {.result_count = 1, .results = {p->result}};
    RP_TRY(rpi_program_compile(p->session, p->graph, RPI_NO_VALUE, &wanted, &p->program));
    RP_TRY(rpi_instance_create(p->program, &p->instance));
    RP_TRY(rpi_alloc_array((size_t)(side * side), sizeof(float), "a matrix", &p->input));
    for (int64_t i = 0; i < side * side; i++) p->input[i] = 1;
    return RP_OK;
}

static void close_product(product *p) {
    rpi_free(p->input);
    rpi_instance_destroy(p->instance);
    rpi_program_destroy(p->program);
    rpi_session_destroy(p->session);
    rpi_weights_destroy(p->weights);
    rpi_graph_destroy(p->graph);
}

static rp_status measure(product *p, int64_t *out_best_ns) {
    const void *inputs[] = {p->input};
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < RUNS; i++) {
        int64_t start_ns = rpi_now_ns();
        RP_TRY(rpi_instance_run(p->instance, &(rpi_run_options){.inputs = inputs}));
        int64_t ns = rpi_now_ns() - start_ns;
        if (ns < best_ns) best_ns = ns;
    }
    *out_best_ns = best_ns;
    return RP_OK;
}

static rp_status time_product(const rpi_backend *backend, int threads, int64_t side,
                              int64_t *out_best_ns) {
    product p = {0};
    rp_status status = open_product(&p, backend, threads, side);
    if (status == RP_OK) status = measure(&p, out_best_ns);
    close_product(&p);
    return status;
}

rp_status rpi_profile_matrix_rate(const rpi_backend *backend, int threads, double *out_flop_s) {
    int64_t best_ns = 0;
    for (int64_t side = SMALLEST; side <= LARGEST && best_ns < SHORT_NS; side *= 2) {
        RP_TRY(time_product(backend, threads, side, &best_ns));
        double cube = (double)side * (double)side * (double)side;
        *out_flop_s = 2 * cube / rpi_seconds(best_ns);
    }
    return RP_OK;
}
