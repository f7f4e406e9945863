#include "net/memory/duplex.h"

#include "base/event.h"

enum { FRAMES = 4, AREA_BYTES_MIN = 256 * 1024 };
enum { BULK_FRAMES = 2, LONG_FRAME_BYTES = 4096 };

#define LAP_BIT       (UINT64_C(1) << 63)
#define WITHDRAWN_BIT (UINT64_C(1) << 62)
#define PLACE_BIT     (UINT64_C(1) << 61)
#define OFFSET_MASK   ((UINT64_C(1) << 29) - 1)

static size_t area_bytes(size_t frame_bytes) {
    size_t bytes = FRAMES * rpi_extent_round(frame_bytes);
    return bytes < AREA_BYTES_MIN ? AREA_BYTES_MIN : bytes;
}

size_t rpi_duplex_bytes(size_t frame_bytes) {
    return 2 * (sizeof(rpi_duplex_end) + area_bytes(frame_bytes));
}

void rpi_duplex_join(rpi_duplex *duplex, void *memory, int side, size_t frame_bytes,
                     int wake_fd) {
    rpi_duplex_end *ends = memory;
    unsigned char *areas = (unsigned char *)(ends + 2);
    size_t area = area_bytes(frame_bytes);
    *duplex = (rpi_duplex){.mine = &ends[side],
                           .theirs = &ends[!side],
                           .out = areas + (side ? area : 0),
                           .in = areas + (side ? 0 : area),
                           .frame_bytes = frame_bytes,
                           .wake_fd = wake_fd,
                           .sent = {.capacity = area}};
}

static uint64_t lap_of(uint32_t index) {
    return (index / RPI_EXTENTS) % 2 ? 0 : LAP_BIT;
}

void rpi_duplex_ring_at(rpi_duplex *duplex, rpi_doorbell_page *doorbell, int rank) {
    duplex->doorbell = doorbell;
    duplex->rank = rank;
}

/* The other side sleeps and waits for this: one of possibly many wakers takes the flag down and
 * pays for the system call. Sequentially consistent with arm(): either it sees our news, or we
 * see its flag. */
static void wake(rpi_duplex *duplex, unsigned wish) {
    bool rings = duplex->doorbell && wish == RPI_WISH_FRAMES;
    if (!rings && !(atomic_load(&duplex->theirs->asleep) & wish)) return;
    if (!rings && atomic_exchange(&duplex->theirs->asleep, 0) == 0) return;
    if (duplex->doorbell) {
        rpi_doorbell_ring(duplex->doorbell, duplex->rank, duplex->wake_fd);
        return;
    }
    rpi_event_set(duplex->wake_fd);
}

void rpi_duplex_wake(rpi_duplex *duplex) {
    wake(duplex, RPI_WISH_CLOSING);
}

static rp_status take_back(rpi_duplex *duplex) {
    uint32_t back = atomic_load(&duplex->theirs->released) - duplex->sent.first;
    if (back > duplex->sent.count)
        return RP_FAIL(CORRUPT, "the peer gave back %u frames of %u", back, duplex->sent.count);
    while (back-- > 0) rpi_extents_pop(&duplex->sent);
    return RP_OK;
}

static bool is_out(const rpi_duplex *duplex, uint32_t number) {
    return number - duplex->sent.first < duplex->sent.count;
}

rp_status rpi_duplex_lend(rpi_duplex *duplex, size_t bytes, void **out_region) {
    if (bytes == 0 || bytes > duplex->frame_bytes)
        return RP_FAIL(INVALID, "a frame of %zu bytes; 1 to %zu are allowed", bytes,
                       duplex->frame_bytes);
    if (duplex->lent.bytes < bytes) {
        rpi_extent lent = {.bytes = bytes};
        RP_TRY(take_back(duplex));
        duplex->starved = !rpi_extents_fit(&duplex->sent, bytes, &lent.offset);
        if (duplex->starved) return RP_PENDING;
        duplex->lent = lent;
    }
    *out_region = duplex->out + duplex->lent.offset;
    return RP_OK;
}

/* Frames that name a place are short, and their payloads are in nobody's way. */
static bool is_long_ahead(const rpi_duplex *duplex) {
    int frames = 0;
    for (uint32_t i = 0; i < duplex->sent.count && frames < BULK_FRAMES; i++) {
        uint32_t index = (duplex->sent.first + i) % RPI_EXTENTS;
        frames += duplex->sent.at[index].bytes >= LONG_FRAME_BYTES;
    }
    return frames == BULK_FRAMES;
}

rp_status rpi_duplex_lend_bulk(rpi_duplex *duplex, size_t bytes, void **out_region) {
    RP_TRY(take_back(duplex));
    duplex->bulk_starved = bytes >= LONG_FRAME_BYTES && is_long_ahead(duplex);
    return duplex->bulk_starved ? RP_PENDING : rpi_duplex_lend(duplex, bytes, out_region);
}

static rp_status post(rpi_duplex *duplex, size_t bytes, uint64_t bits) {
    if (bytes == 0 || bytes > duplex->lent.bytes)
        return RP_FAIL(STATE, "%zu bytes posted into a region of %zu", bytes,
                       duplex->lent.bytes);
    uint32_t index = duplex->sent.first + duplex->sent.count;
    uint64_t word = lap_of(index) | (uint64_t)(duplex->lent.offset / 64) << 32 | bytes | bits;
    rpi_extents_push(&duplex->sent, duplex->lent.offset, bytes);
    duplex->lent.bytes = 0;
    atomic_store(&duplex->mine->posted[index % RPI_EXTENTS], word);
    wake(duplex, RPI_WISH_FRAMES);
    return RP_OK;
}

rp_status rpi_duplex_post(rpi_duplex *duplex, size_t bytes) {
    return post(duplex, bytes, 0);
}

rp_status rpi_duplex_post_place(rpi_duplex *duplex, size_t bytes, uint32_t *out_number) {
    RP_TRY(post(duplex, bytes, PLACE_BIT));
    duplex->place = *out_number = duplex->sent.first + duplex->sent.count - 1;
    duplex->has_places = true;
    return RP_OK;
}

rp_status rpi_duplex_is_back(rpi_duplex *duplex, uint32_t number) {
    if (is_out(duplex, number)) RP_TRY(take_back(duplex));
    return is_out(duplex, number) ? RP_PENDING : RP_OK;
}

/* ThreadSanitizer knows no fences, and nothing of other processes either. */
static void fence(void) {
#if !defined(__SANITIZE_THREAD__)
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Ordered before all that the caller writes from here on, as stands() is behind all that the
 * other side has read: who sees something new sees this, too. */
rp_status rpi_duplex_withdraw(rpi_duplex *duplex, uint32_t number) {
    if (rpi_duplex_is_back(duplex, number) == RP_OK) return RP_OK;
    atomic_fetch_or(&duplex->mine->posted[number % RPI_EXTENTS], WITHDRAWN_BIT);
    fence();
    return rpi_duplex_is_writing_to(duplex, number) ? RP_PENDING : RP_OK;
}

/* Only the oldest frame that is out can be written to. */
bool rpi_duplex_is_writing_to(rpi_duplex *duplex, uint32_t number) {
    return atomic_load(&duplex->theirs->writing) &&
           rpi_duplex_is_back(duplex, number) == RP_PENDING && number == duplex->sent.first;
}

/* Said before it looks, as withdraw() does: one of the two sees the other. */
bool rpi_duplex_begin_write(rpi_duplex *duplex) {
    atomic_store(&duplex->mine->writing, 1);
    if (rpi_duplex_stands(duplex)) return true;
    rpi_duplex_end_write(duplex);
    return false;
}

void rpi_duplex_end_write(rpi_duplex *duplex) {
    atomic_store(&duplex->mine->writing, 0);
}

bool rpi_duplex_stands(const rpi_duplex *duplex) {
    fence();
    uint64_t word = atomic_load(&duplex->theirs->posted[duplex->next % RPI_EXTENTS]);
    return !(word & WITHDRAWN_BIT);
}

void rpi_duplex_take_places(rpi_duplex *duplex) {
    duplex->takes_places = true;
    atomic_store(&duplex->mine->takes_places, 1);
}

bool rpi_duplex_may_name_places(const rpi_duplex *duplex) {
    return atomic_load(&duplex->theirs->takes_places) == 1;
}

void rpi_duplex_note(rpi_duplex *duplex, unsigned notes) {
    if (atomic_load_explicit(&duplex->mine->notes, memory_order_relaxed) != notes)
        atomic_store(&duplex->mine->notes, notes);
}

bool rpi_duplex_has_notes(rpi_duplex *duplex) {
    unsigned notes = atomic_load(&duplex->theirs->notes);
    bool some = notes != duplex->heard;
    duplex->heard = notes;
    return some;
}

static bool has_come(rpi_duplex *duplex, uint64_t *out_word) {
    *out_word = atomic_load(&duplex->theirs->posted[duplex->next % RPI_EXTENTS]);
    return (*out_word & LAP_BIT) == lap_of(duplex->next);
}

rp_status rpi_duplex_peek(rpi_duplex *duplex, const void **out_frame, size_t *out_bytes) {
    uint64_t word;
    if (duplex->held.bytes == 0) {
        if (!has_come(duplex, &word)) return RP_PENDING;
        rpi_extent frame = {.offset = (size_t)(word >> 32 & OFFSET_MASK) * 64,
                            .bytes = (size_t)(word & UINT32_MAX)};
        size_t area = duplex->sent.capacity;
        if (frame.bytes == 0 || frame.bytes > duplex->frame_bytes || frame.offset > area ||
            frame.bytes > area - frame.offset)
            return RP_FAIL(CORRUPT, "the peer posted %zu bytes at %zu of an area of %zu",
                           frame.bytes, frame.offset, area);
        duplex->held_place = word & PLACE_BIT;
        if (duplex->held_place && !duplex->takes_places)
            return RP_FAIL(CORRUPT, "the peer posted no payload but its place");
        duplex->held = frame;
    }
    *out_frame = duplex->in + duplex->held.offset;
    *out_bytes = duplex->held.bytes;
    return RP_OK;
}

void rpi_duplex_release(rpi_duplex *duplex) {
    if (duplex->held.bytes == 0) return;
    duplex->held.bytes = 0;
    duplex->next++;
    atomic_store(&duplex->mine->released, duplex->next);
    wake(duplex, RPI_WISH_ROOM);
}

/* Since we last went to sleep, whatever took them back: who waits for a payload may have asked
 * before that. Told once. */
static bool frames_came_back(rpi_duplex *duplex) {
    bool is_fault = take_back(duplex) != RP_OK;
    bool moved = duplex->sent.first != duplex->seen_first;
    duplex->seen_first = duplex->sent.first;
    if (is_fault || !is_out(duplex, duplex->place)) duplex->has_places = false;
    return is_fault || moved;
}

/* Told once: who waits for room asks for it again, or does not wait any more. */
static bool room_has_come(rpi_duplex *duplex) {
    if (!rpi_duplex_is_starved(duplex)) return false;
    if (atomic_load(&duplex->theirs->released) == duplex->sent.first) return false;
    duplex->starved = duplex->bulk_starved = false;
    return true;
}

bool rpi_duplex_arm(rpi_duplex *duplex) {
    uint64_t word;
    bool awaits_place = duplex->has_places;
    bool awaits_room = rpi_duplex_is_starved(duplex) || awaits_place;
    unsigned wish = RPI_WISH_CLOSING | (duplex->held.bytes == 0 ? RPI_WISH_FRAMES : 0U) |
                    (awaits_room ? RPI_WISH_ROOM : 0U);
    atomic_store(&duplex->mine->asleep, wish);
    if ((wish & RPI_WISH_FRAMES) && has_come(duplex, &word)) return true;
    if (awaits_place && frames_came_back(duplex)) return true;
    return room_has_come(duplex);
}

bool rpi_duplex_asks(const rpi_duplex *duplex) {
    return duplex->held.bytes > 0 || rpi_duplex_is_starved(duplex) || duplex->has_places;
}

void rpi_duplex_disarm(rpi_duplex *duplex) {
    atomic_store(&duplex->mine->asleep, 0);
}
