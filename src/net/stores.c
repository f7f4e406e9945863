#include "redpoll/store.h"

void rp_store_close(rp_store *store) {
    if (!store || !store->ops) return;
    if (store->ops->close) store->ops->close(store->context);
    *store = (rp_store){0};
}
