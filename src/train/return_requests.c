#include "train/return_desk.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "redpoll/version.h"

#include <stdio.h>
#include <string.h>

#define KEYS    "redpoll/returns/"
#define LOOK_S  0.2
#define FILL_S  1.0 /* between a ticket's number and its text */
#define SLICE_S 0.2 /* of a wait that may end for other reasons */

static rp_status open_desk(rpi_return_desk *desk) {
    if (desk->store) return RP_OK;
    return desk->way->store(desk->way->context, &desk->store);
}

static const char *key_of(const char *what, int64_t number, char *key, size_t bytes) {
    snprintf(key, bytes, KEYS "%s/%lld", what, (long long)number);
    return key;
}

static rp_status get_text(rpi_return_desk *desk, const char *key, double wait_s,
                          char text[RPI_DESK_TEXT]) {
    size_t bytes = 0;
    text[0] = '\0';
    RP_TRY(desk->store->ops->get(desk->store->context, key, wait_s, text, RPI_DESK_TEXT - 1,
                                 &bytes));
    text[bytes < RPI_DESK_TEXT ? bytes : RPI_DESK_TEXT - 1] = '\0';
    return RP_OK;
}

static rp_status set_text(rpi_return_desk *desk, const char *key, const char *text) {
    return desk->store->ops->set(desk->store->context, key, text, strlen(text));
}

/* ---- rank 0 ---- */

bool rpi_desk_look(rpi_return_desk *desk) {
    int64_t now_ns = rpi_now_ns();
    if (!desk->way || desk->is_off) return false;
    if (rpi_seconds(now_ns - desk->looked_ns) < LOOK_S) return desk->given > desk->taken;
    desk->looked_ns = now_ns;
    rp_status status = open_desk(desk);
    if (status == RP_OK)
        status = desk->store->ops->add(desk->store->context, KEYS "tickets", 0, &desk->given);
    if (status == RP_OK) return desk->given > desk->taken;
    rpi_log(RP_LOG_WARNING, "no rank can come back any more: %s", rp_last_error()->message);
    desk->is_off = true;
    return false;
}

bool rpi_desk_take(rpi_return_desk *desk, rpi_return_ticket *out_ticket) {
    char key[64], text[RPI_DESK_TEXT];
    while (desk->way && !desk->is_off && desk->taken < desk->given) {
        rpi_return_ticket ticket = {.number = ++desk->taken};
        key_of("ticket", ticket.number, key, sizeof key);
        if (get_text(desk, key, FILL_S, text) != RP_OK) continue;
        if (sscanf(text, "%d %63s", &ticket.rank, ticket.version) != 2) continue;
        *out_ticket = ticket;
        return true;
    }
    return false;
}

rp_status rpi_desk_say(rpi_return_desk *desk, int64_t number, const char *what,
                       const char *text) {
    char key[64];
    return set_text(desk, key_of(what, number, key, sizeof key), text);
}

bool rpi_desk_call(rpi_return_desk *desk, int64_t number) {
    char key[64], text[RPI_DESK_TEXT];
    return rpi_desk_say(desk, number, "invite", "called") == RP_OK &&
           get_text(desk, key_of("here", number, key, sizeof key), RPI_DESK_CALL_S, text) ==
               RP_OK;
}

void rpi_desk_close(rpi_return_desk *desk) {
    rpi_kept_error why;
    rpi_error_keep(&why);
    if (desk->way && open_desk(desk) == RP_OK) (void)set_text(desk, KEYS "over", "over");
    rpi_error_put_back(&why);
}

/* ---- a rank that was started again ---- */

rp_status rpi_desk_ask(rpi_return_desk *desk, int64_t *out_number) {
    char key[64], text[RPI_DESK_TEXT];
    RP_TRY(open_desk(desk));
    RP_TRY(desk->store->ops->add(desk->store->context, KEYS "tickets", 1, out_number));
    snprintf(text, sizeof text, "%d %s", desk->way->rank, rp_version());
    return set_text(desk, key_of("ticket", *out_number, key, sizeof key), text);
}

rp_status rpi_desk_answer(rpi_return_desk *desk, int64_t number) {
    return rpi_desk_say(desk, number, "here", "");
}

static bool is_told_to_end(const rpi_train_hooks *hooks) {
    return hooks->asked && (hooks->asked(hooks->context) & RPI_ASKED_STOP);
}

rp_status rpi_desk_hear(rpi_return_desk *desk, int64_t number, const char *what,
                        const rpi_train_hooks *hooks, char text[RPI_DESK_TEXT],
                        bool *out_over) {
    char key[64];
    int64_t deadline_ns = rpi_deadline_ns(desk->way->timeout_s);
    key_of(what, number, key, sizeof key);
    *out_over = false;
    for (;;) {
        rp_status status = get_text(desk, key, SLICE_S, text);
        if (status != RP_TIMEOUT) return status;
        status = get_text(desk, KEYS "over", 0, text);
        *out_over = status == RP_OK;
        if (*out_over) return RP_FAIL(CANCELLED, "the run is over");
        if (status != RP_TIMEOUT) return status;
        if (is_told_to_end(hooks)) return RP_FAIL(CANCELLED, "told to end");
        if (rpi_now_ns() >= deadline_ns)
            return RP_FAIL(TIMEOUT,
                           "rank %d was started again, and rank 0 has not taken it back in "
                           "%.0f s (--timeout): the steps of the others take longer, or they "
                           "take nobody back",
                           desk->way->rank, desk->way->timeout_s);
    }
}

void rpi_desk_pause(const rpi_return_desk *desk, const rpi_train_hooks *hooks) {
    bool is_shorter = desk->way->timeout_s >= 0 && desk->way->timeout_s < RPI_DESK_PAUSE_S;
    int64_t end_ns = rpi_deadline_ns(is_shorter ? desk->way->timeout_s : RPI_DESK_PAUSE_S);
    while (rpi_now_ns() < end_ns && !is_told_to_end(hooks)) {
        int64_t slice_ns = rpi_deadline_ns(SLICE_S);
        rpi_sleep_until_ns(slice_ns < end_ns ? slice_ns : end_ns);
    }
}
