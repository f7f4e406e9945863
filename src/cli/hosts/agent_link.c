#include "cli/hosts/agent_link.h"

#include "base/memory.h"
#include "net/bytes/endian.h"
#include "redpoll/version.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER_BYTES = 9, PIECE_BYTES = 1 << 16, ROOM_BYTES = 1 << 18 };

static const char greeting[] = "\nredpoll-agent ";

void rpi_agent_link_open(rpi_agent_link *link, int in, int out) {
    *link = (rpi_agent_link){.in = in, .out = out};
    (void)fcntl(in, F_SETFL, O_NONBLOCK);
    (void)fcntl(out, F_SETFL, O_NONBLOCK);
}

static void close_one(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void rpi_agent_link_close(rpi_agent_link *link) {
    close_one(&link->in);
    if (link->out != link->in) close_one(&link->out);
    rpi_free(link->received.text);
    rpi_free(link->sent.text);
    *link = (rpi_agent_link){.in = -1, .out = -1};
}

/* Room for this many more bytes after the end, and one for a NUL. */
static rp_status make_room(rpi_agent_buffer *buffer, size_t bytes) {
    if (buffer->begin > 0) {
        memmove(buffer->text, buffer->text + buffer->begin, buffer->end - buffer->begin);
        buffer->end -= buffer->begin;
        buffer->begin = 0;
    }
    size_t wanted = buffer->end + bytes + 1, capacity = buffer->capacity;
    if (wanted <= capacity) return RP_OK;
    while (capacity < wanted) capacity = capacity ? 2 * capacity : PIECE_BYTES;
    RP_TRY(rpi_grow_array(buffer->capacity, capacity, 1, "a link's buffer", &buffer->text));
    buffer->capacity = capacity;
    return RP_OK;
}

static void put(rpi_agent_buffer *buffer, const void *text, size_t bytes) {
    if (bytes) memcpy(buffer->text + buffer->end, text, bytes);
    buffer->end += bytes;
}

/* A socket whose other end is closed raises no signal. */
static ssize_t send_some(int fd, const char *text, size_t bytes) {
    ssize_t sent = send(fd, text, bytes, MSG_NOSIGNAL);
    return sent < 0 && errno == ENOTSOCK ? write(fd, text, bytes) : sent;
}

void rpi_agent_flush(rpi_agent_link *link) {
    rpi_agent_buffer *buffer = &link->sent;
    while (link->out >= 0 && buffer->begin < buffer->end) {
        ssize_t sent =
            send_some(link->out, buffer->text + buffer->begin, buffer->end - buffer->begin);
        if (sent >= 0)
            buffer->begin += (size_t)sent;
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR)
            close_one(&link->out); /* nobody reads any more */
    }
    if (link->out < 0) buffer->begin = buffer->end;
}

rp_status rpi_agent_send(rpi_agent_link *link, rpi_agent_word word, int rank, const char *text,
                         size_t bytes) {
    unsigned char header[HEADER_BYTES] = {(unsigned char)word};
    if (link->out < 0) return RP_OK;
    if (bytes > RPI_AGENT_FRAME_BYTES)
        return RP_FAIL(INVALID,
                       "arguments and variables of %zu bytes; %d are allowed when ranks "
                       "are started on other hosts",
                       bytes, RPI_AGENT_FRAME_BYTES);
    rpi_put_u32(header + 1, (uint32_t)rank);
    rpi_put_u32(header + 5, (uint32_t)bytes);
    RP_TRY(make_room(&link->sent, HEADER_BYTES + bytes));
    put(&link->sent, header, sizeof header);
    put(&link->sent, text, bytes);
    rpi_agent_flush(link);
    return RP_OK;
}

rp_status rpi_agent_greet(rpi_agent_link *link) {
    char line[128];
    int length =
        snprintf(line, sizeof line, "%s%d %s\n", greeting, RPI_AGENT_PROTOCOL, rp_version());
    RP_TRY(make_room(&link->sent, (size_t)length));
    put(&link->sent, line, (size_t)length);
    rpi_agent_flush(link);
    return RP_OK;
}

bool rpi_agent_has_room(const rpi_agent_link *link) {
    return link->sent.end - link->sent.begin < ROOM_BYTES;
}

void rpi_agent_poll(const rpi_agent_link *link, struct pollfd polls[2]) {
    bool waits = link->sent.begin < link->sent.end;
    polls[0] = (struct pollfd){.fd = link->in, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = waits ? link->out : -1, .events = POLLOUT};
}

rp_status rpi_agent_fill(rpi_agent_link *link) {
    rpi_agent_buffer *buffer = &link->received;
    RP_TRY(make_room(buffer, PIECE_BYTES));
    ssize_t got = -1;
    if (link->in >= 0) got = read(link->in, buffer->text + buffer->end, PIECE_BYTES);
    if (got > 0) buffer->end += (size_t)got;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) close_one(&link->in);
    return RP_OK;
}

rp_status rpi_agent_next(rpi_agent_link *link, rpi_agent_frame *out_frame, bool *out_found) {
    rpi_agent_buffer *buffer = &link->received;
    const char *text = buffer->text + buffer->begin;
    size_t left = buffer->end - buffer->begin;
    *out_found = false;
    if (left < HEADER_BYTES) return RP_OK;
    size_t bytes = rpi_get_u32(text + 5);
    if (bytes > RPI_AGENT_FRAME_BYTES || !strchr(RPI_AGENT_WORDS, text[0]) || !text[0])
        return RP_FAIL(CORRUPT, "what came over the remote shell is no word of an agent");
    if (left < HEADER_BYTES + bytes) return RP_OK;
    *out_frame = (rpi_agent_frame){.word = (rpi_agent_word)text[0],
                                   .rank = (int)rpi_get_u32(text + 1),
                                   .text = text + HEADER_BYTES,
                                   .bytes = bytes};
    buffer->begin += HEADER_BYTES + bytes;
    *out_found = true;
    return RP_OK;
}

/* The beginning of the greeting's line; NULL: it is not here. */
static const char *find_greeting(const char *text, const char *end) {
    size_t length = sizeof greeting - 1;
    for (; end - text >= (ptrdiff_t)length; text++)
        if (memcmp(text, greeting, length) == 0) return text;
    return NULL;
}

bool rpi_agent_take_greeting(rpi_agent_link *link, int *out_protocol, char *version,
                             size_t bytes) {
    rpi_agent_buffer *buffer = &link->received;
    const char *end = buffer->text + buffer->end;
    const char *line = buffer->text ? find_greeting(buffer->text + buffer->begin, end) : NULL;
    const char *stop = NULL;
    if (line) line += sizeof greeting - 1;
    if (line) stop = memchr(line, '\n', (size_t)(end - line));
    if (!stop) {
        /* Keep bytes that may be its beginning. */
        if (!line && buffer->end - buffer->begin > PIECE_BYTES)
            buffer->begin = buffer->end - sizeof greeting;
        return false;
    }
    char *next = NULL;
    *out_protocol = (int)strtol(line, &next, 10);
    while (*next == ' ') next++;
    snprintf(version, bytes, "%.*s", next < stop ? (int)(stop - next) : 0, next);
    buffer->begin = (size_t)(stop + 1 - buffer->text);
    return true;
}

/* ---- words ---- */

void rpi_agent_add(rpi_agent_words *words, const char *name, const char *value) {
    size_t name_bytes = strlen(name) + 1, value_bytes = strlen(value) + 1;
    size_t wanted = words->bytes + name_bytes + value_bytes, capacity = words->capacity;
    if (words->status != RP_OK) return;
    while (capacity < wanted) capacity = capacity ? 2 * capacity : 1024;
    if (capacity > words->capacity)
        words->status = rpi_grow_array(words->capacity, capacity, 1, "words", &words->text);
    if (words->status != RP_OK) return;
    words->capacity = capacity;
    memcpy(words->text + words->bytes, name, name_bytes);
    memcpy(words->text + words->bytes + name_bytes, value, value_bytes);
    words->bytes = wanted;
}

void rpi_agent_add_number(rpi_agent_words *words, const char *name, int64_t number) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, number);
    rpi_agent_add(words, name, text);
}

rp_status rpi_agent_send_words(rpi_agent_link *link, rpi_agent_word word,
                               rpi_agent_words *words) {
    rp_status status = words->status;
    if (status == RP_OK) status = rpi_agent_send(link, word, 0, words->text, words->bytes);
    rpi_free(words->text);
    *words = (rpi_agent_words){0};
    return status;
}

bool rpi_agent_next_pair(const char *text, size_t bytes, size_t *position, const char **name,
                         const char **value) {
    const char *at = text + *position, *end = text + bytes;
    const char *stop = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;
    const char *last = stop ? memchr(stop + 1, '\0', (size_t)(end - stop - 1)) : NULL;
    if (!last) return false;
    *name = at;
    *value = stop + 1;
    *position = (size_t)(last + 1 - text);
    return true;
}

const char *rpi_agent_value(const rpi_agent_frame *frame, const char *name) {
    const char *found = NULL, *value = NULL;
    for (size_t at = 0; rpi_agent_next_pair(frame->text, frame->bytes, &at, &found, &value);)
        if (strcmp(found, name) == 0) return value;
    return "";
}

/* ---- endings ---- */

void rpi_ending_write(const rpi_ending *e, char out[RPI_ENDING_BYTES]) {
    rpi_put_u32(out, (uint32_t)e->status);
    rpi_put_u32(out + 4, e->was_told);
    rpi_put_u32(out + 8, (uint32_t)e->generation);
    rpi_put_u32(out + 12, e->is_again);
}

void rpi_ending_read(const rpi_agent_frame *frame, rpi_ending *out_ending) {
    *out_ending = (rpi_ending){.rank = frame->rank,
                               .status = (int)rpi_get_u32(frame->text),
                               .was_told = rpi_get_u32(frame->text + 4) != 0,
                               .generation = (int)rpi_get_u32(frame->text + 8),
                               .is_again = rpi_get_u32(frame->text + 12) != 0};
}
