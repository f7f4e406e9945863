/* data_stages of nanotron's files: data sets from which a run learns one after the other. */
#ifndef RPI_CLI_NANOTRON_STAGES_H
#define RPI_CLI_NANOTRON_STAGES_H

#include "cli/nanotron_nodes.h"

/* Removes data_stages, and adds --data unless it was given. RP_INVALID names file, line and
 * key. */
rp_status rpi_nanotron_stages(const rpi_nanotron *t);

#endif
