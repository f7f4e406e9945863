/* Configuration files: YAML mappings read into an option table.
 *
 *     tokens:
 *       global_batch_size: 64      ->  path "tokens.global_batch_size"
 */
#ifndef RPI_CLI_CONFIG_H
#define RPI_CLI_CONFIG_H

#include "base/option.h"

typedef struct rpi_config rpi_config; /* owns the texts to which options point */

/* Reads a file and sets every key in it. RP_INVALID names file and line: the file is not YAML,
 * has a list instead of a value, an unknown or repeated key, a bad value, a second document,
 * more than 1 MiB, 16 levels or 10,000 keys, or is not a regular file; RP_NOT_FOUND, RP_IO: it
 * cannot be read. The config must outlive the target's texts; free it with rpi_config_free
 * (NULL is fine). */
rp_status rpi_config_read(const char *path, const rpi_option *table, void *target,
                          rpi_config **out_config);
/* The two halves of it: a file that is read once may be applied to several targets. */
rp_status rpi_config_open(const char *path, rpi_config **out_config);
rp_status rpi_config_apply(rpi_config *config, const rpi_option *table, void *target);
/* The replicas in a file of nanotron, each of as many ranks as its tp and pp make; 0: replicas
 * have one rank, or it is not such a file. */
long long rpi_config_replicas(const rpi_config *config);
void rpi_config_free(rpi_config *config);

#endif
