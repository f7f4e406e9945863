#include "engine/team/team.h"

#include "base/clock.h"
#include "base/memory.h"
#include "engine/team/gate.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

typedef struct team team;

typedef struct member {
    rpi_gate go; /* what to do: number of the region * 2, 1 more for a gang; 0: end */
    team *team;
    pthread_t thread;
    int number, beside; /* regions in a row that began on the caller's processor */
    int64_t moved_ns;
} member;

struct team {
    rpi_company company;
    rpi_gate done;                /* number of the region that is finished */
    rpi_gate barrier;             /* how many were passed */
    _Alignas(64) atomic_int left; /* members of a gang, or parts, that are not finished */
    atomic_int arrived;           /* at the barrier */
    atomic_int parts, members;    /* of the region that was begun last */
    atomic_int processor;         /* the caller's, when it began */
    unsigned region;
    void (*gang)(void *);
    void (*share)(const void *, int);
    void *context;
    /* Of each part: number of its region * 2, 1 more when somebody has taken it. */
    atomic_uint *taken;
    member **others; /* others[1] to others[size - 1] */
    int size;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* closes a team when its thread ends */
static _Thread_local team *own;
static _Thread_local team *current; /* whose body this thread runs */
static _Thread_local int current_number, current_members = 1;
static _Thread_local bool in_body;

/* ---- where members run ---- */

/* Onto any other processor that this thread may use, and free again. */
static void leave_processor(int processor) {
    cpu_set_t allowed, others;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    others = allowed;
    CPU_CLR((size_t)processor, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return;
    (void)sched_setaffinity(0, sizeof allowed, &allowed);
}

static void keep_apart(member *m) {
    enum { PATIENCE = 8, REST_NS = 100000000 };
    int here = sched_getcpu();
    bool beside = here >= 0 && here == atomic_load(&m->team->processor);
    m->beside = beside ? m->beside + 1 : 0;
    if (m->beside < PATIENCE) return;
    m->beside = 0;
    int64_t now = rpi_now_ns();
    if (m->moved_ns && now - m->moved_ns < REST_NS) return;
    m->moved_ns = now;
    leave_processor(here);
}

/* ---- members ---- */

static void finish(team *t, unsigned region) {
    if (atomic_fetch_sub(&t->left, 1) == 1) rpi_gate_set(&t->done, region);
}

static bool take(team *t, unsigned region, int part) {
    unsigned free = region * 2;
    return atomic_compare_exchange_strong(&t->taken[part], &free, region * 2 + 1);
}

/* Whose region is over finds no part that it could take: all carry another number. */
static void take_parts(team *t, unsigned region, int number) {
    int parts = atomic_load(&t->parts), members = atomic_load(&t->members);
    int first = number < members ? (int)((int64_t)parts * number / members) : 0;
    for (int i = 0; i < parts; i++) {
        int part = (first + i) % parts;
        if (!take(t, region, part)) continue;
        t->share(t->context, part);
        finish(t, region);
    }
}

static void enter_body(team *t, int number, int members) {
    current = t;
    current_number = number;
    current_members = members;
    in_body = true;
}

static void leave_body(void) {
    current = NULL;
    current_number = 0;
    current_members = 1;
    in_body = false;
}

static void *serve(void *context) {
    member *m = context;
    team *t = m->team;
    for (unsigned seen = 1; (seen = rpi_gate_wait(&m->go, seen, &t->company)) != 0;) {
        keep_apart(m);
        enter_body(t, m->number, atomic_load(&t->members));
        if (seen & 1) {
            t->gang(t->context);
            finish(t, seen / 2);
        } else {
            take_parts(t, seen / 2, m->number);
        }
        leave_body();
    }
    return NULL;
}

/* ---- the team of this thread ---- */

static void close_team(void *opaque) {
    team *t = opaque;
    for (int i = 1; i < t->size; i++) rpi_gate_set(&t->others[i]->go, 0);
    for (int i = 1; i < t->size; i++) {
        pthread_join(t->others[i]->thread, NULL);
        rpi_free(t->others[i]);
    }
    rpi_free(t->others);
    rpi_free(t->taken);
    rpi_free(t);
}

/* A child of fork() has none of its parent's other threads. */
static void forget_team(void) {
    own = NULL;
    leave_body();
    (void)pthread_setspecific(key, NULL);
}

static void make_key(void) {
    pthread_key_create(&key, close_team);
    pthread_atfork(NULL, NULL, forget_team);
}

static team *open_team(void) {
    team *t = NULL;
    pthread_once(&once, make_key);
    if (rpi_alloc(sizeof *t, "a team of threads", &t) != RP_OK) return NULL;
    t->size = 1;
    if (rpi_alloc_array(RPI_TEAM_MOST, sizeof(member *), "a team of threads", &t->others) !=
            RP_OK ||
        rpi_alloc_array(RPI_TEAM_MOST * RPI_TEAM_SHARES, sizeof(atomic_uint),
                        "a team of threads", &t->taken) != RP_OK ||
        pthread_setspecific(key, t) != 0) {
        close_team(t);
        return NULL;
    }
    return t;
}

/* Signals are the program's business. */
static bool add_member(team *t) {
    member *m = NULL;
    sigset_t all, before;
    if (rpi_alloc(sizeof *m, "a member of a team", &m) != RP_OK) return false;
    m->team = t;
    m->number = t->size;
    atomic_init(&m->go.value, 1);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool runs = pthread_create(&m->thread, NULL, serve, m) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (runs) t->others[t->size++] = m;
    if (!runs) rpi_free(m);
    return runs;
}

int rpi_team_grow(int members) {
    if (in_body) return 1;
    if (members > RPI_TEAM_MOST) members = RPI_TEAM_MOST;
    if (members > 1 && !own) own = open_team();
    while (own && own->size < members && add_member(own)) {
    }
    int size = own ? own->size : 1;
    return members < size ? members : size;
}

/* ---- regions ---- */

/* Members 1 to members - 1 hear of it. */
static void begin(team *t, int members, int left, bool gang) {
    atomic_store(&t->members, members);
    atomic_store(&t->left, left);
    atomic_store(&t->processor, sched_getcpu());
    for (int i = 1; i < members; i++) rpi_gate_put(&t->others[i]->go, t->region * 2 + gang);
    rpi_gate_fence();
    for (int i = 1; i < members; i++) rpi_gate_wake(&t->others[i]->go);
}

static void end(team *t, unsigned before) {
    leave_body();
    (void)rpi_gate_wait(&t->done, before, &t->company);
}

/* 0 would end members. */
static void next_region(team *t) {
    t->region = (t->region + 1) & 0x7fffffff;
    if (t->region == 0) t->region = 1;
}

static void run_alone(void (*body)(void *), void *context) {
    team *t = current;
    int number = current_number, members = current_members;
    current = NULL;
    current_number = 0;
    current_members = 1;
    body(context);
    current = t;
    current_number = number;
    current_members = members;
}

void rpi_team_gang(int members, void (*body)(void *), void *context) {
    members = rpi_team_grow(members);
    if (members <= 1) {
        run_alone(body, context);
        return;
    }
    team *t = own;
    unsigned before = atomic_load(&t->done.value);
    next_region(t);
    t->gang = body;
    t->context = context;
    begin(t, members, members, true);
    enter_body(t, 0, members);
    body(context);
    finish(t, t->region);
    end(t, before);
}

int rpi_team_member(void) {
    return current_number;
}

int rpi_team_members(void) {
    return current_members;
}

bool rpi_team_in_body(void) {
    return in_body;
}

void rpi_team_barrier(void) {
    team *t = current;
    if (current_members <= 1) return;
    unsigned passed = atomic_load(&t->barrier.value);
    if (atomic_fetch_add(&t->arrived, 1) == current_members - 1) {
        atomic_store(&t->arrived, 0);
        rpi_gate_set(&t->barrier, passed + 1);
    } else {
        (void)rpi_gate_wait(&t->barrier, passed, &t->company);
    }
}

int rpi_team_cut(int members) {
    bool late = own && !in_body && rpi_in_company(&own->company);
    return late ? members * RPI_TEAM_SHARES : members;
}

void rpi_team_assume_company(double seconds) {
    if (rpi_team_grow(2) > 1)
        atomic_store(&own->company.until_ns,
                     rpi_now_ns() + (int64_t)(seconds * (double)RPI_SECOND_NS));
}

void rpi_team_share(int members, int parts, void (*body)(const void *, int),
                    const void *context) {
    members = parts > 1 ? rpi_team_grow(members) : 1;
    if (members <= 1 || parts > RPI_TEAM_MOST * RPI_TEAM_SHARES) {
        for (int part = 0; part < parts; part++) body(context, part);
        return;
    }
    team *t = own;
    unsigned before = atomic_load(&t->done.value);
    next_region(t);
    t->share = body;
    t->context = (void *)context;
    atomic_store(&t->parts, parts);
    for (int part = 0; part < parts; part++) atomic_store(&t->taken[part], t->region * 2);
    begin(t, members, parts, false);
    enter_body(t, 0, members);
    take_parts(t, t->region, 0);
    end(t, before);
}
