/* The threads that compute together. Each thread that asks has a team of its own, of which it
 * is member 0; the others are started when they are first needed, and end with it.
 *
 * No member is pinned. A member that finds itself on the caller's processor time after time
 * moves to another one, and is free again there. How members wait: gate.h. */
#ifndef RPI_ENGINE_TEAM_H
#define RPI_ENGINE_TEAM_H

#include <stdbool.h>

enum { RPI_TEAM_MOST = 1024, RPI_TEAM_SHARES = 4 };

/* The calling thread's team has so many members from here on, itself among them, or as many as
 * could be started: the number is returned. It never shrinks. Within a region: 1. */
int rpi_team_grow(int members);

/* ---- all at once: for bodies that wait for each other ---- */

/* Run the body on `members` members, or as many as there are, and return when all have. A body
 * within a body is run by its caller alone. */
void rpi_team_gang(int members, void (*body)(void *context), void *context);
/* Who runs this, of how many; 0 of 1 outside of a body. */
int rpi_team_member(void);
int rpi_team_members(void);
/* Is this within a body of several? */
bool rpi_team_in_body(void);
/* Until all members of the body are here. */
void rpi_team_barrier(void);

/* ---- parts: for work that anybody may do ---- */

/* Into how many parts the work of `members` is best cut: as many as there are members, more in
 * company, where one of them may be late. */
int rpi_team_cut(int members);
/* Run the body for part 0 to parts - 1, parts <= members * RPI_TEAM_SHARES; each by one member,
 * who is not known before. Nobody waits for a member that has none: if the others get no
 * processor, the caller does it all. */
void rpi_team_share(int members, int parts, void (*body)(const void *context, int part),
                    const void *context);

/* From here on the team of this thread takes itself to be in company for so long: for tests of
 * what is cut otherwise then. */
void rpi_team_assume_company(double seconds);

#endif
