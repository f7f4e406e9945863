/* What goes from stage to stage: activations forward, gradients backward, a message for each
 * border of parts and micro-batch. Receives are posted ahead of use, and nobody waits for a
 * send before its memory is needed again.
 *
 * Messages of one border and way come in the order of micro-batches on both sides, as the
 * schedules promise, so that they need no number of their own. Every wait has the
 * communicator's deadline. With a codec, what travels is an encoding, made before a send leaves
 * and read when a receive has come. */
#ifndef RPI_TRAIN_STAGE_LINKS_H
#define RPI_TRAIN_STAGE_LINKS_H

#include "redpoll/comm.h"
#include "train/parallel/activation_codec.h"

typedef struct rpi_stage_links {
    rp_comm *stages; /* by stage; borrowed */
    rpi_activation_codec
        *codec; /* where one was asked for, which measures; borrowed, or NULL */
    /* Optional: a wait that has ended, for accounts and traces. */
    void (*waited)(void *context, const char *what, int64_t micro_batch, int64_t start_ns,
                   int64_t end_ns);
    void *context;
} rpi_stage_links;

/* border: of part `border` and the next one. */
typedef struct rpi_link_message {
    int stage; /* of the other side */
    int border;
    rpi_link_way way;
    float *data;
    int64_t count;
    rp_codec codec; /* of what travels; zeros: as it is */
    void *wire;     /* room for its encoding then; the request's until it ends */
} rpi_link_message;

rp_status rpi_link_send(const rpi_stage_links *links, const rpi_link_message *message,
                        rp_request **request);
rp_status rpi_link_receive(const rpi_stage_links *links, const rpi_link_message *message,
                           rp_request **request);
/* A receive that was posted, of this message, for the micro-batch that is in the words of a
 * failure: then its data are there. */
rp_status rpi_link_wait(const rpi_stage_links *links, const rpi_link_message *message,
                        int64_t micro_batch, rp_request **request);
/* Is its memory free again? One that failed is: its status comes with rpi_link_settle(). */
bool rpi_link_is_done(const rp_request *request);
/* Wait for a send. *request NULL is fine; links NULL: nobody hears how long it took. */
rp_status rpi_link_settle(const rpi_stage_links *links, rp_request **request);

#endif
