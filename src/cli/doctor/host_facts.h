/* The facts of this host as words for the launcher (agent_link.h). */
#ifndef RPI_CLI_HOST_FACTS_H
#define RPI_CLI_HOST_FACTS_H

#include "cli/doctor/doctor.h"
#include "cli/hosts/agent_link.h"

/* RP_INVALID: REDPOLL_SOCKET_IFNAME or REDPOLL_PORTS cannot be followed here. */
rp_status rpi_host_facts_say(rpi_agent_words *words);
/* The same facts, from the words of a host. */
void rpi_host_facts_read(const char *text, size_t bytes, rpi_doctor_host *host);

/* This side of a connection. */
void rpi_doctor_end_find(int fd, rpi_doctor_end *out_end);

#endif
