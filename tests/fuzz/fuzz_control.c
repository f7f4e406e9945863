/* Records of the control connection. */
#include "fuzz_input.h"

#include "net/control/control_connection.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    int pair[2] = {-1, -1};
    rpi_control_record record;
    fuzz_stream(data, bytes, pair);
    rpi_control_connection connection = {.fd = pair[0], .rank = -1};
    while (rpi_control_connection_receive(&connection, &record) == RP_OK) {
    }
    rpi_control_connection_close(&connection);
    close(pair[1]);
    return 0;
}
