/* What repeats took as items: parts add up to a whole that is usual. */
#include "cli/bench_machine.h"

#include "harness/check.h"

enum { PARTS = 3, REPEATS = 12 };

static rpi_machine_bench bench;
static rpi_machine_account account;

static int open_item(rpi_machine_work work, double amount) {
    int index = 0;
    const double at[RPI_RATE_SIDES] = {64, 64, 64};
    CHECK_OK(rpi_machine_item_open(&bench, work, 0, "", at, amount, &index));
    return index;
}

static void begin(void) {
    bench = (rpi_machine_bench){.ranks = 1};
    account = (rpi_machine_account){.ranks = 1};
}

/* A disturbance meets one part of each repeat, another each time: medians would not have it. */
static void parts_add_up_to_a_usual_whole(void) {
    int whole = 0, parts[PARTS];
    double sum = 0;
    begin();
    CHECK_OK(rpi_machine_whole_open(&bench, &whole));
    for (int i = 0; i < PARTS; i++) parts[i] = open_item(RPI_WORK_STEP, 0);
    rpi_machine_whole_close(&bench);
    for (int k = 0; k < REPEATS; k++) {
        bool is_spell = k == 5 || k == 8; /* which no usual repeat has */
        rpi_machine_item_time(&bench, whole, is_spell ? 3000 : 12);
        for (int i = 0; i < PARTS; i++)
            rpi_machine_item_time(&bench, parts[i], is_spell ? 1000 : k % PARTS == i ? 10 : 1);
    }
    CHECK_OK(rpi_machine_bench_account(&bench, &account));
    CHECK_EQ(account.count, PARTS); /* the whole is no item */
    for (int i = 0; i < PARTS; i++) {
        const rpi_machine_item *item = &account.items[i];
        sum += item->value;
        CHECK_EQ(item->repeats, REPEATS);
        CHECK(item->low <= item->value && item->value <= item->high);
    }
    CHECK_NEAR(sum, 12, .1);
}

/* A kernel that is quicker than the clock keeps its place beside its whole. */
static void a_part_of_no_time_is_a_repeat(void) {
    int whole = 0;
    begin();
    CHECK_OK(rpi_machine_whole_open(&bench, &whole));
    int part = open_item(RPI_WORK_COPY, 8);
    rpi_machine_whole_close(&bench);
    for (int k = 0; k < REPEATS; k++) {
        bool is_late = k >= REPEATS / 2;
        rpi_machine_item_time(&bench, whole, is_late ? 2 : 100);
        rpi_machine_item_time(&bench, part, k == 0 ? 0 : is_late ? 2 : 4);
    }
    CHECK_OK(rpi_machine_bench_account(&bench, &account));
    CHECK_EQ(account.items[0].repeats, REPEATS);
    CHECK(account.items[0].value > 2 && account.items[0].value < 4);
}

/* The median, and as rates: what is opened behind a whole is no part of it. */
static void what_is_no_part_has_its_median(void) {
    int whole = 0;
    const double seconds[] = {1, 2, 4, 8, 100};
    begin();
    CHECK_OK(rpi_machine_whole_open(&bench, &whole));
    rpi_machine_whole_close(&bench);
    int alone = open_item(RPI_WORK_COPY, 8), never = open_item(RPI_WORK_COPY, 8);
    for (int k = 0; k < 5; k++) rpi_machine_item_time(&bench, alone, seconds[k]);
    CHECK(never > alone);
    CHECK_OK(rpi_machine_bench_account(&bench, &account));
    CHECK_EQ(account.count, 1);
    CHECK_NEAR(account.items[0].value, 2, 1e-12);
}

CASES({"parts add up to a usual whole", parts_add_up_to_a_usual_whole},
      {"a part of no time is a repeat", a_part_of_no_time_is_a_repeat},
      {"what is no part has its median", what_is_no_part_has_its_median})
