#include "net/memory/buffers.h"

#include "base/memory.h"
#include "base/status.h"
#include "net/memory/sealed_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct pages {
    size_t first, end; /* bytes of a buffer */
} pages;

typedef struct buffer {
    uint64_t id;
    unsigned char *memory;
    size_t bytes; /* in pages */
    int fd;
    pages *detached; /* no part of the file any more */
    size_t detached_count;
    int users; /* ranges of elements of operations in flight */
} buffer;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static buffer *table;
static size_t table_count;
static uint64_t last_id;
static uint64_t
    parents_last; /* in a forked child: buffers up to this id belong to its parent */
static atomic_size_t count_of_all; /* so that a process without buffers finds out without the
                                    * lock */
static atomic_uint freed;

/* ---- under the lock ---- */

static bool is_parents(const buffer *one) {
    return one->id <= parents_last;
}

/* ours only: a parent's buffers are not mapped here, and other memory may be in their place. */
static buffer *find(const void *data, size_t bytes, bool ours) {
    uintptr_t at = (uintptr_t)data;
    for (size_t i = 0; i < table_count; i++) {
        uintptr_t from = (uintptr_t)table[i].memory;
        if (is_parents(&table[i]) == ours) continue;
        if (at < from || at - from > table[i].bytes) continue;
        if (bytes <= table[i].bytes - (at - from)) return &table[i];
    }
    return NULL;
}

static buffer *find_id(uint64_t id) {
    for (size_t i = 0; i < table_count; i++)
        if (table[i].id == id) return &table[i];
    return NULL;
}

static bool is_detached(const buffer *one, size_t offset, size_t bytes) {
    for (size_t i = 0; i < one->detached_count; i++)
        if (offset < one->detached[i].end && one->detached[i].first < offset + bytes)
            return true;
    return false;
}

static rp_status add(const buffer *one) {
    RP_TRY(rpi_grow_array(table_count, table_count + 1, sizeof *table, "buffers", &table));
    table[table_count++] = *one;
    atomic_store(&count_of_all, table_count);
    return RP_OK;
}

static void take_out(const buffer *one) {
    table[one - table] = table[--table_count];
    atomic_store(&count_of_all, table_count);
    atomic_fetch_add(&freed, 1);
    if (table_count) return;
    rpi_free(table);
    table = NULL;
}

/* ---- who uses what ---- */

bool rpi_buffers_find(const void *data, size_t bytes, rpi_buffer_place *out_place) {
    if (atomic_load(&count_of_all) == 0) return false;
    pthread_mutex_lock(&table_lock);
    const buffer *in = find(data, bytes, true);
    size_t offset = in ? (size_t)((const unsigned char *)data - in->memory) : 0;
    bool found = in && !is_detached(in, offset, bytes);
    if (found) *out_place = (rpi_buffer_place){in->id, in->bytes, offset};
    pthread_mutex_unlock(&table_lock);
    return found;
}

bool rpi_buffers_is_one(const void *memory) {
    bool is_one = false;
    if (atomic_load(&count_of_all) == 0) return false;
    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; i < table_count; i++) is_one |= table[i].memory == memory;
    pthread_mutex_unlock(&table_lock);
    return is_one;
}

/* Interrupted by a signal, it has taken some of the pages. */
static rp_status take_pages(int fd, size_t bytes) {
    int failed = 0;
    do failed = fallocate(fd, 0, 0, (off_t)bytes) != 0;
    while (failed && errno == EINTR);
    if (!failed) return RP_OK;
    return RP_FAIL_ERRNO(NOMEM, "no memory for a buffer of %zu bytes", bytes);
}

rp_status rpi_buffers_reserve(void *memory) {
    rp_status status = RP_OK;
    pthread_mutex_lock(&table_lock);
    const buffer *in = find(memory, 1, true);
    if (in && in->memory == memory)
        status = take_pages(in->fd, in->bytes);
    else
        status = RP_FAIL(INVALID, "%p is no buffer of rp_buffer_allocate()", memory);
    pthread_mutex_unlock(&table_lock);
    return status;
}

int rpi_buffers_descriptor(uint64_t id) {
    pthread_mutex_lock(&table_lock);
    const buffer *one = find_id(id);
    int fd = one ? fcntl(one->fd, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_unlock(&table_lock);
    return fd;
}

bool rpi_buffers_has(uint64_t id) {
    pthread_mutex_lock(&table_lock);
    bool has = find_id(id) != NULL;
    pthread_mutex_unlock(&table_lock);
    return has;
}

unsigned rpi_buffers_freed(void) {
    return atomic_load(&freed);
}

void rpi_buffers_use(const void *data, size_t bytes, int change) {
    if (!bytes || atomic_load(&count_of_all) == 0) return;
    pthread_mutex_lock(&table_lock);
    buffer *in = find(data, bytes, true);
    if (in && in->users + change >= 0) in->users += change;
    pthread_mutex_unlock(&table_lock);
}

/* ---- detaching ---- */

static rp_status replace_pages(unsigned char *old, size_t bytes) {
    unsigned char *copy =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return RP_FAIL_ERRNO(NOMEM, "cannot copy %zu bytes of a buffer", bytes);
    memcpy(copy, old, bytes);
    (void)madvise(copy, bytes, MADV_DONTFORK);
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, old) != MAP_FAILED)
        return RP_OK;
    rp_status status = RP_FAIL_ERRNO(NOMEM, "cannot replace %zu bytes of a buffer", bytes);
    munmap(copy, bytes);
    return status;
}

/* Pages that could not be replaced count as detached, too: nothing more may be written there.
 */
static rp_status detach(buffer *in, size_t offset, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t first = offset / page * page, end = (offset + bytes + page - 1) / page * page;
    RP_TRY(rpi_grow_array(in->detached_count, in->detached_count + 1, sizeof *in->detached,
                          "detached pages", &in->detached));
    in->detached[in->detached_count++] = (pages){first, end};
    return replace_pages(in->memory + first, end - first);
}

rp_status rpi_buffers_detach(void *data, size_t bytes) {
    rp_status status = RP_OK;
    pthread_mutex_lock(&table_lock);
    buffer *in = find(data, bytes, true);
    if (in && bytes) status = detach(in, (size_t)((unsigned char *)data - in->memory), bytes);
    pthread_mutex_unlock(&table_lock);
    return status;
}

/* ---- forked children ---- */

static void before_fork(void) {
    pthread_mutex_lock(&table_lock);
}

static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&table_lock);
}

static void after_fork_in_child(void) {
    parents_last = last_id;
    pthread_mutex_unlock(&table_lock);
}

static void watch_forks(void) {
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- public ---- */

static rp_status map_new(size_t bytes, buffer *out) {
    void *memory = NULL;
    *out = (buffer){.bytes = bytes, .fd = -1};
    RP_TRY(rpi_sealed_make(bytes, &out->fd));
    rp_status status = rpi_sealed_map(out->fd, bytes, PROT_READ | PROT_WRITE, &memory);
    if (status != RP_OK) {
        close(out->fd);
        return status;
    }
    out->memory = memory;
    /* A child's writes would be visible to the parent. */
    (void)madvise(memory, bytes, MADV_DONTFORK);
    return RP_OK;
}

/* Pages are freed at once, although peers may still have the file mapped. */
static void unmap(const buffer *one) {
    (void)fallocate(one->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)one->bytes);
    munmap(one->memory, one->bytes);
    close(one->fd);
    rpi_free(one->detached);
}

rp_status rp_buffer_allocate(size_t bytes, void **out_buffer) {
    if (!out_buffer) return RP_FAIL(INVALID, "buffer is NULL");
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0 || bytes > RPI_ELEMENTS_MAX)
        return RP_FAIL(INVALID, "a buffer of %zu bytes; 1 to %zu are allowed", bytes,
                       RPI_ELEMENTS_MAX);
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    buffer one;
    RP_TRY(map_new((bytes + page - 1) / page * page, &one));
    pthread_mutex_lock(&table_lock);
    one.id = ++last_id;
    rp_status status = add(&one);
    pthread_mutex_unlock(&table_lock);
    if (status != RP_OK) {
        unmap(&one);
        return status;
    }
    *out_buffer = one.memory;
    return RP_OK;
}

rp_status rp_buffer_free(void *memory) {
    if (!memory) return RP_OK;
    rp_status status = RP_OK;
    pthread_mutex_lock(&table_lock);
    const buffer *found = find(memory, 1, true), *parents = find(memory, 1, false);
    buffer one = found ? *found : (buffer){0};
    if (!found && parents && parents->memory == memory)
        one.memory = NULL;
    else if (one.memory != memory)
        status = RP_FAIL(INVALID, "%p is no buffer of rp_buffer_allocate()", memory);
    else if (one.users)
        status = RP_FAIL(STATE,
                         "the buffer at %p is used by an operation in flight: wait for "
                         "it first",
                         memory);
    else
        take_out(found);
    pthread_mutex_unlock(&table_lock);
    if (status == RP_OK && one.memory) unmap(&one);
    return status;
}
