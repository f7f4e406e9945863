/* A machine that was measured, as a file: JSON, an item a kind of work and size (docs/json.md).
 */
#ifndef RPI_CLI_MACHINE_FILE_H
#define RPI_CLI_MACHINE_FILE_H

#include "plan/foresight/machine_account.h"

#include <stddef.h>

/* As one object; the caller's to delete. */
struct cJSON;
struct cJSON *rpi_machine_json(const rpi_machine_account *account);

/* As a file, whole or not at all. RP_IO. */
rp_status rpi_machine_file_write(const char *path, const rpi_machine_account *account);

/* RP_CORRUPT: it is no such object, and why; RP_INVALID: an item is no measurement. */
rp_status rpi_machine_parse(const char *bytes, size_t count, rpi_machine_account *account);
/* The same of a file. RP_NOT_FOUND. */
rp_status rpi_machine_file_read(const char *path, rpi_machine_account *account);

#endif
