#include "train/strategies/gradients_seen.h"

#include "base/status.h"

rp_status rpi_gradients_seen_add(rpi_gradients_seen *seen, int64_t first, int64_t count) {
    if (first != seen->count || count < 0)
        return RP_FAIL(INTERNAL,
                       "gradients of elements %lld to %lld came where those from %lld on were "
                       "to come",
                       (long long)first, (long long)(first + count), (long long)seen->count);
    seen->count += count;
    return RP_OK;
}

rp_status rpi_gradients_seen_check(const rpi_gradients_seen *seen, int64_t all) {
    if (seen->count == all) return RP_OK;
    return RP_FAIL(INTERNAL,
                   "gradients of %lld of %lld elements came, and a step takes all of them; "
                   "nothing was stepped",
                   (long long)seen->count, (long long)all);
}
