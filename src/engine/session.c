#include "engine/session.h"

#include "base/memory.h"
#include "base/status.h"

struct rpi_session {
    rpi_weights *weights;
    const rpi_backend *backend;
    void *kernels; /* the backend's session */
    unsigned char *workspace;
    size_t workspace_bytes;
    rpi_arena_pool arenas[RPI_ARENAS];
};

rp_status rpi_session_create(rpi_weights *weights, const rpi_backend *backend,
                             const rpi_backend_options *options, rpi_session **out_session) {
    static const rpi_backend_options defaults = {0};
    rpi_session *session = NULL;
    RP_TRY(rpi_alloc(sizeof *session, "a session", &session));
    session->weights = weights;
    session->backend = backend ? backend : rpi_backend_at(0);
    rp_status status = session->backend->open(options ? options : &defaults, &session->kernels);
    if (status != RP_OK) {
        rpi_free(session);
        return status;
    }
    *out_session = session;
    return RP_OK;
}

void rpi_session_destroy(rpi_session *session) {
    if (!session) return;
    session->backend->close(session->kernels);
    rpi_free(session->workspace);
    for (int a = 0; a < RPI_ARENAS; a++) rpi_arena_pool_close(&session->arenas[a]);
    rpi_free(session);
}

rpi_weights *rpi_session_weights(const rpi_session *session) {
    return session->weights;
}

const rpi_backend *rpi_session_backend(const rpi_session *session) {
    return session->backend;
}

void *rpi_session_kernels(const rpi_session *session) {
    return session->kernels;
}

unsigned char *rpi_session_workspace(const rpi_session *session) {
    return session->workspace;
}

rpi_arena_pool *rpi_session_arenas(rpi_session *session, rpi_arena_kind kind) {
    return &session->arenas[kind];
}

rpi_session_facts rpi_session_get_facts(const rpi_session *session) {
    rpi_session_facts facts = {.workspace_bytes = session->workspace_bytes};
    for (int a = 0; a < RPI_ARENAS; a++) {
        int count = 0;
        for (const rpi_loan *arena = session->arenas[a].arenas; arena; arena = arena->next) {
            facts.arena_bytes += arena->bytes;
            count++;
        }
        if (a != RPI_ARENA_PASSING && count > facts.arenas) facts.arenas = count;
    }
    return facts;
}

rp_status rpi_session_reserve(rpi_session *session, const size_t arena_bytes[RPI_ARENAS],
                              size_t workspace_bytes) {
    if (workspace_bytes > session->workspace_bytes) {
        unsigned char *workspace = NULL;
        RP_TRY(rpi_alloc(workspace_bytes, "workspace", &workspace));
        rpi_free(session->workspace);
        session->workspace = workspace;
        session->workspace_bytes = workspace_bytes;
    }
    for (int a = 0; a < RPI_ARENAS; a++)
        if (arena_bytes[a]) RP_TRY(rpi_arena_pool_reserve(&session->arenas[a], arena_bytes[a]));
    return RP_OK;
}
