/* Kinds of operations: the catalogue, which kind a number is of, and what is found by a number.
 */
#include "comm/core/communicator.h"
#include "comm/core/number_index.h"
#include "comm/core/request.h"
#include "comm/core/traffic.h"
#include "comm/protocol/control_frames.h"
#include "comm/protocol/operation_kinds.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"

#include <string.h>

/* Add a row: a number, whose it is, and how heartbeats call it. */
static const struct {
    uint64_t sequence;
    const rpi_operation_kind *kind;
    const char *text;
    unsigned long long in_words;
} numbers[] = {
    {1, &rpi_operation_collective, "operation 1", 1},
    {RPI_EXCHANGE_SEQUENCE - 1, &rpi_operation_collective, "operation 4611686018427387903",
     RPI_EXCHANGE_SEQUENCE - 1},
    {RPI_EXCHANGE_SEQUENCE, &rpi_operation_exchange, "round 0", 0},
    {RPI_EXCHANGE_SEQUENCE + 7, &rpi_operation_exchange, "round 7", 7},
    {RPI_P2P_SEQUENCE - 1, &rpi_operation_exchange, "round 4611686018427387903",
     RPI_EXCHANGE_SEQUENCE - 1},
    {RPI_P2P_SEQUENCE, &rpi_operation_pair, "a send or receive", RPI_P2P_SEQUENCE},
    {RPI_P2P_SEQUENCE | 3, &rpi_operation_pair, "a send or receive", RPI_P2P_SEQUENCE | 3},
    {RPI_P2P_SEQUENCE | RPI_P2P_UPWARD | 3, &rpi_operation_pair, "a send or receive",
     RPI_P2P_SEQUENCE | RPI_P2P_UPWARD | 3},
    {UINT64_MAX, &rpi_operation_pair, "a send or receive", UINT64_MAX},
};

static void a_number_says_its_kind(void) {
    const rp_comm comm = {.kinds = rpi_operation_kinds};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[64];
        rpi_sequence_text(numbers[i].sequence, text, sizeof text);
        CHECK_MSG(strcmp(text, numbers[i].text) == 0, "'%s' is not '%s'", text,
                  numbers[i].text);
        CHECK(rpi_operation_kind_of(&comm, numbers[i].sequence) == numbers[i].kind);
        CHECK_EQ(rpi_number_in_words(&comm, numbers[i].sequence), numbers[i].in_words);
    }
}

/* What is not marked as one that may be NULL is called without a look. */
static void kinds_are_whole(void) {
    for (int i = 0; i < RPI_NUMBER_KINDS; i++) {
        const rpi_operation_kind *kind = rpi_operation_kinds[i];
        CHECK(kind->compile && kind->number && kind->rank_of && kind->source);
        CHECK(kind->destination && kind->see && kind->has_cts && kind->await_cts);
        CHECK(kind->is_future && kind->refuse && kind->name);
        /* A number that counts by pair has no place in the order of all ranks. */
        CHECK_EQ(kind->by_pair, !kind->takes_turns);
        CHECK_EQ(kind->by_pair, !kind->noun);
        CHECK_MSG(!kind->ahead_bytes || kind->among_neighbors, "edges have weights");
    }
}

/* Whose frames, which peers: as each kind sees a rank of a world of four. */
static void ranks_and_peers(void) {
    rp_neighbor places[] = {{.rank = 1}, {.rank = 2}, {.rank = 1}, {.rank = 3}};
    rpi_compiled_schedule receives = {.schedule = {.rank = RPI_PAIR_RECEIVER, .world = 2}};
    rp_request collective = {.kind = &rpi_operation_collective, .peer = RPI_NO_PEER};
    rp_request pair = {.kind = &rpi_operation_pair, .peer = 3, .compiled = &receives};
    /* Rank 2 hears from 1 and sends to 1 and 3. */
    rp_request exchange = {
        .kind = &rpi_operation_exchange,
        .peer = RPI_NO_PEER,
        .neighborhood = {.sources = 1, .destinations = 2, .self = 1, .places = places}};
    for (int rank = 0; rank < 4; rank++) {
        CHECK_EQ(rpi_request_rank(&collective, rank), rank);
        CHECK_EQ(rpi_request_peer(&collective, rank), rank);
        CHECK_EQ(collective.kind->destination(&collective, rank), rank);
        CHECK(rpi_request_concerns(&collective, rank));
        CHECK_EQ(rpi_request_rank(&pair, 0), 3);
        CHECK_EQ(rpi_request_peer(&pair, rank), RPI_PAIR_SENDER);
        CHECK_EQ(rpi_request_concerns(&pair, rank), rank == 3);
        CHECK_EQ(rpi_request_rank(&exchange, rank), places[rank].rank);
        CHECK(rpi_request_concerns(&exchange, rank));
    }
    CHECK_EQ(rpi_request_peer(&exchange, 1), 0);
    CHECK_EQ(rpi_request_peer(&exchange, 3), -1);
    CHECK_EQ(exchange.kind->destination(&exchange, 1), 2);
    CHECK_EQ(exchange.kind->destination(&exchange, 3), 3);
    CHECK_EQ(exchange.kind->destination(&exchange, 0), -1);
    CHECK(rpi_request_expects(&collective, 0) && rpi_request_expects(&exchange, 1));
}

/* What a kind of frame is for is said once, in rpi_frame_rules, and who receives it in a table
 * of comm; numbers are for communicators that are not open yet. */
static void frames_have_receivers(void) {
    for (int kind = -1; kind <= RPI_FRAME_KINDS_END; kind++) {
        const rpi_frame_rule *rule = rpi_frame_rule_of(kind);
        bool comes = rule && rule->phase == RPI_FRAME_TALKING && !rule->has_elements &&
                     kind != RPI_FRAME_NUMBER;
        CHECK_MSG(rpi_control_frame_is_received(kind) == comes, "frames of kind %d", kind);
    }
}

static void only_receives_from_any_rank_are_unbound(void) {
    rp_request request = {.kind = &rpi_operation_pair, .peer = RPI_ANYBODY};
    CHECK(rpi_request_is_unbound(&request));
    request.peer = 0;
    CHECK(!rpi_request_is_unbound(&request));
    request = (rp_request){.kind = &rpi_operation_collective, .peer = RPI_NO_PEER};
    CHECK(!rpi_request_is_unbound(&request));
}

/* ---- what belongs to a number ---- */

enum { NUMBERS = 300, RANKS = 3 };

/* A plain array beside the table: whatever comes and goes, each finds what was put last. */
static void a_number_finds_what_was_put(void) {
    static char things[NUMBERS][RANKS];
    bool is_in[NUMBERS][RANKS] = {{false}};
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    rpi_index index = {0};
    size_t count = 0;
    for (int turn = 0; turn < 40000; turn++) {
        /* Few numbers for long, then many, so that it grows, shrinks and fills again. */
        uint32_t span = turn / 4000 % 2 ? NUMBERS : 5;
        uint32_t number = rpi_rng_below(&rng, span), place = rpi_rng_below(&rng, RANKS);
        int rank = (int)place - 1;
        if (is_in[number][place] || rpi_rng_below(&rng, 3) == 0) {
            rpi_index_remove(&index, number, rank);
            count -= is_in[number][place];
            is_in[number][place] = false;
        } else {
            REQUIRE_OK(rpi_index_put(&index, number, rank, &things[number][place]));
            is_in[number][place] = true;
            count++;
        }
        CHECK_EQ(index.count, count);
        uint32_t other = rpi_rng_below(&rng, NUMBERS);
        for (int i = 0; i < RANKS; i++)
            CHECK(rpi_index_find(&index, other, i - 1) ==
                  (is_in[other][i] ? &things[other][i] : NULL));
    }
    for (uint64_t number = 0; number < NUMBERS; number++)
        for (int i = 0; i < RANKS; i++) rpi_index_remove(&index, number, i - 1);
    CHECK(!index.count && !index.slots); /* it was large, and gives its memory back */
    rpi_index_free(&index);
}

static void a_table_keeps_half_of_its_slots_free(void) {
    rpi_index index = {0};
    for (uint64_t number = 0; number < 32; number++)
        REQUIRE_OK(rpi_index_put(&index, number, RPI_ALL_RANKS, &index));
    CHECK_EQ(index.room, 64);
    rpi_memory_fail_after(1);
    CHECK_EQ(rpi_index_put(&index, 32, RPI_ALL_RANKS, &index), RP_NOMEM);
    rpi_memory_fail_after(0);
    CHECK(index.count == 32 && !rpi_index_find(&index, 32, RPI_ALL_RANKS));
    REQUIRE_OK(rpi_index_put(&index, 32, RPI_ALL_RANKS, &index));
    CHECK_EQ(index.room, 128);
    for (uint64_t number = 0; number < 33; number++)
        CHECK(rpi_index_find(&index, number, RPI_ALL_RANKS) == &index);
    rpi_index_free(&index);
    REQUIRE_OK(rpi_index_put(&index, 7, 0, &index)); /* a small one keeps its memory */
    rpi_index_remove(&index, 7, 0);
    CHECK(index.slots != NULL);
    rpi_index_free(&index);
}

/* ---- what goes first ---- */

/* Add a row: how urgent an operation is by its priority and length, its control frames, and
 * what windows send. */
static const struct {
    rp_priority priority;
    size_t bytes;
    rpi_urgency operation, control, windows;
} urgencies[] = {
    {RP_PRIORITY_DEFAULT, RPI_SHORT_BYTES, RPI_URGENT, RPI_URGENT, RPI_NORMAL},
    {RP_PRIORITY_DEFAULT, RPI_SHORT_BYTES + 1, RPI_NORMAL, RPI_URGENT, RPI_NORMAL},
    {RP_PRIORITY_NORMAL, RPI_SHORT_BYTES, RPI_URGENT, RPI_URGENT, RPI_NORMAL},
    {RP_PRIORITY_NORMAL, RPI_SHORT_BYTES + 1, RPI_NORMAL, RPI_URGENT, RPI_NORMAL},
    {RP_PRIORITY_BULK, 0, RPI_BULK, RPI_NORMAL, RPI_BULK},
    {RP_PRIORITY_BULK, RPI_SHORT_BYTES + 1, RPI_BULK, RPI_NORMAL, RPI_BULK},
    {RP_PRIORITY_URGENT, 0, RPI_URGENT, RPI_URGENT, RPI_URGENT},
    {RP_PRIORITY_URGENT, (size_t)1 << 40, RPI_URGENT, RPI_URGENT, RPI_URGENT},
};

static void priorities_say_what_goes_first(void) {
    for (size_t i = 0; i < sizeof urgencies / sizeof urgencies[0]; i++) {
        rp_comm comm = {.priority = urgencies[i].priority};
        rp_request request = {.comm = &comm, .partition = {.bytes = urgencies[i].bytes}};
        CHECK_EQ(rpi_urgency_of(&request), urgencies[i].operation);
        CHECK_EQ(rpi_urgency_of_control(&comm), urgencies[i].control);
        CHECK_EQ(rpi_urgency_of_windows(&comm), urgencies[i].windows);
    }
}

CASES({"priorities_say_what_goes_first", priorities_say_what_goes_first},
      {"a_number_says_its_kind", a_number_says_its_kind}, {"kinds_are_whole", kinds_are_whole},
      {"ranks_and_peers", ranks_and_peers}, {"frames_have_receivers", frames_have_receivers},
      {"only_receives_from_any_rank_are_unbound", only_receives_from_any_rank_are_unbound},
      {"a_number_finds_what_was_put", a_number_finds_what_was_put},
      {"a_table_keeps_half_of_its_slots_free", a_table_keeps_half_of_its_slots_free})
