/* The first words on a connection between two ranks: a frame each way, without payload, that
 * says who is calling and proves it with the job's secret. docs/wire.md has its bytes. */
#ifndef RPI_NET_HELLO_H
#define RPI_NET_HELLO_H

#include "net/transport.h"

enum { RPI_CALLERS = 64 }; /* connections that have not yet said who they are */

typedef struct rpi_hello {
    uint64_t secret;
    int rank, world;
    size_t frame_bytes;
} rpi_hello;

typedef struct rpi_caller {
    int fd;
    size_t got;
    unsigned char bytes[64]; /* of its hello, so far */
} rpi_caller;

/* Where higher ranks arrive, in any order and among strangers. */
typedef struct rpi_reception {
    rpi_hello self;
    int listener; /* owned; -1 once everybody has come */
    int *
        arrived; /* [world] connections that said a good hello and were not yet asked for; -1 */
    int expected; /* higher ranks that have not been handed out */
    rpi_caller callers[RPI_CALLERS];
    int caller_count;
} rpi_reception;

/* Takes over the listening descriptor, also when it fails. */
rp_status rpi_reception_open(rpi_reception *reception, const rpi_hello *self, int listener);
void rpi_reception_close(rpi_reception *reception);
/* In a child that fork() made: close its copies of the descriptors (transport.h). */
void rpi_reception_forget(rpi_reception *reception);
/* The connection of one higher rank, greeted; the caller owns it. RP_TIMEOUT: it did not come;
 * RP_MISMATCH: somebody of this job came who does not fit into it. */
rp_status rpi_reception_wait(rpi_reception *reception, int peer, int64_t deadline_ns,
                             int *out_fd);

/* The other side: say hello on a fresh connection to a lower rank and hear its answer. */
rp_status rpi_hello_exchange(int fd, const rpi_hello *self, int peer, int64_t deadline_ns);

#endif
