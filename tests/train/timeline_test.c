#include "train/timeline.h"

#include "base/clock.h"
#include "harness/check.h"
#include "train_ranks.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

static char path[512];

static rp_status record_and_write(void *context, rp_comm *comm) {
    int events = *(const int *)context;
    rpi_timeline *timeline = NULL;
    RP_TRY(rpi_timeline_create(4, &timeline));
    rpi_timeline_start(timeline);
    int64_t now = rpi_now_ns();
    for (int i = 0; i < events; i++)
        rpi_timeline_add(timeline, i % 2 ? RPI_LANE_COMM : RPI_LANE_COMPUTE,
                         "a \"quoted\\ name that is longer than there is room for", i, now + i,
                         now + 1000);
    rp_status status = rpi_timeline_write(timeline, comm, path);
    rpi_timeline_destroy(timeline);
    return status;
}

static cJSON *parse_file(void) {
    size_t bytes = 0;
    unsigned char *text = ranks_file(path, &bytes);
    cJSON *json = text ? cJSON_ParseWithLength((char *)text, bytes) : NULL;
    free(text);
    return json;
}

static int count_phase(const cJSON *events, int rank, const char *phase) {
    int count = 0;
    const cJSON *event;
    cJSON_ArrayForEach(event, events) {
        bool same = cJSON_GetObjectItem(event, "pid")->valueint == rank &&
                    strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, phase) == 0;
        const cJSON *time = cJSON_GetObjectItem(event, "ts");
        CHECK(!time || time->valuedouble >= 0);
        count += same;
    }
    return count;
}

static void all_ranks_are_in_one_file(void) {
    snprintf(path, sizeof path, "%s/trace.json", check_folder());
    for (int events = 0; events <= 6; events += 3) {
        REQUIRE_OK(ranks_run(3, record_and_write, &events));
        cJSON *json = parse_file();
        REQUIRE(json);
        const cJSON *list = cJSON_GetObjectItem(json, "traceEvents");
        int kept = events < 4 ? events : 4;
        for (int rank = 0; rank < 3; rank++) {
            CHECK_EQ(count_phase(list, rank, "X"), (kept + 1) / 2);
            CHECK_EQ(count_phase(list, rank, "b"), kept / 2);
            CHECK_EQ(count_phase(list, rank, "e"), kept / 2);
        }
        CHECK_EQ(
            cJSON_GetObjectItem(cJSON_GetObjectItem(json, "otherData"), "dropped")->valueint,
            events - kept);
        cJSON_Delete(json);
    }
}

static void without_a_timeline_nothing_happens(void) {
    rpi_timeline_start(NULL);
    rpi_timeline_add(NULL, RPI_LANE_COMM, "x", 0, 0, 1);
    rpi_timeline_destroy(NULL);
}

static void a_folder_that_is_gone_fails_all(void) {
    int events = 2;
    snprintf(path, sizeof path, "/nowhere/trace.json");
    CHECK_FAILS(ranks_run(1, record_and_write, &events), IO, "/nowhere/trace.json");
}

CASES({"all ranks are in one file", all_ranks_are_in_one_file},
      {"without a timeline nothing happens", without_a_timeline_nothing_happens},
      {"a folder that is gone fails", a_folder_that_is_gone_fails_all})
