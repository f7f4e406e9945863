/* Which elements belong to which server, and how they travel. Shards end between granules of
 * codecs, and random numbers are drawn by the place in the tensor, so that another number of
 * servers changes no bit. */
#include "methods/parameter_server/parameter_server_object.h"

#include "base/memory.h"
#include "codec/codec.h"

#include <string.h>

/* The border nearest above `wanted` that the segment's codec allows. */
static size_t cut_at(const rp_segment *segment, size_t wanted) {
    size_t granule = rp_codec_granule(&segment->codec);
    size_t cut = (wanted + granule - 1) / granule * granule;
    return cut < segment->count ? cut : segment->count;
}

/* Element of the vector at which a server's shard begins. */
static size_t border(const rp_parameter_server *s, int server) {
    size_t wanted = s->count / (size_t)s->server_count * (size_t)server, first = 0;
    if (server >= s->server_count) return s->count;
    for (size_t i = 0; i < s->segment_count; i++) {
        const rp_segment *segment = &s->segments[i];
        if (wanted < first + segment->count) return first + cut_at(segment, wanted - first);
        first += segment->count;
    }
    return s->count;
}

/* How long an encoding is, with its length in four bytes before it. */
static size_t encoding_bytes(const rp_segment *segment, size_t count) {
    return sizeof(uint32_t) + rp_codec_encoded_bytes(&segment->codec, RP_F32, count);
}

static rp_status cut_shard(rp_parameter_server *s, rpi_push_shard *shard, size_t *parts) {
    size_t first = 0, end = shard->first + shard->count;
    shard->first_part = *parts;
    for (size_t i = 0; i < s->segment_count; i++) {
        const rp_segment *segment = &s->segments[i];
        size_t from = first > shard->first ? first : shard->first;
        size_t to = first + segment->count < end ? first + segment->count : end;
        if (from < to) {
            size_t bytes = encoding_bytes(segment, to - from);
            if (bytes > UINT32_MAX)
                return RP_FAIL(UNSUPPORTED,
                               "parameter server: tensor %zu has %zu elements in one shard; "
                               "take more servers, or cut it",
                               i, to - from);
            s->parts[(*parts)++] = (rpi_push_part){.segment = i,
                                                   .offset = from - first,
                                                   .count = to - from,
                                                   .first = from,
                                                   .payload = shard->payload_bytes};
            shard->payload_bytes += bytes;
        }
        first += segment->count;
    }
    shard->part_count = *parts - shard->first_part;
    return RP_OK;
}

rp_status rpi_push_cut(rp_parameter_server *s) {
    size_t servers = (size_t)s->server_count, parts = 0;
    RP_TRY(rpi_alloc_array(servers, sizeof *s->shards, "shards", &s->shards));
    RP_TRY(rpi_alloc_array(s->segment_count + servers, sizeof *s->parts, "shards", &s->parts));
    for (int i = 0; i < s->server_count; i++) {
        s->shards[i].first = border(s, i);
        s->shards[i].count = border(s, i + 1) - s->shards[i].first;
        RP_TRY(cut_shard(s, &s->shards[i], &parts));
    }
    return RP_OK;
}

/* ---- encodings ---- */

static rp_encode_context context_of(const rp_parameter_server *s, const rpi_push_part *part,
                                    int worker, uint64_t number) {
    const rp_segment *segment = &s->segments[part->segment];
    return (rp_encode_context){.seed = s->options.seed,
                               .step = number,
                               .tensor = segment->tensor,
                               .role = 2 * (uint32_t)worker,
                               .first = segment->first + part->offset};
}

rp_status rpi_push_encode(rp_parameter_server *s, int server, uint64_t number, uint8_t *out) {
    const rpi_push_shard *shard = &s->shards[server];
    for (size_t i = 0; i < shard->part_count; i++) {
        const rpi_push_part *part = &s->parts[shard->first_part + i];
        const rp_segment *segment = &s->segments[part->segment];
        rp_encode_context context = context_of(s, part, s->worker, number);
        if (segment->residual) context.residual = segment->residual + part->offset;
        size_t bytes = 0;
        RP_TRY(rp_codec_encode(&segment->codec, RP_F32,
                               (const float *)segment->data + part->offset, part->count,
                               &context, out + part->payload + sizeof(uint32_t), &bytes));
        for (int b = 0; b < 4; b++) out[part->payload + (size_t)b] = (uint8_t)(bytes >> 8 * b);
    }
    return RP_OK;
}

static size_t length_at(const uint8_t *at) {
    return (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
}

rp_status rpi_push_decode(const rp_parameter_server *s, int worker, uint64_t number,
                          const uint8_t *payload, bool is_first, float *sum) {
    const rpi_push_shard *shard = &s->shards[s->server];
    for (size_t i = 0; i < shard->part_count; i++) {
        const rpi_push_part *part = &s->parts[shard->first_part + i];
        const rp_segment *segment = &s->segments[part->segment];
        const uint8_t *at = payload + part->payload;
        rp_encode_context context = context_of(s, part, worker, number);
        size_t bytes = length_at(at);
        float *into = sum + (part->first - shard->first);
        if (bytes + sizeof(uint32_t) > encoding_bytes(segment, part->count))
            return RP_FAIL(CORRUPT, "worker %d's encoding of tensor %u has %zu bytes", worker,
                           (unsigned)segment->tensor, bytes);
        at += sizeof(uint32_t);
        RP_TRY(is_first ? rp_codec_decode(&segment->codec, RP_F32, at, bytes, part->count,
                                          &context, into)
                        : rp_codec_decode_add(&segment->codec, RP_F32, at, bytes, part->count,
                                              &context, into));
    }
    return RP_OK;
}
