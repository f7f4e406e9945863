#include "train/timeline.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

typedef struct event {
    int64_t start_ns, end_ns, number;
    int32_t lane;
    char name[40];
} event;

struct rpi_timeline {
    event *events;
    int64_t count, capacity, dropped, zero_ns;
};

static const char *const lane_names[RPI_LANES] = {"steps", "compute", "communication",
                                                  "exposed"};

rp_status rpi_timeline_create(int capacity, rpi_timeline **out_timeline) {
    rpi_timeline *timeline = NULL;
    RP_TRY(rpi_alloc(sizeof *timeline, "a trace", &timeline));
    timeline->capacity = capacity;
    rp_status status =
        rpi_alloc_array((size_t)capacity, sizeof(event), "a trace", &timeline->events);
    if (status == RP_OK)
        *out_timeline = timeline;
    else
        rpi_free(timeline);
    return status;
}

void rpi_timeline_destroy(rpi_timeline *timeline) {
    if (!timeline) return;
    rpi_free(timeline->events);
    rpi_free(timeline);
}

void rpi_timeline_start(rpi_timeline *timeline) {
    if (timeline) timeline->zero_ns = rpi_now_ns();
}

void rpi_timeline_add(rpi_timeline *timeline, rpi_timeline_lane lane, const char *name,
                      int64_t number, int64_t start_ns, int64_t end_ns) {
    if (!timeline) return;
    if (timeline->count == timeline->capacity) {
        timeline->dropped++;
        return;
    }
    event *e = &timeline->events[timeline->count++];
    *e = (event){.start_ns = start_ns - timeline->zero_ns,
                 .end_ns = end_ns - timeline->zero_ns,
                 .number = number,
                 .lane = (int32_t)lane};
    snprintf(e->name, sizeof e->name, "%s", name);
}

static void put_name(FILE *stream, const event *e) {
    fputc('"', stream);
    for (const char *c = e->name; *c; c++)
        if (*c != '"' && *c != '\\' && (unsigned char)*c >= ' ') fputc(*c, stream);
    if (e->number >= 0) fprintf(stream, " %lld", (long long)e->number);
    fputc('"', stream);
}

static void put_rank(FILE *stream, int rank) {
    fprintf(
        stream,
        "%s{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank %d\"}}",
        rank ? ",\n" : "", rank, rank);
    for (int lane = 0; lane < RPI_LANES; lane++)
        fprintf(stream,
                ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{"
                "\"name\":\"%s\"}}",
                rank, lane, lane_names[lane]);
}

/* Buckets overlap each other, so that they are async events (b, e); the rest are complete
 * events (X). */
static void put_event(FILE *stream, int rank, const event *e, int64_t id) {
    double start = (double)e->start_ns * 1e-3, end = (double)e->end_ns * 1e-3;
    if (e->lane != RPI_LANE_COMM) {
        fprintf(stream,
                ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":",
                rank, e->lane, start, end - start);
        put_name(stream, e);
        fputc('}', stream);
        return;
    }
    for (int half = 0; half < 2; half++) {
        fprintf(stream,
                ",\n{\"ph\":\"%s\",\"cat\":\"comm\",\"id\":\"%d.%lld\",\"pid\":%d,\"tid\":%d,"
                "\"ts\":%.3f,\"name\":",
                half ? "e" : "b", rank, (long long)id, rank, e->lane, half ? end : start);
        put_name(stream, e);
        fputc('}', stream);
    }
}

static void put_events(FILE *stream, int rank, const event *events, int64_t count) {
    put_rank(stream, rank);
    for (int64_t i = 0; i < count; i++) put_event(stream, rank, &events[i], i);
}

/* Rank 0 receives the others' events, one rank after the other. */
static rp_status collect(const rpi_timeline *own, rp_comm *comm, FILE *stream) {
    put_events(stream, 0, own->events, own->count);
    for (int rank = 1; rank < rp_comm_world(comm); rank++) {
        int64_t count = 0;
        RP_TRY(rp_recv(comm, &count, 1, RP_I64, rank, 0));
        event *events = NULL;
        RP_TRY(rpi_alloc_array((size_t)count, sizeof(event), "a trace", &events));
        rp_status status = rp_recv(comm, events, (size_t)count * sizeof(event), RP_U8, rank, 0);
        if (status == RP_OK) put_events(stream, rank, events, count);
        rpi_free(events);
        RP_TRY(status);
    }
    return RP_OK;
}

static rp_status write_file(const rpi_timeline *timeline, rp_comm *comm, const char *path) {
    FILE *stream = fopen(path, "wbe");
    if (!stream) return RP_FAIL_ERRNO(IO, "cannot write %s", path);
    fprintf(stream,
            "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped\":%lld},\"traceEvents\":[\n",
            (long long)timeline->dropped);
    rp_status status = collect(timeline, comm, stream);
    fprintf(stream, "\n]}\n");
    int failed = ferror(stream);
    if ((fclose(stream) != 0 || failed) && status == RP_OK)
        status = RP_FAIL_ERRNO(IO, "cannot write %s", path);
    return status;
}

rp_status rpi_timeline_write(const rpi_timeline *timeline, rp_comm *comm, const char *path) {
    if (rp_comm_rank(comm) == 0) return write_file(timeline, comm, path);
    RP_TRY(rp_send(comm, &timeline->count, 1, RP_I64, 0, 0));
    return rp_send(comm, timeline->events, (size_t)timeline->count * sizeof(event), RP_U8, 0,
                   0);
}
