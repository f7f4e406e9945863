#include "engine/session.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/code.h"

struct rpi_session {
    rpi_weights *weights;
    const rpi_backend *backend;
    void *kernels; /* the backend's session */
    unsigned char *workspace;
    size_t workspace_bytes;
    rpi_loan *arenas; /* lent or not */
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
    while (session->arenas) {
        rpi_loan *next = session->arenas->next;
        rpi_free(session->arenas->data);
        rpi_free(session->arenas);
        session->arenas = next;
    }
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

rpi_session_facts rpi_session_get_facts(const rpi_session *session) {
    rpi_session_facts facts = {.workspace_bytes = session->workspace_bytes};
    for (const rpi_loan *arena = session->arenas; arena; arena = arena->next) {
        facts.arenas++;
        facts.arena_bytes += arena->bytes;
    }
    return facts;
}

/* ---- the pool ---- */

/* The smallest arena that holds `bytes`, or the largest of those that do not; lent ones are
 * looked at where `any` says so. */
static rpi_loan *best(const rpi_session *session, size_t bytes, bool any) {
    rpi_loan *found = NULL;
    for (rpi_loan *arena = session->arenas; arena; arena = arena->next) {
        if (arena->is_lent && !any) continue;
        bool fits = arena->bytes >= bytes, fitted = found && found->bytes >= bytes;
        if (!found || (fits && !fitted) ||
            (fits == fitted &&
             (fits ? arena->bytes < found->bytes : arena->bytes > found->bytes)))
            found = arena;
    }
    return found;
}

/* A free arena of at least `bytes`: one that is too small makes room for a larger one. */
static rp_status free_arena(rpi_session *session, size_t bytes, rpi_loan **out_arena) {
    rpi_loan *arena = best(session, bytes, false);
    if (!arena) {
        RP_TRY(rpi_alloc(sizeof *arena, "an arena", &arena));
        arena->next = session->arenas;
        session->arenas = arena;
    }
    *out_arena = arena;
    if (arena->data && arena->bytes >= bytes) return RP_OK;
    rpi_free(arena->data);
    arena->data = NULL;
    arena->bytes = 0;
    RP_TRY(rpi_alloc(bytes, "activations", &arena->data));
    arena->bytes = bytes;
    return RP_OK;
}

rp_status rpi_session_reserve(rpi_session *session, size_t arena_bytes,
                              size_t workspace_bytes) {
    if (workspace_bytes > session->workspace_bytes) {
        unsigned char *workspace = NULL;
        RP_TRY(rpi_alloc(workspace_bytes, "workspace", &workspace));
        rpi_free(session->workspace);
        session->workspace = workspace;
        session->workspace_bytes = workspace_bytes;
    }
    const rpi_loan *largest = best(session, arena_bytes, true);
    if (largest && largest->data && largest->bytes >= arena_bytes) return RP_OK;
    rpi_loan *arena = NULL;
    return free_arena(session, arena_bytes, &arena);
}

rp_status rpi_session_lend(rpi_session *session, size_t bytes, rpi_loan **out_arena) {
    rpi_loan *arena = NULL;
    RP_TRY(free_arena(session, bytes, &arena));
    arena->is_lent = true;
    *out_arena = arena;
    return RP_OK;
}

void rpi_session_return(rpi_loan *arena) {
    if (arena) arena->is_lent = false;
}
