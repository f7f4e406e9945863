/* What this process lacks when a system call says so, and what to do about it. */
#ifndef RPI_BASE_LACKING_H
#define RPI_BASE_LACKING_H

#include <stddef.h>

/* "; all 34 open files ... raise the limit ..." into text, for the end of a message that has
 * errno's words; "" where errno says nothing of that kind. Opens nothing. Returns text. */
const char *rpi_lacking_text(int error, char *text, size_t bytes);

/* The same for threads and processes, which fail with EAGAIN; "" where it is not that. Static.
 */
const char *rpi_lacking_threads(int error);

/* ", which ..." where a system call is forbidden, for behind its name; else "". Static. */
const char *rpi_lacking_call(int error);

/* What a rank of this world needs, for such messages: "; a rank of 64 needs about 90". */
void rpi_lacking_note_world(int world, long descriptors);

#endif
