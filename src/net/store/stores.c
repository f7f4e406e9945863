#include "net/store/patience.h"

#define PATIENCE_MIN_S 2.0 /* a machine that is busy may be slow to answer */
#define PATIENCE_MAX_S 10.0

double rpi_store_patience(double timeout_s) {
    if (timeout_s < 0 || !(timeout_s < PATIENCE_MAX_S)) return PATIENCE_MAX_S;
    return timeout_s < PATIENCE_MIN_S ? PATIENCE_MIN_S : timeout_s;
}

void rp_store_close(rp_store *store) {
    if (!store || !store->ops) return;
    if (store->ops->close) store->ops->close(store->context);
    *store = (rp_store){0};
}
