/* The network card of a named host (mesh.h): its ranks are processes or threads of one machine,
 * and share the card as they would share a real one, in memory that they share. Nothing of it
 * survives the last of them, however they end. */
#ifndef RPI_NET_HOST_CARD_H
#define RPI_NET_HOST_CARD_H

#include "net/link_shape.h"

typedef struct rpi_host_card rpi_host_card;

/* The first rank of a host makes it and tells the others the address, who join; it may close
 * its descriptor when all have. RP_IO, RP_NOMEM. */
rp_status rpi_host_card_make(const rpi_link_shape *shape, size_t frame_bytes,
                             rpi_host_card **out_card, char *address, size_t bytes);
/* RP_CORRUPT: that is no address of a card. RP_IO: it cannot be reached. */
rp_status rpi_host_card_join(const char *address, rpi_host_card **out_card);
void rpi_host_card_shut(rpi_host_card *card);  /* nobody can join any more; NULL is fine */
void rpi_host_card_close(rpi_host_card *card); /* NULL is fine */

/* Between these no other rank of the host sends or receives. Never waits long: a rank that dies
 * in between leaves the card to the next. */
rpi_card *rpi_host_card_lock(rpi_host_card *card);
void rpi_host_card_unlock(rpi_host_card *card);

#endif
