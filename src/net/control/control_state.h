/* What the callers' side of the control connection (control_open.c, control_groups.c) and its
 * thread (control_thread.c) share. */
#ifndef RPI_NET_CONTROL_STATE_H
#define RPI_NET_CONTROL_STATE_H

#include "net/control/control.h"
#include "net/control/control_line.h"
#include "net/trust/secret.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

/* The first hub, and how many ranks behind it are in line to be the next. */
enum { RPI_CONTROL_HUB = 0, RPI_CONTROL_SUCCESSORS = 8, RPI_CONTROL_ADDRESS_BYTES = 272 };

/* What a rank last said that it waits for in a group; it holds as long as the rank says so in
 * each of its beats. */
typedef struct rpi_group_beat {
    uint64_t sequence;
    rpi_control_gap gap;
    uint32_t round; /* of the rank's beats */
} rpi_group_beat;

struct rpi_control_group {
    rpi_control *control;
    uint64_t scope;
    int count;
    int *ranks; /* [count] its members, as the control connection numbers them; NULL: all */
    atomic_ullong sequence;
    atomic_ullong gap; /* 2^24 * step + rank + 1; 0: none */
    atomic_bool known; /* failed, for a look without the lock */

    /* Under the lock. */
    rpi_control_group *next;
    bool failed, published, outbox_full;
    bool accused; /* `account` waits for a verdict */
    rpi_failure failure, account;
    int64_t account_ns;    /* when `account` becomes the verdict; RPI_NEVER_NS: not by itself */
    rpi_group_beat *beats; /* [count] */
};

/* Ranks in a row, from `rank` on, whose beats say the same. */
typedef struct rpi_beat_run {
    int rank, count;
    rpi_group_beat beat;
} rpi_beat_run;

/* A beat of a group other than the world, on its way. */
typedef struct rpi_scoped_beat {
    uint64_t scope, sequence, gap;
    int rank;
} rpi_scoped_beat;

enum { RPI_CONTROL_EARLY = 64 };

struct rpi_control {
    int rank, world;
    uint64_t session;
    rpi_secret secret;
    int64_t beat_ns, silence_ns, opened_ns;
    int64_t lost_ns; /* a host that answers nothing for so long is lost */
    pthread_t thread;
    bool has_thread;
    int wake;         /* eventfd: look at the fields under the lock again */
    int failed_fd;    /* eventfd: readable once a group has failed */
    atomic_bool told; /* and that it has been written, so that nobody reads in vain */
    rpi_control_group everybody; /* the group of all ranks, scope 0 */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    int arrived;   /* hub: ranks that have come, */
    bool *present; /* [world] and which */
    bool welcome;  /* hub: open() lets them in; leaf: the hub has */
    bool closing;
    rpi_control_group *groups;            /* all, `everybody` among them */
    int64_t *heard_ns;                    /* [world] when a rank's last beat came */
    uint32_t *rounds;                     /* [world] its beats so far */
    bool *dead;                           /* [world] */
    bool *lost;                           /* [world] its host has answered nothing for long */
    rpi_failure early[RPI_CONTROL_EARLY]; /* of groups that are not open here yet: a ring */
    unsigned early_count;

    /* The thread's own. */
    int hub;         /* who judges: rank 0 at first (control_succession.c) */
    int64_t seek_ns; /* when to look for the next one; RPI_NEVER_NS: there is one */
    char addresses[RPI_CONTROL_SUCCESSORS + 1][RPI_CONTROL_ADDRESS_BYTES]; /* of successors */
    int listener;
    rpi_control_line *lines; /* of rank 0 to ranks and strangers; of others lines[0] to the hub,
                                and of successors lines from ranks and strangers behind it */
    int line_count;
    int *line_of; /* [world]: a rank's line that has called, -1 before it came */
    bool *fresh;  /* [world]: hub: a beat to pass on */
    bool let_in;  /* hub: WELCOME was sent */
    unsigned refusals;
    bool hub_left;       /* leaf: nobody judges, for now or any more */
    int64_t *suspect_ns; /* [world]: when a death is made known; RPI_NEVER_NS: none */
    rpi_failure *held;   /* accounts that wait until no rank is suspected */
    size_t held_count, held_room;
    rpi_beat_run *runs;      /* [world]: hub: what a beat says */
    rpi_scoped_beat *scoped; /* to be sent with the next beat */
    size_t scoped_count, scoped_room;
    int64_t beat_at_ns, leave_by_ns;
    struct pollfd *polls; /* [line_count + 2] */
    char lack[240];       /* [lock] why callers could not be let in; "": they could */
};

/* Under the lock: this is the group's first failure. */
void rpi_control_keep(rpi_control_group *group, const rpi_failure *failure);
/* Under the lock: what there is to say of a group that has a rank that died. */
void rpi_control_describe_death(const rpi_control_group *group, int rank,
                                rpi_failure *out_failure);
/* The place of a rank in the group; -1: it is no member. */
int rpi_control_member(const rpi_control_group *group, int rank);
/* Under the lock. NULL: none of this scope is open here. */
rpi_control_group *rpi_control_find_group(rpi_control *control, uint64_t scope);
/* Sleep until something under the lock has changed; false once the deadline has come. */
bool rpi_control_wait_change(rpi_control *control, int64_t deadline_ns);
/* Of each of the group's members, with nothing heard. */
rp_status rpi_control_make_beats(rpi_control_group *group);
/* A published failure before the judge (control_judge.c): decided, or kept until no rank is
 * suspected to be dead. */
void rpi_control_judge(rpi_control *control, const rpi_failure *failure);
/* It is the next failure in order: known here, and on rank 0 told to everybody. */
void rpi_control_decide(rpi_control *control, const rpi_failure *failure);
/* A rank's connection has ended without goodbye: dead, once the grace is over. */
void rpi_control_suspect(rpi_control *control, int rank);
/* Make the deaths known whose grace is over by then; until when the next one's lasts. */
int64_t rpi_control_end_grace(rpi_control *control, int64_t now_ns);
/* Failures that callers have published since, to rank 0. */
void rpi_control_tell_accounts(rpi_control *control);
/* Judge here the accounts that rank 0 has not for long, or will not any more; when the next one
 * is due. */
void rpi_control_judge_overdue(rpi_control *control);
int64_t rpi_control_next_account_ns(rpi_control *control);
/* What came on a line of beats of one rank, and of several (control_beats.c). */
void rpi_control_take_beat(rpi_control *control, const rpi_control_record *record);
void rpi_control_take_beats(rpi_control *control, const rpi_control_record *record);
/* This rank's own beat; `tell`: say it, and on rank 0 what has been heard of the others. */
void rpi_control_beat_once(rpi_control *control, bool tell);
static inline bool rpi_control_is_hub(const rpi_control *control) {
    return control->hub == control->rank;
}

/* This rank's own line to the hub; false: a caller's. */
static inline bool rpi_control_is_up(const rpi_control *control, const rpi_control_line *line) {
    return control->rank != RPI_CONTROL_HUB && line == control->lines;
}

/* Ranks that listen from the beginning, to be the hub when all before them have gone. */
bool rpi_control_is_successor(int rank, int world);
/* Of successors; others do nothing, and one that has no port left is none. */
void rpi_control_listen(rpi_control *control, const char *bind_host);
void rpi_control_note_address(rpi_control *control, int rank, const char *text);
/* Queue them, on rank 0. */
void rpi_control_tell_addresses(const rpi_control *control, rpi_control_line *line);
/* The hub has left, or died: seek_ns is when to seek another. */
void rpi_control_lose_hub(rpi_control *control);
/* Call the next in line, or be it. Blocks for a moment where one does not answer. */
void rpi_control_seek_hub(rpi_control *control);
/* The thread: hears callers and lines until it has left. context: the rpi_control. */
void *rpi_control_run(void *context);

#endif
