/* The measurements of a machine as a file: JSON with an item for each kind of work and size
 * (docs/json.md). */
#ifndef RPI_CLI_MACHINE_FILE_H
#define RPI_CLI_MACHINE_FILE_H

#include "plan/foresight/machine_account.h"

#include <stddef.h>

/* As one object, which the caller deletes. */
struct cJSON;
struct cJSON *rpi_machine_json(const rpi_machine_account *account);

/* Writes a file, as a whole or not at all. RP_IO. */
rp_status rpi_machine_file_write(const char *path, const rpi_machine_account *account);

/* RP_CORRUPT: it is not such an object, and why; RP_INVALID: an item is not a measurement. */
rp_status rpi_machine_parse(const char *bytes, size_t count, rpi_machine_account *account);
/* Reads a file. RP_NOT_FOUND. */
rp_status rpi_machine_file_read(const char *path, rpi_machine_account *account);

#endif
