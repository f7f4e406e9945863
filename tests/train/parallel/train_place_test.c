/* Places of ranks: every share of a batch once a replica, every count once. */
#include "harness/check.h"
#include "train/parallel/train_place.h"

static void alone_is_a_rank_a_replica(void) {
    for (int world = 1; world <= 9; world++) {
        for (int servers = 0; servers < world; servers++) {
            for (int rank = 0; rank < world; rank++) {
                rpi_train_place p = rpi_train_place_alone(rank, world, servers), q;
                const rpi_grid one = {{1, 1, 0, 1}};
                CHECK(p.rank == rank && p.world == world && p.counts);
                CHECK(p.replica == rank && p.replicas == world);
                CHECK(p.works == (rank >= servers) && p.workers == world - servers);
                CHECK_EQ(p.worker, rank < servers ? 0 : rank - servers);
                REQUIRE_OK(rpi_train_place_open(&one, rank, world, servers, &q));
                CHECK(!memcmp(&p, &q, sizeof p));
            }
        }
    }
}

/* Over all ranks of a grid: each element of `count` is learnt, and evaluated, by one replica,
 * all of whose ranks agree, and of which as many ranks count as there are along context. */
static void check_grid(const rpi_grid *model, int replicas, int64_t count) {
    int each = model->size[RPI_AXIS_TENSOR] * model->size[RPI_AXIS_CONTEXT] *
               model->size[RPI_AXIS_STAGE];
    int world = each * replicas, counted = 0, holders[64] = {0};
    int64_t covered = 0;
    REQUIRE(count <= 64);
    for (int rank = 0; rank < world; rank++) {
        rpi_train_place p;
        int64_t first, end, work, work_end;
        REQUIRE_OK(rpi_train_place_open(model, rank, world, 0, &p));
        CHECK(p.rank == rank && p.replicas == replicas && p.workers == replicas && p.works);
        CHECK_EQ(p.replica, p.worker);
        rpi_train_place_share(&p, count, &first, &end);
        rpi_train_place_work(&p, count, &work, &work_end);
        CHECK(first == work && end == work_end);
        for (int64_t i = first; i < end; i++) holders[i]++;
        counted += p.counts;
        if (p.counts) covered += end - first;
        rpi_grid_place at = rpi_grid_place_of(&p.grid, rank);
        CHECK_EQ(at.at[RPI_AXIS_DATA], p.replica);
        CHECK(!p.counts || at.at[RPI_AXIS_STAGE] == model->size[RPI_AXIS_STAGE] - 1);
    }
    for (int64_t i = 0; i < count; i++) CHECK_EQ(holders[i], each);
    CHECK_EQ(counted, replicas * model->size[RPI_AXIS_CONTEXT]);
    CHECK_EQ(covered, count * model->size[RPI_AXIS_CONTEXT]);
}

static void grids(void) {
    for (int t = 1; t <= 3; t++)
        for (int c = 1; c <= 2; c++)
            for (int p = 1; p <= 4; p++)
                for (int d = 1; d <= 3; d++)
                    for (int64_t count = 0; count <= 25; count += 5)
                        check_grid(&(rpi_grid){{t, c, 1, p}}, d, count);
}

/* tensor 2 x data 2 x stage 2: tensor is fastest, stage slowest. */
static void a_known_grid(void) {
    const int replica[] = {0, 0, 1, 1, 0, 0, 1, 1};
    const bool counts[] = {false, false, false, false, true, false, true, false};
    for (int rank = 0; rank < 8; rank++) {
        rpi_train_place p;
        REQUIRE_OK(rpi_train_place_open(&(rpi_grid){{2, 1, 1, 2}}, rank, 8, 0, &p));
        CHECK_EQ(p.replica, replica[rank]);
        CHECK_EQ(p.counts, counts[rank]);
    }
}

/* context 2 x data 2 beside tensor 2: who holds what rank 1 holds, in the order of the group.
 */
static void holders_are_of_replicas_and_sequences(void) {
    const int twins[] = {1, 3, 5, 7}, holder[] = {0, 0, 1, 1, 2, 2, 3, 3};
    char text[RPI_GRID_TEXT];
    for (int rank = 0; rank < 8; rank++) {
        rpi_train_place p;
        REQUIRE_OK(rpi_train_place_open(&(rpi_grid){{2, 2, 1, 1}}, rank, 8, 0, &p));
        CHECK(p.holders == 4 && p.replicas == 2 && !rpi_train_place_is_alone(&p));
        CHECK_EQ(p.holder, holder[rank]);
        CHECK_EQ(rpi_train_place_twin(&p, p.holder), rank);
        for (int h = 0; h < 4 && rank == 1; h++)
            CHECK_EQ(rpi_train_place_twin(&p, h), twins[h]);
        if (rank == 7)
            CHECK(!strcmp(rpi_train_place_text(&p, 7, text),
                          "rank 7, tensor 1, context 1 of replica 1"));
    }
}

static void refusals(void) {
    rpi_train_place p;
    CHECK_FAILS(rpi_train_place_open(&(rpi_grid){{2, 1, 1, 2}}, 0, 6, 0, &p), INVALID,
                "there are 6");
    CHECK_FAILS(rpi_train_place_open(&(rpi_grid){{2, 1, 1, 2}}, 0, 2, 0, &p), INVALID,
                "4 ranks would, or another multiple of 4");
    CHECK_FAILS(rpi_train_place_open(&(rpi_grid){{0, 1, 1, 2}}, 0, 2, 0, &p), INVALID,
                "0 ranks along tensor");
    CHECK_FAILS(rpi_train_place_open(&(rpi_grid){{1, 1, 1, 2}}, 0, 4, 1, &p), UNSUPPORTED,
                "1 servers, and a model is held by 2 ranks together");
}

/* Ranks die: those that are left share evaluations, and learn from what they learnt before. */
static void moves(void) {
    rpi_train_place p = rpi_train_place_alone(3, 5, 1);
    int64_t first, end;
    rpi_train_place_work(&p, 8, &first, &end);
    CHECK(first == 4 && end == 6);
    rpi_train_place_move(&p, 1, 2);
    CHECK(p.rank == 1 && p.world == 2 && p.replica == 1 && p.replicas == 2);
    CHECK(p.worker == 2 && p.workers == 4 && p.works && p.servers == 1 && p.counts);
    rpi_train_place_share(&p, 9, &first, &end);
    CHECK(first == 5 && end == 9);
    rpi_train_place_work(&p, 8, &first, &end);
    CHECK(first == 4 && end == 6);
}

/* What communicators say of one who has gone, in all their words. */
static void lost(void) {
    static const struct {
        const char *why;
        int rank;
    } rows[] = {
        {"stages: rank 0 (world 1)'s link to rank 1 (world 3) failed in receive from rank 1 "
         "with "
         "tag 1: connection closed by peer: rank 3 closed its end or its process ended",
         3},
        {"rank 3 is gone (connection closed by peer: its process ended), in all-gather 18", 3},
        {"replicas: rank 1 (world 2) is gone (connection closed by peer: its process ended) in "
         "operation 13",
         2},
        {"rank 0 is gone (connection closed by peer), as rank 1 says", 0},
        {"gradients of micro-batch 0: stages: timed out: no progress for 12.0 s in receive "
         "from "
         "rank 1 with tag 1, round 2 of 2, chunk 1 of 1: rank 1 (world 3) is stopped, or cut "
         "off "
         "from rank 0 (world 0) (no heartbeat for 11.7 s)",
         3},
        {"timed out: no progress for 9.6 s in all-gather 7: rank 1 is stopped, or cut off from "
         "rank 0 (no heartbeat for 3.6 s)",
         1},
        {"rank 4 is gone (connection closed by peer: its process ended)", -1}, /* of 4 ranks */
        {"host node3 is gone (connection closed by peer)", -1},
        {"3 is gone (", -1},
        {" is gone (", -1},
        {"rank 1 gave up: no memory for gradients", -1},
        {"", -1},
    };
    rpi_train_place place = rpi_train_place_alone(0, 4, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_EQ(rpi_train_place_lost(&place, rows[i].why), rows[i].rank);
}

CASES({"alone_is_a_rank_a_replica", alone_is_a_rank_a_replica}, {"grids", grids},
      {"a_known_grid", a_known_grid},
      {"holders_are_of_replicas_and_sequences", holders_are_of_replicas_and_sequences},
      {"refusals", refusals}, {"moves", moves}, {"lost", lost})
