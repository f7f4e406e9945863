/* What an object of <redpoll/parameter_server.h> holds, for the files that share it.
 *
 * A worker and a server have a communicator of their own, so that a worker's death fails
 * nothing but its links to the servers. Messages on it, by tag:
 *
 *     worker                             server
 *     HEADER  greet, push or end  ---->  expected until an end has come
 *     PAYLOAD the encoded shard   ---->  expected behind each answer that says go on
 *             with an end, too, where one was expected
 *               <----  ANSWER   go on, end or merged
 *               <----  VALUES   the shard's parameters, but for "merged"
 *     REPORT                  ---->  to the first server, behind the end: did all go well?
 *               <----  VERDICT  from it: who was lost, and did all go well on all?
 *
 * Several servers that each held workers back could wait for each other's. So where gradients
 * may be some steps old the first server alone decides, and a push goes in three parts: to the
 * others, who say that it is merged; to the first, who says go on; then parameters are fetched
 * from the others by a greeting. What the first server has merged, the others have, too, and
 * whoever is held back has fetched nothing yet: the bound is kept on every shard.
 *
 * Of a quorum the first server decides who is in it, too, and the others merge the same
 * (parameter_server_follow.c): then a push goes to all at once, and a greeting says which
 * version the first one's parameters have, so that the others' are no older. */
#ifndef RPI_METHODS_PARAMETER_SERVER_OBJECT_H
#define RPI_METHODS_PARAMETER_SERVER_OBJECT_H

#include "base/status.h"
#include "methods/parameter_server/push_ledger.h"
#include "redpoll/parameter_server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    RPI_PUSH_HEADER,
    RPI_PUSH_PAYLOAD,
    RPI_PUSH_ANSWER,
    RPI_PUSH_VALUES,
    RPI_PUSH_REPORT,
    RPI_PUSH_VERDICT,
    RPI_PUSH_ORDER
};

/* Messages are doubles: whole numbers of them are exact to 2^53. */
enum {
    RPI_MESSAGE_GREET = 1,
    RPI_MESSAGE_PUSH,
    RPI_MESSAGE_END,
    RPI_MESSAGE_GO_ON,
    RPI_MESSAGE_MERGED
};
typedef struct rpi_push_message {
    double kind, number, weight; /* an answer: of the push that it acknowledges */
    double staleness, updates;
    double version; /* of the parameters in an answer; in a greeting the oldest that will do */
    double notes[RP_PUSH_NOTES];
} rpi_push_message;
enum { RPI_MESSAGE_DOUBLES = sizeof(rpi_push_message) / sizeof(double) };

/* A tensor's part of a shard. */
typedef struct rpi_push_part {
    size_t segment, offset, count; /* elements [offset, ...) of a segment */
    size_t first;                  /* in the vector */
    size_t payload;                /* byte in its server's payload */
} rpi_push_part;

typedef struct rpi_push_shard {
    size_t first, count;           /* elements of the vector */
    size_t first_part, part_count; /* of rp_parameter_server.parts */
    size_t payload_bytes;
} rpi_push_shard;

/* A worker's end of its link to a server. */
typedef struct rpi_push_uplink {
    rp_comm *comm; /* NULL: the server is this rank */
    rpi_push_message header, answer;
    uint8_t *payload;
    rp_request *sent_header, *sent_payload, *answered, *values;
    bool is_sent;  /* the payload of this push */
    bool may_push; /* the latest answer said so */
} rpi_push_uplink;

/* Parameters of one version, on their way to workers. */
typedef struct rpi_push_copy {
    uint64_t version;
    int users;
    float *data;
} rpi_push_copy;

/* A server's end of its link to a worker. */
typedef struct rpi_push_downlink {
    rp_comm *comm; /* NULL: the worker is this rank, or there is none */
    rpi_push_message header, answer;
    uint8_t *payload;
    rp_request *header_in, *payload_in, *answer_out, *values_out;
    bool has_header, has_payload;
    bool may_push; /* the latest answer said so: a payload is expected */
    bool has_ended;
    int64_t news_ns;     /* when something last came from it, or left for it */
    rpi_push_copy *copy; /* what `values_out` sends */
} rpi_push_downlink;

/* Between the first server and the others, where that decides what is merged together. */
typedef struct rpi_push_orders {
    rp_comm **comms;       /* [servers] of the first, to each; of another comms[0] */
    rp_request **requests; /* [slots][servers] of the first: sent; of another one: expected */
    double *words;         /* of each slot */
    uint64_t *numbers;     /* [workers] the pushes to be merged now */
    int slots, next;
    bool has_order, is_over;
} rpi_push_orders;

/* Between the worker and the server of one rank. */
typedef struct rpi_push_handover {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_come, is_answered; /* [lock] a message of the worker's, an answer to it */
    bool failed;                /* [lock] */
} rpi_push_handover;

/* What this rank's heartbeats say, in the group of the caller's communicator: the worker waits
 * for an answer, and whose; and that a server has had no news for a while. */
typedef struct rpi_push_waits {
    int answer;    /* [handover.lock] the server; -1: it computes */
    uint64_t step; /* [handover.lock] in which that is */
    bool idle;     /* [handover.lock] the server of this rank */
} rpi_push_waits;

typedef struct rpi_push_server {
    rpi_push_ledger ledger;
    rpi_push_downlink *links; /* [workers] */
    rpi_push_copy *copies;    /* [workers] */
    float *values, *sum;      /* of the shard */
    int *members;             /* of a merge */
    rp_parameter_push *pushes;
    rp_completions *queue;
    rpi_push_orders orders;
    uint64_t first_version; /* of this span */
    uint64_t pushed, dealt; /* in this span: merged, answers that said go on */
    uint64_t first_step, steps;
    int64_t grace_ns;  /* when it is over; 0: it has not begun */
    int64_t news_ns;   /* when something last came or was done */
    int64_t looked_ns; /* when it last looked whether anybody waits in vain */
    int64_t warned_ns; /* when lack of news was last told */
    atomic_bool stops; /* the step under way is the last */
    pthread_t thread;
    bool has_thread;
    rp_status status; /* of the thread */
    rpi_kept_error error;
} rpi_push_server;

struct rp_parameter_server {
    rp_comm *comm;     /* the caller's */
    rp_comm *alive;    /* NULL: all are; else of those that live */
    rp_comm **earlier; /* former ones, whose links may still be needed */
    int earlier_count;
    rp_comm *servers_comm; /* of several ranks that only serve; else NULL */
    rp_parameter_server_options options;
    int rank, world;
    int server_count, workers;
    const int *names;   /* of ranks, in messages; NULL: their numbers */
    int shares;         /* workers among which a step is shared */
    int server, worker; /* this rank is; -1: none */
    bool first_decides; /* which worker may go on */
    bool first_merges;  /* and others merge the same pushes together */
    rp_segment *segments;
    size_t segment_count, count; /* elements */
    rpi_push_part *parts;
    rpi_push_shard *shards; /* [server_count] */
    float *values;          /* the caller's, from begin to end */
    bool has_begun;
    rpi_push_uplink *uplinks; /* [server_count] of a worker */
    uint64_t number;          /* of the latest push */
    size_t final;             /* elements of the gradient under way */
    rpi_push_server at;       /* of a server */
    rpi_push_handover handover;
    rpi_push_waits waits;
    double *verdict; /* [world + 1] 1: was left behind; then on how many all was not well */
    char (*reasons)[200];
    int known_lost; /* as of the last verdict */
    int fruitless;  /* verdicts in a row that all was not well, and that nobody was lost */
};

/* After so many fruitless verdicts in a row ranks fail each other for another reason than a
 * death. */
enum { RPI_PUSH_FRUITLESS = 3 };

static inline int rpi_push_worker_rank(const rp_parameter_server *s, int worker) {
    return s->options.servers ? s->options.servers + worker : worker;
}

/* ---- parameter_server_words.c ---- */

/* Is this a server that merges what the first one has merged? */
bool rpi_push_follows(const rp_parameter_server *s);
/* The i-th link for orders that there may be; NULL: there is none. */
rp_comm *rpi_push_order_link(const rp_parameter_server *s, int i);

int rpi_push_name(const rp_parameter_server *s, int rank);

/* The link to a rank has failed with this thread's last error, in which ranks are the two of
 * the link: say it again with its name. Returns the status. */
rp_status rpi_push_explain(const rp_parameter_server *s, rp_status status, int rank);
/* Is this thread's last error one that a rank has reported which has failed, and is alive? */
bool rpi_push_gave_up(void);

/* ---- parameter_server_cut.c ---- */

/* Shards and parts of the segments that are there. */
rp_status rpi_push_cut(rp_parameter_server *s);
/* The shard's gradient, encoded. */
rp_status rpi_push_encode(rp_parameter_server *s, int server, uint64_t number, uint8_t *out);
/* Into sum; is_first: in place of what is there. */
rp_status rpi_push_decode(const rp_parameter_server *s, int worker, uint64_t number,
                          const uint8_t *payload, bool is_first, float *sum);

/* ---- parameter_server_serve.c ---- */

rp_status rpi_push_server_open(rp_parameter_server *s);
void rpi_push_server_close(rp_parameter_server *s);
/* A span begins: values are taken. */
rp_status rpi_push_server_begin(rp_parameter_server *s, uint64_t first_step, uint64_t steps);
/* Serve until all workers have ended. */
rp_status rpi_push_serve(rp_parameter_server *s);
rp_status rpi_push_serve_aside(rp_parameter_server *s); /* on a thread */
rp_status rpi_push_serve_join(rp_parameter_server *s);
/* A worker's link has failed, for this thread's last error: it is left behind, or all fail. */
rp_status rpi_push_lose(rp_parameter_server *s, int worker, rp_status status);

/* ---- parameter_server_follow.c ---- */

rp_status rpi_push_orders_open(rp_parameter_server *s);
void rpi_push_orders_close(rp_parameter_server *s); /* communicators are gone */
/* Of the first server, else nothing: the first `count` members have been merged; all have
 * ended. */
rp_status rpi_push_order(rp_parameter_server *s, int count);
rp_status rpi_push_order_end(rp_parameter_server *s);
/* Of one that follows, else nothing. token: tells that an order has come. */
rp_status rpi_push_expect_order(rp_parameter_server *s, uint64_t token);
rp_status rpi_push_receive_order(rp_parameter_server *s);
/* Returns how many workers are merged now, and which. *out_heeded: the order is carried out,
 * and the next one is to be expected. */
int rpi_push_follow(rp_parameter_server *s, int *out_members, bool *out_heeded);

/* ---- parameter_server_watch.c ---- */

/* The worker waits for an answer of this server; -1: not any more. */
void rpi_push_await(rp_parameter_server *s, int server);
/* This rank's server waits for others, or not any more. */
void rpi_push_idle(rp_parameter_server *s, bool idle);
/* Links to workers stand: their lack of progress is judged here. */
void rpi_push_watch_links(rp_parameter_server *s);
/* How long a server may sleep before it looks again. */
double rpi_push_look_s(const rp_parameter_server *s);
/* From time to time, often enough to be called behind each message. RP_TIMEOUT: nothing will
 * come any more, as far as ranks say; it names who waits for what. */
rp_status rpi_push_watch(rp_parameter_server *s);

/* ---- parameter_server_work.c ---- */

/* This rank fails, for this thread's last error, and with it all. Returns the status. */
rp_status rpi_push_fail(rp_parameter_server *s, rp_status status);
/* The worker pushes no more. */
rp_status rpi_push_end_work(rp_parameter_server *s);

#endif
