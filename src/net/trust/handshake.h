/* How a channel is opened: each side proves that it has the job's secret, and TLS follows if
 * the secret asks for it. */
#ifndef RPI_NET_HANDSHAKE_H
#define RPI_NET_HANDSHAKE_H

#include "net/trust/channel.h"
#include "net/trust/proof.h"

/* Prove to the other side that we have the secret, and check its proof; after that the channel
 * is as the secret asks. An unset secret: nothing is sent. As rpi_proof_give(). */
rp_status rpi_channel_call(rpi_channel *channel, const rpi_secret *secret,
                           const rpi_proof_terms *terms, int64_t deadline_ns);
/* The other side of it, a piece at a time, as rpi_proof_receive(). */
rp_status rpi_channel_receive_proof(rpi_channel *channel, rpi_proof *proof,
                                    const rpi_secret *secret, const rpi_proof_terms *self);

#endif
