#include "engine/op.h"

#include "base/status.h"
#include "engine/dimension.h"

#include <stdio.h>

bool rpi_op_has_cache(const rpi_op *op) {
    for (int i = 0; i < op->input_count; i++)
        if (op->inputs[i].role == RPI_CACHE) return true;
    return false;
}

const char *rpi_op_shape_text(const rpi_shape *shape, char *text, size_t bytes) {
    size_t used = 0;
    snprintf(text, bytes, "a scalar");
    for (int i = 0; i < shape->dims && used < bytes; i++) {
        char size[64];
        rpi_dimension_text(shape->size[i], NULL, size, sizeof size);
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? " x " : "", size);
    }
    return text;
}

rp_status rpi_op_check_probability(float probability, const char *what) {
    if (probability >= 0 && probability <= 1) return RP_OK;
    return RP_FAIL(INVALID, "%s is %g; 0 to 1 are allowed", what, (double)probability);
}

rp_status rpi_op_check_pieces(const rpi_token_pieces *pieces, int64_t length) {
    int64_t count = pieces->count, first = pieces->at[0], last = pieces->at[1];
    if (pieces->first < 0 || pieces->own < 0 || (pieces->first && !pieces->own))
        return RP_FAIL(INVALID, "tokens from %lld on of %lld", (long long)pieces->first,
                       (long long)pieces->own);
    if (pieces->own) length = pieces->own;
    if (!count && !pieces->whole) return RP_OK;
    if (count < 2 || count % 2 || first < 0 || last <= first || last >= count)
        return RP_FAIL(INVALID,
                       "pieces %lld and %lld of %lld; two of an even number, in order, are "
                       "wanted",
                       (long long)first, (long long)last, (long long)count);
    if (rpi_dimension_is_named(length)) return RP_OK;
    if (length % 2)
        return RP_FAIL(INVALID, "%lld tokens are no two pieces of equal length",
                       (long long)length);
    if (pieces->whole < 0 || pieces->whole > length / 2 * count)
        return RP_FAIL(INVALID, "%lld pieces of %lld tokens, which hold %lld", (long long)count,
                       (long long)(length / 2), (long long)pieces->whole);
    return RP_OK;
}

rp_status rpi_op_check_numbers(const rpi_shape *shape, int first, const char *what) {
    char text[96];
    for (int i = first; i < shape->dims; i++)
        if (rpi_dimension_is_named(shape->size[i]))
            return RP_FAIL(INVALID, "%s is %s; numbers are wanted from axis %d on", what,
                           rpi_op_shape_text(shape, text, sizeof text), first);
    return RP_OK;
}

rpi_shape rpi_op_drop_ones(const rpi_shape *shape, int dims) {
    rpi_shape rest = {0};
    int first = 0;
    while (shape->dims - first > dims && shape->size[first] == 1) first++;
    for (int i = first; i < shape->dims; i++) rest.size[rest.dims++] = shape->size[i];
    return rest;
}

rp_status rpi_op_check_shape(const rpi_shape *shape, const rpi_shape *wanted,
                             const char *what) {
    char a[96], b[96];
    if (rpi_shape_equal(shape, wanted)) return RP_OK;
    return RP_FAIL(INVALID, "%s is %s; %s is wanted", what,
                   rpi_op_shape_text(shape, a, sizeof a),
                   rpi_op_shape_text(wanted, b, sizeof b));
}

rp_status rpi_op_check_vector(const rpi_shape *shape, int64_t count, const char *what) {
    char text[96];
    if (shape->dims == 1 && shape->size[0] == count) return RP_OK;
    return RP_FAIL(INVALID, "%s is %s; %lld is wanted", what,
                   rpi_op_shape_text(shape, text, sizeof text), (long long)count);
}
