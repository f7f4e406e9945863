/* Configuration files: YAML mappings read into an option table.
 *
 *     tokens:
 *       global_batch_size: 64      ->  path "tokens.global_batch_size"
 */
#ifndef RPI_CLI_CONFIG_H
#define RPI_CLI_CONFIG_H

#include "base/option.h"

typedef struct rpi_config rpi_config; /* owns the texts that options point to */

/* Read a file and set every key it holds. RP_INVALID names file and line: not YAML, a list
 * where a value is wanted, an unknown or repeated key, a bad value; RP_IO: cannot be read. The
 * config must outlive the target's texts; free it with rpi_config_free (NULL is fine). */
rp_status rpi_config_read(const char *path, const rpi_option *table, void *target,
                          rpi_config **out_config);
void rpi_config_free(rpi_config *config);

#endif
