#include "net/link/hello.h"

static const char *const refusals[] = {
    [RPI_HELLO_WELCOME] = "welcome",
    [RPI_HELLO_WRONG_SESSION] = "it belongs to another job",
    [RPI_HELLO_WRONG_WORLD] = "its world has another size",
    [RPI_HELLO_WRONG_RANK] =
        "it is another rank than the one called, or no higher rank was expected",
    [RPI_HELLO_WRONG_SIZE] = "its frames have another length",
    [RPI_HELLO_TWICE] = "this rank has connected already",
    [RPI_HELLO_NO_SECRET] =
        "this process has no secret, and its job has one: set REDPOLL_SECRET here",
    [RPI_HELLO_CROSSED] = "it is calling this rank itself",
    [RPI_HELLO_WRONG_STREAMS] = "its links have another number of streams (REDPOLL_STREAMS)",
};
enum { REFUSALS = sizeof refusals / sizeof refusals[0] };

rpi_hello rpi_hello_of(const rpi_endpoint_options *options) {
    rpi_hello hello = {.session = options->session,
                       .rank = options->rank,
                       .world = options->world,
                       .frame_bytes = options->frame_bytes,
                       .streams = 1};
    if (options->secret) hello.secret = *options->secret;
    return hello;
}

/* A stranger learns nothing: only a welcome has the session. */
static void write_hello(unsigned char bytes[RPI_FRAME_HEADER_BYTES], const rpi_hello *self,
                        int peer, rpi_hello_decision answer) {
    rpi_frame_header header = {.kind = RPI_FRAME_HELLO,
                               .sequence = answer == RPI_HELLO_WELCOME ? self->session : 0,
                               .chunk = (uint32_t)peer,
                               .part = self->rank,
                               .count = (uint64_t)self->world,
                               .communicator = (uint32_t)self->stream,
                               .epoch = (uint32_t)self->streams - 1,
                               .bucket = (uint32_t)self->frame_bytes,
                               .operation = (uint8_t)answer};
    rpi_frame_seal(bytes, &header, 0, false);
}

rpi_hello_decision rpi_hello_decide(const rpi_hello *self, const rpi_frame_header *hello) {
    if (hello->sequence != self->session) return RPI_HELLO_WRONG_SESSION;
    if (hello->count != (uint64_t)self->world) return RPI_HELLO_WRONG_WORLD;
    if (hello->bucket != self->frame_bytes) return RPI_HELLO_WRONG_SIZE;
    if (hello->epoch != (uint32_t)self->streams - 1) return RPI_HELLO_WRONG_STREAMS;
    if (hello->communicator > hello->epoch) return RPI_HELLO_WRONG_STREAMS;
    if (hello->chunk != (uint32_t)self->rank) return RPI_HELLO_WRONG_RANK;
    return RPI_HELLO_WELCOME;
}

rp_status rpi_hello_mismatch(const rpi_hello *self, const rpi_frame_header *hello) {
    if (hello->epoch != (uint32_t)self->streams - 1)
        return RP_FAIL(MISMATCH,
                       "rank %d makes links of %u streams, and rank %d of %d: REDPOLL_STREAMS "
                       "must be the same on all ranks",
                       hello->part, hello->epoch + 1, self->rank, self->streams);
    return RP_FAIL(MISMATCH,
                   "rank %d of %d with frames of %u bytes called rank %u; this is rank %d of "
                   "%d with frames of %zu",
                   hello->part, (int)hello->count, hello->bucket, hello->chunk, self->rank,
                   self->world, self->frame_bytes);
}

rpi_proof_terms rpi_hello_terms(const rpi_hello *self, int caller, int callee) {
    return (rpi_proof_terms){.purpose = RPI_PROOF_LINK,
                             .caller = caller,
                             .callee = callee,
                             .world = self->world,
                             .session = self->session};
}

rpi_hello rpi_hello_on(const rpi_hello *self, int stream) {
    return (rpi_hello){.session = self->session,
                       .rank = self->rank,
                       .world = self->world,
                       .frame_bytes = self->frame_bytes,
                       .streams = self->streams,
                       .stream = stream};
}

rp_status rpi_hello_greet(rpi_channel *channel, const rpi_hello *self, int peer,
                          int64_t deadline_ns) {
    unsigned char bytes[RPI_FRAME_HEADER_BYTES];
    write_hello(bytes, self, peer, RPI_HELLO_WELCOME);
    return rpi_channel_write(channel, bytes, sizeof bytes, deadline_ns);
}

rp_status rpi_hello_exchange(rpi_channel *channel, const rpi_hello *self, int peer,
                             int64_t deadline_ns) {
    rpi_proof_terms terms = rpi_hello_terms(self, self->rank, peer);
    RP_TRY(rpi_channel_call(channel, &self->secret, &terms, deadline_ns));
    RP_TRY(rpi_hello_greet(channel, self, peer, deadline_ns));
    return rpi_hello_receive(channel, self, peer, deadline_ns);
}

rp_status rpi_hello_call(int fd, const rpi_hello *self, int peer, int64_t deadline_ns,
                         unsigned char out_call[RPI_PROOF_CALL_BYTES]) {
    rpi_proof_terms terms = rpi_hello_terms(self, self->rank, peer);
    if (!self->secret.is_set) return RP_OK;
    return rpi_proof_call(fd, &self->secret, &terms, deadline_ns, out_call);
}

rp_status rpi_hello_send(int fd, const rpi_hello *self, int peer,
                         const unsigned char call[RPI_PROOF_CALL_BYTES], int64_t deadline_ns) {
    rpi_proof_terms terms = rpi_hello_terms(self, self->rank, peer);
    if (self->secret.is_set)
        RP_TRY(rpi_proof_end(fd, &self->secret, &terms, call, deadline_ns, NULL));
    return rpi_hello_greet(&(rpi_channel){.fd = fd}, self, peer, deadline_ns);
}

rp_status rpi_hello_receive(rpi_channel *channel, const rpi_hello *self, int peer,
                            int64_t deadline_ns) {
    unsigned char bytes[RPI_FRAME_HEADER_BYTES];
    RP_TRY(rpi_channel_read(channel, bytes, sizeof bytes, deadline_ns));
    rp_status status = rpi_hello_check(bytes, self, peer);
    if (status == RP_PENDING)
        return RP_FAIL(MISMATCH, "the other side refused: %s", refusals[RPI_HELLO_CROSSED]);
    return status;
}

rp_status rpi_hello_check(const unsigned char *bytes, const rpi_hello *self, int peer) {
    rpi_frame_header answer;
    RP_TRY(rpi_frame_open(bytes, RPI_FRAME_HEADER_BYTES, false, &answer));
    if (!rpi_frame_may_come(&answer, RPI_FRAME_JOINING))
        return RP_FAIL(CORRUPT, "its first frame is no hello");
    if (answer.operation == RPI_HELLO_CROSSED) return RP_PENDING;
    if (answer.operation != RPI_HELLO_WELCOME)
        return RP_FAIL(MISMATCH, "the other side refused: %s",
                       answer.operation < REFUSALS ? refusals[answer.operation] : "unknown");
    if (rpi_hello_decide(self, &answer) != RPI_HELLO_WELCOME || answer.part != peer ||
        answer.communicator != (uint32_t)self->stream)
        return rpi_hello_mismatch(self, &answer);
    return RP_OK;
}

void rpi_hello_answer(rpi_channel *channel, const rpi_hello *self, int peer,
                      rpi_hello_decision decision) {
    unsigned char bytes[RPI_FRAME_HEADER_BYTES];
    write_hello(bytes, self, peer, decision);
    /* A fresh connection has room for it; that a caller has ended is noticed later. */
    ssize_t sent = rpi_channel_send(channel, bytes, sizeof bytes);
    (void)sent;
}
