/* Building a schedule: ask the algorithm, check the shape of what it wrote, work out the order.
 */
#include "plan/schedule.h"

#include "base/memory.h"

/* Slots are 16 bits wide, and no algorithm uses more than three of them for each peer. */
enum { LARGEST_WORLD = 16384 };

static rp_status check_request(const rpi_algorithm *algorithm,
                               const rpi_plan_request *request) {
    int world = request->world;
    if (world < 1 || world > LARGEST_WORLD)
        return RP_FAIL(INVALID, "world is %d; 1 to %d are allowed", world, LARGEST_WORLD);
    if (request->rank < 0 || request->rank >= world)
        return RP_FAIL(INVALID, "rank %d is not in a world of %d", request->rank, world);
    if (request->root < 0 || request->root >= world)
        return RP_FAIL(INVALID, "root %d is not in a world of %d", request->root, world);
    if (!algorithm->fits(request))
        return RP_FAIL(UNSUPPORTED, "%s by '%s' does not work in a world of %d",
                       rpi_collective_name(algorithm->collective), algorithm->name, world);
    return RP_OK;
}

rp_status rpi_schedule_build(const rpi_algorithm *algorithm, const rpi_plan_request *request,
                             rpi_schedule *out_schedule) {
    *out_schedule = (rpi_schedule){0};
    RP_TRY(check_request(algorithm, request));
    rp_status status = algorithm->build(request, out_schedule);
    out_schedule->algorithm = algorithm;
    if (status == RP_OK) status = rpi_schedule_check_shape(out_schedule);
    if (status == RP_OK) status = rpi_schedule_order(out_schedule);
    if (status != RP_OK) rpi_schedule_destroy(out_schedule);
    return status;
}

bool rpi_algorithm_fits(const rpi_algorithm *algorithm, int world) {
    return algorithm->fits(&(rpi_plan_request){.world = world});
}

void rpi_schedule_destroy(rpi_schedule *schedule) {
    if (!schedule) return;
    rpi_free(schedule->steps);
    rpi_free(schedule->waits);
    rpi_free(schedule->next_first);
    rpi_free(schedule->next);
    *schedule = (rpi_schedule){0};
}
