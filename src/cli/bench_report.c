/* What `redpoll bench` prints of a collective: a table for people, JSON for programs. */
#include "cli/bench_collective.h"
#include "comm/reductions.h"

#include <cjson/cJSON.h>
#include <string.h>

static const char *short_name(const rpi_bench_kind *kind) {
    return strchr(kind->command->name, ' ') + 1;
}

static bool moves_elements(const rpi_bench_kind *kind) {
    return kind->gives != RPI_BLOCKS_NONE;
}

/* Bytes of lossy codecs are not those of the elements: their bus has no bandwidth. */
static bool has_bus(const rpi_bench *bench) {
    return bench->kind->bus_factor && !rpi_bench_is_lossy(bench);
}

static double bandwidth(const rpi_bench_row *row) {
    return row->bytes / row->time_s;
}

void rpi_bench_print_title(const rpi_bench *bench) {
    const rpi_bench_kind *kind = bench->kind;
    char codec[64];
    printf("%s", short_name(kind));
    if (moves_elements(kind)) printf(" of %s", rp_dtype_name(bench->dtype));
    if (kind->reduces) printf(" (%s)", rpi_reduction_name(bench->reduce));
    printf(" on %d ranks over %s", rp_comm_world(bench->comm), rp_comm_transport(bench->comm));
    if (kind->has_root) printf(", root %d", bench->root);
    if (kind->has_codec)
        printf(", codec %s", rp_codec_text(&bench->codec, codec, sizeof codec));
    printf("%s, median of %d\n", bench->progress_thread ? ", progress threads" : "",
           bench->iters);
    printf("%12s %12s %-17s %12s %12s %12s %10s %10s %12s %9s %8s\n", "bytes", "count",
           "algorithm", "time s", "min", "max", "algbw MB/s", "busbw MB/s", "wire bytes",
           "error", "replicas");
}

void rpi_bench_print_row(const rpi_bench *bench, const rpi_bench_row *row) {
    const rpi_bench_kind *kind = bench->kind;
    char algorithm_bandwidth[32] = "-", bus_bandwidth[32] = "-";
    if (moves_elements(kind))
        snprintf(algorithm_bandwidth, sizeof algorithm_bandwidth, "%.1f",
                 1e-6 * bandwidth(row));
    if (has_bus(bench))
        snprintf(bus_bandwidth, sizeof bus_bandwidth, "%.1f",
                 1e-6 * bandwidth(row) * kind->bus_factor(rp_comm_world(bench->comm)));
    printf("%12.0f %12zu %-17s %12.9f %12.9f %12.9f %10s %10s %12.0f %9.3g %8s\n", row->bytes,
           row->count, row->algorithm ? row->algorithm : "-", row->time_s, row->time_min_s,
           row->time_max_s, algorithm_bandwidth, bus_bandwidth, row->wire_bytes, row->error,
           !row->correct          ? "WRONG"
           : !kind->replicates    ? "-"
           : !row->replicas_equal ? "DIFFER"
                                  : "equal");
    fflush(stdout);
}

static void add_text(cJSON *object, const char *key, bool exists, const char *text) {
    if (exists && text)
        cJSON_AddStringToObject(object, key, text);
    else
        cJSON_AddNullToObject(object, key);
}

static void add_number(cJSON *object, const char *key, bool exists, double number) {
    if (exists)
        cJSON_AddNumberToObject(object, key, number);
    else
        cJSON_AddNullToObject(object, key);
}

static void add_switch(cJSON *object, const char *key, bool exists, bool on) {
    if (exists)
        cJSON_AddBoolToObject(object, key, on);
    else
        cJSON_AddNullToObject(object, key);
}

void rpi_bench_print_json(const rpi_bench *bench, const rpi_bench_row *row) {
    const rpi_bench_kind *kind = bench->kind;
    int world = rp_comm_world(bench->comm);
    bool moves = moves_elements(kind), bus = has_bus(bench);
    char codec[64];
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", short_name(kind));
    cJSON_AddNumberToObject(object, "ranks", world);
    cJSON_AddNumberToObject(object, "count", (double)row->count);
    add_text(object, "dtype", moves, rp_dtype_name(bench->dtype));
    cJSON_AddNumberToObject(object, "bytes", row->bytes);
    add_text(object, "codec", kind->has_codec,
             rp_codec_text(&bench->codec, codec, sizeof codec));
    add_text(object, "algorithm", true, row->algorithm);
    cJSON_AddStringToObject(object, "transport", rp_comm_transport(bench->comm));
    cJSON_AddNumberToObject(object, "iters", bench->iters);
    cJSON_AddNumberToObject(object, "time_s", row->time_s);
    cJSON_AddNumberToObject(object, "time_min_s", row->time_min_s);
    cJSON_AddNumberToObject(object, "time_max_s", row->time_max_s);
    add_number(object, "algbw_bytes_s", moves, bandwidth(row));
    add_number(object, "busbw_bytes_s", bus,
               bus ? bandwidth(row) * kind->bus_factor(world) : 0);
    cJSON_AddNumberToObject(object, "wire_bytes", row->wire_bytes);
    add_number(object, "rel_l2_error", moves, row->error);
    add_switch(object, "replicas_equal", kind->replicates, row->replicas_equal);
    add_text(object, "reduce", kind->reduces, rpi_reduction_name(bench->reduce));
    add_number(object, "root", kind->has_root, bench->root);
    add_switch(object, "correct", moves, row->correct);
    cJSON_AddBoolToObject(object, "progress_thread", bench->progress_thread);
    rpi_command_print_json(object);
    fflush(stdout);
}
