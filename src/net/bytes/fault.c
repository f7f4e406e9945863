#include "net/bytes/fault.h"

#include <stdio.h>

rp_status rpi_fault_keep(rpi_fault *fault, rp_status status) {
    if (fault->status == RP_OK) {
        fault->status = status;
        snprintf(fault->text, sizeof fault->text, "%s", rp_last_error()->message);
    }
    return fault->status;
}

rp_status rpi_fault_raise(rpi_fault *fault) {
    if (fault->status == RP_OK) return RP_OK;
    fault->told = true;
    return rpi_fail(fault->status, __FILE__, __LINE__, "%s", fault->text);
}
