/* Random legal programs of several ranks: mixed operations, asynchronous or not, on one or more
 * communicators, whose every answer is known beforehand.
 *
 * A program is a list of steps that all ranks take in the same order; a step that concerns some
 * ranks only is skipped by the others. It is plain data: made from a seed, printed, read back,
 * run by ranks that are threads or processes, and made smaller when it fails. */
#ifndef COMM_RANDOM_PROGRAM_H
#define COMM_RANDOM_PROGRAM_H

#include "redpoll/comm.h"

#include <stdbool.h>
#include <stdint.h>

enum { PROGRAM_RANKS = 8, PROGRAM_STEPS = 48, PROGRAM_COMMS = 3 };
/* Bytes that all ranks together may hold for one long step. */
enum { PROGRAM_LONG_TOTAL = 384 << 20 };
enum { PROGRAM_TEXT = 16384, PROGRAM_WORDS = 1200 };

typedef enum step_kind {
    STEP_ALL_REDUCE,
    STEP_REDUCE_SCATTER,
    STEP_REDUCE_SCATTER_V,
    STEP_ALL_GATHER,
    STEP_ALL_GATHER_V,
    STEP_REDUCE_SCATTER_SEGMENTS,
    STEP_ALL_GATHER_SEGMENTS,
    STEP_BROADCAST,
    STEP_REDUCE,
    STEP_GATHER,
    STEP_SCATTER,
    STEP_ALL_TO_ALL,
    STEP_BARRIER,
    STEP_NEIGHBORS, /* a round of a random graph, which ranks without neighbours may leave out
                     */
    STEP_SEND,      /* rank `root` to rank `peer` */
    STEP_FAN_IN,    /* one message of every other rank to `root`, which receives from any */
    STEP_KINDS
} step_kind;

/* How a rank waits for what it has posted. */
typedef enum wait_how {
    WAIT_BLOCKING, /* the blocking form */
    WAIT_REQUEST,
    WAIT_TEST, /* looks until it is done */
    WAIT_SLICES /* rp_request_wait_for(), a little at a time */,
    WAIT_QUEUE, /* its token comes out of a queue of completions (progress threads only) */
    WAIT_HOWS
} wait_how;

typedef struct program_step {
    int kind, comm, dtype, reduce;
    char codec[40], algorithm[24]; /* algorithm "auto": chosen */
    int root, peer, tag;
    int64_t count; /* elements, of the longest block where there are several */
    int parts;     /* segments, of what takes lists of them */
    uint32_t data; /* of contents and lengths */
    int how;
    int lag;      /* waited for up to so many steps later, which is each rank's own */
    int slow, us; /* rank `slow` comes so many microseconds late; -1: none */
} program_step;

typedef struct program {
    int world, comms, progress_thread, chunk_bytes, processes;
    int asks; /* nothing leaves before its receiver has asked for it, as if no credit was left
               */
    int timeout_s; /* no progress for so long fails it; three times as long for joining */
    /* inproc, shm, tcp; tls: that with TLS; shaped, over what "auto" finds; mixed: two hosts by
     * name, as shaped between them and as "auto" finds inside */
    char transport[16];
    int count;
    program_step steps[PROGRAM_STEPS];
} program;

/* Which programs to make. */
typedef struct program_limits {
    bool processes; /* else ranks are threads */
    int world_max, steps_max;
    int64_t bytes_max; /* of one block */
    int64_t long_max;  /* of the vector of a long step, which some programs have; 0: none has */
} program_limits;

/* random_program.c */
void program_make(uint64_t seed, const program_limits *limits, program *out);
const char *program_step_name(int kind);
/* Readable, and what program_parse() reads. Returns text. */
const char *program_text(const program *p, char *text, size_t bytes);
bool program_parse(const char *text, program *out);
/* Options of communicator `index` on `rank`, and room for names that live as long. */
typedef struct program_names {
    char comm[16], host[16];
} program_names;
rp_comm_options program_options(const program *p, int rank, int index, program_names *names);
/* Gives this process, and those it starts, the secret that programs under TLS need. Of whoever
 * runs programs, before the first rank or store. */
void program_set_secret(void);
/* A rank's own number in [0, bound) for a step. */
uint32_t program_choice(const program_step *step, int rank, uint32_t salt, uint32_t bound);

/* program_data.c: what the ranks of a step give and get */
/* Elements of block `b` of what rank `rank` gives; a step without blocks has one, a list one a
 * segment. */
int64_t step_count(const program *p, const program_step *step, int rank, int b);
rp_codec step_codec(const program_step *step);
/* Who owns segment b of a list with owners. */
int step_owner(const program *p, const program_step *step, int b);
/* Fill what `rank` gives as block b of a step that reduces. */
void step_fill(const program *p, const program_step *step, int rank, int b, void *data);
/* Fill what `from` has for `to`. */
void step_fill_moved(const program_step *step, int from, int to, int64_t count, void *data);
/* Of a round of neighbours: what `to` puts on the vector of `from`, its own included; 0:
 * nothing is sent. *out_share: what the sender gives it. */
double step_neighbor(const program *p, const program_step *step, int from, int to,
                     double *out_share);
const char *step_check_neighbors(const program *p, const program_step *step, int rank,
                                 const void *data, char *words);
/* NULL when `data` is what it must be, else what is wrong with it (in `words`, 200 bytes). */
const char *step_check(const program *p, const program_step *step, int b, const void *data,
                       char *words);
/* The same of what `rank` alone has given. */
const char *step_check_given(const program *p, const program_step *step, int rank, int b,
                             const void *data, char *words);
const char *step_check_moved(const program_step *step, int from, int to, int64_t count,
                             const void *data, char *words);

/* program_run.c: one rank's part, on its p->comms communicators. NULL, or what went wrong, in
 * `words` (PROGRAM_WORDS). */
const char *program_run(const program *p, int rank, rp_comm *const *comms, char *words);
/* Make the communicators from `store`, run, destroy. */
const char *program_live(const program *p, int rank, const rp_store *store, char *words);

/* program_shrink.c: a smaller program that still fails, for at most budget_s seconds. */
typedef bool (*program_fails)(const program *p);
void program_shrink(program *in_out, program_fails fails, double budget_s);

/* program_many.c */
/* What went wrong in the last program that failed, for the report. */
extern char program_failure[PROGRAM_RANKS * PROGRAM_WORDS];
bool program_read(const char *path, program *out);
bool program_write(const char *path, const program *p);
/* Programs from check_seed() on until one fails, which is made smaller and printed. */
void program_run_many(const program_limits *limits, double seconds, const char *case_name,
                      program_fails fails);
/* The program of the file REDPOLL_TEST_PROGRAM, some times over. */
void program_run_file(program_fails fails);

#endif
