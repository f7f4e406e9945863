#include "comm/world/link_costs.h"

#include "base/clock.h"
#include "base/status.h"
#include "net/shaped/link_shape.h"
#include "net/store/store_wait.h"
#include "net/world/join.h"
#include "plan/choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HALF_BYTES = RPI_LINK_COSTS_TEXT / 2,
    AGREED_BYTES = RPI_LINK_COSTS_TEXT + 16,
    CORES_MAX = 1 << 20,
};

static rp_status parse_half(const char *text, size_t length, rpi_link_shape *out_shape) {
    char half[HALF_BYTES];
    if (length >= sizeof half) return RP_FAIL(INVALID, "links '%s' are too long", text);
    snprintf(half, sizeof half, "%.*s", (int)length, text);
    return rpi_link_shape_parse(half, out_shape);
}

rp_status rpi_link_costs_parse(const char *text, rpi_cost_model *out_model) {
    rpi_cost_model model = rpi_nominal_links;
    rpi_link_shape between, inside;
    if (text && *text) {
        const char *slash = strchr(text, '/');
        if (!slash)
            return RP_FAIL(INVALID,
                           "links '%s' lack what they cost inside a host; write BETWEEN/INSIDE "
                           "as 'redpoll bench link' does: 1Gbit,50us/5GB,2us",
                           text);
        RP_TRY(parse_half(text, (size_t)(slash - text), &between));
        RP_TRY(parse_half(slash + 1, strlen(slash + 1), &inside));
        model.bytes_per_s = between.bytes_per_s;
        model.latency_s = between.latency_s;
        model.inside_bytes_per_s = inside.bytes_per_s;
        model.inside_latency_s = inside.latency_s;
    }
    *out_model = model;
    return RP_OK;
}

const char *rpi_link_costs_text(const rpi_cost_model *model, char text[RPI_LINK_COSTS_TEXT]) {
    rpi_link_shape between = {.bytes_per_s = model->bytes_per_s, .latency_s = model->latency_s};
    rpi_link_shape inside = {.bytes_per_s = model->inside_bytes_per_s,
                             .latency_s = model->inside_latency_s};
    char halves[2][HALF_BYTES];
    rpi_link_shape_text(&between, halves[0], HALF_BYTES);
    rpi_link_shape_text(&inside, halves[1], HALF_BYTES);
    snprintf(text, RPI_LINK_COSTS_TEXT, "%s/%s", halves[0], halves[1]);
    return text;
}

/* "2 0 1Gbit,50us/5GB,2us": rank 0's cores and memory, and the links that it was given. */
static rp_status put_model(const rp_store *store, const char *key, const char *text,
                           rp_memory memory, rpi_cost_model *out_model) {
    char words[AGREED_BYTES];
    int cores = rpi_host_cores();
    rpi_cost_model model;
    RP_TRY(rpi_link_costs_parse(text, &model));
    model.cores = cores <= CORES_MAX ? cores : 0;
    snprintf(words, sizeof words, "%d %d %s", model.cores, (int)memory, text ? text : "");
    RP_TRY(store->ops->set(store->context, key, words, strlen(words)));
    *out_model = model;
    return RP_OK;
}

/* After a number and the blank that follows it; NULL: there is none from 0 to `most`. */
static const char *take_number(const char *text, long most, long *out_number) {
    char *end = NULL;
    if (!text) return NULL;
    *out_number = strtol(text, &end, 10);
    return end != text && *end == ' ' && *out_number >= 0 && *out_number <= most ? end + 1
                                                                                 : NULL;
}

rp_status rpi_link_costs_agree(const rp_store *store, const char *key, int rank,
                               double timeout_s, rpi_look *look, const char *text,
                               rp_memory *memory, rpi_cost_model *out_model) {
    char agreed[AGREED_BYTES];
    long cores = 0, lie = 0;
    size_t bytes = 0;
    if (rank == 0) return put_model(store, key, text, *memory, out_model);
    RP_TRY(rpi_store_wait(store, key, rpi_deadline_ns(timeout_s), look, agreed,
                          sizeof agreed - 1, &bytes));
    if (bytes >= sizeof agreed)
        return RP_FAIL(CORRUPT, "store key '%s' has %zu bytes; links take fewer", key, bytes);
    agreed[bytes] = '\0';
    const char *links =
        take_number(take_number(agreed, CORES_MAX, &cores), RP_MEMORY_CUDA, &lie);
    if (!links)
        return RP_FAIL(CORRUPT,
                       "store key '%s' says '%.40s', which is no cores, memory and links", key,
                       agreed);
    RP_TRY(rpi_link_costs_parse(links, out_model));
    *memory = (rp_memory)lie;
    out_model->cores = (int)cores;
    return RP_OK;
}
