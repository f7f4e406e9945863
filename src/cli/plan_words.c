#include "cli/plan_words.h"

#include "base/status.h"
#include "base/units.h"
#include "plan/foresight/node_rate.h"

rp_status rpi_check_price(const char *text) {
    double price;
    return rpi_price_parse(text, &price);
}

rp_status rpi_check_node_rate(const char *text) {
    rpi_node_rate rate;
    return rpi_node_rate_parse(text, &rate);
}

rp_status rpi_check_span(const char *text) {
    double seconds;
    return rpi_parse_span(text, &seconds);
}

rp_status rpi_plan_mistake(rp_status status) {
    rpi_kept_error why;
    if (status != RP_NOT_FOUND && status != RP_CORRUPT && status != RP_UNSUPPORTED)
        return status;
    rpi_error_keep(&why);
    return RP_FAIL(INVALID, "%s", why.message);
}
