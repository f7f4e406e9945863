/* Option structs that begin with their size, so that fields can be added at their end: what a
 * caller was compiled with may know fewer of them than this library, or more. */
#ifndef RPI_BASE_SIZED_OPTIONS_H
#define RPI_BASE_SIZED_OPTIONS_H

#include "base/status.h"

#include <stddef.h>

/* Up to and with this field. */
#define RPI_SIZE_UP_TO(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

typedef struct rpi_sized {
    const char *name;        /* "rp_comm_options" */
    const char *initializer; /* "RP_COMM_OPTIONS", which sets the size */
    size_t least;            /* of the first version that had a size */
    size_t known;            /* of this one */
} rpi_sized;

/* given: a struct that begins with its size, or NULL for defaults. *out_own: the same as this
 * library knows it, `known` bytes; fields that the caller does not know are zeros. RP_INVALID:
 * it is no such size. RP_UNSUPPORTED: a field that this library does not know is set. */
rp_status rpi_sized_read(const rpi_sized *sized, const void *given, void *out_own);
/* The other way: *out_given, a caller's struct that begins with its size, gets what this
 * library has in `own`, as far as the caller knows it; what this one does not know are zeros.
 * RP_INVALID: it is no such size. */
rp_status rpi_sized_write(const rpi_sized *sized, const void *own, void *out_given);

#endif
