/* Windows with arguments that they must refuse. */
#include "comm/arguments.h"

#include "comm/thread_world.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static void creations(rp_comm *comm) {
    float x[4] = {1, 2, 3, 4};
    int self = 0;
    rp_window *made = NULL;
    rp_window_setup setup =
                        RP_WINDOW_SETUP(.name = "w", .data = x, .count = 4, .dtype = RP_F32),
                    bad;
    REFUSES("comm is NULL", rp_window_create, NULL, &setup, &made);
    REFUSES("setup is NULL", rp_window_create, comm, NULL, &made);
    REFUSES("nowhere to put", rp_window_create, comm, &setup, NULL);
    bad = setup, bad.size = 0;
    REFUSES("rp_window_setup.size is 0", rp_window_create, comm, &bad, &made);
    bad.size = (size_t)(uintptr_t)x; /* of a struct without a size */
    REFUSES("begin with RP_WINDOW_SETUP()", rp_window_create, comm, &bad, &made);
    bad = setup, bad.name = NULL;
    REFUSES("needs a name", rp_window_create, comm, &bad, &made);
    bad = setup, bad.data = NULL;
    REFUSES("data is NULL", rp_window_create, comm, &bad, &made);
    bad = setup, bad.count = (size_t)-1;
    REFUSES("is that negative", rp_window_create, comm, &bad, &made);
    bad = setup, bad.dtype = RP_BF16;
    REFUSES("dtype is bf16", rp_window_create, comm, &bad, &made);
    bad = setup, bad.source_count = 1;
    REFUSES("sources is NULL", rp_window_create, comm, &bad, &made);
    bad.sources = &self;
    REFUSES("cannot be one of rank 0", rp_window_create, comm, &bad, &made);
}

static void in_a_world_of_one(rp_comm *comm, int rank, int world, void *context) {
    float x[4] = {1, 2, 3, 4};
    double p = 0;
    int self = 0;
    rp_window *w = NULL;
    rp_window_operation *operation = NULL;
    rp_window_send send = RP_WINDOW_SEND(.scales = 1, .self_weight = NAN);
    rp_window_mix mix = RP_WINDOW_MIX(.self_weight = INFINITY);
    rp_neighbor nobody = {0, 1};
    rp_window_setup setup =
        RP_WINDOW_SETUP(.name = "w", .data = x, .count = 4, .dtype = RP_F32);
    creations(comm);
    REQUIRE_OK(rp_window_create(comm, &setup, &w));
    REFUSES("window is NULL", rp_window_put, NULL, x, 4, NULL, &operation);
    REFUSES("has 4 elements", rp_window_put, w, x, 5, NULL, &operation);
    REFUSES("self_weight is nan", rp_window_put, w, x, 4, &send, &operation);
    rp_window_send no_send = {.scales = 1};
    rp_window_mix no_mix = {.self_weight = 1};
    REFUSES("rp_window_send.size is 0", rp_window_put, w, x, 4, &no_send, &operation);
    REFUSES("begin with RP_WINDOW_SEND()", rp_window_accumulate, w, x, 4, &no_send, &operation);
    REFUSES("rp_window_mix.size is 0", rp_window_update, w, &no_mix, NULL);
    REFUSES("begin with RP_WINDOW_MIX()", rp_window_update, w, &no_mix, NULL);
    REFUSES("window is NULL", rp_window_accumulate, NULL, x, 4, NULL, &operation);
    REFUSES("window is NULL", rp_window_get, NULL, NULL, 0, 0, &operation);
    REFUSES("no source", rp_window_get, w, &nobody, 1, 0, &operation);
    REFUSES("no operation", rp_window_wait, NULL, 1);
    REFUSES("no operation", rp_window_wait, &operation, 1);
    REFUSES("no operation", rp_window_test, NULL);
    LEGAL(rp_window_operation_free, rp_window_operation_free(&operation));
    REFUSES("window is NULL", rp_window_flush, NULL, 1);
    REFUSES("window is NULL", rp_window_update, NULL, NULL, NULL);
    REFUSES("self_weight is inf", rp_window_update, w, &mix, NULL);
    RECORDS("window is NULL", rp_window_version, rp_window_version(NULL, 0) == 0);
    RECORDS("window is NULL", rp_window_p, rp_window_p(NULL) == 0);
    REFUSES("window is NULL", rp_window_follow_p, NULL, 1);
    REFUSES("window is NULL", rp_window_read, NULL, 0, x, &p);
    REFUSES("no source", rp_window_read, w, 0, x, &p);
    REFUSES("window is NULL", rp_window_lock, NULL, NULL, 0, 0, 1);
    REFUSES("no mutex", rp_window_lock, w, &self, 1, 0, 1);
    REFUSES("window is NULL", rp_window_unlock, NULL, NULL, 0, 0);
    REFUSES("no mutex", rp_window_unlock, w, &self, 1, 0);
    LEGAL(rp_window_waited, rp_window_waited(NAN));
    CHECK_OK(rp_window_put(w, NULL, 4, NULL, &operation)); /* to nobody */
    CHECK_OK(rp_window_wait(&operation, 1));
    struct {
        rp_window_mix mix;
        unsigned char more[32]; /* fields of a later version */
    } later = {.mix = RP_WINDOW_MIX(.self_weight = 1)};
    later.mix.size = sizeof later;
    CHECK_OK(rp_window_update(w, &later.mix, NULL));
    later.more[31] = 1;
    CHECK_FAILS(rp_window_update(w, &later.mix, NULL), UNSUPPORTED, "does not know");
    CHECK_OK(rp_window_update(w, NULL, NULL));
    CHECK_NEAR(x[3], 4, 0);
    LEGAL(rp_window_free, CHECK_OK(rp_window_free(&w)));
    CHECK_OK(rp_window_free(NULL));
    (void)rank, (void)world, (void)context;
}

void arguments_of_windows(void) {
    world_run(1, NULL, in_a_world_of_one, NULL);
}
