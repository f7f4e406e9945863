#include "net/trust/handshake.h"

#include "net/socket/stream.h"

#include <string.h>

static rp_status shake_hands(rpi_channel *channel, int64_t deadline_ns) {
    rp_status status;
    while ((status = rpi_tls_shake_hands(channel->tls)) == RP_PENDING)
        RP_TRY(rpi_stream_wait(channel->fd, rpi_tls_awaits(channel->tls), deadline_ns));
    return status;
}

rp_status rpi_channel_call(rpi_channel *channel, const rpi_secret *secret,
                           const rpi_proof_terms *terms, int64_t deadline_ns) {
    unsigned char key[RPI_MAC_BYTES];
    if (!secret->is_set) return RP_OK;
    RP_TRY(rpi_proof_give(channel->fd, secret, terms, deadline_ns, key));
    if (!secret->tls) return RP_OK;
    rp_status status = rpi_tls_open(channel->fd, true, key, &channel->tls);
    explicit_bzero(key, sizeof key);
    return status == RP_OK ? shake_hands(channel, deadline_ns) : status;
}

rp_status rpi_channel_receive_proof(rpi_channel *channel, rpi_proof *proof,
                                    const rpi_secret *secret, const rpi_proof_terms *self) {
    if (!channel->tls) {
        rp_status status = rpi_proof_receive(proof, channel->fd, secret, self);
        if (status != RP_OK || !proof->tls) return status;
        status = rpi_tls_open(channel->fd, false, proof->tls_key, &channel->tls);
        explicit_bzero(proof->tls_key, sizeof proof->tls_key);
        if (status != RP_OK) return status;
    }
    return rpi_tls_shake_hands(channel->tls);
}
