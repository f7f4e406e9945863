/* A machine as `redpoll bench machine -o` writes it, and the device that becomes of it. */
#include "fuzz_input.h"

#include "base/memory.h"
#include "cli/machine_file.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    rpi_machine_account *account = NULL;
    rpi_measured_rates *rates = NULL;
    rpi_plan_device device;
    char *text = NULL;
    if (bytes > 1 << 16 || rpi_alloc(bytes + 1, "a machine", &text) != RP_OK) return 0;
    memcpy(text, data, bytes);
    if (rpi_alloc(sizeof *account, "a machine", &account) == RP_OK &&
        rpi_alloc(sizeof *rates, "rates", &rates) == RP_OK &&
        rpi_machine_parse(text, bytes, account) == RP_OK)
        (void)rpi_machine_account_device(account, "fuzz", &device, rates);
    rpi_free(account);
    rpi_free(rates);
    rpi_free(text);
    return 0;
}
