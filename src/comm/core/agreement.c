/* What ranks must agree on, and the messages for when they do not. */
#include "comm/core/communicator.h"
#include "comm/core/request.h"

#include "codec/codec.h"
#include "comm/values/reductions.h"
#include "plan/collective.h"

#include <string.h>

static uint32_t add_number(uint32_t crc, uint64_t number) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(number >> 8 * i);
    return rpi_crc32c(crc, bytes, sizeof bytes);
}

static uint32_t sign_codec(uint32_t crc, const rpi_extent *extent) {
    crc = add_number(crc, (uint64_t)extent->dtype);
    crc = add_number(crc, rpi_codec_kind_of(&extent->codec)->wire_id);
    crc = add_number(crc, extent->codec.bits);
    crc = add_number(crc, extent->codec.bucket);
    crc = add_number(crc, extent->codec.rounding);
    const rpi_codec_kind *kind = rpi_codec_kind_of(&extent->codec);
    const rpi_codec_option *option;
    for (int i = 0; (option = rpi_codec_option_at(kind, i)) != NULL; i++)
        if (option->offset >= offsetof(rp_codec, option))
            crc = add_number(crc, rpi_codec_option_get(&extent->codec, option));
    return crc;
}

/* The identity of the elements: two operations with the same shape may be different operations.
 */
static uint32_t sign_place(uint32_t crc, const rpi_extent *extent) {
    crc = add_number(crc, extent->tensor);
    return add_number(crc, extent->first);
}

static bool has_blocks(const rp_request *request) {
    return request->partition.split.layout == RPI_SPLIT_BLOCKS;
}

/* A rank knows only the blocks that it sends or receives: their lengths are sent in frames. */
static uint32_t sign_partition(uint32_t crc, const rp_request *request) {
    const rpi_partition *partition = &request->partition;
    bool blocks = has_blocks(request), owned = partition->split.layout == RPI_SPLIT_RANKED;
    crc = add_number(crc, (uint64_t)(blocks ? partition->split.piece_bytes
                                            : (size_t)partition->split.chunks));
    for (size_t i = 0; i < partition->count; i++) {
        crc = add_number(crc, blocks ? 0 : partition->extents[i].count);
        crc = sign_codec(crc, &partition->extents[i]);
        crc = sign_place(crc, &partition->extents[i]);
        if (owned) crc = add_number(crc, (uint64_t)partition->extents[i].part);
    }
    return crc;
}

static uint32_t signature(const rp_request *request) {
    const rpi_schedule *schedule = &request->compiled->schedule;
    uint32_t crc = add_number(0, (uint64_t)request->collective);
    crc = rpi_crc32c(crc, schedule->algorithm->name, strlen(schedule->algorithm->name));
    crc = add_number(crc, (uint64_t)schedule->root);
    crc = add_number(crc, (uint64_t)request->reduce);
    crc = add_number(crc, request->comm->chunks_in_flight);
    crc = add_number(crc, request->seed);
    crc = add_number(crc, request->step);
    crc = add_number(crc, request->key);
    return sign_partition(crc, request);
}

/* The identity of an operation in frames, for messages: bit 31 and the low bits of the key; or,
 * without a key, those of the step and of the first segment's tensor. The signature is of all
 * their bits. */
enum { KEY_BITS = 31, STEP_BITS = 15, TENSOR_BITS = 16 };

static uint32_t low_bits(uint64_t number, int bits) {
    return (uint32_t)(number & ((UINT64_C(1) << bits) - 1));
}

static uint32_t key_of(const rp_request *request) {
    if (request->key) return UINT32_C(1) << KEY_BITS | low_bits(request->key, KEY_BITS);
    uint32_t tensor = request->partition.count ? request->partition.extents[0].tensor : 0;
    return low_bits(request->step, STEP_BITS) << TENSOR_BITS | low_bits(tensor, TENSOR_BITS);
}

/* A byte for both: the collective in its low half, how it combines in the other. */
_Static_assert(RPI_COLLECTIVES <= 16 && RP_PREMUL_SUM < 16, "both fit a byte");

static uint8_t pack_operation(rpi_collective collective, rp_reduction reduction) {
    return (uint8_t)((unsigned)collective | (unsigned)reduction << 4);
}

static rpi_collective collective_of(const rpi_frame_header *header) {
    return (rpi_collective)(header->operation & 15);
}

static rp_reduction reduction_of(const rpi_frame_header *header) {
    return (rp_reduction)(header->operation >> 4);
}

void rpi_request_sign(rp_request *request) {
    const rp_comm *comm = request->comm;
    rpi_frame_header *header = &request->header;
    *header =
        (rpi_frame_header){.key = key_of(request),
                           .kind = RPI_FRAME_DATA,
                           .communicator = comm->id,
                           .epoch = comm->epoch,
                           .signature = signature(request),
                           .operation = pack_operation(request->collective, request->reduce)};
    for (size_t i = 0; i < request->partition.count; i++)
        header->count += request->partition.extents[i].count;
    if (!request->partition.count) return;
    const rpi_extent *extent = &request->partition.extents[0];
    header->dtype = (uint8_t)extent->dtype;
    header->codec = rpi_codec_kind_of(&extent->codec)->wire_id;
    header->bits = extent->codec.bits;
    header->bucket = extent->codec.bucket;
}

int rpi_request_recv_part(const rp_request *request, const rpi_frame_header *header) {
    int world = request->compiled->schedule.world;
    if (header->part >= world) return header->part;
    return rpi_collective_received_as(rpi_collective_kind_of(request->collective), world,
                                      header->part);
}

/* The extent of the block for which a frame is; NULL: there is none. */
static const rpi_extent *block_of(const rp_request *request, const rpi_frame_header *header) {
    int part = rpi_request_recv_part(request, header);
    return part >= 0 && (size_t)part < request->partition.count
               ? &request->partition.extents[part]
               : NULL;
}

bool rpi_request_is_same(const rp_request *request, const rpi_frame_header *header) {
    return header->signature == request->header.signature &&
           header->operation == request->header.operation;
}

bool rpi_request_agrees(const rp_request *request, const rpi_frame_header *header) {
    if (!rpi_request_is_same(request, header)) return false;
    const rpi_extent *extent = has_blocks(request) ? block_of(request, header) : NULL;
    return !extent || extent->count == header->count;
}

/* ---- in words ---- */

/* " (max)"; sums say nothing. */
static const char *reduction_text(const rpi_frame_header *header, char *text, size_t bytes) {
    rp_reduction reduction = reduction_of(header);
    text[0] = '\0';
    if (reduction != RP_SUM) snprintf(text, bytes, " (%s)", rpi_reduction_name(reduction));
    return text;
}

const char *rpi_posted_text(const rpi_frame_header *header, char *text, size_t bytes) {
    rpi_collective collective = collective_of(header);
    const rpi_collective_kind *kind = rpi_collective_kind_of(collective);
    const char *name = rpi_collective_name(collective);
    const char *dtype = rp_dtype_name((rp_dtype)header->dtype);
    char reduction[32], codec_text[64];
    rp_codec codec = {.kind = rpi_codec_by_wire_id(header->codec),
                      .bucket = header->bucket,
                      .bits = header->bits};
    if (!kind || kind->tokens_only)
        snprintf(text, bytes, "%s", name);
    else if (kind->has_blocks)
        snprintf(text, bytes, "%s of %s", name, dtype);
    else
        snprintf(text, bytes, "%s%s of %llu %s with %s", name,
                 reduction_text(header, reduction, sizeof reduction),
                 (unsigned long long)header->count, dtype,
                 codec.kind ? rp_codec_text(&codec, codec_text, sizeof codec_text)
                            : "no codec");
    return text;
}

/* rpi_posted_text() prints all that frames say. These are the other possible differences, with
 * the values of this rank. */
static const char *rest_text(const rp_request *request, char *text, size_t bytes) {
    const rpi_schedule *schedule = &request->compiled->schedule;
    char root[32] = "", codec[64] = "";
    if (request->partition.count)
        rp_codec_text(&request->partition.extents[0].codec, codec, sizeof codec);
    if (rpi_collective_has_root(request->collective))
        snprintf(root, sizeof root, "root %d, ", schedule->root);
    snprintf(
        text, bytes,
        " (they differ in segments, owners, rounding or other options of codecs, seed, step, "
        "key, algorithm, root or chunks; rank %d: %zu segments, %s, algorithm %s, %s%d "
        "chunks, %zu in flight)",
        request->comm->rank, request->partition.count, codec, schedule->algorithm->name, root,
        request->partition.split.chunks, request->comm->chunks_in_flight);
    return text;
}

/* " with key 7", " of step 3, tensor 12": empty if the caller gave neither. */
static const char *key_text(uint32_t key, char *text, size_t bytes) {
    uint32_t step = low_bits(key >> TENSOR_BITS, STEP_BITS),
             tensor = low_bits(key, TENSOR_BITS);
    text[0] = '\0';
    if (key >> KEY_BITS)
        snprintf(text, bytes, " with key %u", low_bits(key, KEY_BITS));
    else if (key)
        snprintf(text, bytes, " of step %u, tensor %u", step, tensor);
    return text;
}

/* The same operation except for its identity, which is why callers may give one. */
static const char *order_text(const rp_request *request, const rpi_frame_header *header,
                              int rank, const char *posted, char *text, size_t bytes) {
    char theirs[48], ours[48];
    key_text(header->key, theirs, sizeof theirs);
    key_text(request->header.key, ours, sizeof ours);
    snprintf(text, bytes,
             "rank %d posted %s%s, rank %d the same%s: operations must be posted in the same "
             "order on all ranks",
             rank, posted, theirs[0] ? theirs : " without a key", request->comm->rank,
             ours[0] ? ours : " without a key");
    return text;
}

const char *rpi_disagreement_text(const rp_request *request, const rpi_frame_header *header,
                                  int rank, char *text, size_t bytes) {
    char theirs[160], ours[160], rest[288] = "";
    if (rpi_request_is_same(request, header)) {
        const rpi_extent *extent = block_of(request, header);
        snprintf(text, bytes, "rank %d sends %llu %s to rank %d, which expects %zu", rank,
                 (unsigned long long)header->count, rp_dtype_name((rp_dtype)header->dtype),
                 request->comm->rank, extent ? extent->count : 0);
        return text;
    }
    rpi_posted_text(header, theirs, sizeof theirs);
    rpi_posted_text(&request->header, ours, sizeof ours);
    bool is_same = strcmp(theirs, ours) == 0;
    if (is_same && header->key != request->header.key)
        return order_text(request, header, rank, ours, text, bytes);
    if (is_same) rest_text(request, rest, sizeof rest);
    snprintf(text, bytes, "rank %d posted %s, rank %d %s%s", rank, theirs, request->comm->rank,
             ours, rest);
    return text;
}
