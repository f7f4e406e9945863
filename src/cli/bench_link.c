/* `redpoll bench link`: latency and rate of every pair of ranks, between hosts and inside. */
#include "base/c_locale.h"
#include "cli/commands.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "cli/numbers.h"
#include "cli/option_rows.h"
#include "cli/world.h"
#include "comm/core/communicator.h"
#include "comm/world/link_costs.h"
#include "net/shaped/link_shape.h"
#include "plan/choose.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    rpi_world_settings world;
    int64_t round_trips;
    bool json;
} settings;

#define FIELD(name) offsetof(settings, name)
static const rpi_option options[] = {
    RPI_WORLD_OPTIONS(settings, world),
    {"hosts", NULL, NULL, RPI_OPTION_COUNT, FIELD(world.hosts), NULL, 1, 65535, "N",
     "count the ranks as being on N hosts, evenly; --link then shapes between these only",
     NULL},
    {"round-trips", NULL, NULL, RPI_OPTION_COUNT, FIELD(round_trips), "200", 1, 1000000, "N",
     "of 8 bytes that latency is the half of: the median", NULL},
    RPI_ROW_JSON(FIELD(json), "one JSON object (docs/json.md)"),
    {0},
};

/* ---- one pair ---- */

enum { TAG = 1, LEAST_BYTES = 256 * 1024, MOST_BYTES = 64 * 1024 * 1024, REPEATS = 3 };
#define LONG_ENOUGH_S 0.02 /* for a message there and back */

typedef struct pair {
    int low, high;
    double latency_s, bytes_s;
} pair;

/* Sends a message and receives it back, on the rank that begins. */
static rp_status bounce(rp_comm *comm, const pair *p, void *data, size_t bytes,
                        double *out_seconds) {
    bool begins = rp_comm_rank(comm) == p->low;
    int peer = begins ? p->high : p->low;
    int64_t start = rpi_now_ns();
    if (begins) RP_TRY(rp_send(comm, data, bytes, RP_U8, peer, TAG));
    RP_TRY(rp_recv(comm, data, bytes, RP_U8, peer, TAG));
    if (!begins) RP_TRY(rp_send(comm, data, bytes, RP_U8, peer, TAG));
    *out_seconds = rpi_seconds(rpi_now_ns() - start);
    return RP_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static rp_status measure_latency(rp_comm *comm, pair *p, void *data, int64_t round_trips) {
    double *times = NULL;
    RP_TRY(rpi_alloc_array((size_t)round_trips, sizeof *times, "times", &times));
    rp_status status = RP_OK;
    for (int64_t i = 0; i < round_trips && status == RP_OK; i++)
        status = bounce(comm, p, data, 8, &times[i]);
    qsort(times, (size_t)round_trips, sizeof *times, by_value);
    p->latency_s = times[round_trips / 2] / 2;
    rpi_free(times);
    return status;
}

/* Doubles the bytes until a message takes long enough beyond the shortest one, whose time is
 * nearly all latency; then takes the best of a few. The rank that begins tells the other the
 * length of the next message, 0 for none. */
static rp_status measure_rate(rp_comm *comm, pair *p, void *data) {
    bool begins = rp_comm_rank(comm) == p->low;
    double time_s = 0, shortest_s = 0, best_s = INFINITY, ignored;
    int repeats = 0;
    for (uint64_t bytes = LEAST_BYTES;;) {
        if (begins)
            RP_TRY(rp_send(comm, &bytes, 1, RP_U64, p->high, TAG));
        else
            RP_TRY(rp_recv(comm, &bytes, 1, RP_U64, p->low, TAG));
        if (!bytes) return RP_OK;
        if (bytes > MOST_BYTES)
            return RP_FAIL(INTERNAL, "a message of %zu bytes", (size_t)bytes);
        RP_TRY(bounce(comm, p, data, bytes, begins ? &time_s : &ignored));
        if (!begins) continue;
        if (bytes == LEAST_BYTES) shortest_s = time_s;
        if (time_s - shortest_s < LONG_ENOUGH_S && bytes < MOST_BYTES && !repeats) {
            bytes *= 2;
            continue;
        }
        if (time_s < best_s) best_s = time_s;
        /* On a link that is all latency the shortest of these may be below that of the least
         * message. */
        p->bytes_s = (double)(bytes - LEAST_BYTES) * 2 / fmax(best_s - shortest_s, best_s / 20);
        if (++repeats == REPEATS) bytes = 0;
    }
}

/* ---- all pairs ---- */

/* In small worlds every pair is measured; in larger ones those of rank 0 and those of
 * neighbours. */
static bool is_measured(int world, int low, int high) {
    enum { SMALL_WORLD = 8 };
    return world <= SMALL_WORLD || low == 0 || high == low + 1;
}

static int list_pairs(int world, pair *pairs) {
    int count = 0;
    for (int low = 0; low < world; low++)
        for (int high = low + 1; high < world; high++) {
            if (!is_measured(world, low, high)) continue;
            if (pairs) pairs[count] = (pair){.low = low, .high = high};
            count++;
        }
    return count;
}

static rp_status measure_pair(rp_comm *comm, const settings *s, pair *p, void *data) {
    int rank = rp_comm_rank(comm);
    RP_TRY(rp_barrier(comm));
    if (rank != p->low && rank != p->high) return RP_OK;
    RP_TRY(measure_latency(comm, p, data, s->round_trips));
    return measure_rate(comm, p, data);
}

/* Measures one pair after the other, so that none disturbs another; then all ranks learn all
 * results. */
static rp_status measure_pairs(rp_comm *comm, const settings *s, pair *pairs, int count,
                               double *table) {
    void *data = NULL;
    RP_TRY(rpi_alloc(MOST_BYTES, "messages", &data));
    rp_status status = RP_OK;
    for (int i = 0; i < count && status == RP_OK; i++) {
        status = measure_pair(comm, s, &pairs[i], data);
        if (rp_comm_rank(comm) != pairs[i].low) continue;
        table[2 * i] = pairs[i].latency_s;
        table[2 * i + 1] = pairs[i].bytes_s;
    }
    rpi_free(data);
    if (status != RP_OK) return status;
    rp_segment sums = {.data = table, .count = 2 * (size_t)count, .dtype = RP_F64};
    RP_TRY(rp_all_reduce(comm, &sums, 1, NULL));
    for (int i = 0; i < count; i++) {
        pairs[i].latency_s = table[2 * i];
        pairs[i].bytes_s = table[2 * i + 1];
    }
    return RP_OK;
}

/* ---- what they have in common ---- */

typedef struct kind {
    int pairs;
    double latency_s, bytes_s; /* medians */
    const pair *slowest;
} kind;

static bool is_inside(const rp_comm *comm, const pair *p) {
    return comm->host_of && comm->host_of[p->low] == comm->host_of[p->high];
}

static rp_status sum_up(const rp_comm *comm, bool inside, const pair *pairs, int count,
                        kind *out) {
    double *values = NULL;
    RP_TRY(rpi_alloc_array(2 * (size_t)count, sizeof *values, "medians", &values));
    *out = (kind){0};
    for (int i = 0; i < count; i++) {
        if (is_inside(comm, &pairs[i]) != inside) continue;
        values[out->pairs] = pairs[i].latency_s;
        values[count + out->pairs++] = pairs[i].bytes_s;
        if (!out->slowest || pairs[i].bytes_s < out->slowest->bytes_s) out->slowest = &pairs[i];
    }
    qsort(values, (size_t)out->pairs, sizeof *values, by_value);
    qsort(values + count, (size_t)out->pairs, sizeof *values, by_value);
    if (out->pairs) out->latency_s = values[out->pairs / 2];
    if (out->pairs) out->bytes_s = values[count + out->pairs / 2];
    rpi_free(values);
    return RP_OK;
}

/* Rounds to three digits, which are more than a measurement has. */
static double rounded(double value) {
    char text[32];
    snprintf(text, sizeof text, "%.3g", value);
    return rpi_strtod(text, NULL);
}

/* For a kind of link that this world does not have the nominal costs stay. */
static rpi_cost_model costs_of(const kind *between, const kind *inside) {
    rpi_cost_model model = rpi_nominal_links;
    if (between->pairs) {
        model.bytes_per_s = rounded(between->bytes_s);
        model.latency_s = rounded(between->latency_s);
    }
    if (inside->pairs) {
        model.inside_bytes_per_s = rounded(inside->bytes_s);
        model.inside_latency_s = rounded(inside->latency_s);
    }
    return model;
}

static void print_kind(const char *name, const kind *k) {
    char latency[RPI_TIME_BYTES];
    if (!k->pairs) return;
    printf("%-14s %7d  %10s  %10.1f MB/s  ranks %d and %d, %.1f MB/s\n", name, k->pairs,
           rpi_time_text(k->latency_s, latency), k->bytes_s * 1e-6, k->slowest->low,
           k->slowest->high, k->slowest->bytes_s * 1e-6);
}

/* ---- the ways that rank 0's links take ---- */

enum { WAYS_MOST = 16, WAY_BYTES = 800 };

/* False: there is nothing to show, as for links through memory, and for rank 0 itself. */
static bool find_way(const rp_comm *comm, int rank, char text[WAY_BYTES]) {
    const rpi_connection *port = comm->peers[rank].connection;
    rpi_link *link = rank == comm->rank ? NULL : port->link;
    text[0] = '\0';
    if (!link || !link->endpoint->transport->describe) return false;
    link->endpoint->transport->describe(link, text, WAY_BYTES);
    return *text;
}

static void print_ways(const rp_comm *comm) {
    char text[WAY_BYTES];
    int shown = 0;
    for (int rank = 0; rank < comm->world && shown < WAYS_MOST; rank++) {
        if (!find_way(comm, rank, text)) continue;
        if (!shown++)
            printf("\ninterfaces and addresses, one pair a stream (REDPOLL_STREAMS):\n");
        printf("    rank 0 to rank %d: %s\n", rank, text);
    }
}

static void add_way(cJSON *list, int rank, const char *text) {
    cJSON *way = cJSON_CreateObject();
    cJSON_AddNumberToObject(way, "rank", rank);
    cJSON *streams = cJSON_AddArrayToObject(way, "streams");
    for (const char *at = text; *at; at += strspn(at, ", ")) {
        char one[WAY_BYTES];
        size_t length = strcspn(at, ",");
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        cJSON_AddItemToArray(streams, cJSON_CreateString(one));
        at += length;
    }
    cJSON_AddItemToArray(list, way);
}

static void add_ways(const rp_comm *comm, cJSON *object) {
    cJSON *list = cJSON_AddArrayToObject(object, "ways");
    char text[WAY_BYTES];
    for (int rank = 0; rank < comm->world; rank++)
        if (find_way(comm, rank, text)) add_way(list, rank, text);
}

static void print_table(const rp_comm *comm, const kind *between, const kind *inside,
                        const char *links) {
    printf("links of %d ranks over %s\n", rp_comm_world(comm), rp_comm_transport(comm));
    printf("%-14s %7s  %10s  %15s  %s\n", "", "pairs", "latency", "rate", "slowest pair");
    print_kind("between hosts", between);
    print_kind("inside a host", inside);
    print_ways(comm);
    printf("\nfor the choice of algorithms, on rank 0 (redpoll plan --links shows it):\n");
    printf("    export %s=%s\n", RPI_LINK_COSTS_VARIABLE, links);
}

static void add_kind(cJSON *object, const char *name, const kind *k) {
    char key[48];
    snprintf(key, sizeof key, "%s_pairs", name);
    cJSON_AddNumberToObject(object, key, k->pairs);
    snprintf(key, sizeof key, "%s_latency_s", name);
    if (k->pairs)
        cJSON_AddNumberToObject(object, key, k->latency_s);
    else
        cJSON_AddNullToObject(object, key);
    snprintf(key, sizeof key, "%s_bytes_s", name);
    if (k->pairs)
        cJSON_AddNumberToObject(object, key, k->bytes_s);
    else
        cJSON_AddNullToObject(object, key);
}

static void print_json(const rp_comm *comm, const kind *between, const kind *inside,
                       const char *links) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "ranks", rp_comm_world(comm));
    cJSON_AddStringToObject(object, "transport", rp_comm_transport(comm));
    add_kind(object, "between", between);
    add_kind(object, "inside", inside);
    cJSON_AddStringToObject(object, "links", links);
    add_ways(comm, object);
    rpi_command_print_json(object);
}

static rp_status report(const rp_comm *comm, const settings *s, const pair *pairs, int count) {
    kind between, inside;
    char links[RPI_LINK_COSTS_TEXT];
    RP_TRY(sum_up(comm, false, pairs, count, &between));
    RP_TRY(sum_up(comm, true, pairs, count, &inside));
    rpi_cost_model model = costs_of(&between, &inside);
    rpi_link_costs_text(&model, links);
    if (s->json)
        print_json(comm, &between, &inside, links);
    else
        print_table(comm, &between, &inside, links);
    return RP_OK;
}

static rp_status measure(rp_comm *comm, const settings *s) {
    pair *pairs = NULL;
    double *table = NULL;
    int count = list_pairs(rp_comm_world(comm), NULL);
    if (!count) return RP_FAIL(INVALID, "one rank has no links; say -n 2 or more");
    RP_TRY(rpi_alloc_array((size_t)count, sizeof *pairs, "pairs", &pairs));
    rp_status status = rpi_alloc_array(2 * (size_t)count, sizeof *table, "a table", &table);
    list_pairs(rp_comm_world(comm), pairs);
    if (status == RP_OK) status = measure_pairs(comm, s, pairs, count, table);
    if (status == RP_OK && rp_comm_rank(comm) == 0) status = report(comm, s, pairs, count);
    rpi_free(pairs);
    rpi_free(table);
    return status;
}

static rp_status read_settings(int argc, char **argv, settings *s, bool *wants_help) {
    RP_TRY(rpi_options_defaults(options, s));
    RP_TRY(rpi_options_environment(options, getenv, s));
    RP_TRY(rpi_options_parse(options, argc, argv, s, NULL, wants_help));
    return *wants_help ? RP_OK : rpi_world_check(&s->world);
}

static int run(int argc, char **argv) {
    settings s = {0};
    bool wants_help = false;
    rpi_world world = {0};
    rp_status status = read_settings(argc, argv, &s, &wants_help);
    if (status != RP_OK) return rpi_command_misused("bench link", status);
    if (wants_help) {
        rpi_command_print_help(&rpi_command_bench_link, stdout);
        return RPI_EXIT_DONE;
    }
    if (rpi_world_must_launch(&s.world))
        return rpi_world_launch(&s.world, "bench link", argc, argv);
    status = rpi_world_join(&s.world, &world);
    if (status == RP_OK) status = measure(world.comm, &s);
    int code = status == RP_OK        ? RPI_EXIT_DONE
               : status == RP_INVALID ? rpi_command_misused("bench link", status)
                                      : rpi_command_failed(status);
    rpi_world_leave(&world);
    return code;
}

const rpi_command rpi_command_bench_link = {
    .name = "bench link",
    .summary = "measure the links of this world",
    .about =
        "Measures latency and rate between ranks, one pair after the other: all pairs of up to "
        "8 "
        "ranks, of more those of rank 0 and of neighbours. It ends with a line for the "
        "environment: algorithms are then chosen by these links, on all ranks by what rank 0 "
        "was told, in place of nominal ones (10 Gbit/s and 20 us between hosts, memory "
        "inside).",
    .examples = "  redpoll bench link -n 2\n"
                "  redpoll run -H big:2,small:2 redpoll bench link\n"
                "  redpoll bench link -n 4 --hosts 2 --link 1Gbit,50us --json\n",
    .options = options,
    .run = run,
};
