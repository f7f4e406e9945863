/* Algorithms of decentralised training with arguments that they must refuse. */
#include "comm/arguments.h"

#include "harness/check.h"

#include <stdbool.h>

static void gossip(rp_comm *comm) {
    float x[4] = {1, 2, 3, 4}, gradient[4] = {0};
    rp_gossip_setup setup = {.dtype = RP_F32, .count = 4, .x = x, .gradient = gradient}, bad;
    rp_gossip *made = NULL;
    rp_request *request = NULL;
    rp_gossip_info info;
    REFUSES("a topology of 0 ranks", rp_gossip_check, NULL, NULL, 0, &info);
    REFUSES("unknown topology", rp_gossip_check, "no-such", NULL, 4, &info);
    REFUSES("no-such", rp_gossip_check, NULL, "no-such", 4, NULL);
    REFUSES("comm is NULL", rp_gossip_create, NULL, &setup, &made);
    REFUSES("setup is NULL", rp_gossip_create, comm, NULL, &made);
    REFUSES("the place for the result is NULL", rp_gossip_create, comm, &setup, NULL);
    bad = setup, bad.dtype = RP_I32;
    REFUSES("dtype is i32", rp_gossip_create, comm, &bad, &made);
    bad = setup, bad.x = NULL;
    REFUSES("x is NULL", rp_gossip_create, comm, &bad, &made);
    bad = setup, bad.gradient = NULL;
    REFUSES("gradient is NULL", rp_gossip_create, comm, &bad, &made);
    bad = setup, bad.layouts[0] = &(rp_segment){.count = 3, .dtype = RP_F32},
    bad.layout_counts[0] = 1;
    REFUSES("3 elements", rp_gossip_create, comm, &bad, &made);
    REQUIRE_OK(rp_gossip_create(comm, &setup, &made));
    RECORDS("gossip is NULL", rp_gossip_get_info, (rp_gossip_get_info(NULL, &info), true));
    RECORDS("info is NULL", rp_gossip_get_info, (rp_gossip_get_info(made, NULL), true));
    RECORDS("gossip is NULL", rp_gossip_state, rp_gossip_state(NULL, 0) == NULL);
    RECORDS("gossip is NULL", rp_gossip_push_weight, rp_gossip_push_weight(NULL) == 0);
    LEGAL(rp_gossip_state, CHECK(rp_gossip_state(made, -1) == NULL));
    LEGAL(rp_gossip_state, CHECK(rp_gossip_state(made, 99) == NULL));
    REFUSES("gossip is NULL", rp_gossip_resume, NULL, 1);
    REFUSES("push_weight is 0", rp_gossip_resume, made, 0);
    REFUSES("gossip is NULL", rp_gossip_post, NULL, 0, 0.1, &request);
    REFUSES("request is NULL", rp_gossip_post, made, 0, 0.1, NULL);
    REFUSES("step is -1", rp_gossip_post, made, -1, 0.1, &request);
    REFUSES("gossip is NULL", rp_gossip_apply, NULL, 0.1);
    CHECK_FAILS(rp_gossip_apply(made, 0.1), STATE, "nothing was posted");
    REQUIRE_OK(rp_gossip_post(made, 0, 0.1, &request));
    CHECK_OK(rp_request_wait(&request));
    CHECK_OK(rp_gossip_apply(made, 0.1));
    CHECK_NEAR(x[3], 4, 1e-6); /* nothing that was refused has left a trace */
    LEGAL(rp_gossip_destroy, rp_gossip_destroy(NULL));
    rp_gossip_destroy(made);
}

void arguments_of_training(void) {
    rp_comm *comm = NULL;
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
    gossip(comm);
    rp_comm_destroy(comm);
}
