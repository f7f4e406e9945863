#include "train/parallel/stage_links.h"

#include "base/clock.h"
#include "base/status.h"

static int tag_of(const rpi_link_message *message) {
    return 2 * message->border + (int)message->way;
}

rp_status rpi_link_send(const rpi_stage_links *links, const rpi_link_message *m,
                        rp_request **request) {
    return rp_send_start(links->stages, m->data, (size_t)m->count, RP_F32, m->stage, tag_of(m),
                         request);
}

rp_status rpi_link_receive(const rpi_stage_links *links, const rpi_link_message *m,
                           rp_request **request) {
    return rp_recv_start(links->stages, m->data, (size_t)m->count, RP_F32, m->stage, tag_of(m),
                         request);
}

rp_status rpi_link_wait(const rpi_stage_links *links, rpi_link_way way, int64_t micro_batch,
                        rp_request **request) {
    static const char *const names[] = {"activations", "gradients"};
    int64_t start = rpi_now_ns();
    rp_status status = rp_request_wait(request);
    if (links->waited)
        links->waited(links->context, names[way], micro_batch, start, rpi_now_ns());
    if (status == RP_OK) return RP_OK;
    return rpi_fail_context(status, "%s of micro-batch %lld: ", names[way],
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
