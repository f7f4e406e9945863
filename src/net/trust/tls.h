/* TLS 1.3 over a connection whose two ends have proved to have the job's secret (proof.h).
 *
 * There are no certificates: the key both start from (a pre-shared key) was made from the
 * secret and this connection's proof, so that it is good for this connection alone, and a
 * Diffie-Hellman exchange goes into the keys, so that who learns the secret later cannot read
 * what was recorded. By OpenSSL. Nothing here waits; one thread at a time. channel.h is what
 * others use. */
#ifndef RPI_NET_TLS_H
#define RPI_NET_TLS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { RPI_TLS_KEY_BYTES = 32 };

typedef struct rpi_tls rpi_tls;

/* False: this build has no libssl. */
bool rpi_tls_is_supported(void);
/* The version of OpenSSL that does it, such as "3.0.19"; NULL where there is none. */
const char *rpi_tls_version(void);
/* RP_UNSUPPORTED with what to install. */
rp_status rpi_tls_check(void);

/* The descriptor is borrowed, and non-blocking. `key`: the same on both sides. */
rp_status rpi_tls_open(int fd, bool is_caller, const unsigned char key[RPI_TLS_KEY_BYTES],
                       rpi_tls **out_tls);
/* RP_PENDING: wait for what rpi_tls_awaits() says. RP_PEER: the other side left. RP_MISMATCH:
 * what it said is no TLS with this key. */
rp_status rpi_tls_shake_hands(rpi_tls *tls);
/* As send() and recv() on a non-blocking socket: bytes, or -1 with errno; EAGAIN: wait for what
 * rpi_tls_awaits() says, and then send the same bytes, or these and more. EBADMSG: what came
 * was not made by the other side. `more`: the next bytes follow at once. */
ssize_t rpi_tls_send(rpi_tls *tls, const void *data, size_t bytes, bool more);
ssize_t rpi_tls_receive(rpi_tls *tls, void *data, size_t bytes);
/* poll()'s event that the last call stopped for. */
short rpi_tls_awaits(const rpi_tls *tls);
/* Go on with new keys, from the next send on; false: not now, since something is half sent. It
 * happens by itself after so many records that AES-GCM keeps its distance from the limit of one
 * key. */
bool rpi_tls_renew_keys(rpi_tls *tls);
/* Tell the other side that nothing follows. It can be read from still. */
void rpi_tls_send_end(rpi_tls *tls);
void rpi_tls_close(rpi_tls *tls); /* NULL is fine */

#endif
