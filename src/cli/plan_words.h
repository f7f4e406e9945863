/* Checks of option words that several planning commands share. */
#ifndef RPI_CLI_PLAN_WORDS_H
#define RPI_CLI_PLAN_WORDS_H

#include "redpoll/status.h"

/* Checks for option tables: "10.4/node-hour"; "6.5/1000-node-days"; "30s". */
rp_status rpi_check_price(const char *text);
rp_status rpi_check_node_rate(const char *text);
rp_status rpi_check_span(const char *text);

/* A file that is missing or broken is a mistake of usage, too: RP_INVALID with its message. */
rp_status rpi_plan_mistake(rp_status status);

#endif
