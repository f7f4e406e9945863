#include "train/strategies/told.h"

#include "base/status.h"

rp_status rpi_told_take(rpi_told *told, int64_t first, int64_t count) {
    if (first != told->count || count < 0)
        return RP_FAIL(INTERNAL,
                       "gradients of elements %lld to %lld came where those from %lld on were "
                       "to come",
                       (long long)first, (long long)(first + count), (long long)told->count);
    told->count += count;
    return RP_OK;
}

rp_status rpi_told_check(const rpi_told *told, int64_t all) {
    if (told->count == all) return RP_OK;
    return RP_FAIL(INTERNAL,
                   "gradients of %lld of %lld elements came, and a step takes all of them; "
                   "nothing was stepped",
                   (long long)told->count, (long long)all);
}
