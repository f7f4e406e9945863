/* Requests of a store's clients, and clients that wait for a key. */
#include "net/store/store_serving.h"

#include "base/clock.h"
#include "net/bytes/endian.h"

#include <string.h>
#include <sys/epoll.h>

static rp_status answer_get(rpi_store_client *each, const void *value, size_t bytes) {
    return rpi_store_client_reply(each, RP_OK, 0, value, bytes);
}

rp_status rpi_store_answer_page(rp_store_server *server, rpi_store_client *each) {
    rpi_store_page *page = &each->page;
    page->have = 0;
    page->bytes = 0;
    (void)rpi_store_page_look(page, server->dictionary);
    if (page->have == 0)
        return rpi_store_client_refuse(each, RP_FAIL(TIMEOUT,
                                                     "timed out: store key '%s%u' was removed",
                                                     page->prefix, page->first));
    RP_TRY(rpi_store_client_reserve(each, RPI_STORE_HEADER_BYTES + page->bytes));
    rpi_store_page_write(page, server->dictionary, each->buffer + RPI_STORE_HEADER_BYTES);
    rpi_store_client_begin_reply(each, RP_OK, page->have, page->bytes);
    return RP_OK;
}

/* The key for which it waits is set; true if it was the last one of its page. */
static bool has_page(rp_store_server *server, rpi_store_client *each) {
    if (rpi_store_page_look(&each->page, server->dictionary)) return true;
    rpi_store_page_key(&each->page, each->page.have, each->key);
    return false;
}

/* Answer all clients that wait for this key. A client that cannot be answered is dropped when
 * its deadline is over or its connection ends. */
static void wake_waiters(rp_store_server *server, const char *key) {
    size_t bytes = 0;
    const void *value = rpi_dictionary_get(server->dictionary, key, &bytes);
    for (rpi_store_client *each = server->clients, *next = NULL; each; each = next) {
        next = each->next;
        if (each->state != RPI_STORE_CLIENT_WAITING || strcmp(each->key, key) != 0) continue;
        if (each->page.count && !has_page(server, each)) continue;
        rp_status status = each->page.count ? rpi_store_answer_page(server, each)
                                            : answer_get(each, value, bytes);
        if (status != RP_OK || rpi_store_client_flush(server, each) != RP_OK)
            rpi_store_client_drop(server, each);
    }
}

static void begin_wait(rp_store_server *server, rpi_store_client *each) {
    int64_t wait_ms = each->request.number;
    each->state = RPI_STORE_CLIENT_WAITING;
    each->deadline_ns = wait_ms < 0 || wait_ms > INT64_C(1000000000000)
                            ? RPI_NEVER_NS
                            : rpi_now_ns() + wait_ms * 1000000;
    if (each->deadline_ns < server->due_ns) server->due_ns = each->deadline_ns;
    rpi_store_client_watch(server, each,
                           EPOLLRDHUP); /* so that the death of a waiting client is noticed */
}

static rp_status start_get(rp_store_server *server, rpi_store_client *each) {
    size_t bytes = 0;
    const void *value = rpi_dictionary_get(server->dictionary, each->key, &bytes);
    if (value) return answer_get(each, value, bytes);
    begin_wait(server, each);
    return RP_OK;
}

static rp_status start_get_page(rp_store_server *server, rpi_store_client *each) {
    const unsigned char *which =
        each->buffer + RPI_STORE_HEADER_BYTES + each->request.key_bytes;
    if (each->request.value_bytes != 8)
        return rpi_store_client_refuse(
            each, RP_FAIL(INVALID, "a page is asked for by a number and a count"));
    uint32_t first = rpi_get_u32(which), count = rpi_get_u32(which + 4);
    rp_status status = rpi_store_page_check(each->key, first, count);
    if (status != RP_OK) return rpi_store_client_refuse(each, status);
    memcpy(each->prefix, each->key, sizeof each->prefix);
    each->page = (rpi_store_page){.prefix = each->prefix, .first = first, .count = count};
    if (has_page(server, each)) return rpi_store_answer_page(server, each);
    begin_wait(server, each);
    return RP_OK;
}

/* The request has both values: the length of the first, the first, the second. */
static rp_status compare_set(rp_store_server *server, rpi_store_client *each) {
    const unsigned char *value =
        each->buffer + RPI_STORE_HEADER_BYTES + each->request.key_bytes;
    size_t all = each->request.value_bytes, bytes = 0;
    size_t expected = all < 4 ? SIZE_MAX : rpi_get_u32(value);
    if (all < 4 || expected > all - 4)
        return rpi_store_client_refuse(
            each, RP_FAIL(INVALID, "a value to compare ends behind its request"));
    rp_status status =
        rpi_dictionary_compare_set(server->dictionary, each->key, value + 4, expected,
                                   value + 4 + expected, all - 4 - expected);
    if (status != RP_OK) return rpi_store_client_refuse(each, status);
    const void *now = rpi_dictionary_get(server->dictionary, each->key, &bytes);
    if (now) wake_waiters(server, each->key);
    return rpi_store_client_reply(each, RP_OK, 0, now, bytes);
}

rp_status rpi_store_serve_request(rp_store_server *server, rpi_store_client *each) {
    const unsigned char *key = each->buffer + RPI_STORE_HEADER_BYTES;
    memcpy(each->key, key, each->request.key_bytes);
    each->key[each->request.key_bytes] = '\0';
    each->page.count = 0;
    int64_t number = 0;
    rp_status status = rpi_store_check(each->key, 0);
    bool changed = false;
    if (status == RP_OK) switch (each->request.operation) {
        case RPI_STORE_SET:
            status =
                rpi_dictionary_set(server->dictionary, each->key, key + each->request.key_bytes,
                                   each->request.value_bytes);
            changed = true;
            break;
        case RPI_STORE_ADD:
            status = rpi_dictionary_add(server->dictionary, each->key, each->request.number,
                                        &number);
            changed = true;
            break;
        case RPI_STORE_REMOVE: rpi_dictionary_remove(server->dictionary, each->key); break;
        case RPI_STORE_GET: return start_get(server, each);
        case RPI_STORE_GET_PAGE: return start_get_page(server, each);
        case RPI_STORE_COMPARE_SET: return compare_set(server, each);
        default: return RP_FAIL(CORRUPT, "a store client sent a reply");
        }
    if (status != RP_OK) return rpi_store_client_refuse(each, status);
    if (changed) wake_waiters(server, each->key);
    return rpi_store_client_reply(each, RP_OK, number, NULL, 0);
}
