/* data_stages of nanotron's files: data that a run learns from one after the other. */
#ifndef RPI_CLI_NANOTRON_STAGES_H
#define RPI_CLI_NANOTRON_STAGES_H

#include "cli/nanotron_nodes.h"

/* Take data_stages out, and put --data in where there is none. RP_INVALID names file, line and
 * key. */
rp_status rpi_nanotron_stages(const rpi_nanotron *t);

#endif
