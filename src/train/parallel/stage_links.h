/* Messages from stage to stage: activations forward, gradients backward, one for each border of
 * parts and each micro-batch. Receives are posted before they are needed. A send is awaited
 * only when its memory is needed again.
 *
 * The messages of a border and direction come in the order of micro-batches on both sides,
 * which all schedules guarantee, so that they need no number. Every wait has the communicator's
 * deadline. With a codec a message is an encoding, which is made before the send and decoded
 * after the receive. */
#ifndef RPI_TRAIN_STAGE_LINKS_H
#define RPI_TRAIN_STAGE_LINKS_H

#include "redpoll/comm.h"
#include "train/parallel/activation_codec.h"

typedef struct rpi_stage_links {
    rp_comm *stages; /* by stage; borrowed */
    rpi_activation_codec
        *codec; /* the codec, which also measures its errors; borrowed; NULL: none */
    /* Optional: called after each wait, for statistics and traces. */
    void (*waited)(void *context, const char *what, int64_t micro_batch, int64_t start_ns,
                   int64_t end_ns);
    void *context;
} rpi_stage_links;

/* border: between part `border` and the next one. */
typedef struct rpi_link_message {
    int stage; /* of the other rank */
    int border;
    rpi_link_way way;
    float *data;
    int64_t count;
    rp_codec codec; /* zeros: the message is not encoded */
    void *wire;     /* room for the encoding; the request uses it until it ends */
} rpi_link_message;

rp_status rpi_link_send(const rpi_stage_links *links, const rpi_link_message *message,
                        rp_request **request);
rp_status rpi_link_receive(const rpi_stage_links *links, const rpi_link_message *message,
                           rp_request **request);
/* Waits for a posted receive of this message, and decodes it. The micro-batch is named in
 * failures. */
rp_status rpi_link_wait(const rpi_stage_links *links, const rpi_link_message *message,
                        int64_t micro_batch, rp_request **request);
/* Is its memory free again? That of a failed send is, and rpi_link_settle() returns its status.
 */
bool rpi_link_is_done(const rp_request *request);
/* Waits for a send. *request NULL is fine; links NULL: the wait is not reported. */
rp_status rpi_link_settle(const rpi_stage_links *links, rp_request **request);

#endif
