/* What ranks of a parameter server's communicator are called in messages, where that was made
 * of those that are left of a world and of some that came back. */
#ifndef RPI_COMM_PARAMETER_SERVER_NAMES_H
#define RPI_COMM_PARAMETER_SERVER_NAMES_H

#include "redpoll/parameter_server.h"

/* names: of each rank, borrowed until the server is destroyed; NULL: its own number. */
void rpi_parameter_server_name(rp_parameter_server *server, const int *names);

#endif
