/* TLS 1.3 over a connection whose two ends have proved to have the job's secret (proof.h).
 *
 * There are no certificates: the pre-shared key is derived from the secret and this
 * connection's proof, so it is valid for this connection only. A Diffie-Hellman exchange also
 * enters the keys, so that nobody who learns the secret later can read what was recorded. By
 * OpenSSL. Nothing here waits; one thread at a time. channel.h is the interface for others. */
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
/* The version of OpenSSL, such as "3.0.19"; NULL if there is none. */
const char *rpi_tls_version(void);
/* RP_UNSUPPORTED with what to install. */
rp_status rpi_tls_check(void);

/* The descriptor is borrowed, and non-blocking. `key`: the same on both sides. */
rp_status rpi_tls_open(int fd, bool is_caller, const unsigned char key[RPI_TLS_KEY_BYTES],
                       rpi_tls **out_tls);
/* RP_PENDING: wait for the event of rpi_tls_awaits(). RP_PEER: the other side left.
 * RP_MISMATCH: its bytes are not TLS with this key. */
rp_status rpi_tls_shake_hands(rpi_tls *tls);
/* As send() and recv() on a non-blocking socket: bytes, or -1 with errno; EAGAIN: wait for the
 * event of rpi_tls_awaits(), and then send the same bytes, or these and more. EBADMSG: the
 * received bytes were not made by the other side. `more`: further bytes follow at once. */
ssize_t rpi_tls_send(rpi_tls *tls, const void *data, size_t bytes, bool more);
ssize_t rpi_tls_receive(rpi_tls *tls, void *data, size_t bytes);
/* The event of poll() for which the last call stopped. */
short rpi_tls_awaits(const rpi_tls *tls);
/* Change keys, from the next send on; false: not now, since a record is partly sent. It happens
 * by itself after so many records that AES-GCM stays well below the limit of one key. */
bool rpi_tls_renew_keys(rpi_tls *tls);
/* Tell the other side that nothing follows. Its bytes can still be read. */
void rpi_tls_send_end(rpi_tls *tls);
void rpi_tls_close(rpi_tls *tls); /* NULL is fine */

#endif
