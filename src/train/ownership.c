#include "train/ownership.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/strategies/bucket.h"

static void add_part(rpi_ownership *o, int parameter, rpi_arena_range range, int owner) {
    if (range.count) o->parts[o->count++] = (rpi_owned_part){parameter, range, owner};
}

/* ---- where codecs may begin ---- */

static size_t multiple_of_both(size_t a, size_t b) {
    size_t divisor = a, rest = b;
    while (rest) {
        size_t next = divisor % rest;
        divisor = rest;
        rest = next;
    }
    return a / divisor * b;
}

int64_t rpi_ownership_granule(const rp_adaptive_codec *gradients, const rp_codec *parameters) {
    size_t granule =
        multiple_of_both(rp_codec_granule(&gradients->codec), rp_codec_granule(parameters));
    rp_codec codec;
    for (int level = 0; gradients->every && level < RP_LEVELS; level++)
        if (rp_level_codec(&gradients->codec, level, &codec) == RP_OK)
            granule = multiple_of_both(granule, rp_codec_granule(&codec));
    return granule > 1 ? (int64_t)granule : RPI_OWNED_LINE;
}

static int tie_of(const rpi_ownership_options *o, int parameter) {
    return o->ties ? o->ties[parameter] : 0;
}

/* ---- by elements ---- */

/* The end of the share of rank `rank` in a bucket: near its part of the elements, at a granule
 * of the tensor there. */
static int64_t end_of_share(const rpi_ownership_options *o, const rpi_weight *weight,
                            rpi_arena_range bucket, int rank) {
    int64_t place = bucket.first + bucket.count * (rank + 1) / o->ranks;
    if (place <= weight->first) return weight->first;
    if (place >= weight->first + weight->count) return weight->first + weight->count;
    return weight->first + (place - weight->first) / o->granule * o->granule;
}

static void cut_tensor(const rpi_ownership_options *o, int parameter, rpi_arena_range bucket,
                       rpi_ownership *out) {
    const rpi_weight *weight = rpi_weights_parameter(o->weights, parameter);
    int64_t first = weight->first, end = first + weight->count;
    if (tie_of(o, parameter)) bucket = (rpi_arena_range){first, weight->count};
    for (int rank = 0; rank < o->ranks; rank++) {
        int64_t share = rank < o->ranks - 1 ? end_of_share(o, weight, bucket, rank) : end;
        add_part(out, parameter, (rpi_arena_range){first, share - first}, rank);
        first = share;
    }
}

/* ---- by tensors ---- */

static int largest_left(const rpi_weights *weights, const int *owners, int parameters) {
    int largest = -1;
    for (int i = 0; i < parameters; i++) {
        if (owners[i] >= 0) continue;
        if (largest < 0 || rpi_weights_parameter(weights, i)->count >
                               rpi_weights_parameter(weights, largest)->count)
            largest = i;
    }
    return largest;
}

/* Gives the largest tensor first, each to the rank with the least so far. */
static void deal_tensors(const rpi_ownership_options *o, int *owners, int64_t *loads) {
    int parameters = rpi_weights_parameter_count(o->weights);
    int tied = 0;
    for (int i = 0; i < parameters; i++) {
        owners[i] = tie_of(o, i) ? (tie_of(o, i) - 1) % o->ranks : -1;
        if (owners[i] < 0) continue;
        loads[owners[i]] += rpi_weights_parameter(o->weights, i)->count;
        tied++;
    }
    for (int dealt = tied; dealt < parameters; dealt++) {
        int tensor = largest_left(o->weights, owners, parameters), owner = 0;
        for (int rank = 1; rank < o->ranks; rank++)
            if (loads[rank] < loads[owner]) owner = rank;
        owners[tensor] = owner;
        loads[owner] += rpi_weights_parameter(o->weights, tensor)->count;
    }
}

static rp_status cut_by_tensors(const rpi_ownership_options *o, rpi_ownership *out) {
    int *owners = NULL, parameters = rpi_weights_parameter_count(o->weights);
    int64_t *loads = NULL;
    rp_status status =
        rpi_alloc_array((size_t)parameters, sizeof *owners, "parts of ranks", &owners);
    if (status == RP_OK)
        status = rpi_alloc_array((size_t)o->ranks, sizeof *loads, "parts of ranks", &loads);
    if (status == RP_OK) deal_tensors(o, owners, loads);
    for (int i = 0; i < parameters && status == RP_OK; i++) {
        const rpi_weight *weight = rpi_weights_parameter(o->weights, i);
        add_part(out, i, (rpi_arena_range){weight->first, weight->count}, owners[i]);
    }
    rpi_free(loads);
    rpi_free(owners);
    return status;
}

/* ---- the whole ---- */

static void cut_by_elements(const rpi_ownership_options *o, rpi_ownership *out) {
    int parameters = rpi_weights_parameter_count(o->weights);
    for (int first = 0, end; first < parameters; first = end) {
        end = rpi_bucket_end(o->weights, first, o->bucket_bytes);
        const rpi_weight *from = rpi_weights_parameter(o->weights, first);
        const rpi_weight *last = rpi_weights_parameter(o->weights, end - 1);
        rpi_arena_range bucket = {from->first, last->first + last->count - from->first};
        for (int i = first; i < end; i++) cut_tensor(o, i, bucket, out);
    }
}

rp_status rpi_ownership_cut(const rpi_ownership_options *o, rpi_ownership *out_ownership) {
    rpi_ownership ownership = {0};
    rp_status status = RP_OK;
    size_t parameters = (size_t)rpi_weights_parameter_count(o->weights);
    size_t most = parameters * (size_t)o->ranks; /* at most one part of each tensor a rank */
    RP_TRY(rpi_alloc_array(most, sizeof *ownership.parts, "parts of ranks", &ownership.parts));
    if (o->whole_tensors)
        status = cut_by_tensors(o, &ownership);
    else
        cut_by_elements(o, &ownership);
    if (status == RP_OK)
        *out_ownership = ownership;
    else
        rpi_ownership_close(&ownership);
    return status;
}

void rpi_ownership_close(rpi_ownership *ownership) {
    rpi_free(ownership->parts);
    *ownership = (rpi_ownership){0};
}

rp_status rpi_ownership_ranges(const rpi_ownership *ownership, int rank,
                               rpi_arena_range **out_ranges, int *out_count) {
    rpi_arena_range *ranges = NULL;
    int count = 0;
    RP_TRY(rpi_alloc_array((size_t)ownership->count, sizeof *ranges, "owned ranges", &ranges));
    for (int i = 0; i < ownership->count; i++) {
        rpi_arena_range range = ownership->parts[i].range;
        rpi_arena_range *last = count ? &ranges[count - 1] : NULL;
        if (ownership->parts[i].owner != rank) continue;
        if (last && last->first + last->count == range.first)
            last->count += range.count;
        else
            ranges[count++] = range;
    }
    *out_ranges = ranges;
    *out_count = count;
    return RP_OK;
}

int64_t rpi_ownership_elements(const rpi_ownership *ownership, int rank) {
    int64_t elements = 0;
    for (int i = 0; i < ownership->count; i++)
        if (ownership->parts[i].owner == rank) elements += ownership->parts[i].range.count;
    return elements;
}

int rpi_ownership_find(const rpi_ownership *o, int64_t first, int64_t count, int *out_first) {
    int begin = 0, end = o->count;
    while (begin < end) {
        int middle = begin + (end - begin) / 2;
        if (o->parts[middle].range.first < first)
            begin = middle + 1;
        else
            end = middle;
    }
    *out_first = begin;
    while (end < o->count && o->parts[end].range.first < first + count) end++;
    return end - begin;
}
