/** Status codes and the error record.
 *
 * Every function that can fail returns rp_status: 0 is done, positive is pending, negative has
 * failed. The place that decides a failure also records a message with its file and line for
 * the calling thread; callers pass the status up and rp_last_error() reads the record.
 * A failure inside an asynchronous operation is returned by rp_request_wait() and its kin in
 * <redpoll/comm.h>, which record its message for the thread that waits.
 */
#ifndef REDPOLL_STATUS_H
#define REDPOLL_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#    define RP_API          __attribute__((visibility("default")))
#    define RP_PRINTF(f, a) __attribute__((format(printf, f, a)))
#    define RP_MUST_USE     __attribute__((warn_unused_result))
#else
#    define RP_API
#    define RP_PRINTF(f, a)
#    define RP_MUST_USE
#endif

/** The codes and their texts: X(constant suffix, value, text). Values are part of the ABI. */
#define RP_STATUS_TABLE(X)                                                                     \
    X(OK, 0, "done")                                                                           \
    X(PENDING, 1, "not finished yet")                                                          \
    X(INVALID, -1, "invalid argument")                                                         \
    X(NOMEM, -2, "out of memory")                                                              \
    X(IO, -3, "input or output failed")                                                        \
    X(TIMEOUT, -4, "timed out: no progress before the deadline")                               \
    X(PEER, -5, "a peer is gone (connection closed by peer)")                                  \
    X(MISMATCH, -6, "ranks disagree")                                                          \
    X(CORRUPT, -7, "damaged data")                                                             \
    X(UNSUPPORTED, -8, "not supported")                                                        \
    X(NOT_FOUND, -9, "not found")                                                              \
    X(STATE, -10, "called in the wrong state")                                                 \
    X(CANCELLED, -11, "cancelled")                                                             \
    X(INTERNAL, -12, "a bug in redpoll")

typedef enum rp_status {
#define RP_STATUS_CONSTANT(name, value, text) RP_##name = (value),
    RP_STATUS_TABLE(RP_STATUS_CONSTANT)
#undef RP_STATUS_CONSTANT
} rp_status;

/** The latest failure recorded on a thread. All strings live until that thread's next failure.
 */
typedef struct rp_error {
    rp_status status;
    const char *message; /**< One line, says what to do; never NULL. */
    const char *file;    /**< Source file that decided; static. */
    int line;
} rp_error;

/** Text of a status ("out of memory"); static, never NULL, also for unknown values. */
RP_API const char *rp_status_text(rp_status status);

/** Name of a status ("NOMEM"); static, never NULL. */
RP_API const char *rp_status_name(rp_status status);

/** The calling thread's latest failure; status RP_OK and message "" when there was none.
 *  Never blocks. Successful calls leave the record untouched. */
RP_API const rp_error *rp_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
