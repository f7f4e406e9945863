#include "cli/option_rows.h"

#include "net/shaped/link_shape.h"
#include "plan/plan.h"
#include "redpoll/adaptive.h"
#include "redpoll/codec.h"

rp_status rpi_check_codec(const char *text) {
    rp_codec codec;
    return rp_codec_parse(text, &codec);
}

rp_status rpi_check_adaptive_codec(const char *text) {
    rp_adaptive_codec codec;
    return rp_adaptive_codec_parse(text, &codec);
}

rp_status rpi_check_all_reduce(const char *text) {
    const rpi_algorithm *algorithm = NULL;
    return rpi_algorithm_find(RPI_ALL_REDUCE, text, &algorithm);
}

rp_status rpi_check_link(const char *text) {
    rpi_link_shape shape;
    return rpi_link_shape_parse(text, &shape);
}
