/* Who is late when ranks wait for each other. */
#include "net/meeting.h"

#include "harness/check.h"

#include <pthread.h>

enum { WORLD = 4 };

typedef struct guest {
    rp_store store;
    int rank, waits_for, late;
} guest;

static void *wait_in_vain(void *context) {
    guest *self = context;
    rpi_meeting meeting;
    CHECK_OK(rpi_meeting_arrive(&meeting, &self->store, self->rank, WORLD, "meeting", 20));
    self->late = rpi_meeting_find_late(&meeting, self->waits_for);
    return NULL;
}

/* waits_for[rank]: a rank, or -1 for one that waits for nobody. */
static void hold(const int waits_for[WORLD], guest guests[WORLD]) {
    pthread_t threads[WORLD];
    rp_store store = {0};
    REQUIRE_OK(rp_store_open_local(&store));
    for (int i = 0; i < WORLD; i++) {
        guests[i] = (guest){.store = store, .rank = i, .waits_for = waits_for[i], .late = -1};
        if (waits_for[i] >= 0) pthread_create(&threads[i], NULL, wait_in_vain, &guests[i]);
    }
    for (int i = 0; i < WORLD; i++)
        if (waits_for[i] >= 0) pthread_join(threads[i], NULL);
    rp_store_close(&store);
}

static void the_end_of_a_chain_is_late(void) {
    guest guests[WORLD];
    hold((int[WORLD]){1, -1, 0, 2}, guests);
    CHECK_EQ(guests[0].late, 1);
    CHECK_EQ(guests[2].late, 1);
    CHECK_EQ(guests[3].late, 1);
}

static void a_circle_has_an_end(void) {
    guest guests[WORLD];
    hold((int[WORLD]){1, 2, 0, -1}, guests);
    for (int i = 0; i < 3; i++) CHECK(guests[i].late >= 0 && guests[i].late < 3);
}

CASES({"the_end_of_a_chain_is_late", the_end_of_a_chain_is_late},
      {"a_circle_has_an_end", a_circle_has_an_end})
