#include "control_parties.h"

#include "base/clock.h"
#include "harness/check.h"

#include <stdio.h>

void *party_lives(void *context) {
    party *self = context;
    rpi_control_options options = {.prefix = "world",
                                   .session = self->session,
                                   .timeout_s = self->timeout_s,
                                   .beat_s = 0.01};
    self->status =
        rpi_control_open(&self->store, self->rank, self->world, &options, &self->control);
    if (self->status != RP_OK)
        snprintf(self->heard.text, sizeof self->heard.text, "%s", rp_last_error()->message);
    else
        self->act(self);
    if (self->status == RP_OK) rpi_control_close(self->control);
    return NULL;
}

bool party_waits_for_failure(party *self) {
    return rpi_control_wait_failed(rpi_control_everybody(self->control), rpi_deadline_ns(20),
                                   &self->heard);
}

void party_publish(party *self, int rank, rp_status status, const char *text) {
    rpi_failure failure = {.status = status, .rank = rank};
    snprintf(failure.text, sizeof failure.text, "%s", text);
    rpi_control_publish(rpi_control_everybody(self->control), &failure);
}

/* Everybody acts in a thread of its own; `count` of `world` come. */
void parties_gather(party *parties, int count, int world, void (*act)(party *)) {
    static pthread_barrier_t together;
    pthread_t threads[PARTIES_MOST];
    rp_store store = {0};
    REQUIRE_OK(rp_store_open_local(&store));
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        party *p = &parties[i];
        p->store = store;
        p->rank = i;
        p->world = world;
        if (p->timeout_s == 0) p->timeout_s = 20;
        p->act = act;
        p->together = &together;
        pthread_create(&threads[i], NULL, party_lives, p);
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    rp_store_close(&store);
}

void party_does_nothing(party *self) {
    (void)self;
}

/* Beats of all ranks from `first` on that came later than `since_ns`. */
void party_hears_all_since(party *self, rpi_control_group *group, int first, int64_t since_ns) {
    for (int member = 0; member < self->world - first; member++) {
        rpi_control_beat beat = {0};
        int64_t deadline_ns = rpi_deadline_ns(20);
        do {
            rpi_control_beat_of(group, member, &beat);
            rpi_sleep_until_ns(rpi_now_ns() + 1000000);
        } while (beat.heard_ns <= since_ns && rpi_now_ns() < deadline_ns);
        CHECK_MSG(beat.heard_ns > since_ns, "rank %d has no beats of rank %d without rank %d",
                  self->rank, first + member, first - 1);
    }
}

/* The thread has been round once more: it has seen what this one did under the lock. */
void party_lets_thread_pass(party *self) {
    for (int i = 0; i < 2; i++)
        party_hears_all_since(self, rpi_control_everybody(self->control), 0, rpi_now_ns());
}

rpi_control_group *party_open_group(party *self, uint64_t scope, int first, int second) {
    int ranks[] = {first, second};
    rpi_control_group *group = NULL;
    CHECK_OK(rpi_control_group_open(self->control, scope, ranks, 2, &group));
    return group;
}
