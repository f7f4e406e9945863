/* A process in a world of views (redpoll/view.h): what it holds, what it says of itself, whom
 * it sees.
 *
 *     WAITING --the next view has it--> MEMBER --a later view lacks it--> LEFT_OUT
 *                                       |    ^
 *                                       +----+ the next view has it, too */
#ifndef RPI_NET_VIEW_WORLD_H
#define RPI_NET_VIEW_WORLD_H

#include "net/world/view_rules.h"

#include <pthread.h>
#include <stdatomic.h>

enum { RPI_WORLD_NAME_MAX = 40, RPI_WORLD_KEY_BYTES = 128 };

typedef enum rpi_world_state {
    RPI_WORLD_WAITING,
    RPI_WORLD_MEMBER,
    RPI_WORLD_LEFT_OUT
} rpi_world_state;

/* What was waited for before view `making` could be closed, over all calls. */
typedef struct rpi_view_waits {
    uint32_t making;
    int64_t looked_ns; /* the last time */
    int64_t late_ns;   /* for members that live, from when the first of them has come */
    int64_t call_ns;   /* for others to come to the first view, from when there are enough */
} rpi_view_waits;

struct rp_world {
    rp_store store;        /* shared with the thread that sends this process's beats */
    struct rpi_join *join; /* rp_world_join(): the launcher's store; else NULL */
    char name[RPI_WORLD_NAME_MAX + 1];
    int least, most;
    double last_call_s, late_after_s;
    int64_t silence_ns;
    rpi_world_state state;
    atomic_int references; /* its owner, and the contexts of its views' communicators */

    pthread_mutex_t saying; /* [before lock] held until the store has the statement */
    pthread_mutex_t lock;
    pthread_cond_t woken; /* on CLOCK_MONOTONIC */
    uint32_t id;          /* [lock] */
    rpi_statement says;   /* [lock] its own statement, as sent last */
    bool stop;            /* [lock] */
    pthread_t thread;     /* sends it again several times in silence_ns */
    atomic_uint number;   /* of the view that it holds */
    atomic_bool changing; /* a process has knocked for the next view */

    rp_view view;            /* what was returned, over `held` */
    rpi_view_record held;    /* number 0: none so far */
    rpi_view_record newest;  /* as the store has it */
    rpi_view_record next;    /* as it would be */
    char *text, *other_text; /* of `newest`, and room for another: RPI_VIEW_RECORD_BYTES */
    char *page;              /* RPI_STORE_VALUE_BYTES, which is as many */
    rpi_view_candidate *candidates; /* by rising ids */
    rpi_view_candidate *fresh;      /* those of the next look; as many have room */
    int candidate_count, candidate_room;
    rpi_view_waits waits;
};

/* ---- view_store.c: what the store has ---- */

/* "NAME/views/SUBJECT", and "/NUMBER", "/ID" unless they are 0. */
const char *rpi_world_key(const rp_world *world, const char *subject, uint32_t number,
                          uint32_t id, char key[RPI_WORLD_KEY_BYTES]);
/* Set or remove that key; its value does not matter. */
rp_status rpi_world_mark(rp_world *world, const char *subject, uint32_t number, uint32_t id);
void rpi_world_unmark(rp_world *world, const char *subject, uint32_t number, uint32_t id);
/* Until it is there, or for wait_s. RP_OK in both cases. */
rp_status rpi_world_await_mark(rp_world *world, const char *subject, uint32_t number,
                               uint32_t id, double wait_s);
/* An id of its own among all processes, and its first statement. */
rp_status rpi_world_take_id(rp_world *world);
/* Say what it says now. */
rp_status rpi_world_say(rp_world *world);
/* The newest view. */
rp_status rpi_world_read(rp_world *world);
/* All others, and how long each has been silent. */
rp_status rpi_world_look_around(rp_world *world);
/* Put `next` in the place of `newest`, which becomes the view in the store: this one, or that
 * of another process that was faster. */
rp_status rpi_world_propose(rp_world *world);

/* ---- view_open.c ---- */

/* For the making of communicators. A context keeps the world's memory. */
void rpi_world_keep(rp_world *world);
void rpi_world_release(rp_world *world);

/* ---- view_watch.c ---- */

/* For a wait for members of its view: RP_PEER names one that has left, or has gone on to the
 * next view; RP_STATE: the world has. By the thread that may call rp_world_next(). */
rp_status rpi_world_look(rp_world *world);
/* A communicator of view `number` has lost this rank of it: reported when the next view is
 * made. Any thread. */
void rpi_world_note_lost(rp_world *world, uint32_t number, int rank);

#endif
