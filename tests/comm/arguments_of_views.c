/* What worlds of views must refuse. */
#include "comm/arguments.h"
#include "harness/check.h"

static void wrong_options(const rp_store *store) {
    rp_world *world = NULL;
    /* Add a row: what is wrong, and the words for it. */
    const struct {
        const char *part;
        rp_world_options options;
    } rows[] = {
        {"size is 0", {.least = 1}},
        {"least is -1", RP_WORLD_OPTIONS(.least = -1)},
        {"most is -1", RP_WORLD_OPTIONS(.most = -1)},
        {"most is 513", RP_WORLD_OPTIONS(.most = RP_WORLD_MOST + 1)},
        {"no view could be closed", RP_WORLD_OPTIONS(.least = 3, .most = 2)},
        {"last_call_s is -1", RP_WORLD_OPTIONS(.last_call_s = -1)},
        {"silence_s is nan", RP_WORLD_OPTIONS(.silence_s = (double)NAN)},
        {"silence_s is 0.1; at least 0.2", RP_WORLD_OPTIONS(.silence_s = 0.1)},
        {"late_after_s is -2", RP_WORLD_OPTIONS(.late_after_s = -2)},
        {"has 0 bytes", RP_WORLD_OPTIONS(.name = "")},
        {"has 41 bytes", RP_WORLD_OPTIONS(.name = "a-name-that-is-longer-than-what-is-allows")},
        {"has 0 bytes", RP_WORLD_OPTIONS(.member = "")},
        {"printable", RP_WORLD_OPTIONS(.member = "two\nlines")},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        REFUSES(rows[i].part, rp_world_open, store, &rows[i].options, &world);
    CHECK(world == NULL);
}

static void use_world_wrongly(rp_world *world) {
    const rp_view *view = NULL;
    rp_comm *comm = NULL;
    rp_comm_options epoch = RP_COMM_OPTIONS(.epoch = 3);
    REFUSES("world is NULL", rp_world_next, NULL, 1, &view);
    REFUSES("nowhere", rp_world_next, world, 1, NULL);
    REFUSES("not a number", rp_world_next, world, (double)NAN, &view);
    REFUSES("world is NULL", rp_world_leave, NULL);
    RECORDS("world is NULL", rp_world_view, rp_world_view(NULL) == NULL);
    RECORDS("world is NULL", rp_world_changing, rp_world_changing(NULL) == 0);
    REFUSES("world is NULL", rp_comm_create_in, NULL, NULL, &comm);
    CHECK_FAILS(rp_comm_create_in(world, NULL, &comm), STATE, "call rp_world_next() first");
    CHECK_OK(rp_world_next(world, 60, &view));
    REFUSES("nowhere", rp_comm_create_in, world, NULL, NULL);
    REFUSES("epoch is 3", rp_comm_create_in, world, &epoch, &comm);
    CHECK_OK(rp_comm_create_in(world, NULL, &comm));
    CHECK_EQ(rp_comm_world(comm), 1);
    /* The communicator keeps the world that is closed before it. */
    LEGAL(rp_world_close, rp_world_close(world));
    CHECK_OK(rp_barrier(comm));
    rp_comm_destroy(comm);
    LEGAL(rp_world_close, rp_world_close(NULL));
}

void arguments_of_views(void) {
    static const rp_store_ops nothing = {0};
    rp_store store = {0}, hollow = {.ops = &nothing};
    rp_world_options options = RP_WORLD_OPTIONS(.last_call_s = 0.001);
    rp_world *world = NULL;
    REQUIRE_OK(rp_store_open_local(&store));
    REFUSES("nowhere", rp_world_open, &store, NULL, NULL);
    REFUSES("needs a store", rp_world_open, NULL, NULL, &world);
    REFUSES("lacks one of", rp_world_open, &hollow, NULL, &world);
    REFUSES("nowhere", rp_world_join, NULL, 1, NULL);
    REFUSES("timeout_s is -1", rp_world_join, NULL, -1, &world);
    REFUSES("timeout_s is nan", rp_world_join, NULL, (double)NAN, &world);
    wrong_options(&store);
    REQUIRE_OK(rp_world_open(&store, &options, &world));
    use_world_wrongly(world);
    rp_store_close(&store);
}
