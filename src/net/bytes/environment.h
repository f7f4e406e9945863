/* Where variables come from: the process's environment, or a test's table. */
#ifndef RPI_NET_ENVIRONMENT_H
#define RPI_NET_ENVIRONMENT_H

#include <stdint.h>

typedef struct rpi_environment {
    const char *(*get)(const void *context, const char *name); /* NULL when not set */
    const void *context;
    int64_t launcher; /* its process id, which ranks of one host have in common; 0: unknown */
} rpi_environment;

#endif
