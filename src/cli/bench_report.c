/* Prints the results of `redpoll bench` for a collective: a table for people, JSON for
 * programs. */
#include "cli/bench_collective.h"
#include "cli/numbers.h"
#include "comm/values/reductions.h"

#include <cjson/cJSON.h>
#include <string.h>

static const char *short_name(const rpi_bench_kind *kind) {
    return strchr(kind->command->name, ' ') + 1;
}

static bool moves_elements(const rpi_bench_kind *kind) {
    return kind->gives != RPI_BLOCKS_NONE;
}

/* With a lossy codec the sent bytes are not those of the elements: there is no bus bandwidth.
 */
static bool has_bus(const rpi_bench *bench) {
    return bench->kind->bus_factor && !rpi_bench_is_lossy(bench);
}

static bool both_places(const rpi_bench *bench) {
    return bench->kind->either_place && !bench->one_place;
}

static double bandwidth(const rpi_bench_row *row, double time_s) {
    return row->bytes / time_s;
}

static double bus_bandwidth(const rpi_bench *bench, const rpi_bench_row *row, double time_s) {
    return bandwidth(row, time_s) * bench->kind->bus_factor(rp_comm_world(bench->comm));
}

void rpi_bench_print_title(const rpi_bench *bench) {
    const rpi_bench_kind *kind = bench->kind;
    int ranks = rp_comm_world(bench->comm);
    char codec[64];
    printf("%s", short_name(kind));
    if (moves_elements(kind)) printf(" of %s", rp_dtype_name(bench->dtype));
    if (kind->reduces) printf(" (%s)", rpi_reduction_name(bench->reduce));
    if (kind->in_place) printf(" in place");
    if (bench->segments) printf(" in %d segments a block", bench->segments);
    if (bench->registered) printf(" in buffers");
    if (bench->on_cuda) printf(" on GPUs");
    printf(" on %d rank%s", ranks, ranks == 1 ? "" : "s");
    if (ranks > 1) printf(" over %s", rp_comm_transport(bench->comm));
    if (kind->has_root) printf(", root %d", bench->root);
    if (kind->mixes) printf(", topology %s", bench->topology);
    if (kind->has_codec)
        printf(", codec %s", rp_codec_text(&bench->codec, codec, sizeof codec));
    printf("%s, median of %d\n", bench->progress_thread ? ", progress threads" : "",
           bench->iters);
    if (both_places(bench))
        printf("%12s %12s %-13s %-41s  %s\n", "", "", "",
               "--------------- out of place ------------", "---------- in place ---------");
    printf("%12s %12s %-13s %9s %9s %9s %10s %10s", "bytes", "count", "algorithm", "time",
           "min", "max", "algbw MB/s", "busbw MB/s");
    if (both_places(bench)) printf(" %9s %10s %10s", "time", "algbw MB/s", "busbw MB/s");
    printf(" %12s %9s %8s\n", "wire bytes", "error", "replicas");
    rpi_command_flush(); /* a row is shown as soon as it is measured */
}

static void print_bandwidths(const rpi_bench *bench, const rpi_bench_row *row, double time_s) {
    char algorithm[32] = "-", bus[32] = "-";
    if (moves_elements(bench->kind))
        snprintf(algorithm, sizeof algorithm, "%.1f", 1e-6 * bandwidth(row, time_s));
    if (has_bus(bench))
        snprintf(bus, sizeof bus, "%.1f", 1e-6 * bus_bandwidth(bench, row, time_s));
    printf(" %10s %10s", algorithm, bus);
}

static const char *verdict_of(const rpi_bench *bench, const rpi_bench_row *row) {
    if (!row->correct) return "WRONG";
    if (!bench->kind->replicates || bench->unchecked) return "-";
    return row->replicas_equal ? "equal" : "DIFFER";
}

void rpi_bench_print_row(const rpi_bench *bench, const rpi_bench_row *row) {
    char times[4][RPI_TIME_BYTES], error[16] = "-";
    if (!bench->unchecked) snprintf(error, sizeof error, "%.3g", row->error);
    printf("%12.0f %12zu %-13s %9s %9s %9s", row->bytes, row->count,
           row->algorithm ? row->algorithm : "-", rpi_time_text(row->time_s, times[0]),
           rpi_time_text(row->time_min_s, times[1]), rpi_time_text(row->time_max_s, times[2]));
    print_bandwidths(bench, row, row->time_s);
    if (both_places(bench)) {
        printf(" %9s", rpi_time_text(row->in_place_time_s, times[3]));
        print_bandwidths(bench, row, row->in_place_time_s);
    }
    printf(" %12.0f %9s %8s\n", row->wire_bytes, error, verdict_of(bench, row));
    rpi_command_flush();
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
    bool moves = moves_elements(kind), bus = has_bus(bench), checked = !bench->unchecked;
    bool in_place = moves && row->in_place_time_s > 0;
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
    add_number(object, "algbw_bytes_s", moves, bandwidth(row, row->time_s));
    add_number(object, "busbw_bytes_s", bus, bus ? bus_bandwidth(bench, row, row->time_s) : 0);
    cJSON_AddNumberToObject(object, "wire_bytes", row->wire_bytes);
    add_number(object, "rel_l2_error", moves && checked, row->error);
    add_switch(object, "replicas_equal", kind->replicates && checked, row->replicas_equal);
    add_text(object, "reduce", kind->reduces, rpi_reduction_name(bench->reduce));
    add_number(object, "root", kind->has_root, bench->root);
    add_switch(object, "correct", moves && checked, row->correct);
    cJSON_AddBoolToObject(object, "progress_thread", bench->progress_thread);
    add_switch(object, "registered", moves, bench->registered);
    add_text(object, "device", moves, bench->on_cuda ? "cuda" : "cpu");
    add_switch(object, "in_place", moves, kind->in_place);
    add_number(object, "in_place_time_s", in_place, row->in_place_time_s);
    add_number(object, "in_place_algbw_bytes_s", in_place,
               bandwidth(row, row->in_place_time_s));
    add_number(object, "in_place_busbw_bytes_s", in_place && bus,
               bus ? bus_bandwidth(bench, row, row->in_place_time_s) : 0);
    if (kind->mixes) cJSON_AddStringToObject(object, "topology", bench->topology);
    if (bench->segments) cJSON_AddNumberToObject(object, "segments", bench->segments);
    rpi_command_print_json(object);
    rpi_command_flush();
}
