/* A link that goes wrong at a chosen frame, for tests of what stands above the links.
 *
 *     faulty_plan plan = {FAULTY_CORRUPT_PAYLOAD, 3};
 *     faulty_wrap(mesh->links[1], &plan, &mesh->links[1]);   what is sent to rank 1
 *     ...
 *     faulty_free(mesh->links[1]);                           before the mesh is closed
 *
 * The wrapped link's functions are reached through its own endpoint->transport; progress(),
 * arm() and the like go on being called on the endpoint beneath. Receiving is untouched. */
#ifndef HARNESS_FAULTY_H
#define HARNESS_FAULTY_H

#include "net/link/transport.h"

typedef enum faulty_kind {
    FAULTY_NOT,
    FAULTY_DROP,            /* the frame is posted by the sender and never sent */
    FAULTY_TWICE,           /* it is sent two times */
    FAULTY_CORRUPT_HEADER,  /* one bit of its header flips */
    FAULTY_CORRUPT_PAYLOAD, /* one bit of its payload flips (headers alone: of the header) */
    FAULTY_CUT,             /* its last byte is missing */
    FAULTY_STALL,           /* from it on lend() pends for ever */
    FAULTY_CLOSE,           /* from it on the link says that the peer is gone */
} faulty_kind;

typedef struct faulty_plan {
    faulty_kind kind;
    uint64_t frame; /* counted from 0 over the frames of data that are posted */
} faulty_plan;

/* The inner link stays its endpoint's; free the wrapper with faulty_free() (NULL is fine). */
rp_status faulty_wrap(rpi_link *inner, const faulty_plan *plan, rpi_link **out_link);
void faulty_free(rpi_link *link);

#endif
