#include "link_pair.h"

#include "base/clock.h"
#include "harness/check.h"
#include "net/bytes/frame.h"

#include <poll.h>
#include <pthread.h>

static const double RESPONSE_TIMEOUT_S = 20;

void link_pair_options(link_pair *pair, const rpi_transport *transport, size_t frame_bytes) {
    const rpi_transport *inproc = NULL;
    *pair = (link_pair){.transport = transport,
                        .response_timeout_s = {RESPONSE_TIMEOUT_S, RESPONSE_TIMEOUT_S}};
    CHECK_OK(rpi_transport_find("inproc", &inproc));
    for (int rank = 0; rank < 2; rank++)
        pair->options[rank] = (rpi_endpoint_options){.rank = rank,
                                                     .world = 2,
                                                     .session = 0x5ec3e7,
                                                     .frame_bytes = frame_bytes,
                                                     .shape = {1e12, 1e-9},
                                                     .inner = inproc};
}

typedef struct dial {
    const link_pair *pair;
    int rank;
    char address[256];
    rpi_link *link;
    rp_status status;
    char message[256];
} dial;

static void *dial_run(void *argument) {
    dial *d = argument;
    d->status = d->pair->transport->connect(
        d->pair->endpoints[d->rank], !d->rank, d->address,
        rpi_deadline_ns(d->pair->response_timeout_s[d->rank]), &d->link);
    snprintf(d->message, sizeof d->message, "%s", rp_last_error()->message);
    return NULL;
}

/* Both sides at once: connect() may wait for the other. */
rp_status link_pair_open_with(link_pair *pair, rp_status status_of[2]) {
    dial dials[2] = {{.pair = pair, .rank = 0}, {.pair = pair, .rank = 1}};
    pthread_t thread;
    for (int rank = 0; rank < 2; rank++) {
        RP_TRY(pair->transport->open(&pair->options[rank], &pair->endpoints[rank]));
        RP_TRY(pair->transport->address(pair->endpoints[rank], dials[!rank].address,
                                        sizeof dials[0].address));
    }
    if (pthread_create(&thread, NULL, dial_run, &dials[1]) != 0)
        return RP_FAIL_ERRNO(IO, "no thread");
    dial_run(&dials[0]);
    pthread_join(thread, NULL);
    for (int rank = 0; rank < 2; rank++) {
        pair->links[rank] = dials[rank].link;
        status_of[rank] = dials[rank].status;
    }
    if (dials[1].status != RP_OK)
        return rpi_fail(dials[1].status, __FILE__, __LINE__, "%s", dials[1].message);
    return dials[0].status;
}

rp_status link_pair_open(link_pair *pair, const rpi_transport *transport, size_t frame_bytes) {
    rp_status status_of[2];
    link_pair_options(pair, transport, frame_bytes);
    return link_pair_open_with(pair, status_of);
}

void link_pair_close(link_pair *pair) {
    for (int rank = 0; rank < 2; rank++) {
        if (pair->endpoints[rank]) pair->transport->close(pair->endpoints[rank]);
        pair->endpoints[rank] = NULL;
    }
}

bool link_wait(rpi_endpoint *endpoint) {
    int fd = -1;
    bool is_new = true;
    int64_t wake_at_ns = 0, now_ns = rpi_now_ns();
    if (!endpoint->transport->arm(endpoint, &fd, &wake_at_ns)) {
        int64_t until_ns = now_ns + 10 * RPI_SECOND_NS;
        if (wake_at_ns < until_ns) until_ns = wake_at_ns;
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
        struct timespec left = {left_ns / RPI_SECOND_NS, left_ns % RPI_SECOND_NS};
        is_new = ppoll(&wait, 1, &left, NULL) > 0 || until_ns == wake_at_ns;
    }
    endpoint->transport->disarm(endpoint);
    CHECK_OK(endpoint->transport->progress(endpoint));
    return is_new;
}

static unsigned char byte_at(uint64_t number, size_t i) {
    return (unsigned char)(number * 131 + i * 7 + (i >> 8));
}

rp_status link_send(rpi_link *link, uint64_t number, size_t bytes) {
    const rpi_transport *transport = link->endpoint->transport;
    void *region = NULL;
    RP_TRY(transport->reserve(link, bytes, &region));
    CHECK_EQ((uintptr_t)region % 64, 0);
    unsigned char *payload = (unsigned char *)region + RPI_FRAME_HEADER_BYTES;
    for (size_t i = 0; i < bytes - RPI_FRAME_HEADER_BYTES; i++) payload[i] = byte_at(number, i);
    rpi_frame_header header = {.kind = RPI_FRAME_DATA, .sequence = number};
    rpi_frame_seal(region, &header, bytes - RPI_FRAME_HEADER_BYTES, transport->checksum);
    return transport->commit(link, bytes);
}

static rp_status check_frame(const void *frame, size_t got, bool checksum, uint64_t number,
                             size_t bytes) {
    rpi_frame_header header;
    CHECK_EQ((uintptr_t)frame % 64, 0);
    RP_TRY(rpi_frame_open(frame, got, checksum, &header));
    if (header.sequence != number || got != bytes)
        return RP_FAIL(CORRUPT, "frame %llu of %zu bytes came, not %llu of %zu",
                       (unsigned long long)header.sequence, got, (unsigned long long)number,
                       bytes);
    const unsigned char *payload = (const unsigned char *)frame + RPI_FRAME_HEADER_BYTES;
    for (size_t i = 0; i < bytes - RPI_FRAME_HEADER_BYTES; i++)
        if (payload[i] != byte_at(number, i))
            return RP_FAIL(CORRUPT, "byte %zu of frame %llu", i, (unsigned long long)number);
    return RP_OK;
}

rp_status link_receive(rpi_link *link, uint64_t number, size_t bytes) {
    const rpi_transport *transport = link->endpoint->transport;
    const void *frame = NULL;
    size_t got = 0;
    RP_TRY(transport->peek(link, &frame, &got));
    RP_TRY(check_frame(frame, got, transport->checksum, number, bytes));
    transport->release(link);
    return RP_OK;
}

rp_status link_send_wait(rpi_link *link, uint64_t number, size_t bytes) {
    int64_t deadline_ns = rpi_deadline_ns(RESPONSE_TIMEOUT_S);
    rp_status status;
    while ((status = link_send(link, number, bytes)) == RP_PENDING) {
        if (rpi_now_ns() > deadline_ns) return RP_FAIL(TIMEOUT, "no room for a frame");
        link_wait(link->endpoint);
    }
    return status;
}

rp_status link_receive_wait(rpi_link *link, uint64_t number, size_t bytes) {
    int64_t deadline_ns = rpi_deadline_ns(RESPONSE_TIMEOUT_S);
    rp_status status;
    while ((status = link_receive(link, number, bytes)) == RP_PENDING) {
        if (rpi_now_ns() > deadline_ns) return RP_FAIL(TIMEOUT, "no frame came");
        link_wait(link->endpoint);
    }
    return status;
}
