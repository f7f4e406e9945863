#include "net/store/response_timeout.h"

#define RESPONSE_TIMEOUT_MIN_S 2.0 /* a busy machine may be slow to reply */
#define RESPONSE_TIMEOUT_MAX_S 10.0

double rpi_store_response_timeout(double timeout_s) {
    if (timeout_s < 0 || !(timeout_s < RESPONSE_TIMEOUT_MAX_S)) return RESPONSE_TIMEOUT_MAX_S;
    return timeout_s < RESPONSE_TIMEOUT_MIN_S ? RESPONSE_TIMEOUT_MIN_S : timeout_s;
}

void rp_store_close(rp_store *store) {
    if (!store || !store->ops) return;
    if (store->ops->close) store->ops->close(store->context);
    *store = (rp_store){0};
}
