#include "solo.h"

#include "base/status.h"

static rp_status open_in(rpi_session *session, const rpi_graph *graph, rpi_value_id loss,
                         const rpi_program_options *options, rpi_instance **out_instance) {
    rpi_program *program = NULL;
    RP_TRY(rpi_program_compile(session, graph, loss, options, &program));
    rp_status status = rpi_instance_create(program, out_instance);
    if (status != RP_OK) rpi_program_destroy(program);
    return status;
}

rp_status solo_open_with(const rpi_graph *graph, rpi_weights *weights, rpi_value_id loss,
                         const rpi_backend *backend, const rpi_backend_options *backend_options,
                         const rpi_program_options *options, rpi_instance **out_instance) {
    rpi_session *session = NULL;
    RP_TRY(rpi_session_create(weights, backend, backend_options, &session));
    rp_status status = open_in(session, graph, loss, options, out_instance);
    if (status != RP_OK) rpi_session_destroy(session);
    return status;
}

rp_status solo_open(const rpi_graph *graph, rpi_weights *weights, rpi_value_id loss,
                    const rpi_backend *backend, const rpi_program_options *options,
                    rpi_instance **out_instance) {
    return solo_open_with(graph, weights, loss, backend, NULL, options, out_instance);
}

void solo_close(rpi_instance *instance) {
    if (!instance) return;
    rpi_program *program = (rpi_program *)rpi_instance_program(instance);
    rpi_session *session = rpi_program_session(program);
    rpi_instance_destroy(instance);
    rpi_program_destroy(program);
    rpi_session_destroy(session);
}
