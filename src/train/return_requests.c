#include "train/return_requests.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "redpoll/version.h"

#include <stdio.h>
#include <string.h>

#define KEYS    "redpoll/returns/"
#define LOOK_S  0.2
#define FILL_S  1.0 /* the time between a request's number and its text */
#define SLICE_S 0.2 /* the part of a wait that may end for other reasons */

static rp_status open_store(rpi_return_requests *requests) {
    if (requests->store) return RP_OK;
    return requests->way->store(requests->way->context, &requests->store);
}

static const char *key_of(const char *what, int64_t number, char *key, size_t bytes) {
    snprintf(key, bytes, KEYS "%s/%lld", what, (long long)number);
    return key;
}

static rp_status get_text(rpi_return_requests *requests, const char *key, double wait_s,
                          char text[RPI_RETURN_TEXT]) {
    size_t bytes = 0;
    text[0] = '\0';
    RP_TRY(requests->store->ops->get(requests->store->context, key, wait_s, text,
                                     RPI_RETURN_TEXT - 1, &bytes));
    text[bytes < RPI_RETURN_TEXT ? bytes : RPI_RETURN_TEXT - 1] = '\0';
    return RP_OK;
}

static rp_status set_text(rpi_return_requests *requests, const char *key, const char *text) {
    return requests->store->ops->set(requests->store->context, key, text, strlen(text));
}

/* ---- the launcher ---- */

rp_status rpi_return_note_fate(const rp_store *store, int rank, bool again) {
    char key[64];
    const char *text = again ? "again" : "away";
    return store->ops->set(store->context, key_of("fate", rank, key, sizeof key), text,
                           strlen(text));
}

/* ---- rank 0 ---- */

rpi_return_fate rpi_return_fate_of(rpi_return_requests *requests, int rank) {
    char key[64], text[RPI_RETURN_TEXT];
    if (!requests->way || requests->is_off) return RPI_FATE_AWAY;
    if (open_store(requests) != RP_OK) return RPI_FATE_UNKNOWN;
    key_of("fate", rank, key, sizeof key);
    if (get_text(requests, key, 0, text) != RP_OK) return RPI_FATE_UNKNOWN;
    return strcmp(text, "again") == 0 ? RPI_FATE_AGAIN : RPI_FATE_AWAY;
}

bool rpi_return_look(rpi_return_requests *requests) {
    int64_t now_ns = rpi_now_ns();
    if (!requests->way || requests->is_off) return false;
    if (rpi_seconds(now_ns - requests->looked_ns) < LOOK_S)
        return requests->given > requests->taken;
    requests->looked_ns = now_ns;
    rp_status status = open_store(requests);
    if (status == RP_OK)
        status = requests->store->ops->add(requests->store->context, KEYS "requests", 0,
                                           &requests->given);
    if (status == RP_OK) return requests->given > requests->taken;
    rpi_log(RP_LOG_WARNING, "no rank can come back any more: %s", rp_last_error()->message);
    requests->is_off = true;
    return false;
}

bool rpi_return_take(rpi_return_requests *requests, rpi_return_request *out_request) {
    char key[64], text[RPI_RETURN_TEXT];
    while (requests->way && !requests->is_off && requests->taken < requests->given) {
        rpi_return_request request = {.number = ++requests->taken};
        key_of("request", request.number, key, sizeof key);
        if (get_text(requests, key, FILL_S, text) != RP_OK) continue;
        if (sscanf(text, "%d %63s", &request.rank, request.version) != 2) continue;
        *out_request = request;
        return true;
    }
    return false;
}

rp_status rpi_return_say(rpi_return_requests *requests, int64_t number, const char *what,
                         const char *text) {
    char key[64];
    return set_text(requests, key_of(what, number, key, sizeof key), text);
}

bool rpi_return_call(rpi_return_requests *requests, int64_t number) {
    char key[64], text[RPI_RETURN_TEXT];
    return rpi_return_say(requests, number, "invite", "called") == RP_OK &&
           get_text(requests, key_of("here", number, key, sizeof key), RPI_RETURN_CALL_S,
                    text) == RP_OK;
}

void rpi_return_close(rpi_return_requests *requests) {
    rpi_kept_error why;
    rpi_error_keep(&why);
    if (requests->way && open_store(requests) == RP_OK)
        (void)set_text(requests, RPI_RETURN_OVER_KEY, "over");
    rpi_error_put_back(&why);
}

/* ---- a rank that was started again ---- */

rp_status rpi_return_ask(rpi_return_requests *requests, int64_t *out_number) {
    char key[64], text[RPI_RETURN_TEXT];
    RP_TRY(open_store(requests));
    RP_TRY(requests->store->ops->add(requests->store->context, KEYS "requests", 1, out_number));
    snprintf(text, sizeof text, "%d %s", requests->way->rank, rp_version());
    return set_text(requests, key_of("request", *out_number, key, sizeof key), text);
}

rp_status rpi_return_answer(rpi_return_requests *requests, int64_t number) {
    return rpi_return_say(requests, number, "here", "");
}

static bool is_told_to_end(const rpi_train_hooks *hooks) {
    return hooks->asked && (hooks->asked(hooks->context) & RPI_ASKED_STOP);
}

rp_status rpi_return_hear(rpi_return_requests *requests, int64_t number, const char *what,
                          const rpi_train_hooks *hooks, char text[RPI_RETURN_TEXT],
                          bool *out_over) {
    char key[64];
    int64_t deadline_ns = rpi_deadline_ns(requests->way->timeout_s);
    key_of(what, number, key, sizeof key);
    *out_over = false;
    for (;;) {
        rp_status status = get_text(requests, key, SLICE_S, text);
        if (status != RP_TIMEOUT) return status;
        status = get_text(requests, RPI_RETURN_OVER_KEY, 0, text);
        *out_over = status == RP_OK;
        if (*out_over) return RP_FAIL(CANCELLED, "the run is over");
        if (status != RP_TIMEOUT) return status;
        if (is_told_to_end(hooks)) return RP_FAIL(CANCELLED, "told to end");
        if (rpi_now_ns() >= deadline_ns)
            return RP_FAIL(
                TIMEOUT,
                "timed out: rank %d was started again, and rank 0 has not taken it back in "
                "%.0f s (--timeout): the steps of the others take longer, or they "
                "take nobody back",
                requests->way->rank, requests->way->timeout_s);
    }
}

void rpi_return_pause(const rpi_return_requests *requests, const rpi_train_hooks *hooks) {
    bool is_shorter =
        requests->way->timeout_s >= 0 && requests->way->timeout_s < RPI_RETURN_PAUSE_S;
    int64_t end_ns =
        rpi_deadline_ns(is_shorter ? requests->way->timeout_s : RPI_RETURN_PAUSE_S);
    while (rpi_now_ns() < end_ns && !is_told_to_end(hooks)) {
        int64_t slice_ns = rpi_deadline_ns(SLICE_S);
        rpi_sleep_until_ns(slice_ns < end_ns ? slice_ns : end_ns);
    }
}
