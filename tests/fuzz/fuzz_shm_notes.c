/* Notes by which a peer offers, takes and withdraws buffers of shared memory, and the places in
 * them that its frames name. A record: a byte (what file comes along, and what is done behind
 * it) and a note. */
#include "fuzz_input.h"

#include "net/shm/shm_buffers.h"
#include "net/socket/pass_fd.h"
#include "redpoll/buffer.h"

#include <fcntl.h>
#include <string.h>

enum { FILE_BYTES = 8192, FILES = 4, OWN_BYTES = 100 };
enum { FILE_MASK = 3, KEEPS_MAGIC = 4, HOLDS = 8, RELEASES = 16, ASKS = 32 };

static int memory_file(int seals) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, FILE_BYTES) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static const int *files(void) {
    static int all[FILES];
    if (all[1]) return all;
    all[0] = -1;
    all[1] = memory_file(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    all[2] = memory_file(F_SEAL_GROW);
    all[3] = open("/dev/null", O_RDWR | O_CLOEXEC);
    return all;
}

/* What a place leads to can be read from its first byte to its last. */
static void hold(rpi_shm_buffers *buffers, const rpi_shm_note *note) {
    unsigned char *at = NULL;
    rpi_shm_place place = {
        .buffer = note->buffer, .offset = note->bytes, .bytes = 1 + note->word % FILE_BYTES};
    if (rpi_shm_buffers_hold(buffers, &place, &at) != RP_OK) return;
    volatile unsigned char seen = at[0];
    seen = at[place.bytes - 1];
    (void)seen;
}

static void drain(int socket) {
    rpi_shm_note note;
    int fd = -1;
    while (rpi_note_receive(socket, &note, sizeof note, &fd) == RP_OK)
        if (fd >= 0) close(fd);
}

/* False: that was an error of the link. */
static bool hear(rpi_shm_buffers *buffers, const int pair[2], const uint8_t *record) {
    static void *own;
    rpi_shm_note note;
    rpi_shm_place place;
    memcpy(&note, record + 1, sizeof note);
    if (!(record[0] & KEEPS_MAGIC)) note.magic = RPI_SHM_NOTE_MAGIC;
    (void)rpi_note_send(pair[1], &note, sizeof note, files()[record[0] & FILE_MASK]);
    if (rpi_shm_buffers_receive(buffers, pair[0]) < 0) return false;
    drain(pair[1]);
    if (record[0] & HOLDS) hold(buffers, &note);
    if (record[0] & RELEASES) rpi_shm_buffers_release(buffers);
    if (!own) (void)rp_buffer_allocate(OWN_BYTES, &own);
    if (record[0] & ASKS) (void)rpi_shm_buffers_reach(buffers, pair[0], own, 1, &place);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    int pair[2];
    rpi_shm_buffers buffers = {0};
    const size_t record = 1 + sizeof(rpi_shm_note);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) return 0;
    bool sound = true;
    for (; bytes >= record && sound; data += record, bytes -= record)
        sound = hear(&buffers, pair, data);
    if (sound && bytes) { /* less than a note */
        ssize_t sent = send(pair[1], data, bytes, MSG_NOSIGNAL);
        (void)sent;
        (void)rpi_shm_buffers_receive(&buffers, pair[0]);
    }
    rpi_shm_buffers_close(&buffers);
    close(pair[0]);
    close(pair[1]);
    return 0;
}
