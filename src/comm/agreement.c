/* What ranks must agree on, told in words when they do not. */
#include "comm/communicator.h"

#include "codec/codec.h"

#include <string.h>

static uint32_t add_number(uint32_t crc, uint64_t number) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(number >> 8 * i);
    return rpi_crc32c(crc, bytes, sizeof bytes);
}

static uint32_t sign_run(uint32_t crc, const rpi_run *run) {
    crc = add_number(crc, run->count);
    crc = add_number(crc, (uint64_t)run->dtype);
    crc = add_number(crc, rpi_codec_kind_of(&run->codec)->wire_id);
    crc = add_number(crc, run->codec.bits);
    crc = add_number(crc, run->codec.bucket);
    return add_number(crc, run->codec.rounding);
}

static uint32_t signature(const rp_request *request) {
    const rpi_schedule *schedule = &request->routine->schedule;
    uint32_t crc = add_number(0, (uint64_t)request->collective);
    crc = rpi_crc32c(crc, schedule->algorithm->name, strlen(schedule->algorithm->name));
    crc = add_number(crc, (uint64_t)schedule->root);
    crc = add_number(crc, (uint64_t)request->reduce);
    crc = add_number(crc, (uint64_t)request->cut.split.chunks);
    crc = add_number(crc, request->comm->window);
    for (size_t i = 0; i < request->cut.count; i++) crc = sign_run(crc, &request->cut.runs[i]);
    return crc;
}

void rpi_request_sign(rp_request *request) {
    const rp_comm *comm = request->comm;
    rpi_frame_header *header = &request->header;
    *header = (rpi_frame_header){.kind = RPI_FRAME_DATA,
                                 .communicator = comm->id,
                                 .epoch = comm->epoch,
                                 .signature = signature(request),
                                 .operation = (uint8_t)request->collective};
    for (size_t i = 0; i < request->cut.count; i++) header->count += request->cut.runs[i].count;
    if (!request->cut.count) return;
    const rpi_run *run = &request->cut.runs[0];
    header->dtype = (uint8_t)run->dtype;
    header->codec = rpi_codec_kind_of(&run->codec)->wire_id;
    header->bits = run->codec.bits;
    header->bucket = run->codec.bucket;
}

bool rpi_request_agrees(const rp_request *request, const rpi_frame_header *header) {
    return header->signature == request->header.signature &&
           header->operation == request->header.operation;
}

/* "all-reduce of 1000 f32 with q4:bucket=512" */
static const char *posted_text(const rpi_frame_header *header, char *text, size_t bytes) {
    const char *name = rpi_collective_name((rpi_collective)header->operation);
    rp_codec codec = {.kind = rpi_codec_by_wire_id(header->codec),
                      .bucket = header->bucket,
                      .bits = header->bits};
    char codec_text[64];
    if (header->operation == RPI_BARRIER)
        snprintf(text, bytes, "%s", name);
    else
        snprintf(text, bytes, "%s of %llu %s with %s", name, (unsigned long long)header->count,
                 rp_dtype_name((rp_dtype)header->dtype),
                 codec.kind ? rp_codec_text(&codec, codec_text, sizeof codec_text)
                            : "no codec");
    return text;
}

const char *rpi_disagreement_text(const rp_request *request, const rpi_frame_header *header,
                                  int rank, char *text, size_t bytes) {
    char theirs[128], ours[128];
    posted_text(header, theirs, sizeof theirs);
    posted_text(&request->header, ours, sizeof ours);
    snprintf(
        text, bytes, "rank %d posted %s, rank %d %s%s", rank, theirs, request->comm->rank, ours,
        strcmp(theirs, ours) != 0
            ? ""
            : " (they differ in segments, algorithm, reduction, root, rounding or chunks)");
    return text;
}
