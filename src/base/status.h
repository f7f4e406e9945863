/* Recording and passing failures (see <redpoll/status.h> for the idea). */
#ifndef RPI_BASE_STATUS_H
#define RPI_BASE_STATUS_H

#include "redpoll/status.h"

/* Record a failure for this thread and evaluate to its status:
 *     return RP_FAIL(INVALID, "bits is %d; 1 to 8 are allowed", bits); */
#define RP_FAIL(code, ...)                                                                     \
    rpi_outcome(rpi_fail(RP_##code, __FILE__, __LINE__, __VA_ARGS__), RP_##code)

/* Record a failure together with errno's text: "cannot open x: No such file or directory". */
#define RP_FAIL_ERRNO(code, ...)                                                               \
    rpi_outcome(rpi_fail_errno(RP_##code, __FILE__, __LINE__, __VA_ARGS__), RP_##code)

/* Return from the caller when `expression` failed; pending (positive) passes through as done
 * only where the caller cannot pend, so it is returned as well. */
#define RP_TRY(expression)                                                                     \
    do {                                                                                       \
        rp_status rpi_try_status = (expression);                                               \
        if (rpi_try_status != RP_OK) return rpi_try_status;                                    \
    } while (0)

enum { RPI_ERROR_BYTES = 1024 }; /* longest message kept, including its NUL */

rp_status rpi_fail(rp_status status, const char *file, int line, const char *format, ...)
    RP_PRINTF(4, 5);
rp_status rpi_fail_errno(rp_status status, const char *file, int line, const char *format, ...)
    RP_PRINTF(4, 5);

/* The status again, but visible to the compiler: it then knows that a failure is not RP_OK. */
static inline rp_status rpi_outcome(rp_status recorded, rp_status status) {
    (void)recorded;
    return status;
}

/* For destroyers: what fails while leaving must not replace the reason for leaving. */
typedef struct rpi_kept_error {
    rp_error error;
    char message[RPI_ERROR_BYTES];
} rpi_kept_error;
void rpi_error_keep(rpi_kept_error *out_kept);
void rpi_error_put_back(const rpi_kept_error *kept);

/* Put words in front of the recorded message: "layer 3: " + message. Returns `status`. */
rp_status rpi_fail_context(rp_status status, const char *format, ...) RP_PRINTF(2, 3);

#endif
