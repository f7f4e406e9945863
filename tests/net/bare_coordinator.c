#include "bare_coordinator.h"

#include "base/clock.h"
#include "base/memory.h"
#include "harness/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

bare_coordinator *bare_coordinator_make(int world) {
    bare_coordinator *coordinator = calloc(1, sizeof *coordinator);
    rpi_control *control = &coordinator->control;
    size_t count = (size_t)world;
    control->world = world;
    control->connection_count = world;
    control->role = RPI_CONTROL_LEADS;
    control->duty = RPI_CONTROL_SERVES;
    control->phase = RPI_CONTROL_OPEN;
    control->connections = coordinator->connections;
    control->beat_ns = control->silence_ns = RPI_SECOND_NS;
    control->everybody = (rpi_control_group){
        .control = control, .count = world, .name = "world", .parent = RPI_NO_SCOPE};
    control->groups = &control->everybody;
    control->heard_ns = calloc(count, sizeof *control->heard_ns);
    control->beat_counts = calloc(count, sizeof *control->beat_counts);
    control->fresh = calloc(count, sizeof *control->fresh);
    control->runs = calloc(count, sizeof *control->runs);
    control->connection_of = calloc(count, sizeof *control->connection_of);
    CHECK_OK(rpi_control_make_beats(&control->everybody));
    control->dead = calloc(count, sizeof *control->dead);
    control->lost = calloc(count, sizeof *control->lost);
    control->suspect_ns = calloc(count, sizeof *control->suspect_ns);
    for (size_t i = 0; i < count; i++) control->suspect_ns[i] = RPI_NEVER_NS;
    control->failed_fd = control->wake = -1;
    pthread_mutex_init(&control->lock, NULL);
    pthread_cond_init(&control->changed, NULL);
    coordinator->connections[0].fd = coordinator->connections[0].rank =
        control->connection_of[0] = -1;
    for (int rank = 1; rank < world; rank++) {
        int fds[2] = {-1, -1};
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
        coordinator->connections[rank].fd = fds[0];
        coordinator->far[rank].fd = fds[1];
        coordinator->connections[rank].rank = control->connection_of[rank] = rank;
    }
    return coordinator;
}

void bare_coordinator_free(bare_coordinator *coordinator) {
    rpi_control *control = &coordinator->control;
    for (int rank = 1; rank < control->world; rank++) {
        rpi_control_connection_close(&coordinator->connections[rank]);
        rpi_control_connection_close(&coordinator->far[rank]);
    }
    rpi_scopes_free(control);
    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->lock);
    rpi_free(control->everybody.beats);
    free(control->dead);
    free(control->lost);
    free(control->suspect_ns);
    free(control->heard_ns);
    free(control->beat_counts);
    free(control->fresh);
    free(control->runs);
    free(control->connection_of);
    free(coordinator);
}

void bare_coordinator_hear(bare_coordinator *coordinator, int rank, const char *scope,
                           uint64_t sequence, int from, uint64_t flags) {
    rpi_control_record record = {.kind = RPI_CONTROL_BEAT,
                                 .rank = rank,
                                 .number = from + 1,
                                 .a = sequence,
                                 .b = flags | (from >= 0 ? 5 : 0)};
    snprintf(record.text, sizeof record.text, "%s", scope);
    record.text_bytes = (uint16_t)strlen(record.text);
    rpi_control_take_beat(&coordinator->control, &record);
}
