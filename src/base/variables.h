/* The environment variables that are Redpoll's, in one list (variables.c): options of commands,
 * what the library and the Python package read, and those of tests. What begins with REDPOLL_
 * and resembles one of them is a mistake, which nobody would notice otherwise. */
#ifndef RPI_BASE_VARIABLES_H
#define RPI_BASE_VARIABLES_H

#include <stdbool.h>

/* The i-th name, without REDPOLL_ in front; NULL past the end. */
const char *rpi_variable_name(int index);

/* Kubernetes, and Docker's links, set for a Service named redpoll
 * REDPOLL_PORT=tcp://10.0.0.1:80, REDPOLL_SERVICE_HOST, REDPOLL_PORT_80_TCP and others: those
 * are not ours. */
bool rpi_variable_is_of_service(const char *name, const char *value);

/* Warn of every variable NAME=VALUE of a list, which NULL ends, that is none of ours and
 * resembles one; returns how many. Other strangers are left alone. */
int rpi_variables_check(char *const *list);
/* The same over this process's environment, once a process. */
void rpi_variables_check_own(void);

#endif
