/* Every algorithm of the catalogue is proved for every world from 1 to 33; and the check itself
 * is proved able to fail: schedules are damaged in many ways, and each damage must be found. */
#include "plan/plan_check.h"

#include "base/memory.h"
#include "base/rng.h"
#include "harness/check.h"
#include "plan/schedule.h"

enum { LARGEST = 33 };

static rp_status check_world(const rpi_algorithm *algorithm, int world, int root, bool mean) {
    rpi_plan_request request = {.world = world, .root = root, .mean = mean};
    return rpi_plan_check(algorithm, &request);
}

static void every_algorithm_holds_in_every_world(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        for (int world = 1; world <= LARGEST; world++) {
            if (!rpi_algorithm_fits(algorithm, world)) continue;
            int roots = rpi_collective_has_root(algorithm->collective) ? world : 1;
            for (int root = 0; root < roots; root++)
                for (int mean = 0; mean < 2; mean++)
                    CHECK_OK(check_world(algorithm, world, root, mean));
        }
    }
}

/* Layouts of hosts: all on one, one rank each, even, uneven, in turns, at random. */
enum { LAYOUTS = 7 };

static void lay_out(int layout, int world, rpi_rng *rng, int *host_of) {
    for (int rank = 0; rank < world; rank++) {
        int hosts[LAYOUTS] = {0,
                              rank,
                              rank / 2,
                              rank % 3,
                              rank < (world + 1) / 2 ? 7 : 3 + (rank > 3 * world / 4),
                              rank ? 1 + (rank - 1) / 4 : 9,
                              (int)rpi_rng_below(rng, 5)};
        host_of[rank] = hosts[layout];
    }
}

/* Those that know hosts for every world up to 33 on every layout, the others on one. */
static void hosts_make_no_difference_to_what_holds(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 3);
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            for (int world = 1; world <= LARGEST; world++) {
                int host_of[LARGEST], roots = 1;
                if (!algorithm->knows_hosts && (layout != LAYOUTS - 1 || world % 4)) continue;
                if (!rpi_algorithm_fits(algorithm, world)) continue;
                lay_out(layout, world, &rng, host_of);
                if (rpi_collective_has_root(algorithm->collective)) roots = world;
                for (int root = 0; root < roots; root += 1 + (world > 9) * 5) {
                    rpi_plan_request request = {
                        .world = world, .root = root, .mean = world % 2, .host_of = host_of};
                    CHECK_OK(rpi_plan_check(algorithm, &request));
                }
            }
}

/* 8 hosts of 8, and 16 hosts of very different sizes. */
static void larger_worlds_of_hosts(void) {
    static int even[64], odd[100];
    for (int rank = 0; rank < 64; rank++) even[rank] = rank / 8;
    for (int rank = 0; rank < 100; rank++) odd[rank] = rank < 40 ? 0 : rank % 16;
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        if (!algorithm->knows_hosts) continue;
        rpi_plan_request request = {.world = 64, .root = 9, .mean = true, .host_of = even};
        CHECK_OK(rpi_plan_check(algorithm, &request));
        request.world = 100;
        request.host_of = odd;
        CHECK_OK(rpi_plan_check(algorithm, &request));
    }
}

static void bytes_for_a_host_stay_there(void) {
    static const int host_of[] = {0, 0, 1, 1};
    const rpi_algorithm *algorithm = NULL;
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, "two-level", &algorithm));
    rpi_schedule schedules[4];
    rpi_plan_request request = {.world = 4, .host_of = host_of};
    for (int rank = 0; rank < 4; rank++) {
        request.rank = rank;
        REQUIRE_OK(rpi_schedule_build(algorithm, &request, &schedules[rank]));
    }
    CHECK_OK(rpi_plan_check_schedules(schedules, &request));
    static const int elsewhere[] = {0, 1, 0, 1};
    request.host_of = elsewhere;
    CHECK_FAILS(rpi_plan_check_schedules(schedules, &request), INTERNAL,
                "bytes that are for this host go to rank 1");
    request.host_of = host_of;
    for (int i = 0; i < schedules[1].count; i++)
        if (schedules[1].steps[i].kind == RPI_STEP_RECV) schedules[1].steps[i].level = 0;
    CHECK_FAILS(rpi_plan_check_schedules(schedules, &request), INTERNAL, "of another level");
    for (int rank = 0; rank < 4; rank++) rpi_schedule_destroy(&schedules[rank]);
}

static void the_largest_world_can_be_proved(void) {
    const rpi_algorithm *algorithm = NULL;
    REQUIRE_OK(rpi_algorithm_find(RPI_BARRIER, "dissemination", &algorithm));
    CHECK_OK(check_world(algorithm, RPI_PLAN_CHECK_WORLD, 0, false));
    CHECK_FAILS(check_world(algorithm, RPI_PLAN_CHECK_WORLD + 1, 0, false), UNSUPPORTED,
                "1025");
    CHECK_FAILS(check_world(algorithm, 0, 0, false), UNSUPPORTED, "not of 0");
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, "sra", &algorithm));
    CHECK_OK(check_world(algorithm, 130, 0, true));
    REQUIRE_OK(rpi_algorithm_find(RPI_ALL_REDUCE, "ring", &algorithm));
    CHECK_OK(check_world(algorithm, 130, 0, true));
}

/* All ranks' schedules of one collective, to be damaged. */
typedef struct family {
    rpi_schedule schedules[LARGEST];
    int world;
    bool mean;
} family;

static rp_status family_build(const rpi_algorithm *algorithm, int world, int root, bool mean,
                              family *out_family) {
    *out_family = (family){.world = world, .mean = mean};
    for (int rank = 0; rank < world; rank++) {
        rpi_plan_request request = {.world = world, .rank = rank, .root = root, .mean = mean};
        RP_TRY(rpi_schedule_build(algorithm, &request, &out_family->schedules[rank]));
    }
    return RP_OK;
}

static void family_destroy(family *it) {
    for (int rank = 0; rank < it->world; rank++) rpi_schedule_destroy(&it->schedules[rank]);
}

static void drop(rpi_schedule *schedule, int i) {
    size_t behind = (size_t)(schedule->count - i - 1);
    memmove(&schedule->steps[i], &schedule->steps[i + 1], behind * sizeof *schedule->steps);
    schedule->count--;
}

static void swap(rpi_schedule *schedule, int i, int j) {
    rpi_step step = schedule->steps[i];
    schedule->steps[i] = schedule->steps[j];
    schedule->steps[j] = step;
}

/* Puts a step in front of step i. */
static void insert(rpi_schedule *schedule, int i, rpi_step step) {
    REQUIRE_OK(rpi_grow_array((size_t)schedule->count, (size_t)schedule->count + 1,
                              sizeof *schedule->steps, "steps", &schedule->steps));
    size_t behind = (size_t)(schedule->count - i);
    memmove(&schedule->steps[i + 1], &schedule->steps[i], behind * sizeof *schedule->steps);
    schedule->steps[i] = step;
    schedule->count++;
}

static rp_status judge(family *it) {
    for (int rank = 0; rank < it->world; rank++)
        if (rpi_schedule_check_shape(&it->schedules[rank]) == RP_OK)
            RP_TRY(rpi_schedule_order(&it->schedules[rank]));
    rpi_plan_request request = {.world = it->world, .mean = it->mean};
    return rpi_plan_check_schedules(it->schedules, &request);
}

/* No step of any algorithm is superfluous: the check fails without it. */
static void every_dropped_step_is_missed(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        for (int world = 1; world <= 6; world++) {
            if (!rpi_algorithm_fits(algorithm, world)) continue;
            bool more = true;
            for (int step = 0; more; step++) {
                more = false;
                for (int rank = 0; rank < world; rank++) {
                    family it;
                    REQUIRE_OK(family_build(algorithm, world, world / 2, true, &it));
                    if (step < it.schedules[rank].count) {
                        more = true;
                        drop(&it.schedules[rank], step);
                        CHECK_MSG(judge(&it) == RP_INTERNAL,
                                  "%s %s, world %d: step %d of rank %d is not missed",
                                  rpi_collective_name(algorithm->collective), algorithm->name,
                                  world, step, rank);
                    }
                    family_destroy(&it);
                }
            }
        }
    }
}

static bool is_wire_copy(const rpi_step *step) {
    return step->kind == RPI_STEP_SEND || step->kind == RPI_STEP_RECV;
}

/* Doubled steps are found, but for a FENCE, which means the same twice. */
static void double_each_step_of(const rpi_algorithm *algorithm, int world, int rank) {
    for (int step = 0, count = 1; step < count; step++) {
        family it;
        REQUIRE_OK(family_build(algorithm, world, 1, true, &it));
        rpi_schedule *damaged = &it.schedules[rank];
        count = damaged->count;
        bool fence = damaged->steps[step].kind == RPI_STEP_FENCE;
        insert(damaged, step, damaged->steps[step]);
        if (!fence)
            CHECK_MSG(judge(&it) == RP_INTERNAL, "%s %s: step %d of rank %d twice is not found",
                      rpi_collective_name(algorithm->collective), algorithm->name, step, rank);
        family_destroy(&it);
    }
}

static void every_doubled_step_is_found(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        int world = rpi_algorithm_fits(algorithm, 5) ? 5 : 2;
        for (int rank = 0; rank < world; rank++) double_each_step_of(algorithm, world, rank);
    }
}

static void misdirect_each_step_of(const rpi_algorithm *algorithm, int rank) {
    for (int step = 0, count = 1; step < count; step++) {
        family it;
        REQUIRE_OK(family_build(algorithm, 5, 1, true, &it));
        rpi_schedule *damaged = &it.schedules[rank];
        count = damaged->count;
        bool remote = is_wire_copy(&damaged->steps[step]);
        int peer = (damaged->steps[step].peer + 1) % 5;
        if (remote) damaged->steps[step].peer = peer == rank ? (rank + 1) % 5 : peer;
        if (remote)
            CHECK_MSG(judge(&it) == RP_INTERNAL, "%s %s: wrong peer in step %d of rank %d",
                      rpi_collective_name(algorithm->collective), algorithm->name, step, rank);
        family_destroy(&it);
    }
}

static void every_wrong_peer_is_found(void) {
    const rpi_algorithm *algorithm;
    for (int i = 0; (algorithm = rpi_algorithm_at(i)) != NULL; i++) {
        for (int rank = 0; rpi_algorithm_fits(algorithm, 5) && rank < 5; rank++)
            misdirect_each_step_of(algorithm, rank);
    }
}

/* The first step from `start` of this kind; -1: none. */
static int step_of(const rpi_schedule *schedule, rpi_step_kind kind, int start) {
    for (int i = start; i < schedule->count; i++)
        if (schedule->steps[i].kind == kind) return i;
    return -1;
}

static const rpi_algorithm *find(rpi_collective collective, const char *name) {
    const rpi_algorithm *algorithm = NULL;
    CHECK_OK(rpi_algorithm_find(collective, name, &algorithm));
    return algorithm;
}

static rpi_step local_step(rpi_step_kind kind, int from, int into, int part) {
    return (rpi_step){.kind = (uint8_t)kind,
                      .from = (uint16_t)from,
                      .into = (uint16_t)into,
                      .part = part,
                      .peer = -1};
}

/* Particular damages to rank 1 of four, and the words that must name them. */
static void add_out_of_rank_order(family *it) {
    int first = step_of(&it->schedules[1], RPI_STEP_ADD, 0);
    rpi_schedule *rank = &it->schedules[1];
    int second = step_of(rank, RPI_STEP_ADD, first + 1);
    int recv = second - 1; /* the frame of the second addition must be there before the first */
    swap(rank, first, recv);
    swap(rank, recv, second);
}

static void encode_after_decode(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    rpi_step late = {.kind = RPI_STEP_ADD, .into = RPI_SLOT_SUM, .part = 2, .peer = -1};
    insert(rank, rank->count, late);
    late.kind = RPI_STEP_COPY;
    insert(rank, rank->count, late);
}

static void owner_reads_its_own_encoding(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    int wire = RPI_SLOT_ENCODED + rank->encoded_slots++;
    for (int i = 0; i < rank->count; i++) {
        rpi_step *step = &rank->steps[i];
        if (step->kind != RPI_STEP_ADD || step->from != RPI_SLOT_IN) continue;
        step->from = (uint16_t)wire;
        insert(rank, i, local_step(RPI_STEP_ENCODE, RPI_SLOT_IN, wire, step->part));
        return;
    }
}

static void sum_is_sent_as_a_senders(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    for (int i = 0; i < rank->count; i++) rank->steps[i].role = RPI_ROLE_SENDER;
}

/* The COPY that makes a sum a mean. */
static int mean_of(const rpi_schedule *schedule) {
    int i = 0;
    while (!schedule->steps[i].weight.over) i++;
    return i;
}

static void sum_is_sent_undivided(family *it) {
    drop(&it->schedules[1], mean_of(&it->schedules[1]));
}

static void sum_is_kept_undivided(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    rank->steps[mean_of(rank)].weight = (rpi_fraction){0};
}

static void sum_is_divided_twice(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    int mean = mean_of(rank);
    insert(rank, mean, rank->steps[mean]);
}

static void sum_is_divided_by_another_number(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    rank->steps[mean_of(rank)].weight.over = 3;
}

static void a_contribution_counts_double(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    rank->steps[step_of(rank, RPI_STEP_ADD, 0)].weight = (rpi_fraction){2, 1};
}

static void the_sum_is_kept_instead_of_its_encoding(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    int last = step_of(rank, RPI_STEP_DECODE, 0);
    while (rank->steps[last].into != RPI_SLOT_OUT)
        last = step_of(rank, RPI_STEP_DECODE, last + 1);
    rank->steps[last].kind = RPI_STEP_COPY;
    rank->steps[last].from = RPI_SLOT_SUM;
}

static void all_receive_first(family *it) {
    for (int r = 0; r < it->world; r++) {
        rpi_schedule *rank = &it->schedules[r];
        int send = step_of(rank, RPI_STEP_SEND, 0), recv = step_of(rank, RPI_STEP_RECV, 0);
        rpi_step first = rank->steps[recv];
        drop(rank, recv);
        insert(rank, send, first);
    }
}

static void parts_change_places(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    for (int i = 0; i < rank->count; i++)
        if (rank->steps[i].part == 2 || rank->steps[i].part == 3)
            rank->steps[i].part = 5 - rank->steps[i].part;
}

static void sum_starts_by_adding(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    rank->steps[step_of(rank, RPI_STEP_DECODE, 0)].kind = RPI_STEP_ADD;
}

static void gather_keeps_the_original(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    rpi_step *own = &rank->steps[step_of(rank, RPI_STEP_DECODE, 0)];
    own->kind = RPI_STEP_COPY;
    own->from = RPI_SLOT_IN;
}

static void another_root_is_claimed(family *it) {
    it->schedules[1].root = 2;
}

static void anothers_input_is_read(family *it) {
    insert(&it->schedules[1], 0, local_step(RPI_STEP_COPY, RPI_SLOT_IN, RPI_SLOT_OUT, 2));
}

static void an_empty_sum_is_read(family *it) {
    insert(&it->schedules[1], 0, local_step(RPI_STEP_COPY, RPI_SLOT_SUM, RPI_SLOT_OUT, 2));
}

/* The ENCODE of the finished sum. */
static int owners_encode(const rpi_schedule *schedule) {
    int i = 0;
    while (schedule->steps[i].role != RPI_ROLE_OWNER) i++;
    return i;
}

static void a_taken_sum_is_written(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    insert(rank, owners_encode(rank) + 1,
           local_step(RPI_STEP_COPY, RPI_SLOT_IN, RPI_SLOT_SUM, 1));
}

static void a_result_goes_into_a_sum(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    rank->steps[rank->count - 1].into = RPI_SLOT_SUM;
}

static void a_partial_sum_counts_as_finished(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    int i = 0;
    while (rank->steps[i].kind != RPI_STEP_ENCODE || rank->steps[i].from != RPI_SLOT_SUM) i++;
    rank->steps[i].role = RPI_ROLE_OWNER;
}

static void an_input_counts_as_finished(family *it) {
    it->schedules[1].steps[0].role = RPI_ROLE_OWNER;
}

static void a_token_is_taken_for_data(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    rank->encoded_slots = 1;
    rank->steps[step_of(rank, RPI_STEP_RECV, 0)].into = RPI_SLOT_ENCODED;
}

static void the_last_round_is_left_out(family *it) {
    for (int r = 0; r < it->world; r++) it->schedules[r].count -= 2;
}

static void the_root_forgets_the_others(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    rank->steps[rank->count - 1].from = RPI_SLOT_IN;
}

static void a_result_is_kept_beside_the_root(family *it) {
    insert(&it->schedules[1], 0, local_step(RPI_STEP_COPY, RPI_SLOT_IN, RPI_SLOT_OUT, 0));
}

static void anothers_block_is_sent(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    for (int i = 0; i < rank->count; i++) rank->steps[i].part = 2;
}

/* The blocks of ranks 2 and 3 go to each other: whole, matched and wrong. */
static void blocks_change_places(family *it) {
    for (int r = 1; r < 4; r++) {
        rpi_schedule *rank = &it->schedules[r];
        for (int i = 0; i < rank->count; i++)
            if (rank->steps[i].part == 2 || rank->steps[i].part == 3)
                rank->steps[i].part = 5 - rank->steps[i].part;
    }
}

/* All ranks number the blocks at distances 1 and 2 the other way round. */
static void distances_change_places(family *it) {
    for (int r = 0; r < 4; r++) {
        rpi_schedule *rank = &it->schedules[r];
        for (int i = 0; i < rank->count; i++) {
            int32_t *part = &rank->steps[i].part;
            if (*part % 4 == 1 || *part % 4 == 2) *part = *part / 4 * 4 + 3 - *part % 4;
        }
    }
}

static void a_block_is_received_as_sent(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    int recv = step_of(rank, RPI_STEP_RECV, 0);
    rank->steps[recv].part -= 4;
    rank->steps[recv + 1].part -= 4;
}

/* Rank 1 sends rank 2 what came from rank 0 instead of its own. */
static void a_block_is_passed_on(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    int recv = step_of(rank, RPI_STEP_RECV, 0), send = step_of(rank, RPI_STEP_SEND, 0);
    rpi_step relay = rank->steps[send];
    relay.part = rank->steps[recv].part;
    relay.from = rank->steps[recv].into;
    insert(rank, recv + 1, relay);
    drop(rank, send);
}

/* A tree: rank 3's block reaches the root through rank 1, which cannot know its length. */
static void a_block_goes_through_a_third_rank(family *it) {
    rpi_schedule *between = &it->schedules[1], *root = &it->schedules[0];
    it->schedules[3].steps[step_of(&it->schedules[3], RPI_STEP_SEND, 0)].peer = 1;
    int wire = RPI_SLOT_ENCODED + between->encoded_slots++;
    insert(between, between->count,
           (rpi_step){.kind = RPI_STEP_RECV, .into = (uint16_t)wire, .part = 3, .peer = 3});
    insert(between, between->count,
           (rpi_step){.kind = RPI_STEP_SEND, .from = (uint16_t)wire, .part = 3, .peer = 0});
    for (int i = 0; i < root->count; i++)
        if (root->steps[i].peer == 3) root->steps[i].peer = 1;
}

static void an_own_block_is_kept_elsewhere(family *it) {
    rpi_schedule *rank = &it->schedules[1];
    rank->steps[step_of(rank, RPI_STEP_COPY, 0)].part = 4;
}

static const struct {
    const char *what;
    rpi_collective collective;
    int root;
    const char *algorithm;
    void (*damage)(family *);
    const char *words;
} damages[] = {
    {"adds out of rank order", RPI_ALL_REDUCE, 0, "sra", add_out_of_rank_order, "rank order"},
    {"reads IN after OUT", RPI_ALL_REDUCE, 0, "sra", encode_after_decode, "reads IN after OUT"},
    {"owner's own is encoded", RPI_ALL_REDUCE, 0, "sra", owner_reads_its_own_encoding,
     "own contribution was encoded"},
    {"owner's own is encoded once", RPI_REDUCE_SCATTER, 0, "direct",
     owner_reads_its_own_encoding, "own contribution was encoded"},
    {"another's input", RPI_ALL_GATHER, 0, "direct", anothers_input_is_read, "no such input"},
    {"another's output", RPI_REDUCE_SCATTER, 0, "direct", anothers_input_is_read,
     "no such output"},
    {"empty sum", RPI_ALL_REDUCE, 0, "sra", an_empty_sum_is_read, "before it is written"},
    {"taken sum", RPI_ALL_REDUCE, 0, "sra", a_taken_sum_is_written,
     "nobody reads the sum of part 1"},
    {"result into a sum", RPI_ALL_REDUCE, 0, "sra", a_result_goes_into_a_sum,
     "ends with contributions of nobody"},
    {"partial sum", RPI_ALL_REDUCE, 0, "ring", a_partial_sum_counts_as_finished, "unfinished"},
    {"input as sum", RPI_ALL_REDUCE, 0, "sra", an_input_counts_as_finished, "only sums"},
    {"token as data", RPI_BARRIER, 0, "dissemination", a_token_is_taken_for_data,
     "token meets"},
    {"short barrier", RPI_BARRIER, 0, "dissemination", the_last_round_is_left_out,
     "having heard"},
    {"undivided sum", RPI_ALL_REDUCE, 0, "sra", sum_is_sent_undivided, "unfinished"},
    {"undivided sum of a ring", RPI_ALL_REDUCE, 0, "ring", sum_is_sent_undivided, "unfinished"},
    {"undivided sum kept", RPI_REDUCE_SCATTER, 0, "ring", sum_is_kept_undivided, "unfinished"},
    {"divided twice", RPI_ALL_REDUCE, 0, "sra", sum_is_divided_twice, "unfinished"},
    {"divided by three", RPI_ALL_REDUCE, 0, "ring", sum_is_divided_by_another_number,
     "unfinished"},
    {"counted double", RPI_ALL_REDUCE, 0, "sra", a_contribution_counts_double, "unfinished"},
    {"a sum in the role of a sender", RPI_ALL_REDUCE, 0, "ring", sum_is_sent_as_a_senders,
     "in the role of a sender"},
    {"sum instead of its encoding", RPI_ALL_REDUCE, 0, "sra",
     the_sum_is_kept_instead_of_its_encoding, "not decoded from"},
    {"all receive first", RPI_ALL_REDUCE, 0, "ring", all_receive_first, "for ever"},
    {"barrier receives first", RPI_BARRIER, 0, "dissemination", all_receive_first, "for ever"},
    {"parts change places", RPI_ALL_REDUCE, 0, "sra", parts_change_places, "sends part"},
    {"adds to nothing", RPI_ALL_REDUCE, 0, "sra", sum_starts_by_adding, "never written"},
    {"replica differs", RPI_ALL_GATHER, 0, "direct", gather_keeps_the_original,
     "not decoded from"},
    {"schedules mixed up", RPI_ALL_REDUCE, 0, "sra", another_root_is_claimed, "different"},
    {"reduce out of rank order", RPI_REDUCE, 1, "direct", add_out_of_rank_order, "rank order"},
    {"reduce of one", RPI_REDUCE, 1, "direct", the_root_forgets_the_others,
     "ends with contributions"},
    {"reduced for others", RPI_REDUCE, 0, "direct", a_result_is_kept_beside_the_root,
     "no such output"},
    {"undivided sum of a reduce", RPI_REDUCE, 0, "scatter", sum_is_sent_undivided,
     "unfinished"},
    {"owner's own is encoded in a reduce", RPI_REDUCE, 0, "scatter",
     owner_reads_its_own_encoding, "own contribution was encoded"},
    {"root's own is encoded in a reduce", RPI_REDUCE, 1, "direct", owner_reads_its_own_encoding,
     "own contribution was encoded"},
    {"parts of a reduce change places", RPI_REDUCE, 0, "scatter", parts_change_places, "part"},
    {"gather of another's", RPI_GATHER, 0, "direct", anothers_block_is_sent,
     "not one of this rank's"},
    {"gather into the wrong places", RPI_GATHER, 1, "direct", parts_change_places,
     "sends part"},
    {"gather through a third", RPI_GATHER, 0, "direct", a_block_goes_through_a_third_rank,
     "not one of this rank's"},
    {"scatter of the wrong blocks", RPI_SCATTER, 1, "direct", parts_change_places,
     "sends part"},
    {"scatter to the wrong ranks", RPI_SCATTER, 1, "direct", blocks_change_places,
     "not one of this rank's"},
    {"all-to-all at the wrong distances", RPI_ALL_TO_ALL, 0, "pairwise",
     distances_change_places, "ends with contributions"},
    {"all-to-all received as sent", RPI_ALL_TO_ALL, 0, "pairwise", a_block_is_received_as_sent,
     "sends part 1 here"},
    {"all-to-all passed on", RPI_ALL_TO_ALL, 0, "pairwise", a_block_is_passed_on,
     "sends part 5 here"},
    {"all-to-all keeps in the wrong place", RPI_ALL_TO_ALL, 0, "pairwise",
     an_own_block_is_kept_elsewhere, "not one of this rank's"},
    {"all-to-all receives first", RPI_ALL_TO_ALL, 0, "pairwise", all_receive_first, "for ever"},
};

static void particular_damages_are_named(void) {
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        family it;
        const rpi_algorithm *algorithm = find(damages[i].collective, damages[i].algorithm);
        REQUIRE_OK(family_build(algorithm, 4, damages[i].root, true, &it));
        CHECK_OK(judge(&it));
        damages[i].damage(&it);
        int before = check_failures();
        CHECK_FAILS(judge(&it), INTERNAL, damages[i].words);
        if (check_failures() > before) printf("  (damage: %s)\n", damages[i].what);
        family_destroy(&it);
    }
}

/* Without its fence the sender's data could overtake the token. */
static void data_before_the_token_is_found(void) {
    family it;
    REQUIRE_OK(family_build(find(RPI_SENDRECV, "rendezvous"), 2, 0, false, &it));
    drop(&it.schedules[0], step_of(&it.schedules[0], RPI_STEP_FENCE, 0));
    CHECK_FAILS(judge(&it), INTERNAL, "before the receiver is ready");
    family_destroy(&it);
}

/* A claim of fewer (or more) encodings than there are does not pass. */
static void wrong_claims_are_found(void) {
    rpi_algorithm liar = *find(RPI_ALL_REDUCE, "sra");
    liar.quantisations = 1;
    CHECK_FAILS(check_world(&liar, 4, 0, true), INTERNAL, "up to 2 times, not 1");
    liar = *find(RPI_ALL_REDUCE, "ring");
    liar.rank_order = true;
    CHECK_FAILS(check_world(&liar, 4, 0, true), INTERNAL, "rank order");
    liar = *find(RPI_ALL_REDUCE, "ring");
    liar.quantisations = 4;
    CHECK_OK(check_world(&liar, 4, 0, true));
    liar = *find(RPI_REDUCE, "scatter");
    liar.quantisations = 1;
    CHECK_FAILS(check_world(&liar, 4, 3, true), INTERNAL, "up to 2 times, not 1");
    liar = *find(RPI_ALL_TO_ALL, "pairwise");
    liar.quantisations = 0;
    CHECK_FAILS(check_world(&liar, 4, 0, true), INTERNAL, "up to 1 times, not 0");
}

/* Any field of any step set to anything: never a crash, and never an approval of what would
 * give another result. Changes that matter not (the round) are left alone. */
static void random_damage_never_crashes(void) {
    rpi_rng rng = rpi_rng_make(check_seed(), RPI_RNG_TEST, 0);
    int found = 0, trials = 3000;
    for (int trial = 0; trial < trials; trial++) {
        int algorithms = 0;
        while (rpi_algorithm_at(algorithms)) algorithms++;
        const rpi_algorithm *algorithm =
            rpi_algorithm_at((int)rpi_rng_below(&rng, (uint32_t)algorithms));
        int world = rpi_algorithm_fits(algorithm, 5) ? 2 + (int)rpi_rng_below(&rng, 4) : 2;
        family it;
        int root = (int)rpi_rng_below(&rng, (uint32_t)world);
        REQUIRE_OK(family_build(algorithm, world, root, trial % 2, &it));
        rpi_schedule *damaged = &it.schedules[rpi_rng_below(&rng, (uint32_t)world)];
        REQUIRE(damaged->steps);
        rpi_step *step = &damaged->steps[rpi_rng_below(&rng, (uint32_t)damaged->count)];
        int value = (int)rpi_rng_below(&rng, 8) - 1;
        switch (rpi_rng_below(&rng, 6)) {
        case 0: step->kind = (uint8_t)value; break;
        case 1: step->role = (uint8_t)value; break;
        case 2: step->from = (uint16_t)value; break;
        case 3: step->into = (uint16_t)value; break;
        case 4: step->part = value; break;
        default: step->peer = value; break;
        }
        found += judge(&it) != RP_OK;
        family_destroy(&it);
    }
    CHECK_MSG(found > trials / 2, "only %d of %d damages were found", found, trials);
}

static void memory_failing_anywhere_is_reported(void) {
    const rpi_algorithm *algorithm = find(RPI_SENDRECV, "rendezvous");
    for (long n = 1;; n++) {
        rpi_memory_fail_after(n);
        rp_status status = check_world(algorithm, 2, 0, false);
        rpi_memory_fail_after(0);
        if (status == RP_OK) break;
        CHECK_EQ(status, RP_NOMEM);
        REQUIRE(n < 1000);
    }
}

CASES({"every algorithm holds in every world", every_algorithm_holds_in_every_world},
      {"the largest world can be proved", the_largest_world_can_be_proved},
      {"hosts make no difference to what holds", hosts_make_no_difference_to_what_holds},
      {"larger worlds of hosts", larger_worlds_of_hosts},
      {"bytes for a host stay there", bytes_for_a_host_stay_there},
      {"every dropped step is missed", every_dropped_step_is_missed},
      {"every doubled step is found", every_doubled_step_is_found},
      {"every wrong peer is found", every_wrong_peer_is_found},
      {"particular damages are named", particular_damages_are_named},
      {"data before the token is found", data_before_the_token_is_found},
      {"wrong claims are found", wrong_claims_are_found},
      {"random damage never crashes", random_damage_never_crashes},
      {"memory failing anywhere is reported", memory_failing_anywhere_is_reported})
