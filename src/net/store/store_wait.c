#include "net/store/store_wait.h"

rp_status rpi_store_wait(const rp_store *store, const char *key, int64_t deadline_ns,
                         rpi_look *look, void *value, size_t capacity, size_t *out_bytes) {
    for (;;) {
        double left_s = rpi_seconds(rpi_look_wake_ns(look, deadline_ns) - rpi_now_ns());
        rp_status status = store->ops->get(store->context, key, left_s > 0 ? left_s : 0, value,
                                           capacity, out_bytes);
        if (status != RP_TIMEOUT) return status;
        RP_TRY(rpi_look_in_time(look));
        if (rpi_now_ns() >= deadline_ns)
            return RP_FAIL(TIMEOUT, "timed out: nobody set store key '%s'", key);
    }
}
