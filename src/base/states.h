/* State machines in the open: an enum, a picture of it at the top of its file, and a table that
 * says which states may follow which.
 *
 *     static const rpi_states door_next[] = {
 *         [CLOSED] = RPI_STATE(OPEN),
 *         [OPEN] = RPI_STATE(CLOSED) | RPI_STATE(BROKEN), ...
 *     };
 *     RPI_ENTER(door_next, door->state, OPEN);
 *
 * In debug and sanitizer builds a step that the table does not have ends the process with one
 * line that names it, so that tests find it. In all others the macro is an assignment and the
 * table costs nothing. What a peer, a file or a user can bring about is in the table: such
 * bytes are never asserted. A state follows itself only where the table says so. */
#ifndef RPI_BASE_STATES_H
#define RPI_BASE_STATES_H

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t rpi_states; /* a set of states of one enum, which has 32 at most */

#define RPI_STATE(state) (UINT32_C(1) << (state))

/* Does the table have this step? */
static inline bool rpi_states_have(const rpi_states *next, int count, int from, int to) {
    return from >= 0 && from < count && to >= 0 && to < 32 && next[from] & RPI_STATE(to);
}

#define RPI_STATES_COUNT(next) ((int)(sizeof(next) / sizeof(next)[0]))

#if defined(RPI_CHECKS_STATES)
/* Of the builds that check: returns `to`, or says what is wrong and aborts. */
int rpi_states_step(const rpi_states *next, int count, int from, int to, const char *variable,
                    const char *file, int line);
#    define RPI_ENTER(next, variable, state)                                                   \
        ((variable) = rpi_states_step(next, RPI_STATES_COUNT(next), (int)(variable),           \
                                      (int)(state), #variable, __FILE__, __LINE__))
#else
#    define RPI_ENTER(next, variable, state) ((void)(next)[0], (variable) = (state))
#endif

#endif
