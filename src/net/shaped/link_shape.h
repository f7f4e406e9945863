/* The model behind `--link 1Gbit,50us`: one network interface for each rank, in virtual time.
 *
 * All frames that a rank sends share one way out of `bytes_per_s`, and all that it receives one
 * way in. A frame's first byte leaves when the way out is free, arrives one latency later and
 * waits until the way in is free; its last byte follows at the rate (cut-through: a single
 * frame takes the time of the rate once). Times are of CLOCK_MONOTONIC and computed, not
 * measured, so looking at a frame late does not make the link slower. docs/wire.md has the
 * formulas.
 *
 * A NIC sends in pieces, as the kernel passes them, and has a second queue for urgent frames:
 * an urgent frame leaves after the piece that is being sent, and delays everything after that
 * by its time. */
#ifndef RPI_NET_LINK_SHAPE_H
#define RPI_NET_LINK_SHAPE_H

#include "net/link/transport.h"

/* "RATE" or "RATE,LATENCY": 1Gbit, 200Mbit, 10kbit, 5bit (decimal bits a second); 25MB, 1GB,
 * 10kB, 3B (decimal bytes a second); latency in s, ms, us or ns. RP_INVALID with advice; *out
 * is then untouched. */
rp_status rpi_link_shape_parse(const char *text, rpi_link_shape *out_shape);
/* As a user would write it: "1Gbit,50us"; "unlimited" if bytes_per_s is 0. Returns text. */
const char *rpi_link_shape_text(const rpi_link_shape *shape, char *text, size_t bytes);

/* One direction of a NIC: when everything queued has been sent. */
typedef struct rpi_nic_way {
    int64_t free_ns;
    double fraction_ns; /* of a nanosecond, so that rounding errors do not add up */
    int64_t urgent_ns;  /* when all urgent frames have been sent; no later than free_ns */
} rpi_nic_way;

typedef struct rpi_nic {
    rpi_link_shape shape;
    size_t backlog_bytes; /* of one link that may wait for the way out */
    rpi_nic_way out, in;
} rpi_nic;

enum {
    RPI_NIC_QUEUE = 64,
    RPI_NIC_PIECE_BYTES = 64 * 1024, /* the most that Linux passes to a card at once */
};

/* The frames of one link that wait for the way out, as in a socket's buffer. Each link has its
 * own, so that none deprives the others of their share. Starts as zeros. */
typedef struct rpi_nic_queue {
    struct {
        int64_t left_ns; /* when its last byte leaves */
        size_t bytes;
    } frames[RPI_NIC_QUEUE];
    uint32_t first, count;
    size_t bytes;
} rpi_nic_queue;

void rpi_nic_init(rpi_nic *nic, const rpi_link_shape *shape, size_t frame_bytes);
/* When the link may send another frame; now or earlier: at once. */
int64_t rpi_nic_takes_at(const rpi_nic *nic, const rpi_nic_queue *queue);
/* Send at `now_ns`: when the first byte leaves. */
int64_t rpi_nic_send(rpi_nic *nic, rpi_nic_queue *queue, int64_t now_ns, size_t bytes);
/* The same for an urgent frame, which waits for no queue. */
int64_t rpi_nic_send_urgent(rpi_nic *nic, int64_t now_ns, size_t bytes);
/* How many of a link's frames have not left. */
uint32_t rpi_nic_waiting(const rpi_nic_queue *queue, int64_t now_ns);
/* When the first byte of a frame that left at start_ns reaches the NIC of the receiver. */
int64_t rpi_nic_arrival(const rpi_nic *nic, int64_t start_ns);
/* Let that frame in: when its last byte has arrived. Frames are let in in order of arrival. */
int64_t rpi_nic_receive(rpi_nic *nic, int64_t start_ns, size_t bytes);
int64_t rpi_nic_receive_urgent(rpi_nic *nic, int64_t start_ns, size_t bytes);

#endif
