/* Ranks of a control connection, each a thread of the test with a store for all. */
#ifndef NET_CONTROL_PARTIES_H
#define NET_CONTROL_PARTIES_H

#include "net/control/control.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { WORLD = 4, PARTIES_MOST = 32 };

typedef struct party {
    rp_store store;
    int rank, world;
    double timeout_s; /* 0: 20 seconds */
    uint64_t session;
    void (*act)(struct party *self);
    pthread_barrier_t *together;
    rpi_control *control; /* NULL once act() has closed it */
    rp_status status;
    rpi_failure heard;
} party;

/* Everybody acts in a thread of its own; `count` of `world` come. */
void parties_gather(party *parties, int count, int world, void (*act)(party *));
void *party_lives(void *self); /* the thread of one */
void party_does_nothing(party *self);

bool party_waits_for_failure(party *self); /* of all together; `heard` is it */
void party_publish(party *self, int rank, rp_status status, const char *text);
rpi_control_group *party_open_group(party *self, uint64_t scope, int first, int second);
/* Checks that beats of all ranks from `first` on come that are later than `since_ns`. */
void party_hears_all_since(party *self, rpi_control_group *group, int first, int64_t since_ns);
/* The thread has been round once more: it has seen what this one did under the lock. */
void party_lets_thread_pass(party *self);

#endif
