/* A file of devices. */
#include "fuzz_input.h"

#include "base/memory.h"
#include "plan/foresight/device_table.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *text = NULL;
    rpi_plan_device_table *table = NULL;
    rpi_plan_device device;
    if (bytes > 1 << 16 || rpi_alloc(bytes + 1, "a table", &text) != RP_OK) return 0;
    memcpy(text, data, bytes);
    if (rpi_plan_device_table_make(&table) == RP_OK) {
        if (rpi_plan_device_table_add(table, text, "fuzz") == RP_OK)
            for (int i = 0; rpi_plan_device_at(table, i); i++)
                (void)rpi_plan_device_find(table, rpi_plan_device_at(table, i)->name, &device);
        rpi_plan_device_table_destroy(table);
    }
    rpi_free(text);
    return 0;
}
