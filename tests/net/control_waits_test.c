/* Which waits never end: rows of who waits for whom, where, and which groups are failed then.
 */
#include "bare_coordinator.h"

#include "base/clock.h"
#include "harness/check.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6 };

/* Groups are letters: w is that of all. Rank 0 decides and is not among those that wait.
 * waits: "1w2": rank 1 waits in w for rank 2; "1w2!": and has for the whole timeout; "1w2-": it
 * does not wait, but an operation that it has posted there lacks that frame; "1w?": for nobody
 * who is known. computes: ranks of which some thread does something else. stopped: without
 * heartbeats. fails: the groups, in any order. */
typedef struct row {
    const char *what, *waits, *computes, *stopped, *fails;
} row;

static const row rows[] = {
    {"two in two groups", "1w2! 2a1!", "", "", "wa"},
    {"one timeout is enough", "1w2! 2a1", "", "", "wa"},
    {"no timeout is over", "1w2 2a1", "", "", ""},
    {"one group is judged by its ranks", "1w2! 2w1!", "", "", ""},
    {"three in three groups", "1a2! 2b3! 3c1!", "", "", "abc"},
    {"two groups, four ranks", "1a2! 2a3! 3b4! 4b1!", "", "", "ab"},
    {"the last one computes", "1w2! 2a3!", "3", "", ""},
    {"far behind the last one", "1a2! 2b3! 3c4! 4d5!", "5", "", ""},
    {"another thread of the second computes", "1w2! 2a1!", "2", "", ""},
    {"another thread of the first computes", "1w2! 2a1!", "1", "", ""},
    {"the last one is stopped", "1w2! 2a3!", "", "3", "w"},
    {"and the first group is another", "1a2! 2b3! 3c4", "", "4", "ab"},
    {"who is stopped is said by members", "1w2! 2w3!", "", "3", ""},
    {"a stopped one does not wait", "1w2! 2a1!", "", "2", ""},
    {"what was posted waits for one that computes", "1w2! 2w3- 2a1!", "3", "", ""},
    {"what was posted waits for one that is crossed", "1w2! 2w3- 2a1! 3a1!", "", "", "wa"},
    {"waits for nobody who is known", "1w2! 2a?!", "", "", ""},
    {"two threads, of which one goes on", "1w2! 2a1! 2b3!", "3", "", ""},
    {"two threads, of which none does", "1w2! 2a1! 2b1!", "", "", "wab"},
    {"who waits for those that are crossed", "1w2! 2a3! 3b2! 4c1!", "", "", "wabc"},
    {"two pairs, one of them crossed", "1a2! 2b1! 3c4! 4d5!", "5", "", "ab"},
    {"two pairs, both crossed", "1a2! 2b1! 3c4! 4d3!", "", "", "abcd"},
    {"a rank that says nothing more", "1w2! 2a3!", "", "", ""},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static void add_letter(char *text, char letter) {
    size_t length = strlen(text);
    text[length] = letter;
    text[length + 1] = '\0';
}

static void join_groups(bare_coordinator *coordinator) {
    for (uint64_t scope = 0xa; scope <= 0xd; scope++) {
        char name[16];
        snprintf(name, sizeof name, "group %c", (int)('a' + scope - 0xa));
        for (int rank = 1; rank < RANKS; rank++)
            rpi_scope_join(&coordinator->control, scope, rank, RANKS - 1, name);
    }
}

static void hear_wait(bare_coordinator *coordinator, int rank, const char *wait) {
    char scope[2] = {wait[1] == 'w' ? '\0' : wait[1], '\0'};
    int from = wait[2] == '?' ? -1 : wait[2] - '0';
    uint64_t flags = wait[3] == '!' ? RPI_BEAT_OVERDUE : 0;
    bare_coordinator_hear(coordinator, rank, scope, wait[3] == '-' ? 0 : 7, from, flags);
}

/* All that ranks say in one beat: of the group of all last, whether they wait there or not. */
static void hear_beat(bare_coordinator *coordinator, const row *r) {
    for (int rank = 0; rank < RANKS; rank++) {
        const char *in_all = NULL;
        bool waits = false;
        if (strchr(r->stopped, '0' + rank)) continue;
        for (const char *at = r->waits; *at; at += strcspn(at, " "), at += *at == ' ') {
            if (*at - '0' != rank) continue;
            waits = true;
            if (at[1] == 'w')
                in_all = at;
            else
                hear_wait(coordinator, rank, at);
        }
        bool blocked = waits && !strchr(r->computes, '0' + rank);
        uint64_t flags = blocked ? RPI_BEAT_BLOCKED : 0;
        if (rank == 0) {
            rpi_control_beat_once(&coordinator->control, true);
            continue;
        }
        if (in_all && in_all[3] == '!') flags |= RPI_BEAT_OVERDUE;
        bool is_waiting = in_all && in_all[3] != '-';
        int from = !in_all || in_all[2] == '?' ? -1 : in_all[2] - '0';
        bare_coordinator_hear(coordinator, rank, "", is_waiting ? 7 : 0, from, flags);
    }
}

static void note_failed(bare_coordinator *coordinator, char *failed) {
    rpi_failure heard;
    *failed = '\0';
    if (rpi_control_failed(&coordinator->control.everybody, &heard)) add_letter(failed, 'w');
    for (char group = 'a'; group <= 'd'; group++)
        for (const rpi_scope *at = coordinator->control.scopes; at; at = at->next)
            if (at->failed && at->scope == (uint64_t)(group - 'a' + 0xa))
                add_letter(failed, group);
}

static bool are_same(const char *a, const char *b) {
    return strspn(a, b) == strlen(a) && strspn(b, a) == strlen(b);
}

/* Who is stopped was heard of long ago; the others twice, so that their waits overlap. */
static void arbitrate_row(bare_coordinator *coordinator, const row *r) {
    join_groups(coordinator);
    for (int i = 0; i < 2; i++) {
        hear_beat(coordinator, r);
        for (int rank = 1; rank < RANKS; rank++)
            if (strchr(r->stopped, '0' + rank)) coordinator->control.heard_ns[rank] = 1;
        rpi_control_arbitrate_waits(&coordinator->control);
    }
}

static void judge_row(const row *r) {
    bare_coordinator *coordinator = bare_coordinator_make(RANKS);
    char failed[8];
    arbitrate_row(coordinator, r);
    note_failed(coordinator, failed);
    CHECK_MSG(are_same(failed, r->fails), "%s (%s): '%s' fail, not '%s'", r->what, r->waits,
              failed, r->fails);
    bare_coordinator_free(coordinator);
}

static void waits_that_never_end_are_failed(void) {
    for (int i = 0; i < ROWS; i++) judge_row(&rows[i]);
}

/* ---- random rows: each rank computes, is stopped, or waits for one other ---- */

typedef struct random_rank {
    char scope; /* it waits in; 'C': it computes, 'S': it is stopped */
    int from;
} random_rank;

static uint32_t next_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* As each rank has one wait at most, there is one way from each: whoever it meets first, a rank
 * that computes, one that is stopped or itself, says what becomes of it. */
static void add_failed_of(const random_rank *ranks, int first, char *failed) {
    int rank = first;
    bool several = false;
    char way[RANKS + 1] = "";
    for (int hops = 0; hops < RANKS && strchr("wabcd", ranks[rank].scope); hops++) {
        if (!strchr(way, ranks[rank].scope)) add_letter(way, ranks[rank].scope);
        several |= ranks[rank].scope != ranks[first].scope;
        rank = ranks[rank].from;
    }
    if (ranks[rank].scope == 'C' || !several) return;
    if (ranks[rank].scope == 'S') way[1] = '\0';
    for (const char *at = way; *at; at++)
        if (!strchr(failed, *at)) add_letter(failed, *at);
}

static void judge_random(uint64_t *state) {
    random_rank ranks[RANKS] = {{.scope = 'C'}};
    char waits[64] = "", stopped[RANKS] = "", failed[8] = "";
    for (int rank = 1; rank < RANKS; rank++) {
        char name = (char)('0' + rank), text[8];
        uint32_t what = next_random(state) % 12;
        ranks[rank].scope = what == 0 ? 'C' : what == 1 ? 'S' : "wabcd"[what % 5];
        ranks[rank].from = 1 + (rank + (int)(next_random(state) % (RANKS - 2))) % (RANKS - 1);
        if (ranks[rank].scope == 'S') add_letter(stopped, name);
        if (what < 2) continue;
        snprintf(text, sizeof text, "%c%c%d! ", name, ranks[rank].scope, ranks[rank].from);
        strcat(waits, text);
    }
    /* In the order in which they are decided; who has failed already is not asked any more. */
    for (const char *scope = "wabcd"; *scope; scope++)
        for (int rank = 1; rank < RANKS; rank++)
            if (ranks[rank].scope == *scope && !strchr(failed, *scope))
                add_failed_of(ranks, rank, failed);
    judge_row(&(row){"random", waits, "", stopped, failed});
}

static void random_waits_are_judged_by_where_they_lead(void) {
    uint64_t state = check_seed();
    for (int i = 0; i < 2000; i++) judge_random(&state);
}

/* Add a row: what is said of waits that are failed. */
static const struct {
    row of;
    int failed; /* how many groups, and so how often each rank hears it */
    const char *sentence;
} sentences[] = {
    {{"two", "1w2! 2a1!", "", "", ""},
     2,
     "timed out: ranks wait for each other: world rank 1 waits in 'world' (operation 7) for "
     "world rank 2, which waits in 'group a' (operation 7) for world rank 1"},
    {{"one that was posted", "1w2! 2w3- 2a1! 3a1!", "", "", ""},
     2,
     "timed out: ranks wait for each other: world rank 1 waits in 'world' (operation 7) for "
     "world rank 2, which waits in 'world' (an operation) for world rank 3, which waits in "
     "'group a' (operation 7) for world rank 1"},
    {{"four hops", "1a2! 2b3! 3c4! 4d1!", "", "", ""},
     4,
     "timed out: ranks wait for each other: world rank 1 waits in 'group a' (operation 7) for "
     "world rank 2, which waits in 'group b' (operation 7) for world rank 3, which waits in "
     "'group c' (operation 7) for world rank 4, which waits in 'group d' (operation 7) for "
     "world rank 1"},
    {{"five hops", "1a2! 2b3! 3c4! 4d5! 5a1!", "", "", ""},
     4,
     "timed out: ranks wait for each other: world rank 1 waits in 'group a' (operation 7) for "
     "world rank 2, which waits in 'group b' (operation 7) for world rank 3, which waits in "
     "'group c' (operation 7) for world rank 4, which waits in 'group d' (operation 7) for "
     "world rank 5, and so on"},
    {{"the last one is stopped", "1w2! 2a3!", "", "3", ""},
     1,
     "timed out: ranks wait for each other: world rank 1 waits in 'world' (operation 7) for "
     "world rank 2, which waits in 'group a' (operation 7) for world rank 3; world rank 3 is "
     "stopped, or gone"},
};

/* All ranks that hear of it hear one sentence, with the names of all groups. */
static void all_hear_one_sentence(void) {
    for (size_t i = 0; i < sizeof sentences / sizeof sentences[0]; i++) {
        bare_coordinator *coordinator = bare_coordinator_make(RANKS);
        rpi_control_record record;
        arbitrate_row(coordinator, &sentences[i].of);
        for (int rank = 1; rank < RANKS; rank++) {
            int heard = 0;
            while (rpi_control_connection_receive(&coordinator->far[rank], &record) == RP_OK) {
                if (record.kind != RPI_CONTROL_FAILURE) continue;
                heard++;
                CHECK_MSG(strcmp(record.text, sentences[i].sentence) == 0, "%s: %s",
                          sentences[i].of.what, record.text);
                CHECK_EQ(record.a, -RP_TIMEOUT);
                CHECK_EQ(record.rank, -1);
            }
            CHECK_EQ(heard, sentences[i].failed);
        }
        bare_coordinator_free(coordinator);
    }
}

/* Two waits that follow each other look like a circle to who hears of the first one late. */
static void waits_count_when_they_hold_at_one_moment(void) {
    bare_coordinator *coordinator = bare_coordinator_make(RANKS);
    rpi_failure heard;
    join_groups(coordinator);
    uint64_t over = RPI_BEAT_OVERDUE | RPI_BEAT_BLOCKED;
    for (int beat = 0; beat < 6; beat++) {
        /* Each time in another operation: what was said before holds no more. */
        bare_coordinator_hear(coordinator, 1, "", 7 + (uint64_t)beat, 2, over);
        bare_coordinator_hear(coordinator, 2, "a", 7 + (uint64_t)beat, 1, RPI_BEAT_OVERDUE);
        bare_coordinator_hear(coordinator, 2, "", 0, -1, RPI_BEAT_BLOCKED);
        rpi_control_arbitrate_waits(&coordinator->control);
        CHECK(!rpi_control_failed(&coordinator->control.everybody, &heard));
    }
    bare_coordinator_hear(coordinator, 1, "", 12, 2, over);
    rpi_control_arbitrate_waits(&coordinator->control);
    CHECK(rpi_control_failed(&coordinator->control.everybody, &heard));
    bare_coordinator_free(coordinator);
}

CASES({"waits that never end are failed", waits_that_never_end_are_failed},
      {"random waits are judged by where they lead",
       random_waits_are_judged_by_where_they_lead},
      {"all hear one sentence", all_hear_one_sentence},
      {"waits count when they hold at one moment", waits_count_when_they_hold_at_one_moment})
