/* The messages between the launcher and its agent on another host, over the two pipes of a
 * remote shell. First the agent sends a greeting as a line of text, which may follow other
 * output of that host's shell. Then frames are sent both ways: type, rank and length, and
 * bytes. Words are pairs of texts, each with its NUL.
 *
 * Nothing here blocks: sending puts bytes into a buffer, and the owner polls. */
#ifndef RPI_CLI_AGENT_LINK_H
#define RPI_CLI_AGENT_LINK_H

#include "base/status.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RPI_AGENT_PROTOCOL = 4 };
enum { RPI_AGENT_FRAME_BYTES = 1 << 20 }; /* the longest */
enum { RPI_AGENT_STOPPED = 1 << 16 };
#define RPI_AGENT_BEAT_S 1.0

typedef enum rpi_agent_word {
    RPI_AGENT_JOB = 'J',     /* to the agent: words on folder, program, variables, secret */
    RPI_AGENT_READY = 'R',   /* from it: the checks succeeded; words on its addresses */
    RPI_AGENT_FAILED = 'F',  /* from it: what is wrong, as one text */
    RPI_AGENT_SERVE = 'S',   /* to the first host: serve the store; the address to listen at */
    RPI_AGENT_SERVED = 'P',  /* from it: words on ports */
    RPI_AGENT_DIAL = 'D',    /* to the others: words on the addresses of the store */
    RPI_AGENT_REACHED = 'A', /* from them: words, where it was */
    RPI_AGENT_GO = 'G',      /* to all: start; words on the store */
    RPI_AGENT_OUT = 'o',     /* from it: output of a rank */
    RPI_AGENT_ERR = 'e',
    RPI_AGENT_ENDED = 'x',  /* from it: how a rank has ended (rpi_ending), numbers
                               little-endian */
    RPI_AGENT_SIGNAL = 'K', /* to it: pass this signal on; its number is in place of the rank */
    RPI_AGENT_HURRY = 'C',  /* to it: a rank of another host has failed */
    RPI_AGENT_ALIVE = 'b',  /* from it, every second; how many of its ranks are idle
                              (idle_ranks.c), and RPI_AGENT_STOPPED, stand for the rank */
    RPI_AGENT_WELL = 'W',   /* to it: a rank has ended with 0 */
    RPI_AGENT_LOST = 'l',   /* to it: this rank was lost, with its host */
    RPI_AGENT_FORGO = 'L',  /* to it: idle ranks are to be ended */
    RPI_AGENT_RELEASE = 'U', /* to it: all ranks have ended, on all hosts: the store may end */
    /* For `redpoll doctor`, which sends its agents SERVE, too. */
    RPI_AGENT_EXAMINE = 'X',  /* to it: words on secret and variables */
    RPI_AGENT_FACTS = 'I',    /* from it: words on its host */
    RPI_AGENT_EXPECT = 'E',   /* to it: words on who will call */
    RPI_AGENT_PROBE = 'T',    /* to it: words on which host to call, and at which addresses */
    RPI_AGENT_DISMISS = 'N',  /* to it: the expected caller has given up */
    RPI_AGENT_MEASURED = 'M', /* from both: words on the result */
} rpi_agent_word;
#define RPI_AGENT_WORDS "JRFSPDAGoexKCbWlLUXIETNM" /* all of them */

typedef struct rpi_agent_frame {
    rpi_agent_word word;
    int rank;
    const char *text; /* borrowed until the link is read again */
    size_t bytes;
} rpi_agent_frame;

typedef struct rpi_agent_buffer {
    char *text;
    size_t begin, end, capacity;
} rpi_agent_buffer;

typedef struct rpi_agent_link {
    int in, out; /* -1: closed */
    rpi_agent_buffer received, sent;
} rpi_agent_link;

/* Takes over the descriptors and makes them non-blocking. */
void rpi_agent_link_open(rpi_agent_link *link, int in, int out);
void rpi_agent_link_close(rpi_agent_link *link); /* zeros are fine */

/* Put a frame into the buffer, and send what can be sent. RP_NOMEM; `out` shows if the other
 * side reads no more. */
rp_status rpi_agent_send(rpi_agent_link *link, rpi_agent_word word, int rank, const char *text,
                         size_t bytes);
/* The greeting, which has a line of its own. */
rp_status rpi_agent_greet(rpi_agent_link *link);
void rpi_agent_flush(rpi_agent_link *link);
/* False: the other side is slow, and more may be sent only after it has read. */
bool rpi_agent_has_room(const rpi_agent_link *link);
/* What to poll: `in` for reading, `out` if bytes wait to be sent. */
void rpi_agent_poll(const rpi_agent_link *link, struct pollfd polls[2]);

/* Read what has arrived; closes `in` at its end. RP_NOMEM. */
rp_status rpi_agent_fill(rpi_agent_link *link);
/* The next complete frame. RP_CORRUPT: not a frame. */
rp_status rpi_agent_next(rpi_agent_link *link, rpi_agent_frame *out_frame, bool *out_found);
/* The other side's version after its greeting has arrived, and its protocol; bytes before it
 * are dropped. */
bool rpi_agent_take_greeting(rpi_agent_link *link, int *out_protocol, char *version,
                             size_t bytes);

/* Words. */
typedef struct rpi_agent_words {
    char *text;
    size_t bytes, capacity;
    rp_status status; /* of the first that did not go in */
} rpi_agent_words;
void rpi_agent_add(rpi_agent_words *words, const char *name, const char *value);
void rpi_agent_add_number(rpi_agent_words *words, const char *name, int64_t number);
/* Send the words and free them. */
rp_status rpi_agent_send_words(rpi_agent_link *link, rpi_agent_word word,
                               rpi_agent_words *words);
/* The next pair of a text; begins with *position = 0. */
bool rpi_agent_next_pair(const char *text, size_t bytes, size_t *position, const char **name,
                         const char **value);
/* The value of the first pair of that name; "" when there is none. */
const char *rpi_agent_value(const rpi_agent_frame *frame, const char *name);

/* How a rank has ended. */
typedef struct rpi_ending {
    int rank, status; /* status: of waitpid() */
    bool was_told;    /* after a signal to end */
    int generation;   /* how many times it had been restarted */
    bool is_again;    /* it was once more */
} rpi_ending;

enum { RPI_ENDING_BYTES = 16 };
void rpi_ending_write(const rpi_ending *ending, char out[RPI_ENDING_BYTES]);
void rpi_ending_read(const rpi_agent_frame *frame, rpi_ending *out_ending);

#endif
