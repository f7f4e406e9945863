#include "net/shm/shm_buffers.h"

#include "base/memory.h"
#include "net/memory/buffers.h"
#include "net/memory/sealed_memory.h"
#include "net/socket/pass_fd.h"

#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(rpi_shm_place) == 24 && sizeof(rpi_shm_note) == 24, "no padding");

enum {
    /* More than a peer ever needs, so that one that sends without end does not keep this side
     * from other work. */
    NOTES_AT_ONCE = 4 * RPI_SHM_BUFFERS,
    /* If descriptors or room are short, they stay so for more than a frame or two. */
    OFFER_AGAIN = 256,
};

static rp_status send_note(rpi_shm_buffers *buffers, int socket, rpi_shm_word word,
                           uint64_t buffer, size_t bytes, int fd) {
    rpi_shm_note note = {
        .magic = RPI_SHM_NOTE_MAGIC, .word = word, .buffer = buffer, .bytes = bytes};
    RP_TRY(rpi_note_send(socket, &note, sizeof note, fd));
    buffers->said++;
    return RP_OK;
}

/* ---- ours ---- */

static rpi_shm_mine *find_mine(const rpi_shm_buffers *buffers, uint64_t id) {
    for (int i = 0; i < buffers->mine_count; i++)
        if (buffers->mine[i].id == id) return &buffers->mine[i];
    return NULL;
}

static rp_status make_table(rpi_shm_buffers *buffers) {
    if (buffers->mine) return RP_OK;
    buffers->freed = rpi_buffers_freed();
    return rpi_alloc_array(RPI_SHM_BUFFERS, sizeof *buffers->mine, "buffers", &buffers->mine);
}

static rp_status send_offer(rpi_shm_buffers *buffers, int socket,
                            const rpi_buffer_place *place) {
    int fd = rpi_buffers_descriptor(place->id);
    if (fd < 0) return RP_FAIL(IO, "no descriptor of a buffer");
    rp_status status = send_note(buffers, socket, RPI_SHM_OFFER, place->id, place->bytes, fd);
    close(fd);
    return status;
}

/* A refused buffer stays in the table, so that it is not offered again. */
static void offer(rpi_shm_buffers *buffers, int socket, const rpi_buffer_place *place) {
    if (buffers->pause > 0) {
        buffers->pause--;
        return;
    }
    if (buffers->mine_count == RPI_SHM_BUFFERS) return;
    if (make_table(buffers) == RP_OK && send_offer(buffers, socket, place) == RP_OK)
        buffers->mine[buffers->mine_count++] = (rpi_shm_mine){.id = place->id};
    else
        buffers->pause = OFFER_AGAIN;
}

bool rpi_shm_buffers_reach(rpi_shm_buffers *buffers, int socket, const void *data, size_t bytes,
                           rpi_shm_place *out_place) {
    rpi_buffer_place place;
    if (!rpi_buffers_find(data, bytes, &place)) return false;
    const rpi_shm_mine *mine = find_mine(buffers, place.id);
    if (!mine) offer(buffers, socket, &place);
    if (!mine || !mine->accepted) return false;
    *out_place =
        (rpi_shm_place){.buffer = place.id, .offset = place.offset, .bytes = (uint32_t)bytes};
    return true;
}

bool rpi_shm_buffers_drop_freed(rpi_shm_buffers *buffers, int socket) {
    unsigned freed = rpi_buffers_freed();
    if (!buffers->mine_count || freed == buffers->freed) return true;
    for (int i = buffers->mine_count; i-- > 0;) {
        if (rpi_buffers_has(buffers->mine[i].id)) continue;
        rp_status said = send_note(buffers, socket, RPI_SHM_DROP, buffers->mine[i].id, 0, -1);
        if (said == RP_PENDING) return false;
        buffers->mine[i] = buffers->mine[--buffers->mine_count];
    }
    buffers->freed = freed;
    return true;
}

/* ---- theirs ---- */

static rpi_shm_theirs *find_theirs(const rpi_shm_buffers *buffers, uint64_t id) {
    for (int i = 0; i < buffers->theirs_count; i++)
        if (buffers->theirs[i].id == id) return &buffers->theirs[i];
    return NULL;
}

static void unmap(rpi_shm_buffers *buffers, rpi_shm_theirs *one) {
    munmap(one->memory, one->bytes);
    *one = buffers->theirs[--buffers->theirs_count];
}

/* RP_OK: mapped. Any failure is answered by a refusal, and the peer copies. */
static rp_status take_in(rpi_shm_buffers *buffers, const rpi_shm_note *note, int fd) {
    void *memory = NULL;
    if (fd < 0) return RP_FAIL(IO, "no descriptor came");
    if (!buffers->theirs)
        RP_TRY(rpi_alloc_array(RPI_SHM_BUFFERS, sizeof *buffers->theirs, "buffers",
                               &buffers->theirs));
    if (buffers->theirs_count == RPI_SHM_BUFFERS || find_theirs(buffers, note->buffer))
        return RP_FAIL(NOMEM, "no more buffers");
    RP_TRY(rpi_sealed_check(fd, note->bytes));
    RP_TRY(rpi_sealed_map(fd, note->bytes, PROT_READ | PROT_WRITE, &memory));
    buffers->theirs[buffers->theirs_count++] =
        (rpi_shm_theirs){.id = note->buffer, .memory = memory, .bytes = note->bytes};
    return RP_OK;
}

/* An answer for which the socket has no room is dropped: the buffer stays offered. */
static void receive_offer(rpi_shm_buffers *buffers, int socket, const rpi_shm_note *note,
                          int fd) {
    bool taken = note->buffer && take_in(buffers, note, fd) == RP_OK;
    (void)send_note(buffers, socket, taken ? RPI_SHM_ACCEPT : RPI_SHM_REFUSE, note->buffer, 0,
                    -1);
}

static void receive_drop(rpi_shm_buffers *buffers, const rpi_shm_note *note) {
    rpi_shm_theirs *one = find_theirs(buffers, note->buffer);
    if (one && buffers->held == note->buffer)
        one->dropped = true;
    else if (one)
        unmap(buffers, one);
}

static rp_status receive_note(rpi_shm_buffers *buffers, int socket, const rpi_shm_note *note,
                              int fd) {
    rpi_shm_mine *mine = find_mine(buffers, note->buffer);
    if (note->magic != RPI_SHM_NOTE_MAGIC)
        return RP_FAIL(CORRUPT, "what it said on the socket begins with %08x", note->magic);
    switch (note->word) {
    case RPI_SHM_OFFER: receive_offer(buffers, socket, note, fd); return RP_OK;
    case RPI_SHM_DROP: receive_drop(buffers, note); return RP_OK;
    case RPI_SHM_ACCEPT:
        if (mine) mine->accepted = true; /* freed in the meantime, if there is none */
        return RP_OK;
    case RPI_SHM_REFUSE: return RP_OK;
    default: return RP_FAIL(CORRUPT, "it said the unknown word %u on the socket", note->word);
    }
}

rp_status rpi_shm_buffers_receive(rpi_shm_buffers *buffers, int socket) {
    for (int heard = 0; heard < NOTES_AT_ONCE; heard++) {
        rpi_shm_note note;
        int fd = -1;
        RP_TRY(rpi_note_receive(socket, &note, sizeof note, &fd));
        rp_status status = receive_note(buffers, socket, &note, fd);
        if (fd >= 0) close(fd);
        RP_TRY(status);
    }
    return RP_OK;
}

rp_status rpi_shm_buffers_hold(rpi_shm_buffers *buffers, const rpi_shm_place *place,
                               unsigned char **out_data) {
    const rpi_shm_theirs *one = find_theirs(buffers, place->buffer);
    if (!one) return RP_PENDING;
    if (place->offset > one->bytes || place->bytes > one->bytes - place->offset)
        return RP_FAIL(CORRUPT, "%u bytes at %llu of a buffer of %zu", place->bytes,
                       (unsigned long long)place->offset, one->bytes);
    buffers->held = place->buffer;
    *out_data = one->memory + place->offset;
    return RP_OK;
}

void rpi_shm_buffers_release(rpi_shm_buffers *buffers) {
    rpi_shm_theirs *one = buffers->held ? find_theirs(buffers, buffers->held) : NULL;
    buffers->held = 0;
    if (one && one->dropped) unmap(buffers, one);
}

void rpi_shm_buffers_close(rpi_shm_buffers *buffers) {
    while (buffers->theirs_count) unmap(buffers, &buffers->theirs[0]);
    rpi_free(buffers->theirs);
    rpi_free(buffers->mine);
    *buffers = (rpi_shm_buffers){0};
}
