/* Where the time of a step goes: rows add up, the first step is left out, nothing else changes.
 */
#include "harness/check.h"
#include "train/profile.h"
#include "train_ranks.h"

#include <string.h>

static void rows_add_up(void) {
    rpi_profile p = {0};
    rpi_profile_begin(&p);
    rpi_profile_add(&p, "forward", "choosing", 900);
    rpi_profile_end(&p, 1000);
    for (int step = 0; step < 2; step++) {
        rpi_profile_begin(&p);
        rpi_profile_add(&p, "update", "sgd", 7);
        rpi_profile_add(&p, "backward", "linear", 20);
        rpi_profile_add(&p, "forward", "add", 1);
        rpi_profile_add(&p, "forward", "linear", 10);
        rpi_profile_add(&p, "forward", "add", 2);
        rpi_profile_end(&p, 50);
    }
    rpi_profile_sort(&p);
    static const struct {
        const char *phase, *what;
        int64_t calls, ns;
    } rows[] = {{"forward", "linear", 2, 20},
                {"forward", "add", 4, 6},
                {"backward", "linear", 2, 40},
                {"update", "sgd", 2, 14}};
    REQUIRE(p.count == 4);
    for (int i = 0; i < 4; i++) {
        CHECK(strcmp(p.rows[i].phase, rows[i].phase) == 0);
        CHECK(strcmp(p.rows[i].what, rows[i].what) == 0);
        CHECK_EQ(p.rows[i].calls, rows[i].calls);
        CHECK_EQ(p.rows[i].ns, rows[i].ns);
    }
    CHECK_EQ(p.steps, 2);
    CHECK_EQ(p.step_ns, 100);
    CHECK_EQ(rpi_profile_rest_ns(&p), 20);
}

static void one_step_is_kept(void) {
    rpi_profile p = {0};
    rpi_profile_begin(&p);
    rpi_profile_add(&p, "forward", "linear", 10);
    rpi_profile_end(&p, 30);
    CHECK_EQ(p.steps, 1);
    CHECK_EQ(rpi_profile_rest_ns(&p), 20);
}

/* Kinds beyond the table's rows go to the rest; names that differ behind its width are one. */
static void many_and_long_kinds(void) {
    rpi_profile p = {0};
    char name[100];
    for (int i = 0; i < RPI_PROFILE_ROWS + 5; i++) {
        snprintf(name, sizeof name, "op %d", i);
        rpi_profile_add(&p, "forward", name, 1);
    }
    rpi_profile_end(&p, RPI_PROFILE_ROWS + 5);
    CHECK_EQ(p.count, RPI_PROFILE_ROWS);
    CHECK_EQ(rpi_profile_rest_ns(&p), 5);
    p = (rpi_profile){0};
    memset(name, 'x', sizeof name);
    name[98] = 'y';
    name[99] = '\0';
    rpi_profile_add(&p, "forward", name, 1);
    name[98] = 'z';
    rpi_profile_add(&p, "forward", name, 1);
    CHECK_EQ(p.count, 1);
    CHECK_EQ(strlen(p.rows[0].what), RPI_PROFILE_TEXT - 1);
    rpi_profile_add(NULL, "forward", "linear", 1);
    rpi_profile_begin(NULL);
    rpi_profile_end(NULL, 1);
}

static bool has(const rpi_profile *p, const char *phase, const char *what) {
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->rows[i].phase, phase) == 0 && strstr(p->rows[i].what, what)) return true;
    return false;
}

static void a_run_says_where_its_time_goes(void) {
    rpi_train_options options = ranks_options();
    rpi_train_result plain, profiled;
    options.clip = 1;
    options.steps = 4;
    options.global_batch_size = 8;
    REQUIRE_OK(ranks_train(&options, 2, &plain));
    CHECK_EQ(plain.profile.steps, 0);
    options.profile = true;
    REQUIRE_OK(ranks_train(&options, 2, &profiled));
    CHECK(profiled.last_loss == plain.last_loss);
    const rpi_profile *p = &profiled.profile;
    CHECK_EQ(p->steps, 3);
    CHECK(has(p, "forward", "linear") && has(p, "backward", "linear"));
    CHECK(has(p, "update", "sgd") && has(p, "update", "gradient norm"));
    CHECK(has(p, "wait", "communication"));
    int64_t sum = 0;
    for (int i = 0; i < p->count; i++) sum += p->rows[i].ns;
    CHECK_MSG(sum > 0 && sum <= p->step_ns, "%lld of %lld ns", (long long)sum,
              (long long)p->step_ns);
    CHECK(p->flops > 0 && p->matrix_flop_s > 0 && p->memory_bytes > 1e6);
    options.steps = 1;
    REQUIRE_OK(ranks_train(&options, 1, &profiled));
    CHECK_EQ(profiled.profile.steps, 1);
    CHECK(!has(&profiled.profile, "wait", ""));
}

CASES({"rows add up", rows_add_up}, {"one step is kept", one_step_is_kept},
      {"many and long kinds", many_and_long_kinds},
      {"a run says where its time goes", a_run_says_where_its_time_goes})
