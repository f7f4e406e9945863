/* What `--link 1Gbit,50us` means: one network card a rank, in virtual time.
 *
 * All frames a rank sends share one way out of `bytes_per_s`, all it receives one way in. A
 * frame's first byte leaves when the way out is free, arrives one latency later and waits until
 * the way in is free; its last byte follows at the rate (cut-through: a lone frame pays for the
 * rate once). Times are of CLOCK_MONOTONIC and computed, not measured: being late to look at a
 * frame does not make the link slower. docs/wire.md has the formulas. */
#ifndef RPI_NET_LINK_SHAPE_H
#define RPI_NET_LINK_SHAPE_H

#include "net/transport.h"

/* "RATE" or "RATE,LATENCY": 1Gbit, 200Mbit, 10kbit, 5bit (decimal bits a second); 25MB, 1GB,
 * 10kB, 3B (decimal bytes a second); latency in s, ms, us or ns. RP_INVALID with advice; *out
 * is then untouched. */
rp_status rpi_link_shape_parse(const char *text, rpi_link_shape *out_shape);
/* As it would be written: "1Gbit,50us"; "unlimited" where bytes_per_s is 0. Returns text. */
const char *rpi_link_shape_text(const rpi_link_shape *shape, char *text, size_t bytes);

/* One direction of a card: when it has carried all it was given. */
typedef struct rpi_card_way {
    int64_t free_ns;
    double fraction_ns; /* of a nanosecond, so that rounding never adds up */
} rpi_card_way;

typedef struct rpi_card {
    rpi_link_shape shape;
    size_t backlog_bytes; /* of one link that may wait for the way out */
    rpi_card_way out, in;
} rpi_card;

enum { RPI_CARD_QUEUE = 64 };

/* The frames of one link that wait for the way out, as in a socket's buffer. Each link has its
 * own, so that none can keep the others from their share. Starts as zeros. */
typedef struct rpi_card_queue {
    struct {
        int64_t left_ns; /* when its last byte leaves */
        size_t bytes;
    } frames[RPI_CARD_QUEUE];
    uint32_t first, count;
    size_t bytes;
} rpi_card_queue;

void rpi_card_init(rpi_card *card, const rpi_link_shape *shape, size_t frame_bytes);
/* When the link may send another frame; now or earlier: at once. */
int64_t rpi_card_takes_at(const rpi_card *card, const rpi_card_queue *queue);
/* Send at `now_ns`: when the first byte leaves. */
int64_t rpi_card_send(rpi_card *card, rpi_card_queue *queue, int64_t now_ns, size_t bytes);
/* When the first byte of a frame that left at start_ns reaches the card of the receiver. */
int64_t rpi_card_arrival(const rpi_card *card, int64_t start_ns);
/* Let that frame in: when its last byte has come. Frames are let in in order of arrival. */
int64_t rpi_card_receive(rpi_card *card, int64_t start_ns, size_t bytes);

#endif
