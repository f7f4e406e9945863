/* What arguments_test.c and its tables in other files share: calls that must be refused, and
 * the names of the functions that were tried. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "redpoll/redpoll.h"

/* `function` was tried. */
void arguments_note(const char *function);
/* So that no earlier message is taken for the one of the call. */
void arguments_forget(void);
/* The last error is RP_INVALID and its message has `part`. */
void arguments_recorded(const char *function, const char *file, int line, const char *part);
void arguments_refused(const char *function, const char *file, int line, const char *part,
                       rp_status status);

/* REFUSES("words of the message", function, arguments...) */
#define REFUSES(part, function, ...)                                                           \
    do {                                                                                       \
        arguments_forget();                                                                    \
        rp_status status_of_it = function(__VA_ARGS__);                                        \
        arguments_refused(#function, __FILE__, __LINE__, part, status_of_it);                  \
    } while (0)
/* The same of one without a status: `condition` holds the call. */
#define RECORDS(part, function, condition)                                                     \
    do {                                                                                       \
        arguments_forget();                                                                    \
        CHECK_MSG(condition, "%s", #function);                                                 \
        arguments_recorded(#function, __FILE__, __LINE__, part);                               \
    } while (0)
/* `statement` is legal; or there is nothing that could be wrong. */
#define LEGAL(function, statement)                                                             \
    do {                                                                                       \
        statement;                                                                             \
        arguments_note(#function);                                                             \
    } while (0)

/* Of algorithms of decentralised training. */
void arguments_of_training(void);
void arguments_of_windows(void);
void arguments_of_views(void);

#endif
