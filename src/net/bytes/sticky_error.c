#include "net/bytes/sticky_error.h"

#include <stdio.h>

rp_status rpi_sticky_error_keep(rpi_sticky_error *sticky, rp_status status) {
    if (sticky->status == RP_OK) {
        sticky->status = status;
        snprintf(sticky->text, sizeof sticky->text, "%s", rp_last_error()->message);
    }
    return sticky->status;
}

rp_status rpi_sticky_error_raise(rpi_sticky_error *sticky) {
    if (sticky->status == RP_OK) return RP_OK;
    sticky->told = true;
    return rpi_fail(sticky->status, __FILE__, __LINE__, "%s", sticky->text);
}
