/* A session: where a model's programs live on one backend, and what they share.
 *
 *     rpi_weights              the model: parameters, gradients, states, by name
 *        |
 *     rpi_session              one backend, its packed copies of parameters,
 *        |                     one workspace, pools of arenas
 *        +-- rpi_program       a graph compiled: kernels, and steps over (space, offset);
 *        |      |              immutable code
 *        |      +-- rpi_instance      one run in flight: results, and arenas that are lent
 *        |      +-- rpi_instance      by pools for as long as what lies in them is needed
 *        |
 *        +-- rpi_program       another length, batch or task: the same weights and packings
 *               +-- rpi_instance
 *
 * So memory is that of the runs in flight and of the largest program, not the sum over all
 * programs. A session runs one thing at a time, on one thread at a time. */
#ifndef RPI_ENGINE_SESSION_H
#define RPI_ENGINE_SESSION_H

#include "engine/arena_pool.h"
#include "engine/backend.h"
#include "engine/memory_plan.h"
#include "engine/weights.h"

typedef struct rpi_session rpi_session;

/* backend NULL: the reference; options NULL: defaults. weights are borrowed and outlive the
 * session. */
rp_status rpi_session_create(rpi_weights *weights, const rpi_backend *backend,
                             const rpi_backend_options *options, rpi_session **out_session);
/* After its programs and their instances. */
void rpi_session_destroy(rpi_session *session);

rpi_weights *rpi_session_weights(const rpi_session *session);
const rpi_backend *rpi_session_backend(const rpi_session *session);

typedef struct rpi_session_facts {
    int arenas; /* of runs, in the pool: the most that were in flight at a time */
    size_t arena_bytes, workspace_bytes;
} rpi_session_facts;
rpi_session_facts rpi_session_get_facts(const rpi_session *session);

/* ---- what programs and instances use of it ---- */

void *rpi_session_kernels(const rpi_session *session); /* the backend's session */
/* Moves when a larger program is reserved for, never while a step runs. */
unsigned char *rpi_session_workspace(const rpi_session *session);
/* Arenas of a kind are lent to runs of all programs. */
rpi_arena_pool *rpi_session_arenas(rpi_session *session, rpi_arena_kind kind);
/* Make sure that a run which needs so much finds it, if no other is in flight. */
rp_status rpi_session_reserve(rpi_session *session, const size_t arena_bytes[RPI_ARENAS],
                              size_t workspace_bytes);

#endif
