#include "train/parallel/stage_links.h"

#include "base/clock.h"
#include "base/status.h"

static int tag_of(const rpi_link_message *message) {
    return 2 * message->border + (int)message->way;
}

/* A message: its elements, or the bytes of its encoding. */
typedef struct letter {
    void *data;
    size_t count;
    rp_dtype dtype;
} letter;

static letter letter_of(const rpi_link_message *m) {
    if (!m->codec.kind) return (letter){m->data, (size_t)m->count, RP_F32};
    return (letter){m->wire, rpi_activation_codec_bytes(&m->codec, m->count), RP_U8};
}

rp_status rpi_link_send(const rpi_stage_links *links, const rpi_link_message *m,
                        rp_request **request) {
    const letter said = letter_of(m);
    if (m->codec.kind)
        RP_TRY(
            rp_codec_encode(&m->codec, RP_F32, m->data, (size_t)m->count, NULL, m->wire, NULL));
    RP_TRY(rpi_activation_codec_measure(links->codec, m->way, m->data, m->count));
    return rp_send_start(links->stages, said.data, said.count, said.dtype, m->stage, tag_of(m),
                         request);
}

rp_status rpi_link_receive(const rpi_stage_links *links, const rpi_link_message *m,
                           rp_request **request) {
    const letter said = letter_of(m);
    return rp_recv_start(links->stages, said.data, said.count, said.dtype, m->stage, tag_of(m),
                         request);
}

rp_status rpi_link_wait(const rpi_stage_links *links, const rpi_link_message *m,
                        int64_t micro_batch, rp_request **request) {
    static const char *const names[] = {"activations", "gradients"};
    int64_t start = rpi_now_ns();
    rp_status status = rp_request_wait(request);
    if (links->waited)
        links->waited(links->context, names[m->way], micro_batch, start, rpi_now_ns());
    if (status == RP_OK && m->codec.kind)
        status = rp_codec_decode(&m->codec, RP_F32, m->wire,
                                 rpi_activation_codec_bytes(&m->codec, m->count),
                                 (size_t)m->count, NULL, m->data);
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status, "%s of micro-batch %lld: ", names[m->way],
                            (long long)micro_batch);
}

bool rpi_link_is_done(const rp_request *request) {
    return !request || rp_request_test((rp_request *)request) != RP_PENDING;
}

rp_status rpi_link_settle(const rpi_stage_links *links, rp_request **request) {
    if (!*request) return RP_OK;
    int64_t start = rpi_now_ns();
    bool waits = links && links->waited && !rpi_link_is_done(*request);
    rp_status status = rp_request_wait(request);
    if (waits) links->waited(links->context, "a send", -1, start, rpi_now_ns());
    return status;
}
