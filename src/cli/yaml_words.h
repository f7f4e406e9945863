/* Words of YAML 1.1, as PyYAML reads them and with it the programs whose files are brought
 * here: what is null, and numbers that are written otherwise than on a command line. */
#ifndef RPI_CLI_YAML_WORDS_H
#define RPI_CLI_YAML_WORDS_H

#include "redpoll/status.h"

#include <stdbool.h>
#include <yaml.h>

/* Nothing, ~, null, Null or NULL, without quotes. */
bool rpi_yaml_is_null(const yaml_node_t *node);

/* A scalar as options take a number: 1_000 is 1000, 010 is 8 and 0b11 is 3, 0x10 is 16, 1:30
 * is 90; any other, and what stands in quotes, as it is. Into text where it is another. */
enum { RPI_YAML_NUMBER = 64 };
const char *rpi_yaml_number(const yaml_node_t *scalar, char text[RPI_YAML_NUMBER]);

/* RP_INVALID: .inf or .nan, in any of their spellings, which no option takes. */
rp_status rpi_yaml_check_finite(const yaml_node_t *scalar);

/* Put the members of mappings that are merged (<<: *name, or a list of these) into those that
 * merge them, behind their own, which count. RP_INVALID names file and line: something else is
 * merged, or all are more than `most` keys. */
rp_status rpi_yaml_merge(const char *file, yaml_document_t *document, int most);

#endif
