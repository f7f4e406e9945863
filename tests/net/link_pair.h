/* Two connected ranks of one transport, for tests, and frames that show where they come from.
 */
#ifndef TESTS_NET_LINK_PAIR_H
#define TESTS_NET_LINK_PAIR_H

#include "net/link/transport.h"

typedef struct link_pair {
    const rpi_transport *transport;
    rpi_endpoint_options options[2];
    rpi_endpoint *endpoints[2];
    rpi_link *links[2];
    double response_timeout_s[2]; /* of connect() */
} link_pair;

/* NULL-safe to close afterwards, whatever it returned. The shaping wrapper wraps inproc here,
 * with a link too fast to be felt unless options say otherwise. */
rp_status link_pair_open(link_pair *pair, const rpi_transport *transport, size_t frame_bytes);
/* With options[] already filled in. */
rp_status link_pair_open_with(link_pair *pair, rp_status status_of[2]);
void link_pair_options(link_pair *pair, const rpi_transport *transport, size_t frame_bytes);
void link_pair_close(link_pair *pair);

/* Sleep as the contract says, until there may be news or 10 s, then progress() of the side;
 * true: there was news, or what the side itself waits for was due. */
bool link_wait(rpi_endpoint *endpoint);
/* Post the number-th frame of `bytes` in all; RP_PENDING: no room. */
rp_status link_send(rpi_link *link, uint64_t number, size_t bytes);
rp_status link_send_wait(rpi_link *link, uint64_t number, size_t bytes);
/* Take the next frame and check that it is the number-th of `bytes`, every byte of it. */
rp_status link_receive(rpi_link *link, uint64_t number, size_t bytes);
rp_status link_receive_wait(rpi_link *link, uint64_t number, size_t bytes);

#endif
