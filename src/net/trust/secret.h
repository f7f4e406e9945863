/* The job's secret: it distinguishes its ranks from anyone else who can reach their ports.
 *
 * `redpoll run` makes one and gives it to its ranks in their environment; under other launchers
 * REDPOLL_SECRET or REDPOLL_SECRET_FILE has it. It is never sent, printed or logged: proof.h
 * describes how two processes prove that they have it. docs/security.md says what this prevents
 * and what not. With `tls` it also encrypts bytes on the network. */
#ifndef RPI_NET_SECRET_H
#define RPI_NET_SECRET_H

#include "base/status.h"
#include "net/bytes/environment.h"

#include <stdbool.h>
#include <stddef.h>

enum { RPI_MAC_BYTES = 32, RPI_SECRET_TEXT_BYTES = 65 };
enum { RPI_SECRET_LETTERS_MIN = 16, RPI_SECRET_LETTERS_MAX = 1024 };

typedef struct rpi_secret {
    bool is_set; /* false: the job is open */
    bool tls;    /* everything sent by TCP is encrypted (tls.h); never without a secret */
    unsigned char key[RPI_MAC_BYTES];
} rpi_secret;

/* False: this build has no OpenSSL, and asking for a secret is RP_UNSUPPORTED. */
bool rpi_secret_is_supported(void);
/* 32 random bytes as hexadecimal letters, NUL-terminated. */
rp_status rpi_secret_draw(char text[RPI_SECRET_TEXT_BYTES]);
/* The secret of a text; `name` is for messages. RP_INVALID: it is too short. */
rp_status rpi_secret_make(const char *name, const char *text, rpi_secret *out_secret);
/* The secret in REDPOLL_SECRET, or in the file that REDPOLL_SECRET_FILE names; an unset secret
 * if neither is set. REDPOLL_TLS says whether it is also used for TLS. RP_INVALID: both are
 * set, or others may read the file, or TLS is asked for without a secret. */
rp_status rpi_secret_find(const rpi_environment *environment, rpi_secret *out_secret);
rp_status rpi_secret_find_own(rpi_secret *out_secret);
/* Use it for TLS. RP_INVALID: it is unset; RP_UNSUPPORTED: this build has no TLS. */
rp_status rpi_secret_ask_for_tls(rpi_secret *secret);
/* The same if this process's REDPOLL_TLS says so. */
rp_status rpi_secret_obey_environment(rpi_secret *secret);
/* Erases this copy, which is unset then. */
void rpi_secret_wipe(rpi_secret *secret);
/* HMAC-SHA-256 of a text under the secret. */
rp_status rpi_secret_sign(const rpi_secret *secret, const void *text, size_t bytes,
                          unsigned char mac[RPI_MAC_BYTES]);
/* In a time that does not depend on where they differ. */
bool rpi_macs_are_equal(const unsigned char a[RPI_MAC_BYTES],
                        const unsigned char b[RPI_MAC_BYTES]);

#endif
