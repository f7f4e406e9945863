/* A program alone: compiled in a session of its own, with one instance, for tests that look at
 * one run at a time. */
#ifndef SOLO_H
#define SOLO_H

#include "engine/instance.h"

/* backend NULL: the reference. */
rp_status solo_open(const rpi_graph *graph, rpi_weights *weights, rpi_value_id loss,
                    const rpi_backend *backend, const rpi_program_options *options,
                    rpi_instance **out_instance);
rp_status solo_open_with(const rpi_graph *graph, rpi_weights *weights, rpi_value_id loss,
                         const rpi_backend *backend, const rpi_backend_options *backend_options,
                         const rpi_program_options *options, rpi_instance **out_instance);
/* And its program and session. NULL is fine. */
void solo_close(rpi_instance *instance);

#endif
