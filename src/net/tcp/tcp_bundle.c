#include "net/tcp/tcp_bundle.h"

#include "base/append.h"
#include "base/memory.h"
#include "net/bytes/forget.h"
#include "net/socket/interfaces.h"
#include "net/tcp/tcp_in.h"
#include "net/tcp/tcp_out.h"

#include <sys/socket.h>

rp_status rpi_tcp_bundle_open(rpi_tcp_bundle *bundle, rpi_link *link,
                              const rpi_channel *channels, int count, size_t frame_bytes) {
    *bundle = (rpi_tcp_bundle){.frame_bytes = frame_bytes, .lent = -1, .held = -1};
    rp_status status =
        rpi_alloc_array((size_t)count, sizeof *bundle->streams, "a link", &bundle->streams);
    if (status != RP_OK) {
        for (int i = 0; i < count; i++)
            rpi_channel_close(&(rpi_channel){channels[i].fd, channels[i].tls});
        return status;
    }
    bundle->count = count;
    for (int i = 0; i < count; i++) {
        rp_status one =
            rpi_tcp_stream_open(&bundle->streams[i], link, channels[i], frame_bytes, count > 1);
        if (status == RP_OK) status = one;
    }
    return status;
}

void rpi_tcp_bundle_close(rpi_tcp_bundle *bundle) {
    for (int i = 0; i < bundle->count; i++) rpi_tcp_stream_close(&bundle->streams[i]);
    rpi_free(bundle->streams);
    bundle->streams = NULL;
    bundle->count = 0;
}

void rpi_tcp_bundle_forget(rpi_tcp_bundle *bundle) {
    for (int i = 0; i < bundle->count; i++) rpi_fd_forget(&bundle->streams[i].channel.fd);
}

/* ---- faults ---- */

/* Another stream has failed: nothing is sent on this one any more. When the peer has closed
 * that one it closes this one, too, behind frames that may be on their way, or does so once it
 * hears that we have. Anything else does not come to the peer's ears: what is here is all. */
static void end_stream(rpi_tcp_stream *stream, bool was_closed) {
    rpi_tcp_stream_mute(stream);
    if (stream->fault.status != RP_OK) return;
    if (was_closed) {
        rpi_channel_shut(&stream->channel);
        return;
    }
    shutdown(stream->channel.fd, SHUT_RDWR);
    rpi_tcp_stream_hang_up(stream);
}

/* Has a stream failed? The link has, then, and what it failed of is recorded. */
static rp_status look_for_fault(rpi_tcp_bundle *bundle) {
    int failed = 0;
    if (bundle->fault.status != RP_OK) return bundle->fault.status;
    while (failed < bundle->count && bundle->streams[failed].fault.status == RP_OK) failed++;
    if (failed == bundle->count) return RP_OK;
    const rpi_tcp_stream *first = &bundle->streams[failed];
    rpi_fault_keep(&bundle->fault,
                   rpi_fail(first->fault.status, __FILE__, __LINE__, "%.160s (stream %d of %d)",
                            first->fault.text, failed + 1, bundle->count));
    for (int i = 0; i < bundle->count; i++) end_stream(&bundle->streams[i], first->was_closed);
    return bundle->fault.status;
}

/* ---- out ---- */

/* The one with least to send; of those that have nothing, the one that has sent least. */
static bool is_before(const rpi_tcp_stream *a, const rpi_tcp_stream *b) {
    return a->queued != b->queued ? a->queued < b->queued : a->posted < b->posted;
}

/* The stream on which the next frame goes; -1: none has room. */
static int choose(const rpi_tcp_bundle *bundle, size_t bytes, bool bulk) {
    int best = -1;
    for (int i = 0; i < bundle->count; i++)
        if (rpi_tcp_stream_has_room(&bundle->streams[i], bytes) &&
            (!bulk || rpi_tcp_stream_has_bulk_room(&bundle->streams[i])) &&
            (best < 0 || is_before(&bundle->streams[i], &bundle->streams[best])))
            best = i;
    return best;
}

/* The region that is lent, where it is long enough. */
static bool lend_again(rpi_tcp_bundle *bundle, size_t bytes, void **out_region) {
    if (bundle->lent < 0) return false;
    rpi_tcp_stream *stream = &bundle->streams[bundle->lent];
    if (stream->others.lent.bytes >= bytes)
        return rpi_tcp_stream_lend(stream, bytes, out_region) == RP_OK;
    stream->others.lent.bytes = 0;
    bundle->lent = -1;
    return false;
}

/* Of numbered frames none passes another. */
static bool goes_first(const rpi_tcp_bundle *bundle, rpi_traffic traffic) {
    return bundle->count == 1 && traffic == RPI_TRAFFIC_URGENT;
}

rp_status rpi_tcp_bundle_lend(rpi_tcp_bundle *bundle, size_t bytes, rpi_traffic traffic,
                              void **out_region) {
    bool only = bundle->count == 1 || bytes == 0 || bytes > bundle->frame_bytes;
    bool bulk = traffic == RPI_TRAFFIC_BULK;
    if (goes_first(bundle, traffic))
        return rpi_tcp_stream_lend_first(&bundle->streams[0], bytes, out_region);
    if (only && bulk) return rpi_tcp_stream_lend_bulk(&bundle->streams[0], bytes, out_region);
    if (only) return rpi_tcp_stream_lend(&bundle->streams[0], bytes, out_region);
    if (look_for_fault(bundle) != RP_OK) return rpi_fault_raise(&bundle->fault);
    if (lend_again(bundle, bytes, out_region)) return RP_OK;
    int chosen = choose(bundle, bytes, bulk);
    *(bulk ? &bundle->bulk_starved : &bundle->starved) = chosen < 0 ? bytes : 0;
    if (chosen < 0) return RP_PENDING;
    bundle->lent = chosen;
    rpi_tcp_stream *stream = &bundle->streams[chosen];
    return bulk ? rpi_tcp_stream_lend_bulk(stream, bytes, out_region)
                : rpi_tcp_stream_lend(stream, bytes, out_region);
}

rp_status rpi_tcp_bundle_post(rpi_tcp_bundle *bundle, size_t bytes, rpi_traffic traffic) {
    if (goes_first(bundle, traffic))
        return rpi_tcp_stream_post_first(&bundle->streams[0], bytes);
    rpi_tcp_stream *stream = &bundle->streams[bundle->lent < 0 ? 0 : bundle->lent];
    rp_status status = rpi_tcp_stream_post(stream, bytes, bundle->next_out);
    if (bundle->count == 1 || status == RP_STATE) return status;
    bundle->lent = -1;
    bundle->next_out++;
    (void)look_for_fault(bundle);
    return rpi_fault_raise(&bundle->fault);
}

bool rpi_tcp_bundle_is_flushed(const rpi_tcp_bundle *bundle) {
    if (bundle->fault.status != RP_OK) return true; /* nobody is there to receive */
    for (int i = 0; i < bundle->count; i++) {
        const rpi_tcp_stream *stream = &bundle->streams[i];
        if (stream->fault.status == RP_OK && rpi_tcp_stream_has_queue(stream)) return false;
    }
    return true;
}

bool rpi_tcp_bundle_is_delivered(const rpi_tcp_bundle *bundle) {
    if (bundle->fault.status != RP_OK) return true;
    for (int i = 0; i < bundle->count; i++)
        if (!rpi_tcp_stream_is_delivered(&bundle->streams[i])) return false;
    return true;
}

/* ---- in ---- */

/* The stream with the frame that is next, and complete; -1: it has not come. */
static int find_next(const rpi_tcp_bundle *bundle) {
    for (int i = 0; i < bundle->count; i++) {
        const rpi_tcp_stream *stream = &bundle->streams[i];
        if (rpi_tcp_stream_has_frame(stream) &&
            rpi_tcp_stream_number(stream) == bundle->next_in)
            return i;
    }
    return -1;
}

/* Numbers rise on each stream: one that has a later frame, or has ended, cannot bring it. */
static bool may_come(const rpi_tcp_bundle *bundle) {
    for (int i = 0; i < bundle->count; i++) {
        const rpi_tcp_stream *stream = &bundle->streams[i];
        if (stream->in != RPI_TCP_IN_ENDED &&
            (stream->frames.count == 0 || rpi_tcp_stream_number(stream) == bundle->next_in))
            return true;
    }
    return false;
}

rp_status rpi_tcp_bundle_peek(rpi_tcp_bundle *bundle, const void **out_frame,
                              size_t *out_bytes) {
    if (bundle->count == 1)
        return rpi_tcp_stream_peek(&bundle->streams[0], out_frame, out_bytes);
    int next = find_next(bundle);
    if (next >= 0) {
        bundle->held = next;
        return rpi_tcp_stream_peek(&bundle->streams[next], out_frame, out_bytes);
    }
    (void)look_for_fault(bundle);
    if (may_come(bundle)) return RP_PENDING;
    if (bundle->fault.status == RP_OK)
        rpi_fault_keep(&bundle->fault,
                       RP_FAIL(CORRUPT, "from rank %d: no stream brings frame %u of the link",
                               bundle->streams[0].link->peer, bundle->next_in));
    return rpi_fault_raise(&bundle->fault);
}

void rpi_tcp_bundle_release(rpi_tcp_bundle *bundle) {
    if (bundle->count == 1) {
        rpi_tcp_stream_release(&bundle->streams[0]);
        return;
    }
    if (bundle->held < 0) return;
    rpi_tcp_stream_release(&bundle->streams[bundle->held]);
    bundle->held = -1;
    bundle->next_in++;
}

/* ---- both ---- */

void rpi_tcp_bundle_move(rpi_tcp_bundle *bundle) {
    for (int i = 0; i < bundle->count; i++) rpi_tcp_stream_move(&bundle->streams[i]);
    if (bundle->count > 1) (void)look_for_fault(bundle);
}

/* The kernel has something for a stream, or takes something from it. */
static bool may_move(const rpi_tcp_stream *stream) {
    return rpi_tcp_stream_may_receive(stream) ||
           (stream->fault.status == RP_OK && rpi_tcp_stream_may_send(stream));
}

/* Told once, as of a single stream. */
static bool room_has_come(rpi_tcp_bundle *bundle) {
    bool some = (bundle->starved && choose(bundle, bundle->starved, false) >= 0) ||
                (bundle->bulk_starved && choose(bundle, bundle->bulk_starved, true) >= 0);
    if (some) bundle->starved = bundle->bulk_starved = 0;
    return some;
}

bool rpi_tcp_bundle_has_news(rpi_tcp_bundle *bundle) {
    if (bundle->count == 1) return rpi_tcp_stream_has_news(&bundle->streams[0]);
    for (int i = 0; i < bundle->count; i++)
        if (may_move(&bundle->streams[i])) return true;
    if (bundle->held < 0 && find_next(bundle) >= 0) return true;
    bool ends = bundle->held < 0 && !may_come(bundle);
    if (look_for_fault(bundle) != RP_OK)
        return !bundle->fault.told && (ends || bundle->starved || bundle->bulk_starved);
    return ends || room_has_come(bundle);
}

/* ---- for people ---- */

void rpi_tcp_bundle_describe(const rpi_tcp_bundle *bundle, char *text, size_t bytes) {
    text[0] = '\0';
    for (int i = 0; i < bundle->count; i++) {
        if (i > 0) rpi_append(text, bytes, ", ");
        rpi_append_way(bundle->streams[i].channel.fd, text, bytes);
    }
}
