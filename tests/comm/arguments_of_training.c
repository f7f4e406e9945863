/* Algorithms of decentralised training with arguments that they must refuse. */
#include "comm/arguments.h"

#include "harness/check.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static void gossip(rp_comm *comm) {
    float x[4] = {1, 2, 3, 4}, gradient[4] = {0};
    rp_gossip_setup setup = RP_GOSSIP_SETUP(.dtype = RP_F32, .count = 4, .x = x,
                                            .gradient = gradient),
                    bad;
    rp_gossip *made = NULL;
    rp_request *request = NULL;
    rp_gossip_info info;
    REFUSES("a topology of 0 ranks", rp_gossip_check, NULL, NULL, 0, &info);
    REFUSES("unknown topology", rp_gossip_check, "no-such", NULL, 4, &info);
    REFUSES("no-such", rp_gossip_check, NULL, "no-such", 4, NULL);
    REFUSES("comm is NULL", rp_gossip_create, NULL, &setup, &made);
    REFUSES("setup is NULL", rp_gossip_create, comm, NULL, &made);
    REFUSES("the place for the result is NULL", rp_gossip_create, comm, &setup, NULL);
    bad = setup, bad.size = 0;
    REFUSES("rp_gossip_setup.size is 0", rp_gossip_create, comm, &bad, &made);
    REFUSES("begin with RP_GOSSIP_SETUP()", rp_gossip_create, comm, &bad, &made);
    bad = setup, bad.dtype = RP_I32;
    REFUSES("dtype is i32", rp_gossip_create, comm, &bad, &made);
    bad = setup, bad.x = NULL;
    REFUSES("x is NULL", rp_gossip_create, comm, &bad, &made);
    bad = setup, bad.gradient = NULL;
    REFUSES("gradient is NULL", rp_gossip_create, comm, &bad, &made);
    bad = setup, bad.layouts[0] = &(rp_segment){.count = 3, .dtype = RP_F32},
    bad.layout_counts[0] = 1;
    REFUSES("3 elements", rp_gossip_create, comm, &bad, &made);
    bad.layouts[0] = &(rp_segment){.count = 4, .dtype = RP_F64};
    REFUSES("4 f64", rp_gossip_create, comm, &bad, &made);
    REQUIRE_OK(rp_gossip_create(comm, &setup, &made));
    RECORDS("gossip is NULL", rp_gossip_get_info, (rp_gossip_get_info(NULL, &info), true));
    RECORDS("info is NULL", rp_gossip_get_info, (rp_gossip_get_info(made, NULL), true));
    char text[64];
    REFUSES("gossip is NULL", rp_gossip_advise, NULL, text, sizeof text);
    REFUSES("no room", rp_gossip_advise, made, NULL, sizeof text);
    REFUSES("no room", rp_gossip_advise, made, text, 0);
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
    REFUSES("gossip is NULL", rp_gossip_alone, NULL, 0.1);
    CHECK_FAILS(rp_gossip_alone(made, 0.1), STATE, "nothing was posted");
    REQUIRE_OK(rp_gossip_post(made, 0, 0.1, &request));
    CHECK_OK(rp_request_wait(&request));
    CHECK_OK(rp_gossip_apply(made, 0.1));
    CHECK_NEAR(x[3], 4, 1e-6); /* nothing that was refused has left a trace */
    LEGAL(rp_gossip_destroy, rp_gossip_destroy(NULL));
    rp_gossip_destroy(made);
}

static void local_sgd(rp_comm *comm) {
    static float x[4];
    rp_local_sgd *local = NULL;
    rp_local_sgd_options options = RP_LOCAL_SGD_OPTIONS();
    rp_segment tensor = {.data = x, .count = 4, .dtype = RP_F32}, bare = tensor;
    void *data[] = {x}, *none[] = {NULL};
    bare.data = NULL;
    REFUSES("needs options", rp_local_sgd_defaults, NULL, NULL);
    REFUSES("unknown", rp_local_sgd_defaults, "", &options);
    rp_local_sgd_options zeros = {0};
    REFUSES("begin with RP_LOCAL_SGD_OPTIONS()", rp_local_sgd_defaults, NULL, &zeros);
    REQUIRE_OK(rp_local_sgd_defaults(NULL, &options));
    CHECK_EQ(options.size, sizeof options);
    REFUSES("needs options", rp_local_sgd_check, NULL, 1);
    char text[64];
    REFUSES("needs options", rp_local_sgd_advise, NULL, text, sizeof text);
    REFUSES("no room", rp_local_sgd_advise, &options, NULL, sizeof text);
    REFUSES("no room", rp_local_sgd_advise, &options, text, 0);
    LEGAL(rp_outer_momentum, CHECK(rp_outer_momentum(NULL, 1) == 0));
    LEGAL(rp_outer_momentum, CHECK(rp_outer_momentum("no-such", 1) == 0));
    REFUSES("needs a comm", rp_local_sgd_create, NULL, &tensor, 1, &options, &local);
    REFUSES("and a place", rp_local_sgd_create, comm, &tensor, 1, &options, NULL);
    zeros = options, zeros.size = 0;
    REFUSES("rp_local_sgd_options.size is 0", rp_local_sgd_check, &zeros, 1);
    REFUSES("rp_local_sgd_options.size is 0", rp_local_sgd_advise, &zeros, text, sizeof text);
    REFUSES("begin with RP_LOCAL_SGD_OPTIONS()", rp_local_sgd_create, comm, &tensor, 1, &zeros,
            &local);
    REFUSES("needs tensors", rp_local_sgd_create, comm, NULL, 1, &options, &local);
    REFUSES("needs tensors", rp_local_sgd_create, comm, &tensor, 0, &options, &local);
    REFUSES("needs options", rp_local_sgd_create, comm, &tensor, 1, NULL, &local);
    REFUSES("4 elements", rp_local_sgd_create, comm, &bare, 1, &options, &local);
    bare.count = (size_t)-1;
    REFUSES("elements", rp_local_sgd_create, comm, &bare, 1, &options, &local);
    REQUIRE_OK(rp_local_sgd_create(comm, &tensor, 1, &options, &local));
    REFUSES("local is NULL", rp_local_sgd_step, NULL, data, 1, NULL);
    REFUSES("needs the data", rp_local_sgd_step, local, NULL, 1, NULL);
    REFUSES("has no data", rp_local_sgd_step, local, none, 1, NULL);
    REFUSES("local is NULL", rp_local_sgd_restart, NULL, data, 1);
    REFUSES("has no data", rp_local_sgd_restart, local, none, 1);
    REFUSES("local is NULL", rp_local_sgd_settle, NULL);
    REFUSES("local is NULL", rp_local_sgd_resume, NULL, 0);
    RECORDS("local is NULL", rp_local_sgd_steps, rp_local_sgd_steps(NULL) == 0);
    RECORDS("local is NULL", rp_local_sgd_in_flight, rp_local_sgd_in_flight(NULL) == -1);
    RECORDS("local is NULL", rp_local_sgd_state_count, rp_local_sgd_state_count(NULL) == 0);
    RECORDS("local is NULL", rp_local_sgd_state_name, !rp_local_sgd_state_name(NULL, 0));
    RECORDS("local is NULL", rp_local_sgd_state, !rp_local_sgd_state(NULL, 0, 0));
    RECORDS("vector 3", rp_local_sgd_state, !rp_local_sgd_state(local, 3, 0));
    CHECK_OK(rp_local_sgd_step(local, data, 1, NULL));
    rp_local_sgd_destroy(local);
    REQUIRE_OK(rp_local_sgd_defaults("slowmo", &options));
    options.every = 1;
    REQUIRE_OK(rp_local_sgd_create(comm, &tensor, 1, &options, &local));
    REFUSES("divides by the inner learning rate", rp_local_sgd_step, local, data, 0, NULL);
    CHECK_FAILS(rp_local_sgd_settle(local), STATE, "an exchange has failed"); /* half done */
    rp_local_sgd_destroy(local);
    LEGAL(rp_local_sgd_destroy, rp_local_sgd_destroy(NULL));
}

static rp_status merge_nothing(void *context, const rp_parameter_merge *merge) {
    (void)context, (void)merge;
    return RP_OK;
}

static void parameter_server(rp_comm *comm) {
    static float gradient[4], values[4];
    rp_segment tensor = {.data = gradient, .count = 4, .dtype = RP_F32}, bad = tensor;
    rp_parameter_server_options options = RP_PARAMETER_SERVER_OPTIONS(.merge = merge_nothing),
                                none = RP_PARAMETER_SERVER_OPTIONS();
    rp_parameter_server *made = NULL;
    int again = 1;
    rp_parameter_server_options zeros = {0};
    REFUSES("options are NULL", rp_parameter_server_check, NULL, 2);
    REFUSES("rp_parameter_server_options.size is 0", rp_parameter_server_check, &zeros, 2);
    REFUSES("begin with RP_PARAMETER_SERVER_OPTIONS()", rp_parameter_server_create, comm,
            &tensor, 1, &zeros, &made);
    REFUSES("a world of -1", rp_parameter_server_check, &options, -1);
    REFUSES("a communicator and", rp_parameter_server_create, NULL, &tensor, 1, &options,
            &made);
    REFUSES("and a place", rp_parameter_server_create, comm, &tensor, 1, &options, NULL);
    REFUSES("options are NULL", rp_parameter_server_create, comm, &tensor, 1, NULL, &made);
    REFUSES("merge is NULL", rp_parameter_server_create, comm, &tensor, 1, &none, &made);
    REFUSES("no segments", rp_parameter_server_create, comm, NULL, 1, &options, &made);
    REFUSES("no segments", rp_parameter_server_create, comm, &tensor, 0, &options, &made);
    bad.data = NULL;
    REFUSES("4 elements", rp_parameter_server_create, comm, &bad, 1, &options, &made);
    bad.count = (size_t)-1;
    REFUSES("elements", rp_parameter_server_create, comm, &bad, 1, &options, &made);
    REQUIRE_OK(rp_parameter_server_create(comm, &tensor, 1, &options, &made));
    REFUSES("server is NULL", rp_parameter_server_begin, NULL, values, 0, 1);
    REFUSES("values are NULL", rp_parameter_server_begin, made, NULL, 0, 1);
    REFUSES("server is NULL", rp_parameter_server_final, NULL, 0);
    REFUSES("server is NULL", rp_parameter_server_push, NULL, 1, NULL, NULL);
    REFUSES("server is NULL", rp_parameter_server_end, NULL);
    REFUSES("server is NULL", rp_parameter_server_gather, NULL, values);
    REFUSES("vector is NULL", rp_parameter_server_gather, made, NULL);
    CHECK_FAILS(rp_parameter_server_push(made, 1, NULL, NULL), STATE, "no steps have begun");
    CHECK_FAILS(rp_parameter_server_end(made), STATE, "no steps have begun");
    REFUSES("server is NULL", rp_parameter_server_confirm, NULL, RP_OK, &again);
    REFUSES("nowhere to say", rp_parameter_server_confirm, made, RP_OK, NULL);
    CHECK_OK(rp_parameter_server_confirm(made, RP_OK, &again));
    CHECK_EQ(again, 0);
    RECORDS("server is NULL", rp_parameter_server_workers, !rp_parameter_server_workers(NULL));
    RECORDS("server is NULL", rp_parameter_server_worker,
            rp_parameter_server_worker(NULL) == -1);
    RECORDS("server is NULL", rp_parameter_server_comm, !rp_parameter_server_comm(NULL));
    RECORDS("server is NULL", rp_parameter_server_lost, !rp_parameter_server_lost(NULL, 0));
    RECORDS("rank is 1", rp_parameter_server_lost, !rp_parameter_server_lost(made, 1));
    RECORDS("server is NULL", rp_parameter_server_goes_on, !rp_parameter_server_goes_on(NULL));
    RECORDS("server is NULL", rp_parameter_server_name,
            (rp_parameter_server_name(NULL, NULL), true));
    RECORDS("server is NULL", rp_parameter_server_stop, (rp_parameter_server_stop(NULL), true));
    RECORDS("server is NULL", rp_parameter_server_get_stats,
            (rp_parameter_server_get_stats(NULL, NULL), true));
    RECORDS("stats is NULL", rp_parameter_server_get_stats,
            (rp_parameter_server_get_stats(made, NULL), true));
    RECORDS("server is NULL", rp_parameter_server_abort,
            (rp_parameter_server_abort(NULL, RP_IO, "no"), true));
    REQUIRE_OK(rp_parameter_server_begin(made, values, 0, 1));
    CHECK_FAILS(rp_parameter_server_begin(made, values, 0, 1), STATE, "have not ended");
    CHECK_FAILS(rp_parameter_server_gather(made, values), STATE, "under way");
    CHECK_FAILS(rp_parameter_server_confirm(made, RP_OK, &again), STATE, "under way");
    REFUSES("5 of 4 elements", rp_parameter_server_final, made, 5);
    REFUSES("counts -1", rp_parameter_server_push, made, -1, NULL, NULL);
    CHECK_OK(rp_parameter_server_push(made, 1, NULL, NULL));
    CHECK_FAILS(rp_parameter_server_push(made, 1, NULL, NULL), STATE, "no push is expected");
    CHECK_OK(rp_parameter_server_end(made));
    rp_parameter_server_destroy(made);
    LEGAL(rp_parameter_server_destroy, rp_parameter_server_destroy(NULL));
}

static void delayed_nesterov(void) {
    static float some[4];
    char text[64];
    rp_delayed_nesterov outer = {.outer_rate = 1, .delay = 1, .momentum = some, .buffer = some},
                        none = {0};
    REFUSES("is NULL", rp_delayed_nesterov_advise, NULL, 1, text, sizeof text);
    REFUSES("is NULL", rp_delayed_nesterov_advise, &outer, 1, NULL, sizeof text);
    REFUSES("is NULL", rp_delayed_nesterov_advise, &outer, 1, text, 0);
    REFUSES("optimizer is NULL", rp_delayed_nesterov_check, NULL);
    REFUSES("an outer rate of 0", rp_delayed_nesterov_check, &none);
    REFUSES("optimizer is NULL", rp_delayed_nesterov_merge, NULL, NULL);
    REFUSES("merge is NULL", rp_delayed_nesterov_merge, &outer, NULL);
}

static void momentum_watch(void) {
    static const float gradient[4] = {1, 2, 3, 4};
    rp_momentum_watch *watch = NULL;
    const char *warning = "";
    double likeness = 0;
    REFUSES("needs a place", rp_momentum_watch_create, 4, .7, .9, NULL);
    REFUSES("elements to look at", rp_momentum_watch_create, 0, .7, .9, &watch);
    REFUSES("outer rate of inf", rp_momentum_watch_create, 4, (double)INFINITY, .9, &watch);
    REQUIRE_OK(rp_momentum_watch_create(4, .7, .9, &watch));
    REFUSES("needs a pseudo-gradient", rp_momentum_watch_look, NULL, gradient, 1, &likeness,
            &warning);
    REFUSES("needs a pseudo-gradient", rp_momentum_watch_look, watch, NULL, 1, &likeness,
            &warning);
    CHECK_OK(rp_momentum_watch_look(watch, gradient, 5, &likeness, &warning));
    CHECK(likeness != likeness && !warning);
    for (int i = 0; i < 7; i++) {
        CHECK_OK(rp_momentum_watch_look(watch, gradient, 5, &likeness, &warning));
        CHECK(!warning);
        CHECK_NEAR(likeness, 1, 1e-12);
    }
    CHECK_OK(rp_momentum_watch_look(watch, gradient, 5, &likeness, &warning));
    CHECK(warning && strstr(warning, "outer momentum 0.9 is high for 5 local steps"));
    rp_momentum_watch_destroy(watch);
    LEGAL(rp_momentum_watch_destroy, rp_momentum_watch_destroy(NULL));
}

void arguments_of_training(void) {
    rp_comm *comm = NULL;
    REQUIRE_OK(rp_comm_create(NULL, 0, 1, NULL, &comm));
    gossip(comm);
    local_sgd(comm);
    parameter_server(comm);
    delayed_nesterov();
    momentum_watch();
    rp_comm_destroy(comm);
}
