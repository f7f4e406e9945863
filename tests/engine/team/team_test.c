/* Members that compute together: each once, all parts once, and nobody waits for who has none.
 */
#include "engine/team/team.h"

#include "base/clock.h"
#include "engine/team/gate.h"
#include "harness/check.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMBERS = 5, PARTS = MEMBERS * RPI_TEAM_SHARES };

typedef struct census {
    atomic_int seen[MEMBERS], parts[PARTS];
    atomic_int wrong, before, nested;
} census;

static void count_nested(void *context) {
    census *c = context;
    atomic_fetch_add(&c->nested, 1);
    if (rpi_team_member() != 0 || rpi_team_members() != 1) atomic_fetch_add(&c->wrong, 1);
    rpi_team_barrier(); /* of one */
}

static void count_member(void *context) {
    census *c = context;
    int member = rpi_team_member();
    atomic_fetch_add(&c->seen[member], 1);
    if (rpi_team_members() != MEMBERS || !rpi_team_in_body()) atomic_fetch_add(&c->wrong, 1);
    for (int round = 1; round <= 20; round++) {
        atomic_fetch_add(&c->before, 1);
        rpi_team_barrier();
        if (atomic_load(&c->before) != round * MEMBERS) atomic_fetch_add(&c->wrong, 1);
        rpi_team_barrier();
    }
    rpi_team_gang(MEMBERS, count_nested, c);
    if (rpi_team_member() != member || rpi_team_members() != MEMBERS)
        atomic_fetch_add(&c->wrong, 1);
}

static void a_gang_is_there_at_once(void) {
    CHECK(!rpi_team_in_body());
    REQUIRE(rpi_team_grow(MEMBERS) == MEMBERS);
    CHECK_EQ(rpi_team_grow(2), 2);
    for (int turn = 0; turn < 50; turn++) {
        census c = {0};
        rpi_team_gang(MEMBERS, count_member, &c);
        for (int i = 0; i < MEMBERS; i++) CHECK_EQ(atomic_load(&c.seen[i]), 1);
        CHECK_EQ(atomic_load(&c.wrong), 0);
        CHECK_EQ(atomic_load(&c.nested), MEMBERS);
    }
    CHECK(!rpi_team_in_body());
    CHECK_EQ(rpi_team_members(), 1);
}

static void count_part(const void *context, int part) {
    census *c = (census *)context;
    atomic_fetch_add(&c->parts[part], 1);
}

static void parts_are_run_once(void) {
    for (int turn = 0; turn < 3000; turn++) {
        census c = {0};
        int members = 1 + turn % MEMBERS, parts = turn % (members * RPI_TEAM_SHARES + 1);
        rpi_team_share(members, parts, count_part, &c);
        for (int i = 0; i < PARTS; i++)
            CHECK_MSG(atomic_load(&c.parts[i]) == (i < parts), "%d members, part %d of %d",
                      members, i, parts);
    }
}

static void count_many(const void *context, int part) {
    atomic_fetch_add((atomic_int *)context + part, 1);
}

/* As many parts as a team keeps account of, and more, which the caller runs. */
static void the_most_parts_are_run_once(void) {
    enum { MOST = RPI_TEAM_MOST * RPI_TEAM_SHARES };
    static atomic_int counts[MOST + 2];
    for (int parts = MOST - 1; parts <= MOST + 2; parts++) {
        memset((void *)counts, 0, sizeof counts);
        rpi_team_share(2, parts, count_many, counts);
        for (int i = 0; i < MOST + 2; i++)
            CHECK_MSG(atomic_load(&counts[i]) == (i < parts), "part %d of %d", i, parts);
    }
}

/* ---- a member that gets no processor, played by one that waits ---- */

typedef struct late {
    pthread_t caller;
    atomic_int done;
    sem_t rest;
} late;

static void be_late(const void *context, int part) {
    late *l = (late *)context;
    (void)part;
    if (!pthread_equal(pthread_self(), l->caller)) sem_wait(&l->rest);
    if (atomic_fetch_add(&l->done, 1) == 8 - 2) sem_post(&l->rest);
}

static void the_caller_does_what_others_leave(void) {
    for (int turn = 0; turn < 20; turn++) {
        late l = {.caller = pthread_self()};
        sem_init(&l.rest, 0, 0);
        rpi_team_share(2, 8, be_late, &l); /* ends only if all others' parts are taken */
        CHECK_EQ(atomic_load(&l.done), 8);
        sem_destroy(&l.rest);
    }
}

/* ---- lives ---- */

static void *use_a_team(void *context) {
    census *c = context;
    rpi_team_share(3, 6, count_part, c);
    rpi_team_gang(3, count_nested, c);
    return NULL;
}

static void a_team_ends_with_its_thread(void) {
    int before = check_threads();
    pthread_t threads[3];
    census c[3] = {{.wrong = 0}};
    for (int i = 0; i < 3; i++)
        REQUIRE(pthread_create(&threads[i], NULL, use_a_team, &c[i]) == 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(atomic_load(&c[i].nested), 3);
        for (int part = 0; part < 6; part++) CHECK_EQ(atomic_load(&c[i].parts[part]), 1);
    }
    CHECK_EQ(check_settled_threads(before), before);
}

static void a_child_has_a_team_of_its_own(void) {
    census c = {0};
    int status = 0;
#if defined(__SANITIZE_THREAD__)
    check_skip("ThreadSanitizer starts no threads in a child");
    return;
#endif
    rpi_team_share(2, 2, count_part, &c);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        rpi_team_share(2, 4, count_part, &c);
        _exit(atomic_load(&c.parts[0]) == 2 && atomic_load(&c.parts[3]) == 1 ? 0 : 1);
    }
    REQUIRE(child > 0);
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    rpi_team_share(2, 2, count_part, &c); /* and the parent still its own */
    CHECK_EQ(atomic_load(&c.parts[0]), 2);
}

static void nobody_is_pinned(void) {
    cpu_set_t before, after;
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    REQUIRE(rpi_team_grow(MEMBERS) == MEMBERS);
    REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
    CHECK(CPU_EQUAL(&before, &after));
}

/* ---- gates ---- */

static void *open_later(void *context) {
    rpi_sleep_until_ns(rpi_now_ns() + 20000000); /* longer than anybody spins */
    rpi_gate_set(context, 7);
    return NULL;
}

static void who_sleeps_is_woken(void) {
    rpi_gate gate = {.value = 3};
    rpi_company company = {0};
    pthread_t thread;
    CHECK_EQ(rpi_gate_wait(&gate, 2, &company), 3); /* is another already */
    REQUIRE(pthread_create(&thread, NULL, open_later, &gate) == 0);
    CHECK_EQ(rpi_gate_wait(&gate, 3, &company), 7);
    pthread_join(thread, NULL);
    CHECK_EQ(atomic_load(&gate.sleepers), 0);
}

static void company_is_forgotten(void) {
    rpi_company company = {0};
    CHECK(!rpi_in_company(&company));
    atomic_store(&company.until_ns, rpi_now_ns() + 60 * RPI_SECOND_NS);
    CHECK(rpi_in_company(&company));
    atomic_store(&company.until_ns, rpi_now_ns() - 1);
    CHECK(!rpi_in_company(&company));
}

static void work_is_cut_finer_in_company(void) {
    REQUIRE(rpi_team_grow(3) == 3);
    CHECK(rpi_team_cut(3) == 3 || rpi_team_cut(3) == 3 * RPI_TEAM_SHARES);
    rpi_team_assume_company(60);
    CHECK_EQ(rpi_team_cut(3), 3 * RPI_TEAM_SHARES);
    rpi_team_assume_company(0);
    CHECK_EQ(rpi_team_cut(3), 3);
}

CASES({"a_gang_is_there_at_once", a_gang_is_there_at_once},
      {"parts_are_run_once", parts_are_run_once},
      {"the_most_parts_are_run_once", the_most_parts_are_run_once},
      {"the_caller_does_what_others_leave", the_caller_does_what_others_leave},
      {"a_team_ends_with_its_thread", a_team_ends_with_its_thread},
      {"a_child_has_a_team_of_its_own", a_child_has_a_team_of_its_own},
      {"nobody_is_pinned", nobody_is_pinned}, {"who_sleeps_is_woken", who_sleeps_is_woken},
      {"company_is_forgotten", company_is_forgotten},
      {"work_is_cut_finer_in_company", work_is_cut_finer_in_company})
