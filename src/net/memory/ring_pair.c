#include "net/memory/ring_pair.h"

#include "base/event.h"

enum { FRAMES = 4, AREA_BYTES_MIN = 256 * 1024 };
enum { BULK_FRAMES = 2, LONG_FRAME_BYTES = 4096 };

#define LAP_BIT     (UINT64_C(1) << 63)
#define REVOKED_BIT (UINT64_C(1) << 62)
#define PLACE_BIT   (UINT64_C(1) << 61)
#define OFFSET_MASK ((UINT64_C(1) << 29) - 1)

static size_t area_bytes(size_t frame_bytes) {
    size_t bytes = FRAMES * rpi_ring_round(frame_bytes);
    return bytes < AREA_BYTES_MIN ? AREA_BYTES_MIN : bytes;
}

size_t rpi_ring_pair_bytes(size_t frame_bytes) {
    return 2 * (sizeof(rpi_ring_pair_end) + area_bytes(frame_bytes));
}

void rpi_ring_pair_join(rpi_ring_pair *pair, void *memory, int side, size_t frame_bytes,
                        int wake_fd) {
    rpi_ring_pair_end *ends = memory;
    unsigned char *areas = (unsigned char *)(ends + 2);
    size_t area = area_bytes(frame_bytes);
    *pair = (rpi_ring_pair){.mine = &ends[side],
                            .theirs = &ends[!side],
                            .out = areas + (side ? area : 0),
                            .in = areas + (side ? 0 : area),
                            .frame_bytes = frame_bytes,
                            .wake_fd = wake_fd,
                            .sent = {.capacity = area}};
}

static uint64_t lap_of(uint32_t index) {
    return (index / RPI_RING_REGIONS) % 2 ? 0 : LAP_BIT;
}

void rpi_ring_pair_ring_at(rpi_ring_pair *pair, rpi_doorbell_page *doorbell, int rank) {
    pair->doorbell = doorbell;
    pair->rank = rank;
}

/* The other side sleeps and waits for this: one of possibly many wakers clears the flag and
 * makes the system call. Sequentially consistent with arm(): either it sees what we wrote, or
 * we see its flag. */
static void wake(rpi_ring_pair *pair, unsigned wish) {
    bool rings = pair->doorbell && wish == RPI_WISH_FRAMES;
    if (!rings && !(atomic_load(&pair->theirs->asleep) & wish)) return;
    if (!rings && atomic_exchange(&pair->theirs->asleep, 0) == 0) return;
    if (pair->doorbell) {
        rpi_doorbell_ring(pair->doorbell, pair->rank, pair->wake_fd);
        return;
    }
    rpi_event_set(pair->wake_fd);
}

void rpi_ring_pair_wake(rpi_ring_pair *pair) {
    wake(pair, RPI_WISH_CLOSING);
}

static rp_status take_back(rpi_ring_pair *pair) {
    uint32_t back = atomic_load(&pair->theirs->released) - pair->sent.first;
    if (back > pair->sent.count)
        return RP_FAIL(CORRUPT, "the peer gave back %u frames of %u", back, pair->sent.count);
    while (back-- > 0) rpi_ring_allocator_pop(&pair->sent);
    return RP_OK;
}

static bool is_out(const rpi_ring_pair *pair, uint32_t number) {
    return number - pair->sent.first < pair->sent.count;
}

rp_status rpi_ring_pair_reserve(rpi_ring_pair *pair, size_t bytes, void **out_region) {
    if (bytes == 0 || bytes > pair->frame_bytes)
        return RP_FAIL(INVALID, "a frame of %zu bytes; 1 to %zu are allowed", bytes,
                       pair->frame_bytes);
    if (pair->reserved.bytes < bytes) {
        rpi_ring_region reserved = {.bytes = bytes};
        RP_TRY(take_back(pair));
        pair->starved = !rpi_ring_allocator_fit(&pair->sent, bytes, &reserved.offset);
        if (pair->starved) return RP_PENDING;
        pair->reserved = reserved;
    }
    *out_region = pair->out + pair->reserved.offset;
    return RP_OK;
}

/* Frames that name a place are short, and do not block others by their payloads. */
static bool is_long_ahead(const rpi_ring_pair *pair) {
    int frames = 0;
    for (uint32_t i = 0; i < pair->sent.count && frames < BULK_FRAMES; i++) {
        uint32_t index = (pair->sent.first + i) % RPI_RING_REGIONS;
        frames += pair->sent.at[index].bytes >= LONG_FRAME_BYTES;
    }
    return frames == BULK_FRAMES;
}

rp_status rpi_ring_pair_reserve_bulk(rpi_ring_pair *pair, size_t bytes, void **out_region) {
    RP_TRY(take_back(pair));
    pair->bulk_starved = bytes >= LONG_FRAME_BYTES && is_long_ahead(pair);
    return pair->bulk_starved ? RP_PENDING : rpi_ring_pair_reserve(pair, bytes, out_region);
}

static rp_status commit(rpi_ring_pair *pair, size_t bytes, uint64_t bits) {
    if (bytes == 0 || bytes > pair->reserved.bytes)
        return RP_FAIL(STATE, "%zu bytes posted into a region of %zu", bytes,
                       pair->reserved.bytes);
    uint32_t index = pair->sent.first + pair->sent.count;
    uint64_t word = lap_of(index) | (uint64_t)(pair->reserved.offset / 64) << 32 | bytes | bits;
    rpi_ring_allocator_push(&pair->sent, pair->reserved.offset, bytes);
    pair->reserved.bytes = 0;
    atomic_store(&pair->mine->posted[index % RPI_RING_REGIONS], word);
    wake(pair, RPI_WISH_FRAMES);
    return RP_OK;
}

rp_status rpi_ring_pair_commit(rpi_ring_pair *pair, size_t bytes) {
    return commit(pair, bytes, 0);
}

rp_status rpi_ring_pair_commit_place(rpi_ring_pair *pair, size_t bytes, uint32_t *out_number) {
    RP_TRY(commit(pair, bytes, PLACE_BIT));
    pair->place = *out_number = pair->sent.first + pair->sent.count - 1;
    pair->has_places = true;
    return RP_OK;
}

rp_status rpi_ring_pair_is_completed(rpi_ring_pair *pair, uint32_t number) {
    if (is_out(pair, number)) RP_TRY(take_back(pair));
    return is_out(pair, number) ? RP_PENDING : RP_OK;
}

/* ThreadSanitizer knows no fences, and nothing of other processes. */
static void fence(void) {
#if !defined(__SANITIZE_THREAD__)
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* The bit is set before everything that the caller writes afterwards, and the other side looks
 * at it (is_valid()) after everything that it has read. So if the other side has read something
 * new it also sees the bit. */
rp_status rpi_ring_pair_revoke(rpi_ring_pair *pair, uint32_t number) {
    if (rpi_ring_pair_is_completed(pair, number) == RP_OK) return RP_OK;
    atomic_fetch_or(&pair->mine->posted[number % RPI_RING_REGIONS], REVOKED_BIT);
    fence();
    return rpi_ring_pair_is_writing_to(pair, number) ? RP_PENDING : RP_OK;
}

/* Only the oldest frame that is not released can be written to. */
bool rpi_ring_pair_is_writing_to(rpi_ring_pair *pair, uint32_t number) {
    return atomic_load(&pair->theirs->writing) &&
           rpi_ring_pair_is_completed(pair, number) == RP_PENDING && number == pair->sent.first;
}

/* Announced before it looks, as revoke() does: one of the two sees the other. */
bool rpi_ring_pair_begin_write(rpi_ring_pair *pair) {
    atomic_store(&pair->mine->writing, 1);
    if (rpi_ring_pair_is_valid(pair)) return true;
    rpi_ring_pair_end_write(pair);
    return false;
}

void rpi_ring_pair_end_write(rpi_ring_pair *pair) {
    atomic_store(&pair->mine->writing, 0);
}

bool rpi_ring_pair_is_valid(const rpi_ring_pair *pair) {
    fence();
    uint64_t word = atomic_load(&pair->theirs->posted[pair->next % RPI_RING_REGIONS]);
    return !(word & REVOKED_BIT);
}

void rpi_ring_pair_take_places(rpi_ring_pair *pair) {
    pair->takes_places = true;
    atomic_store(&pair->mine->takes_places, 1);
}

bool rpi_ring_pair_may_name_places(const rpi_ring_pair *pair) {
    return atomic_load(&pair->theirs->takes_places) == 1;
}

void rpi_ring_pair_note(rpi_ring_pair *pair, unsigned notes) {
    if (atomic_load_explicit(&pair->mine->notes, memory_order_relaxed) != notes)
        atomic_store(&pair->mine->notes, notes);
}

bool rpi_ring_pair_has_notes(rpi_ring_pair *pair) {
    unsigned notes = atomic_load(&pair->theirs->notes);
    bool some = notes != pair->heard;
    pair->heard = notes;
    return some;
}

static bool has_come(rpi_ring_pair *pair, uint64_t *out_word) {
    *out_word = atomic_load(&pair->theirs->posted[pair->next % RPI_RING_REGIONS]);
    return (*out_word & LAP_BIT) == lap_of(pair->next);
}

rp_status rpi_ring_pair_peek(rpi_ring_pair *pair, const void **out_frame, size_t *out_bytes) {
    uint64_t word;
    if (pair->held.bytes == 0) {
        if (!has_come(pair, &word)) return RP_PENDING;
        rpi_ring_region frame = {.offset = (size_t)(word >> 32 & OFFSET_MASK) * 64,
                                 .bytes = (size_t)(word & UINT32_MAX)};
        size_t area = pair->sent.capacity;
        if (frame.bytes == 0 || frame.bytes > pair->frame_bytes || frame.offset > area ||
            frame.bytes > area - frame.offset)
            return RP_FAIL(CORRUPT, "the peer posted %zu bytes at %zu of an area of %zu",
                           frame.bytes, frame.offset, area);
        pair->held_place = word & PLACE_BIT;
        if (pair->held_place && !pair->takes_places)
            return RP_FAIL(CORRUPT, "the peer posted no payload but its place");
        pair->held = frame;
    }
    *out_frame = pair->in + pair->held.offset;
    *out_bytes = pair->held.bytes;
    return RP_OK;
}

void rpi_ring_pair_release(rpi_ring_pair *pair) {
    if (pair->held.bytes == 0) return;
    pair->held.bytes = 0;
    pair->next++;
    atomic_store(&pair->mine->released, pair->next);
    wake(pair, RPI_WISH_ROOM);
}

/* Since we last slept, whichever call took them back: a caller that waits for a payload may
 * have asked before. Reported once. */
static bool frames_came_back(rpi_ring_pair *pair) {
    bool is_fault = take_back(pair) != RP_OK;
    bool moved = pair->sent.first != pair->seen_first;
    pair->seen_first = pair->sent.first;
    if (is_fault || !is_out(pair, pair->place)) pair->has_places = false;
    return is_fault || moved;
}

/* Reported once: a caller that waits for room asks for it again, or no longer waits. */
static bool room_has_come(rpi_ring_pair *pair) {
    if (!rpi_ring_pair_is_starved(pair)) return false;
    if (atomic_load(&pair->theirs->released) == pair->sent.first) return false;
    pair->starved = pair->bulk_starved = false;
    return true;
}

bool rpi_ring_pair_arm(rpi_ring_pair *pair) {
    uint64_t word;
    bool awaits_place = pair->has_places;
    bool awaits_room = rpi_ring_pair_is_starved(pair) || awaits_place;
    unsigned wish = RPI_WISH_CLOSING | (pair->held.bytes == 0 ? RPI_WISH_FRAMES : 0U) |
                    (awaits_room ? RPI_WISH_ROOM : 0U);
    atomic_store(&pair->mine->asleep, wish);
    if ((wish & RPI_WISH_FRAMES) && has_come(pair, &word)) return true;
    if (awaits_place && frames_came_back(pair)) return true;
    return room_has_come(pair);
}

bool rpi_ring_pair_asks(const rpi_ring_pair *pair) {
    return pair->held.bytes > 0 || rpi_ring_pair_is_starved(pair) || pair->has_places;
}

void rpi_ring_pair_disarm(rpi_ring_pair *pair) {
    atomic_store(&pair->mine->asleep, 0);
}
