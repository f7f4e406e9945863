/* The bytes that heartbeats take while all ranks wait in a barrier, of the world or of a group
 * of all ranks: bench/heartbeats.sh runs it in a network namespace of its own, where nothing
 * else uses the loopback. Rank 1, for which the others wait, prints KB/s of all messages of the
 * world:
 *
 *     redpoll run -n 16 heartbeats
 *     redpoll run -n 16 heartbeats group */
#include "base/clock.h"
#include "base/status.h"
#include "redpoll/redpoll.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Seconds until the beats say that all wait, and seconds that are counted. */
enum { SETTLE_S = 2, COUNTED_S = 4 };

/* Bytes that the loopback has received. */
static rp_status count_bytes(double *out_bytes) {
    char line[400];
    bool found = false;
    FILE *file = fopen("/proc/net/dev", "r");
    if (!file) return RP_FAIL_ERRNO(IO, "cannot read /proc/net/dev");
    while (!found && fgets(line, sizeof line, file)) {
        const char *lo = strstr(line, "lo:");
        found = lo && sscanf(lo, "lo:%lf", out_bytes) == 1;
    }
    fclose(file);
    return found ? RP_OK : RP_FAIL(IO, "/proc/net/dev has no loopback");
}

static rp_status count(rp_comm *world, bool in_group) {
    double before = 0, after = 0;
    rpi_sleep_until_ns(rpi_now_ns() + SETTLE_S * RPI_SECOND_NS);
    RP_TRY(count_bytes(&before));
    rpi_sleep_until_ns(rpi_now_ns() + COUNTED_S * RPI_SECOND_NS);
    RP_TRY(count_bytes(&after));
    double rate = (after - before) / COUNTED_S / 1e3;
    printf("%d ranks wait in %s: %.1f KB/s, %.2f a rank\n", rp_comm_world(world),
           in_group ? "a group of all" : "the world", rate, rate / rp_comm_world(world));
    return RP_OK;
}

static rp_status make_group(rp_comm *world, rp_comm **out_group) {
    rp_comm_options own = RP_COMM_OPTIONS(.name = "group");
    return rp_comm_split(world, 0, rp_comm_rank(world), &own, out_group);
}

static rp_status run(bool in_group, rp_comm **world, rp_comm **group) {
    rp_comm_options own = RP_COMM_OPTIONS(.transport = "shm");
    RP_TRY(rp_comm_join(&own, world));
    if (rp_comm_world(*world) < 2) return RP_FAIL(INVALID, "there is one rank; start several");
    if (in_group) RP_TRY(make_group(*world, group));
    RP_TRY(rp_barrier(*world));
    if (rp_comm_rank(*world) == 1) RP_TRY(count(*world, in_group));
    return rp_barrier(in_group ? *group : *world);
}

int main(int argc, char **argv) {
    rp_comm *world = NULL, *group = NULL;
    rp_status status = run(argc > 1 && strcmp(argv[1], "group") == 0, &world, &group);
    if (status != RP_OK) fprintf(stderr, "heartbeats: %s\n", rp_last_error()->message);
    rp_comm_destroy(group);
    rp_comm_destroy(world);
    return status != RP_OK;
}
