/* Windows: what all ranks must agree on when they create one. Each sends all others a
 * description of its window, and all compare the same descriptions, so that all find the same
 * mistake. */
#include "comm/window/window_calls.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* The record of each rank about itself; after it a byte for each rank of the world. */
typedef struct description {
    int32_t refused; /* a status */
    uint32_t dtype;
    uint64_t count;
    char name[RPI_WINDOW_NAME_BYTES + 8], codec[64];
} description;

enum { SENDS = 1, RECEIVES = 2 };

static size_t description_bytes(const rp_comm *comm) {
    return sizeof(description) + (size_t)comm->world;
}

static const description *of_rank(const rp_comm *comm, const unsigned char *descriptions,
                                  int rank) {
    return (const description *)(const void *)(descriptions +
                                               (size_t)rank *
                                                   rpi_align_up(description_bytes(comm)));
}

static bool has_edge(const rp_comm *comm, const unsigned char *descriptions, int rank,
                     int other, int way) {
    const unsigned char *row = (const unsigned char *)(of_rank(comm, descriptions, rank) + 1);
    return row[other] & way;
}

static void describe_own(const rp_window *window, description *own) {
    unsigned char *row = (unsigned char *)(own + 1);
    own->dtype = (uint32_t)window->dtype;
    own->count = window->count;
    snprintf(own->name, sizeof own->name, "%s", window->name);
    rp_codec_text(&window->codec, own->codec, sizeof own->codec);
    for (int i = 0; i < window->in_count; i++) row[window->ins[i].rank] |= RECEIVES;
    for (int i = 0; i < window->out_count; i++) row[window->outs[i].rank] |= SENDS;
}

static rp_status compare_with(const rp_comm *comm, const unsigned char *descriptions,
                              int rank) {
    const description *own = of_rank(comm, descriptions, comm->rank),
                      *other = of_rank(comm, descriptions, rank);
    if (strncmp(own->name, other->name, sizeof own->name) != 0)
        return RP_FAIL(MISMATCH, "rank %d creates '%.200s', rank %d '%s'", rank, other->name,
                       comm->rank, own->name);
    if (own->count == other->count && own->dtype == other->dtype &&
        strncmp(own->codec, other->codec, sizeof own->codec) == 0)
        return RP_OK;
    return RP_FAIL(MISMATCH, "rank %d has %llu %s with %.63s, rank %d %llu %s with %s", rank,
                   (unsigned long long)other->count, rp_dtype_name((rp_dtype)other->dtype),
                   other->codec, comm->rank, (unsigned long long)own->count,
                   rp_dtype_name((rp_dtype)own->dtype), own->codec);
}

/* All ranks find the same edge first. */
static rp_status compare_edges(const rp_comm *comm, const unsigned char *descriptions) {
    for (int from = 0; from < comm->world; from++)
        for (int to = 0; to < comm->world; to++) {
            bool sends = has_edge(comm, descriptions, from, to, SENDS);
            bool receives = has_edge(comm, descriptions, to, from, RECEIVES);
            if (sends && !receives)
                return RP_FAIL(MISMATCH,
                               "rank %d has rank %d among its destinations, which has it not "
                               "among its sources",
                               from, to);
            if (receives && !sends)
                return RP_FAIL(MISMATCH,
                               "rank %d has rank %d among its sources, which has it not among "
                               "its destinations",
                               to, from);
        }
    return RP_OK;
}

static rp_status compare(const rp_comm *comm, const unsigned char *descriptions) {
    for (int rank = 0; rank < comm->world; rank++)
        if (of_rank(comm, descriptions, rank)->refused)
            return rpi_fail((rp_status)of_rank(comm, descriptions, rank)->refused, __FILE__,
                            __LINE__, "rank %d has refused it (its own message says why)",
                            rank);
    for (int rank = 0; rank < comm->world; rank++)
        RP_TRY(compare_with(comm, descriptions, rank));
    return compare_edges(comm, descriptions);
}

static uint32_t sign(const description *own) {
    uint32_t crc = rpi_crc32c(0, own->name, strlen(own->name));
    crc = rpi_crc32c(crc, own->codec, strlen(own->codec));
    crc = rpi_crc32c(crc, &own->count, sizeof own->count);
    return rpi_crc32c(crc, &own->dtype, sizeof own->dtype);
}

rp_status rpi_window_agree(rp_comm *comm, rp_window *window, rp_status refused) {
    size_t stride = rpi_align_up(description_bytes(comm));
    unsigned char *descriptions = NULL;
    rpi_kept_error reason;
    if (!window) rpi_error_keep(&reason);
    RP_TRY(rpi_alloc(stride * ((size_t)comm->world + 1), "what ranks say of a window",
                     &descriptions));
    description *own = (description *)(void *)(descriptions + stride * (size_t)comm->world);
    own->refused = refused;
    if (window) describe_own(window, own);
    rp_status status = rp_all_gather(comm, own, descriptions, stride, RP_U8, NULL, NULL);
    if (window && status == RP_OK) {
        window->signature = sign(own);
        status = compare(comm, descriptions);
    }
    rpi_free(descriptions);
    if (window) return status;
    rpi_error_put_back(&reason);
    return refused;
}
