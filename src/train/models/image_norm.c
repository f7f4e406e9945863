#include "train/models/image_norm.h"

#include "base/status.h"

#include <string.h>

rp_status rpi_image_norm_check_kind(const char *text) {
    if (strcmp(text, "batch") == 0 || strcmp(text, "group") == 0) return RP_OK;
    return RP_FAIL(INVALID, "'%s' is no norm of images; batch or group", text);
}

int64_t rpi_image_norm_groups(int64_t channels) {
    enum { MOST_GROUPS = 32, FEWEST_CHANNELS = 8 };
    int64_t groups = channels / FEWEST_CHANNELS;
    if (groups > MOST_GROUPS) groups = MOST_GROUPS;
    while (groups > 1 && channels % groups != 0) groups--;
    return groups > 1 ? groups : 1;
}

static rpi_value_id refuse(rpi_builder *builder, rp_status status) {
    rpi_graph_fail(builder->graph, status, "%s", rp_last_error()->message);
    return RPI_NO_VALUE;
}

rpi_value_id rpi_block_image_norm(rpi_builder *builder, const rpi_image_norm *norm,
                                  const char *name, rpi_value_id x, int channels,
                                  rpi_init_rule init) {
    if (strcmp(norm->kind, "group") == 0) {
        const int64_t groups = norm->groups ? norm->groups : rpi_image_norm_groups(channels);
        if (channels % groups == 0)
            return rpi_block_group_norm(builder, name, x, channels, (int)groups, init);
        return refuse(builder, RP_FAIL(INVALID,
                                       "groups=%lld does not divide the %d channels of %s: "
                                       "use a number that divides those of every layer",
                                       (long long)groups, channels, name));
    }
    if (norm->groups)
        return refuse(builder, RP_FAIL(INVALID,
                                       "groups=%lld is of norm=group, and this is "
                                       "norm=%s",
                                       (long long)norm->groups, norm->kind));
    return rpi_block_batch_norm(builder, name, x, channels, init);
}
