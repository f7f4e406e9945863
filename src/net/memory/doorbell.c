#include "net/memory/doorbell.h"

#include "base/event.h"
#include "net/memory/sealed_memory.h"

#include <sys/mman.h>
#include <unistd.h>

size_t rpi_doorbell_bytes(int world) {
    return sizeof(rpi_doorbell_page) +
           (size_t)rpi_rank_set_words(world) * sizeof(atomic_uint_fast64_t);
}

static rp_status open_page(rpi_doorbell *doorbell) {
    void *page = NULL;
    RP_TRY(rpi_sealed_make(doorbell->bytes, &doorbell->fd));
    RP_TRY(rpi_sealed_map(doorbell->fd, doorbell->bytes, PROT_READ | PROT_WRITE, &page));
    doorbell->page = page;
    return RP_OK;
}

rp_status rpi_doorbell_open(int world, rpi_doorbell *out_doorbell) {
    *out_doorbell = (rpi_doorbell){.bytes = rpi_doorbell_bytes(world), .fd = -1};
    rp_status status = rpi_rank_set_make(world, &out_doorbell->known);
    if (status == RP_OK) status = rpi_rank_set_make(world, &out_doorbell->links);
    if (status == RP_OK) status = open_page(out_doorbell);
    if (status != RP_OK) rpi_doorbell_close(out_doorbell);
    return status;
}

void rpi_doorbell_close(rpi_doorbell *doorbell) {
    if (doorbell->page) munmap(doorbell->page, doorbell->bytes);
    if (doorbell->fd >= 0) close(doorbell->fd);
    doorbell->page = NULL;
    doorbell->fd = -1;
    rpi_rank_set_free(&doorbell->known);
    rpi_rank_set_free(&doorbell->links);
}

void rpi_doorbell_admit(rpi_doorbell *doorbell, int rank) {
    rpi_rank_set_put(&doorbell->known, rank);
    rpi_rank_set_put(&doorbell->links, rank);
}

void rpi_doorbell_note(rpi_doorbell *doorbell, int rank) {
    rpi_rank_set_put(&doorbell->links, rank);
}

void rpi_doorbell_take(rpi_doorbell *doorbell) {
    for (int word = 0; word < doorbell->links.words; word++) {
        atomic_uint_fast64_t *rung = &doorbell->page->rung[word];
        /* Reading first takes the cache line away from no other core. */
        if (atomic_load(rung) == 0) continue;
        doorbell->links.bits[word] |= atomic_exchange(rung, 0) & doorbell->known.bits[word];
    }
}

void rpi_doorbell_arm(rpi_doorbell *doorbell) {
    atomic_store(&doorbell->page->asleep, 1);
    rpi_doorbell_take(doorbell);
}

void rpi_doorbell_disarm(rpi_doorbell *doorbell) {
    atomic_store(&doorbell->page->asleep, 0);
}

void rpi_doorbell_ring(rpi_doorbell_page *page, int rank, int wake_fd) {
    uint64_t bit = UINT64_C(1) << rank % 64;
    atomic_uint_fast64_t *rung = &page->rung[rank / 64];
    if (!(atomic_load(rung) & bit)) atomic_fetch_or(rung, bit);
    if (!atomic_load(&page->asleep) || !atomic_exchange(&page->asleep, 0)) return;
    rpi_event_set(wake_fd);
}
