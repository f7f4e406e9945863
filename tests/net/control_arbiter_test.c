/* What a coordinator makes of deaths that are suspected, and of reports that come meanwhile. */
#include "bare_coordinator.h"

#include "base/clock.h"
#include "base/memory.h"
#include "harness/check.h"

enum { WORLD = 4, ENDED = 1, OTHER = 2 };

static void a_second_suspicion_changes_nothing(void) {
    bare_coordinator *coordinator = bare_coordinator_make(WORLD);
    rpi_control *control = &coordinator->control;
    int64_t before_ns = rpi_now_ns();
    rpi_control_suspect(control, ENDED);
    int64_t dies_ns = control->suspect_ns[ENDED];
    CHECK(dies_ns > before_ns && dies_ns < RPI_NEVER_NS);
    while (rpi_now_ns() == before_ns) continue;
    rpi_control_suspect(control, ENDED);
    CHECK_EQ(control->suspect_ns[ENDED], dies_ns);
    bare_coordinator_free(coordinator);
}

static void the_dead_are_not_suspected(void) {
    bare_coordinator *coordinator = bare_coordinator_make(WORLD);
    rpi_control *control = &coordinator->control;
    control->dead[ENDED] = true;
    rpi_control_suspect(control, ENDED);
    CHECK_EQ(control->suspect_ns[ENDED], RPI_NEVER_NS);
    bare_coordinator_free(coordinator);
}

static void a_suspect_dies_when_its_time_has_come(void) {
    bare_coordinator *coordinator = bare_coordinator_make(WORLD);
    rpi_control *control = &coordinator->control;
    rpi_control_suspect(control, ENDED);
    rpi_control_suspect(control, OTHER);
    int64_t dies_ns = control->suspect_ns[ENDED], later_ns = dies_ns + 5;
    control->suspect_ns[OTHER] = later_ns;
    CHECK_EQ(rpi_control_end_suspicion(control, dies_ns - 1), dies_ns);
    CHECK(!control->dead[ENDED] && !control->everybody.failed);
    CHECK_EQ(rpi_control_end_suspicion(control, dies_ns), later_ns);
    CHECK(control->dead[ENDED] && !control->dead[OTHER]);
    CHECK_EQ(control->everybody.failure.rank, ENDED);
    CHECK_EQ(rpi_control_end_suspicion(control, later_ns), RPI_NEVER_NS);
    CHECK(control->dead[OTHER]);
    bare_coordinator_free(coordinator);
}

/* What others report while a rank is suspected may come of its death. */
static void reports_wait_for_a_death_unless_they_are_of_it(void) {
    enum { REPORTS = 6 }; /* more than there is room for at first */
    for (int of = ENDED; of <= OTHER; of++) {
        bare_coordinator *coordinator = bare_coordinator_make(WORLD);
        rpi_control *control = &coordinator->control;
        rpi_control_suspect(control, ENDED);
        for (int i = 0; i < REPORTS; i++)
            rpi_control_arbitrate(
                control,
                &(rpi_failure){.status = RP_IO, .rank = of, .finder = 3, .text = "why"});
        CHECK_EQ(control->everybody.failed, of == ENDED);
        CHECK_EQ(control->deferred_count, of == ENDED ? 0 : REPORTS);
        CHECK_EQ(rpi_control_end_suspicion(control, control->suspect_ns[ENDED]), RPI_NEVER_NS);
        CHECK_EQ(control->deferred_count, 0);
        CHECK(control->everybody.failed && control->dead[ENDED]);
        CHECK_EQ(control->everybody.failure.rank, ENDED);
        CHECK_EQ(control->everybody.failure.status, of == ENDED ? RP_IO : RP_PEER);
        rpi_free(control->deferred);
        bare_coordinator_free(coordinator);
    }
}

CASES({"a second suspicion changes nothing", a_second_suspicion_changes_nothing},
      {"the dead are not suspected", the_dead_are_not_suspected},
      {"a suspect dies when its time has come", a_suspect_dies_when_its_time_has_come},
      {"reports wait for a death, unless they are of it",
       reports_wait_for_a_death_unless_they_are_of_it})
