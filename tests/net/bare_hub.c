#include "bare_hub.h"

#include "base/clock.h"
#include "base/memory.h"
#include "harness/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

bare_hub *bare_hub_make(int world) {
    bare_hub *hub = calloc(1, sizeof *hub);
    rpi_control *control = &hub->control;
    size_t count = (size_t)world;
    control->world = world;
    control->line_count = world;
    control->role = RPI_CONTROL_LEADS;
    control->duty = RPI_CONTROL_SERVES;
    control->phase = RPI_CONTROL_OPEN;
    control->lines = hub->lines;
    control->beat_ns = control->silence_ns = RPI_SECOND_NS;
    control->everybody = (rpi_control_group){
        .control = control, .count = world, .name = "world", .parent = RPI_NO_SCOPE};
    control->groups = &control->everybody;
    control->heard_ns = calloc(count, sizeof *control->heard_ns);
    control->rounds = calloc(count, sizeof *control->rounds);
    control->fresh = calloc(count, sizeof *control->fresh);
    control->runs = calloc(count, sizeof *control->runs);
    control->line_of = calloc(count, sizeof *control->line_of);
    CHECK_OK(rpi_control_make_beats(&control->everybody));
    control->dead = calloc(count, sizeof *control->dead);
    control->lost = calloc(count, sizeof *control->lost);
    control->suspect_ns = calloc(count, sizeof *control->suspect_ns);
    for (size_t i = 0; i < count; i++) control->suspect_ns[i] = RPI_NEVER_NS;
    control->failed_fd = control->wake = -1;
    pthread_mutex_init(&control->lock, NULL);
    pthread_cond_init(&control->changed, NULL);
    hub->lines[0].fd = hub->lines[0].rank = control->line_of[0] = -1;
    for (int rank = 1; rank < world; rank++) {
        int fds[2] = {-1, -1};
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
        hub->lines[rank].fd = fds[0];
        hub->far[rank].fd = fds[1];
        hub->lines[rank].rank = control->line_of[rank] = rank;
    }
    return hub;
}

void bare_hub_free(bare_hub *hub) {
    rpi_control *control = &hub->control;
    for (int rank = 1; rank < control->world; rank++) {
        rpi_control_line_close(&hub->lines[rank]);
        rpi_control_line_close(&hub->far[rank]);
    }
    rpi_scopes_free(control);
    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->lock);
    rpi_free(control->everybody.beats);
    free(control->dead);
    free(control->lost);
    free(control->suspect_ns);
    free(control->heard_ns);
    free(control->rounds);
    free(control->fresh);
    free(control->runs);
    free(control->line_of);
    free(hub);
}

void bare_hub_hear(bare_hub *hub, int rank, const char *scope, uint64_t sequence, int from,
                   uint64_t flags) {
    rpi_control_record record = {.kind = RPI_CONTROL_BEAT,
                                 .rank = rank,
                                 .number = from + 1,
                                 .a = sequence,
                                 .b = flags | (from >= 0 ? 5 : 0)};
    snprintf(record.text, sizeof record.text, "%s", scope);
    record.text_bytes = (uint16_t)strlen(record.text);
    rpi_control_take_beat(&hub->control, &record);
}
