#include "train/shared_account.h"

#include "base/status.h"
#include "train/ownership.h"
#include "train/strategies/passing_gradients.h"
#include "train/strategies/passing_values.h"

static int64_t bucket_bytes(const rpi_shared_account_options *o) {
    return o->bucket_bytes ? o->bucket_bytes : RPI_USUAL_BUCKET_BYTES;
}

/* Cut as for exact gradients: a codec moves a cut by at most one of its buckets. */
static rp_status count_owned(const rpi_shared_account_options *o, int64_t *out_most) {
    rpi_ownership ownership = {0};
    const rpi_ownership_options cut = {.weights = o->weights,
                                       .ranks = o->sharers,
                                       .bucket_bytes = bucket_bytes(o),
                                       .granule = RPI_OWNED_LINE,
                                       .whole_tensors = o->whole_tensors};
    RP_TRY(rpi_ownership_cut(&cut, &ownership));
    *out_most = 0;
    for (int rank = 0; rank < o->sharers; rank++) {
        int64_t own = rpi_ownership_elements(&ownership, rank);
        if (own > *out_most) *out_most = own;
    }
    rpi_ownership_close(&ownership);
    return RP_OK;
}

static rp_status count_passing(const rpi_shared_account_options *o, rpi_shared_account *a) {
    static const rp_codec exact;
    rpi_buckets buckets = {0};
    RP_TRY(rpi_buckets_create(o->network, o->weights, bucket_bytes(o), &exact, NULL, &buckets));
    if (o->zero >= 2)
        a->gradients = a->owned + rpi_passing_memory_foresee(&buckets, RPI_PASSING_TRAVEL + 1);
    if (o->zero >= 3) {
        a->values = a->owned + rpi_passing_memory_foresee(&buckets, RPI_PASSING_AHEAD + 2);
        if (o->host_ranks) a->values += rpi_weights_count(o->weights) / o->host_ranks;
    }
    rpi_buckets_destroy(&buckets);
    return RP_OK;
}

rp_status rpi_shared_account_make(const rpi_shared_account_options *o,
                                  rpi_shared_account *out_account) {
    rpi_shared_account a = {0};
    a.owned = a.gradients = a.values = rpi_weights_count(o->weights);
    if (o->zero && o->sharers > 1) {
        RP_TRY(count_owned(o, &a.owned));
        RP_TRY(count_passing(o, &a));
    }
    *out_account = a;
    return RP_OK;
}
