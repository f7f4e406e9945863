/* What a communicator says of the transports that carry its frames. */
#include "comm/thread_world.h"

typedef struct carried {
    int world;
    rp_comm_options options;
    const char *name;
} carried;

static void compare_name(rp_comm *comm, int rank, int world, void *context) {
    const carried *c = context;
    (void)rank, (void)world;
    CHECK_MSG(strcmp(rp_comm_transport(comm), c->name) == 0, "'%s' is not '%s'",
              rp_comm_transport(comm), c->name);
}

/* Add a row: how ranks are connected, and its name. */
static void each_is_named(void) {
    static const carried all[] = {
        {1, RP_COMM_OPTIONS(.transport = "tcp"), "none"},
        {2, RP_COMM_OPTIONS(.transport = "inproc"), "inproc"},
        {3, RP_COMM_OPTIONS(.transport = "shm"), "shm"},
        {2, RP_COMM_OPTIONS(.transport = "tcp"), "tcp"},
        {2, RP_COMM_OPTIONS(.transport = "inproc", .link = "1Gbit,1us"), "shaped(inproc)"},
        {3, RP_COMM_OPTIONS(.transport = "tcp", .link = "1Gbit,1us"), "shaped(tcp)"}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        world_run(all[i].world, &all[i].options, compare_name, (void *)(uintptr_t)&all[i]);
}

CASES({"each is named", each_is_named})
