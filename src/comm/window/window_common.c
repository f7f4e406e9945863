/* Windows: what the calls have in common. */
#include "comm/core/request.h"
#include "comm/run/progress_loop.h"
#include "comm/window/window_calls.h"

#include "base/status.h"

void rpi_window_lock_values(rp_window *window) {
    pthread_mutex_lock(&window->lock);
}

void rpi_window_unlock_values(rp_window *window) {
    pthread_mutex_unlock(&window->lock);
    if (atomic_exchange(&window->missed, false)) rpi_window_call(window);
}

void rpi_window_call(rp_window *window) {
    if (!window->comm) return;
    rpi_comm_request_progress(window->comm);
    rpi_progress_once(window->comm);
}

rp_status rpi_window_check(const rp_window *window) {
    if (!window) return RP_FAIL(INVALID, "window is NULL");
    if (!window->comm)
        return RP_FAIL(CANCELLED, "window '%s': its communicator was destroyed", window->name);
    rp_status status = rp_comm_status(window->comm);
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status, "window '%s': ", window->name);
}
